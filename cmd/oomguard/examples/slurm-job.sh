#!/bin/bash
# Two nodes of eight GPUs each under Slurm, with oomguard in front of torchrun: one oomguard a node, one run folder, one report.
#
#   sbatch slurm-job.sh
#   oomguard report
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --time=24:00:00

export OOMGUARD_DIR=$SLURM_SUBMIT_DIR/oomguard-runs # on a file system that all nodes see
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

# The word before torchrun is all that is new. srun gives the highest status of all nodes, which is torchrun's own.
srun --kill-on-bad-exit=1 oomguard torchrun --nnodes="$SLURM_NNODES" --nproc-per-node=8 \
    --rdzv-backend=c10d --rdzv-endpoint="$head:29500" --rdzv-id="$SLURM_JOB_ID" \
    train.py --model_name_or_path ./llama --per_device_train_batch_size 2 --bf16
