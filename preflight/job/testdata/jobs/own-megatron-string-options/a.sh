#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-2}
DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE \
                  --nnodes $NNODES --node_rank ${RANK:-0} \
                  --master_addr localhost --master_port 6000"
GPT_ARGS="
    --tensor-model-parallel-size 4
    --pipeline-model-parallel-size 2
    --sequence-parallel
    --num-layers 32 --hidden-size 4096 --num-attention-heads 32
    --seq-length 4096 --max-position-embeddings 4096
    --micro-batch-size 2 --global-batch-size 128
    --bf16 --use-distributed-optimizer --use-flash-attn
    --swiglu --untie-embeddings-and-output-weights --no-position-embedding --use-rotary-position-embeddings --normalization RMSNorm --disable-bias-linear
    --recompute-granularity selective
"
DATA_ARGS="--data-path my --vocab-size 32000 --tokenizer-type Llama2Tokenizer --tokenizer-model tok"
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \
    $GPT_ARGS \
    $DATA_ARGS \
    --distributed-backend nccl \
    --save ck 2>&1 | tee log.txt
