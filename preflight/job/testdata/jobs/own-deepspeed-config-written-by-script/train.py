import argparse

import deepspeed
from deepspeed.ops.adam import DeepSpeedCPUAdam
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM


def load(args):
    data = tokenized(args)
    return data, DataLoader(data, batch_size=1, shuffle=True)


def main(args):
    model = AutoModelForCausalLM.from_pretrained(args.model_name)
    if args.activation_checkpointing:
        model.gradient_checkpointing_enable()
    optimizer = DeepSpeedCPUAdam(model.parameters(), lr=1e-5)
    data, loader = load(args)
    engine, optimizer, loader, _ = deepspeed.initialize(args=args, model=model, optimizer=optimizer, training_data=data)
    for batch in loader:
        engine.backward(engine(**batch).loss)
        engine.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_name", type=str, required=True)
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("--max_length", type=int, default=2048)
    parser.add_argument("--activation_checkpointing", action="store_true")
    parser = deepspeed.add_config_arguments(parser)
    main(parser.parse_args())
