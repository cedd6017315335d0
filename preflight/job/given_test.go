package job

import "testing"

// "Not given" is said of nothing that stands on the command line.
func TestGivenAndNotUnderstood(t *testing.T) {
	for _, row := range []struct {
		command string
		want    map[string]string
	}{
		{"torchrun train.py -b 64 --amp --opt=lamb --model resnet50", map[string]string{
			"micro_batch": "unknown: given as -b 64 and not understood: train.py is not a program that oomguard " +
				"knows; give --micro-batch",
			"precision":  "unknown: given as --amp and not understood",
			"optimizer":  "unknown: given as --opt=lamb and not understood",
			"model":      "unknown: given as --model resnet50 and not understood",
			"grad_accum": "unknown: train.py is not a program that oomguard knows; give --grad-accum"}},
		{"python main.py model.train_ds.batch_size=16 trainer.precision=bf16 model.optim.name=adamw", map[string]string{
			"micro_batch": "unknown: given as model.train_ds.batch_size=16 and not understood",
			"precision":   "unknown: given as trainer.precision=bf16 and not understood"}},
		{"accelerate launch --num_processes 2 --multi_gpu train_lora.py --gradient_checkpointing --lora_dim 8 " +
			"--resolution 512 --cpu_offload", map[string]string{
			"checkpointing":      "unknown: given as --gradient_checkpointing and not understood",
			"method":             "unknown: given as --lora_dim 8 and not understood",
			"seq_len":            "unknown: given as --resolution 512 and not understood",
			"activation_offload": "unknown: given as --cpu_offload and not understood"}},
		{"swift sft --lora_rank 9", map[string]string{"lora": "unknown: swift is not read yet"}},
		{"torchrun train.py --seed 1 --bias 2 --bits-per-byte",
			map[string]string{"micro_batch": "unknown: train.py is not", "sharding": "unknown: train.py is not"}},
		{"torchrun train.py --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --model_name_or_path " +
			"gpt2 --bf16", map[string]string{
			"micro_batch": "4 @ command line --per_device_train_batch_size (read by name, not by this program's rules)",
			"grad_accum":  "2 @ (read by name",
			"model":       "gpt2 @ (read by name", "precision": "unknown: given as --bf16 and not understood"}},
	} {
		checkSettings(t, scriptJob(t, nil, 2, "torch=2.6.0", row.command), row.want)
	}
}
