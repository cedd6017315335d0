#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
export CUDA_DEVICE_MAX_CONNECTIONS=1
PRECISION=${PRECISION:-fp8}
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

MODEL=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8   # eight heads of keys and values
    --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights
    --position-embedding-type rope --max-position-embeddings 8192 --seq-length 8192
    --attention-dropout 0.0 --hidden-dropout 0.0
)
PARALLEL=(--tensor-model-parallel-size 2 --context-parallel-size 2 --sequence-parallel)
TRAIN=(--micro-batch-size 1 --global-batch-size 128 --bf16 --cross-entropy-loss-fusion --recompute-activations)
if [[ "$PRECISION" == "fp8" ]]; then
    TRAIN+=("--fp8-format hybrid" --fp8-param-gather)
fi
if [ -n "${WANDB_PROJECT}" ]; then
    TRAIN+=(--wandb-project "$WANDB_PROJECT")
fi
PARALLEL+=(--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather)
DATA=(--mock-data --tokenizer-type NullTokenizer --vocab-size 128256)

srun torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES --rdzv_id $SLURM_JOB_ID --rdzv_backend c10d --rdzv_endpoint $HEAD:29500 \
    pretrain_gpt.py ${MODEL[@]} ${PARALLEL[@]} ${TRAIN[@]} ${DATA[@]}
