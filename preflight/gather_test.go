package preflight

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"oomguard/preflight/job"
)

func TestGather(t *testing.T) {
	root := tree(t, machine(nil))
	dir := tree(t, map[string]string{"src/train.py": "print()\n"})
	j := &job.Job{Argv: []string{"torchrun", "src/train.py"}, Script: set("src/train.py")}
	lookPath := func(name string) (string, error) { return "/bin/" + name, nil }
	f := Gather(Facts{Job: j, HeadroomPercent: 12}, Sources{
		Root: root, Dir: dir, LookPath: lookPath, RunFolder: filepath.Join(dir, "new", "runs"),
		Environ: []string{"HOME=/home/user", "CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1",
			"PYTORCH_CUDA_ALLOC_CONF=expandeable_segments:True", "HF_TOKEN=secret", "broken"},
	})
	if f.HeadroomPercent != 12 || f.Job != j {
		t.Error("what the caller knew is gone")
	}
	if f.Host.MemTotalBytes == 0 || f.HostErr != nil {
		t.Errorf("host %+v, %v", f.Host, f.HostErr)
	}
	if f.Alloc.Variable != "PYTORCH_CUDA_ALLOC_CONF" || len(f.AllocProblems) == 0 {
		t.Errorf("allocator %+v, %+v", f.Alloc, f.AllocProblems)
	}
	if len(f.Env) != 2 || f.Env["CUDA_VISIBLE_DEVICES"] != "1" {
		t.Errorf("environment %v", f.Env)
	}
	if f.Command != (Lookup{Name: "torchrun", Path: "/bin/torchrun"}) {
		t.Errorf("command %+v", f.Command)
	}
	if f.Script.Err != nil || f.Script.Path != filepath.Join(dir, "src/train.py") {
		t.Errorf("script %+v", f.Script)
	}
	if f.RunFolder.Err != nil || f.RunFolder.FreeBytes == 0 {
		t.Errorf("run folder %+v", f.RunFolder)
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); !errors.Is(err, os.ErrNotExist) {
		t.Error("gathering made a folder")
	}
}

func TestGatherWithoutJob(t *testing.T) {
	f := Gather(Facts{}, Sources{Root: tree(t, machine(nil))})
	if f.Command != (Lookup{}) || f.Script != (Lookup{}) || f.RunFolder != (Folder{}) {
		t.Errorf("%+v", f)
	}
}

func TestFindScript(t *testing.T) {
	dir := tree(t, map[string]string{"a.py": "", "pkg/__main__.py": "", "plain/x.py": ""})
	tests := []struct {
		script string
		looked bool
		err    string
	}{
		{"a.py", true, ""},
		{filepath.Join(dir, "a.py"), true, ""},
		{"pkg", true, ""},
		{"./plain", true, "directory without __main__.py"},
		{"plain", false, ""},
		{"full_finetune_distributed", false, ""},
		{"none.py", true, "no such file"},
		{"a.py/b.py", true, "not a directory"},
		{"-m pkg.train", false, ""},
		{"", false, ""},
	}
	for _, tt := range tests {
		l := findScript(tt.script, dir)
		if (l.Name != "") != tt.looked || (l.Err == nil) != (tt.err == "") ||
			(l.Err != nil && !strings.Contains(l.Err.Error(), tt.err)) {
			t.Errorf("%q: %+v", tt.script, l)
		}
	}
}

func TestInspectFolder(t *testing.T) {
	dir := tree(t, map[string]string{"file": "", "open/x": ""})
	if f := inspectFolder(filepath.Join(dir, "open")); f.Err != nil {
		t.Errorf("an existing folder: %v", f.Err)
	}
	for _, path := range []string{"file", "file/below"} {
		if f := inspectFolder(filepath.Join(dir, path)); f.Err == nil {
			t.Errorf("%s is accepted", path)
		}
	}
	if f := inspectFolder("oomguard-runs-that-are-not-there"); f.Err != nil {
		t.Errorf("a relative path: %v", f.Err)
	}
	if f := inspectFolder("/proc/none"); f.Err == nil {
		t.Error("/proc is accepted, where nothing can be made")
	}
}

func TestAllowedEnv(t *testing.T) {
	env := AllowedEnv([]string{"AWS_SECRET_ACCESS_KEY=x", "PET_NPROC_PER_NODE=2", "CUDA_VISIBLE_DEVICE=0",
		"cuda_visible_devices=1", "PET_RDZV_CONF=x", "=", ""})
	if len(env) != 3 || env["PET_NPROC_PER_NODE"] != "2" || env["CUDA_VISIBLE_DEVICE"] != "0" ||
		env["cuda_visible_devices"] != "1" {
		t.Errorf("%v", env)
	}
}

func TestFormat(t *testing.T) {
	tests := []struct {
		n       int64
		iec, si string
	}{
		{0, "0.00 MiB", "0.00 MB"},
		{64 << 20, "64.00 MiB", "67.11 MB"},
		{1 << 30, "1.00 GiB", "1.07 GB"},
		{80 * gib, "80.00 GiB", "85.90 GB"},
		{-20 * gib, "-20.00 GiB", "-21.47 GB"},
		{-(5 << 20), "-5.00 MiB", "-5.24 MB"},
	}
	for _, tt := range tests {
		if iec, si := Units("").format(tt.n), SI.format(tt.n); iec != tt.iec || si != tt.si {
			t.Errorf("%d: %s, %s; want %s, %s", tt.n, iec, si, tt.iec, tt.si)
		}
	}
}

func TestJobKey(t *testing.T) {
	base := healthy().Job
	if JobKey(base) != JobKey(healthy().Job) || RemedyKey(base) != RemedyKey(healthy().Job) || len(JobKey(base)) != 16 {
		t.Error("keys differ for equal jobs")
	}
	if JobKey(nil) != "" || RemedyKey(nil) != "" {
		t.Error("a key for no job")
	}
	tests := []struct {
		name               string
		change             func(*job.Job)
		sameJob, sameMeans bool
	}{
		{"origin", func(j *job.Job) { j.Model.Origin = "elsewhere" }, true, true},
		{"value of an unknown setting",
			func(j *job.Job) { j.Quant = job.Setting[*job.Quant]{Value: &job.Quant{Bits: 4}} }, true, true},
		{"script arguments", func(j *job.Job) { j.ScriptArgs = []string{"--lr", "2"} }, true, true},
		{"batch", func(j *job.Job) { j.MicroBatch = set(9) }, false, true},
		{"sequence", func(j *job.Job) { j.SeqLen = set(9) }, false, true},
		{"model", func(j *job.Job) { j.Model = set("gpt3") }, false, true},
		{"script", func(j *job.Job) { j.Script = set("x.py") }, false, true},
		{"processes", func(j *job.Job) { j.WorldSize = set(16) }, false, true},
		{"optimizer", func(j *job.Job) { j.Optimizer = set("sgd") }, false, false},
		{"LoRA rank", func(j *job.Job) { j.LoRA = set(&job.LoRA{R: 8}) }, false, false},
		{"sharding", func(j *job.Job) { j.Sharding = set("zero3") }, false, false},
		{"precision", func(j *job.Job) { j.Precision = set("fp32") }, false, false},
		{"precision unknown", func(j *job.Job) { j.ParamDtype.Known = false }, false, false},
	}
	for _, tt := range tests {
		j := healthy().Job
		tt.change(j)
		if (JobKey(j) == JobKey(base)) != tt.sameJob || (RemedyKey(j) == RemedyKey(base)) != tt.sameMeans {
			t.Errorf("%s: same job %v, same means %v", tt.name, JobKey(j) == JobKey(base),
				RemedyKey(j) == RemedyKey(base))
		}
	}
}

func FuzzVisible(f *testing.F) {
	for _, seed := range []string{"", "0", "0,1", "1,1", "-1", "GPU-00,GPU-11", "MIG-x", "0, 1", ",",
		"9999999999999999999", "\xff"} {
		f.Add(seed)
	}
	devices := healthy().Devices
	f.Fuzz(func(t *testing.T, value string) {
		env := map[string]string{"CUDA_VISIBLE_DEVICES": value}
		v := visible(env, devices)
		if len(v.devices) != v.names || v.names > len(devices) {
			t.Errorf("%q: %d devices, %d names", value, len(v.devices), v.names)
		}
		if v.names == 0 && len(v.faults) == 0 {
			t.Errorf("%q hides every GPU and nothing says so", value)
		}
		if form := visible(env, nil); form.names == 0 && len(form.faults) == 0 {
			t.Errorf("%q hides every GPU of an unknown machine and nothing says so", value)
		}
	})
}

// TestSummaries: a summary is read as it was written, also one of the time when its names were those of Go.
func TestSummaries(t *testing.T) {
	want := Earlier{Run: "r1", JobKey: "j", RemedyKey: "k", Model: "m", Measured: true, PeakBytes: 7,
		Bottleneck: "logits", Outcome: OutcomeOK, Small: true, Tokens: 9}
	for name, text := range map[string]string{
		"new": `{"schema":"oomguard.summary/v1","run":"r1","job_key":"j","remedy_key":"k","model":"m","measured":true,"peak_bytes":7,"bottleneck":"logits","outcome":"ok","small":true,"tokens":9}`,
		"old": `{"Run":"r1","JobKey":"j","RemedyKey":"k","Model":"m","Measured":true,"PeakBytes":7,"Bottleneck":"logits","Outcome":"ok","Small":true,"Tokens":9}`,
	} {
		var got Earlier
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		got.Schema = ""
		if got != want {
			t.Errorf("%s: %+v", name, got)
		}
		again, err := json.Marshal(got)
		if err != nil || strings.Contains(string(again), "JobKey") {
			t.Errorf("%s, %v", again, err)
		}
	}
	var e Earlier
	if err := json.Unmarshal([]byte(`{"run": 7}`), &e); err == nil {
		t.Error("a number is taken for a name")
	}
}
