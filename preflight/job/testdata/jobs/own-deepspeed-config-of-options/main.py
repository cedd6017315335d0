import argparse

import deepspeed
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

from chat.ds import get_train_ds_config
from chat.lora import convert_linear_layer_to_lora


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_name_or_path", type=str, required=True)
    parser.add_argument("--per_device_train_batch_size", type=int, default=16)
    parser.add_argument("--max_seq_len", type=int, default=512)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--gradient_checkpointing", action="store_true")
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--dtype", type=str, default="fp16", choices=["fp16", "bf16"])
    parser.add_argument("--zero_stage", type=int, default=0)
    parser.add_argument("--lora_dim", type=int, default=0)
    return deepspeed.add_config_arguments(parser).parse_args()


def main():
    args = parse_args()
    ds_config = get_train_ds_config(offload=args.offload, dtype=args.dtype, stage=args.zero_stage)
    ds_config["train_micro_batch_size_per_gpu"] = args.per_device_train_batch_size
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)
    if args.lora_dim > 0:
        model = convert_linear_layer_to_lora(model, args.lora_dim)
    loader = DataLoader(rows(args), batch_size=args.per_device_train_batch_size)
    model, optimizer, _, _ = deepspeed.initialize(model=model, args=args, config=ds_config)
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    for batch in loader:
        loss = model(**batch).loss
        model.backward(loss)
        model.step()


main()
