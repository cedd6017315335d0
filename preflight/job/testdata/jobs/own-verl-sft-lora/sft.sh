set -x
if [ "$#" -lt 2 ]; then
    echo "usage: sft.sh GPUS FOLDER [settings]"
    exit 1
fi
gpus=$1
folder=$2
shift 2
torchrun --standalone --nnodes=1 --nproc_per_node=$gpus -m verl.trainer.fsdp_sft_trainer \
    data.micro_batch_size_per_gpu=4 data.max_length=2048 model.partial_pretrain=Qwen/Qwen2.5-0.5B-Instruct \
    trainer.default_local_dir=$folder trainer.logger=console $@ \
    model.lora_rank=32 model.lora_alpha=16 model.target_modules=[q_proj,v_proj] ulysses_sequence_parallel_size=2 use_remove_padding=true
