import argparse
import ray
import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def train_func(config):
    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf", torch_dtype=torch.bfloat16)
    args = TrainingArguments(output_dir="out", per_device_train_batch_size=config["batch"], bf16=True, gradient_checkpointing=True)
    trainer = Trainer(model=model, args=args, train_dataset=dataset())
    trainer.train()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", type=int, default=4)
    parser.add_argument("--batch-size-per-device", type=int, default=4)
    args = parser.parse_args()
    ray.init()
    trainer = TorchTrainer(train_func, train_loop_config={"batch": args.batch_size_per_device}, scaling_config=ScalingConfig(num_workers=args.num_workers, use_gpu=True))
    trainer.fit()
