package report

import (
	"encoding/json"
	"strings"
	"testing"

	"oomguard/monitor"
	"oomguard/monitor/oom"
)

// TestRedactText: what goes, and what must stay because it explains the crash.
func TestRedactText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`File "/home/alice/secret proj/train.py", line 12, in main`, `File "[path]/train.py", line 12, in main`},
		{`File "/data/acme/venv/lib/python3.11/site-packages/torch/optim/adamw.py", line 232, in step`,
			`File "[path]/site-packages/torch/optim/adamw.py", line 232, in step`},
		{`frame: /home/alice/secret proj/x.py:7 in step, pkg/y.py:3`, `frame: [path]/x.py:7 in step, pkg/y.py:3`},
		{`of binary: /opt/acme/conda/envs/llm/bin/python3.10`, `of binary: [path]/bin/python3.10`},
		{`saving to /mnt/nfs/acme-corp/run7 now`, `saving to [path] now`},
		{`cannot open ~/keys/a.json`, `cannot open [path]/a.json`},
		{`--output_dir=/scratch/x/y.ckpt --lr=1e-4`, `--output_dir=[path]/y.ckpt --lr=1e-4`},
		{`C:\Users\bob\proj\train.py:3`, `[path]/train.py:3`},
		{`/dev/shm is full, see /proc/meminfo`, `/dev/shm is full, see /proc/meminfo`},
		{`models/tiny_llama 1/2 a/b tokens/s 3.4GiB/79.10GiB`, `models/tiny_llama 1/2 a/b tokens/s 3.4GiB/79.10GiB`},
		{`mail ops@acme-corp.example.com or me+x@uni.edu`, `mail [email] or [email]`},
		{`master 10.12.0.7:29500, loopback 127.0.0.1`, `master [ip]:29500, loopback 127.0.0.1`},
		{`[fe80::1ff:fe23:4567:890a] at 20:57:27.620000 in c10::cuda::alloc`,
			`[[ip]] at 20:57:27.620000 in c10::cuda::alloc`},
		{`nvidia-cublas-cu12==12.4.5.8 libcudnn.so.9.1.0.70 torch 2.6.0`,
			`nvidia-cublas-cu12==12.4.5.8 libcudnn.so.9.1.0.70 torch 2.6.0`},
		{`pull https://bob:pw@git.acme.io/x.git`, `pull [url]`},
		{`See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html)`,
			`See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html)`},
		{`WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567`, `WANDB_API_KEY=[redacted]`},
		{`token hf_abcdefghijklmnopqrstuv ok`, `token [redacted] ok`},
		{`Authorization: Bearer abc.def-ghi_jkl123`, `Authorization: [redacted]`},
		{`GPU-5c1c3b2e-2f0e-4a7c-9b1a-001122334455 has 79.10 GiB`, `[id] has 79.10 GiB`},
		{`ip-10-0-3-17.ec2.internal exited`, `[host] exited`},
		{`torch.distributed.run train.local_rank pad_token=<pad> max_tokens=4096`,
			`torch.distributed.run train.local_rank pad_token=<pad> max_tokens=4096`},
		{`ssh bob@gpu7 and \\\\nas01\\team\\bob\\run.log`, `ssh [user]@[host] and [path]/run.log`},
		{`wandb: Currently logged in as: bobby (acme-team)`, `wandb: Currently logged in as: [user] (acme-team)`},
		{`SLURM_JOB_USER=bobby SUDO_USER=carla1 of bobby and carla1`,
			`SLURM_JOB_USER=[user] SUDO_USER=[user] of [user] and [user]`},
		{`node07.cs.tu-muenchen.de, gpu1.ed.ac.uk, login.hpc.cineca.it, lab.co.jp, acme.ch up`,
			`[host], [host], [host], [host], [host] up`},
		{`torch.nn.init.no_grad model.to x.at layers.0.se.weight skimage.io.imread self.model.id data.csv train.sh 1.2.0`, `torch.nn.init.no_grad model.to x.at layers.0.se.weight skimage.io.imread self.model.id data.csv train.sh 1.2.0`},
		{`role arn:aws:iam::123456789012:role/acme-train, arn:aws-cn:s3:::acme-data/x`, `role [id], [id]`},
		{`No such file or directory: '/mnt/acme data/raw set/x y.bin'`, `No such file or directory: '[path]/x y.bin'`},
		{`reading /mnt/acme data/raw/my set.jsonl now, from /a/b to /c/d.json`,
			`reading [path]/my set.jsonl now, from [path] to [path]/d.json`},
		{`ERROR [engine.py:160] failed in engine.py`, `ERROR [engine.py:160] failed in engine.py`},
		{`~bobby/x and bobby`, `[path] and [user]`},
		{`TOKEN=abc123 aws_session_token=zzz --password x1 --hub_token 'a b'`,
			`TOKEN=[redacted] aws_session_token=[redacted] --password [redacted] --hub_token '[redacted]'`},
		{`github_pat_11ABCDEFG0abcdefghijkl ASIAIOSFODNN7EXAMPLE AIzaSyA1234567890abcdefghijklmnopqrstuv`,
			`[redacted] [redacted] [redacted]`},
		{full79, full79},
	} {
		if got := newRedactor(nil, nil, c.text).Text(c.text); got != c.want {
			t.Errorf("%q\ngot  %q\nwant %q", c.text, got, c.want)
		}
	}
}

const full79 = "CUDA out of memory. Tried to allocate 132.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which " +
	"98.00 MiB is free. Process 4242 has 40.00 GiB memory in use."

// TestRedactKnowsNames: a host or user that one line gives away is taken out of all others.
func TestRedactKnowsNames(t *testing.T) {
	text := "  host      : gpunode17.cluster.acme\nsrun: error: dgx-03: task 3: Killed\n[dgx-03:1234] " +
		"mpi\n/home/alice/x.py\nalice started rank 3 on gpunode17; USER=alice root@localhost torch user\n"
	got := newRedactor([]string{"Login9"}, nil, text).Text(text + "Login9 and dgx-03\n")
	for _, gone := range []string{"gpunode17", "dgx-03", "alice", "Login9", "acme"} {
		if strings.Contains(got, gone) {
			t.Errorf("%q is still there:\n%s", gone, got)
		}
	}
	for _, stays := range []string{"rank 3", "task 3: Killed", ":1234] mpi", "torch user"} {
		if !strings.Contains(got, stays) {
			t.Errorf("%q is gone:\n%s", stays, got)
		}
	}
}

// TestRedactEveryFormat: nothing of a run's owner is in any format, the numbers are in all, and JSON stays JSON.
func TestRedactEveryFormat(t *testing.T) {
	run := aDeath()
	run.Host, run.Dir, run.WorkDir = "gpunode17", "/home/alice/runs/1", "/home/alice"
	run.Command = []string{"torchrun", "/home/alice/train.py", "--hub_token", "hf_abcdefghijklmnopqrstuv"}
	run.Missing = append(run.Missing, "node gpunode17: no driver for alice@acme.example.com")
	run.Postmortem.Evidence = append(run.Postmortem.Evidence, `File "/home/alice/train.py", line 3`)
	run.Recording.Devices[0].Others = nil
	d, err := Redact(run, []string{"gpunode17"}, []string{"alice"})
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range Formats() {
		got := write(t, format, d, Style{})
		for _, gone := range []string{"alice", "gpunode17", "hf_abc", "acme"} {
			if strings.Contains(got, gone) {
				t.Errorf("%s: %q is still there", format, gone)
			}
		}
		if !strings.Contains(got, "headroom") {
			t.Errorf("%s: the content is gone", format)
		}
	}
	var back Run
	if err := json.Unmarshal([]byte(write(t, "json", d, Style{})), &back); err != nil {
		t.Fatal(err)
	}
	if back.Postmortem.OOMs[0].TriedBytes != 2*gib || back.Schema != RunSchema ||
		back.Postmortem.Cause != oom.Capacity {
		t.Errorf("numbers or names changed: %+v", back.Postmortem)
	}
}

func TestRedactedIsStable(t *testing.T) {
	if got := newRedactor(nil, nil).Text(monitor.Redacted + " [path]/x.py"); got != monitor.Redacted+" [path]/x.py" {
		t.Errorf("%q", got)
	}
}

// FuzzRedact: any text is taken, and what was redacted once is not redacted again.
func FuzzRedact(f *testing.F) {
	for _, s := range []string{"/home/a/b.py", "a@b.co", "::1 fe80::1%eth0", `C:\Users\x\y`, "://", "~", "GPU-",
		"host: x", "\xff/\xfe"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		once := newRedactor(nil, nil, s).Text(s)
		if len(once) > 20*len(s)+20 {
			t.Errorf("grew from %d to %d", len(s), len(once))
		}
	})
}
