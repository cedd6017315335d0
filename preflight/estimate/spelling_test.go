package estimate

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"oomguard/preflight/job"
)

// One job has one estimate, however its settings are spelt: each group is one job, and another than its first line's.
func TestOneJobOneEstimate(t *testing.T) {
	const pretrain = "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 " +
		"--num-attention-heads 32 --micro-batch-size 1 " +
		"--global-batch-size 16 --seq-length 2048 --max-position-embeddings 2048 --vocab-size 32000 --bf16 " +
		"--use-distributed-optimizer " +
		"--pipeline-model-parallel-size 4 "
	const trainer = "torchrun --nproc-per-node 1 run_clm.py --output_dir o --model_name_or_path " +
		"meta-llama/Llama-3.2-1B --bf16 --optim galore_adamw "
	const yaml = "model_name_or_path: meta-llama/Llama-3.2-1B\noutput_dir: o\nbf16: true\noptim: galore_adamw\n"
	const loop = "import torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\nfrom transformers " +
		"import AutoModelForCausalLM\n" +
		"model = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.2-1B')\noptimizer = " +
		"torch.optim.AdamW(model.parameters())\n"
	files := map[string]string{
		"rank.yaml": yaml + "optim_args: rank=1024\n", "plain.yaml": yaml,
		"plain.py": loop + "model = DDP(model)\n",
		"view.py":  loop + "model = DDP(model, gradient_as_bucket_view=True)\n",
	}
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stages := func(command string) []byte {
		j := job.Read(job.Sources{Argv: strings.Fields(command), Dir: dir, GPUs: 8,
			Versions: map[string]string{"transformers": "4.51.3", "torch": "2.6.0"}})
		e := run(t, Input{Job: j, Hardware: Hardware{Kind: "cuda", TotalBytes: 80 << 30, Count: 8, ContextBytes: -1,
			NCCLBytes: -1}, Options: DefaultOptions()})
		text, err := json.Marshal(e.Stages)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for name, group := range map[string]struct {
		other string
		same  []string
	}{
		"virtual pipeline stages": {pretrain, []string{pretrain + "--num-layers-per-virtual-pipeline-stage 2",
			pretrain + "--num-layers-per-virtual-pipeline-stage=2",
			pretrain + "--num-virtual-stages-per-pipeline-rank=4"}},
		"rank of projected gradients": {trainer,
			[]string{trainer + "--optim_args rank=1024", trainer + "--optim_args=rank=1024",
				"torchrun --nproc-per-node 1 run_clm.py rank.yaml"}},
		"views of buckets": {"torchrun --nproc-per-node 2 plain.py", []string{"torchrun --nproc-per-node 2 view.py"}},
		"a word that means nothing": {"torchrun --nproc-per-node 2 view.py",
			[]string{"torchrun --nproc-per-node 2 plain.py",
				"torchrun --nproc-per-node 2 plain.py gradient_as_bucket_view=True",
				"torchrun --nproc-per-node 2 plain.py FULL_STATE_DICT optimizer_in_bwd=True"}},
	} {
		want := stages(group.same[0])
		if bytes.Equal(want, stages(group.other)) {
			t.Errorf("%s: %q and %q are the same", name, group.same[0], group.other)
		}
		for _, command := range group.same[1:] {
			if got := stages(command); !bytes.Equal(got, want) {
				t.Errorf("%s: %q and %q differ:\n%s\n%s", name, group.same[0], command, want, got)
			}
		}
	}
}
