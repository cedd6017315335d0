package job

import (
	"strings"
	"testing"
)

// titanRegistryText has the shapes of torchtitan's own registries of the spring of 2026
// (torchtitan/models/llama3/config_registry.py).
const titanRegistryText = `from torchtitan.components.optimizer import OptimizersContainer, OptimizersInBackwardContainer
from torchtitan.components.lora import LoRAConverter
from torchtitan.components.quantization import MXFP8LinearConverter
from torchtitan.components.quantization.float8 import Float8LinearConverter
from torchtitan.config import ActivationCheckpointConfig, ParallelismConfig, TrainingConfig
from torchtitan.models.llama3 import model_registry
from torchtitan.protocols.model_converter import ModelConvertersContainer
from torchtitan.trainer import Trainer


def base() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("8B"),
        optimizer=OptimizersContainer.Config(lr=3e-4),
        training=TrainingConfig(local_batch_size=2, seq_len=4096, steps=10),
        parallelism=ParallelismConfig(tensor_parallel_degree=2),
        activation_checkpoint=ActivationCheckpointConfig(mode="full"),
    )


def float8():
    config = base()
    config.model_converters = ModelConvertersContainer.Config(converters=[Float8LinearConverter.Config()])
    config.training.seq_len = 2 * 4096
    return config


def narrow():
    config = base()
    config.model_spec = model_registry("8B", attn_backend="varlen", converters=[MXFP8LinearConverter.Config(), LoRAConverter.Config(rank=8)])
    return config


def in_backward():
    config = base()
    config.optimizer = OptimizersInBackwardContainer.Config(lr=8e-4, implementation="foreach")
    config.activation_checkpoint = None
    return config


def hidden():
    config = base()
    config.training.local_batch_size = pick()
    return config


def loops():
    return loops()
`

func TestTitanRegistry(t *testing.T) {
	for _, row := range []struct {
		words string
		want  map[string]string
		fails string
	}{
		{"--config base", map[string]string{"framework": "torchtitan", "model": `{"family":"llama3","flavor":"8B"}`,
			"model_params": "8030261248", "micro_batch": "2 @ exp/config_registry.py:15", "seq_len": "4096", "tp": "2",
			"checkpointing": "full", "sharding": "fsdp-full", "optimizer": "adamw_fused", "grad_accum": "1",
			"precision": "bf16", "fused_loss": "none"}, ""},
		// since the summer of 2026
		{"--config narrow", map[string]string{"precision": "fp8",
			"attention": "flash_attention_2 @ exp/config_registry.py", "method": "unknown", "micro_batch": "2"}, ""},
		{"--config=base --training.local_batch_size 4 --training.global_batch_size 32 " +
			"--parallelism.tensor-parallel-degree=1",
			// 32 / (4 x 4 ranks)
			map[string]string{"micro_batch": "4 @ command line", "grad_accum": "2", "tp": "1"}, ""},
		{"--config float8", map[string]string{"precision": "fp8", "seq_len": "8192 @ exp/config_registry.py:24"}, ""},
		{"--config in_backward", map[string]string{"optimizer_in_backward": "true", "optimizer": "adamw",
			"checkpointing": "none"}, ""},
		{"--config hidden", map[string]string{"micro_batch": "unknown: exp/config_registry.py:43", "seq_len": "4096"},
			""},
		{"--config loops", nil, ""},
		{"--config nothere", map[string]string{"micro_batch": "unknown: has no function nothere"},
			"Config function 'nothere' not found"},
	} {
		t.Run(row.words, func(t *testing.T) {
			files := map[string]string{"exp/config_registry.py": titanRegistryText}
			j := scriptJob(t, files, 4, "torch=2.12.0",
				"torchrun --nproc_per_node=4 -m torchtitan.train --module exp "+row.words)
			if got := j.WillFail.Value; !strings.Contains(got, row.fails) || row.fails == "" && got != "" {
				t.Errorf("will_fail %q, want %q", got, row.fails)
			}
			checkSettings(t, j, row.want)
		})
	}
	j := scriptJob(t, nil, 4, "", "torchrun --nproc_per_node=4 -m torchtitan.train --module absent --config x")
	checkSettings(t, j, map[string]string{"micro_batch": "unknown: the configurations of --module absent are not on " +
		"this machine"})
}

func FuzzScriptText(f *testing.F) {
	f.Add(trainScript, "python train.py --bs 4")
	f.Add(unslothScript, "python train.py")
	f.Add(titanRegistryText, "torchrun -m torchtitan.train --module train --config float8 --training.steps 3")
	f.Add("import torch\nclass C:\n  batch_size = 4\nopt = torch.optim.SGD(p, momentum=0.9)\nfully_shard(m)\n",
		"torchrun --nproc-per-node 2 train.py")
	f.Add("from lightning import Trainer\nTrainer(devices=2, precision='bf16-mixed')\n", "python train.py")
	f.Fuzz(func(t *testing.T, script, command string) {
		if strings.Contains(command, "..") || strings.Contains(command, "/") || len(script) > 1<<16 {
			return // the fuzzer must not leave the folder
		}
		j := scriptJob(t, map[string]string{"train.py": script}, 2, versions2025, command)
		for _, n := range j.Settings() {
			if n.Origin == "" {
				t.Errorf("%s has no origin", n.Key)
			}
		}
	})
}
