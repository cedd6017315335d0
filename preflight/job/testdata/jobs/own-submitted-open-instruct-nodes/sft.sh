#!/bin/bash
IMAGE="${1:-base/image}"
uv run python mason.py \
    --cluster c1 c2 \
    --image "$IMAGE" --pure_docker_mode \
    --preemptible \
    --num_nodes 4 \
    --gpus 8 -- source setup.sh \&\& accelerate launch \
    --mixed_precision bf16 \
    --num_processes 8 \
    --use_deepspeed \
    --deepspeed_config_file stage3.conf \
    --deepspeed_multinode_launcher standard \
    open_instruct/finetune.py \
    --model_name_or_path Qwen/Qwen2.5-7B \
    --max_seq_length 4096 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 2 \
    --gradient_checkpointing \
    --dataset_mixer_list a 1.0
