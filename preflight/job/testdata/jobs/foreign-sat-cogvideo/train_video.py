import argparse
import os
from functools import partial

import torch.distributed
from omegaconf import OmegaConf
from arguments import get_args
from sat import mpu
from sat.training.deepspeed_training import training_main
from diffusion_video import SATVideoDiffusionEngine
from data_video import collate_fn


def forward_step(data_iterator, model, args, timers):
    batch = next(data_iterator)
    loss, loss_dict = model.shared_step(batch)
    return loss, loss_dict


if __name__ == "__main__":
    args = get_args()
    training_main(args, model_cls=SATVideoDiffusionEngine, forward_step_function=forward_step, hooks={})
