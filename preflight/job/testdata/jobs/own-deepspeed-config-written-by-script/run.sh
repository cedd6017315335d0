#!/bin/bash
set -e
MODE=$1
BATCH=${2:-8}
HERE=$(dirname "$0")
DS=$HERE/ds_${MODE}.json
CHECKPOINTING=true
FLAG=""
if [ "$CHECKPOINTING" = "true" ]; then
    FLAG="--activation_checkpointing"
fi
if [ "$MODE" = "offload" ]; then
cat > "$DS" << EOF
{
    "train_batch_size": $BATCH,
    "gradient_accumulation_steps": 1,
    "bf16": { "enabled": true },
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": 4e8,
        "offload_optimizer": { "device": "cpu", "pin_memory": true }
    }
}
EOF
else
    echo '{}' > $DS
fi
CMD="deepspeed --num_gpus=1 train.py \
    --deepspeed_config=$DS \
    --model_name Qwen/Qwen2.5-7B \
    --batch_size $BATCH \
    --max_length 4096 \
    $FLAG"
eval $CMD
