from torchtitan.config import ActivationCheckpointConfig, ParallelismConfig, TrainingConfig
from torchtitan.components.optimizer import OptimizersContainer
from torchtitan.models.qwen3 import model_registry
from torchtitan.trainer import Trainer


def qwen_base() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("4B"),
        optimizer=OptimizersContainer.Config(lr=3e-4),
        training=TrainingConfig(local_batch_size=2, seq_len=4096, global_batch_size=32),
        parallelism=ParallelismConfig(tensor_parallel_degree=2),
        activation_checkpoint=ActivationCheckpointConfig(mode="full"),
    )


def qwen_long() -> Trainer.Config:
    config = qwen_base()
    config.training.seq_len = 8192
    config.parallelism.context_parallel_degree = 2
    return config
