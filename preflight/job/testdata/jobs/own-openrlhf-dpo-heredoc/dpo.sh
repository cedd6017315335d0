set -x
read -r -d '' training_commands <<EOF
openrlhf.cli.train_dpo \
   --ckpt.output_dir ./out \
   --train.batch_size 256 \
   --train.micro_batch_size 1 \
   --model.model_name_or_path meta-llama/Meta-Llama-3-8B-Instruct \
   --ds.param_dtype bf16 \
   --data.max_len 8192 \
   --ds.zero_stage 3 \
   --model.beta 0.1 \
   --ds.attn_implementation flash_attention_2 \
   --ds.packing_samples \
   --model.gradient_checkpointing_enable
EOF
if [[ ${1} != "slurm" ]]; then
    deepspeed --module $training_commands
fi
