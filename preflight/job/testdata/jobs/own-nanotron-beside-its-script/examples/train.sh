#!/bin/bash
set -e -x
HERE=$(cd -- "$(dirname "$0")" >/dev/null 2>&1 ; pwd -P)
ROOT=$(dirname $HERE)
python $HERE/make_config.py
export CUDA_DEVICE_MAX_CONNECTIONS=1
python -u -m torch.distributed.run --nproc_per_node 8 --nnodes 1 --rdzv_backend c10d --max_restarts 0 --tee 3 \
    $ROOT/run_train.py --config-file $HERE/tiny.yaml
