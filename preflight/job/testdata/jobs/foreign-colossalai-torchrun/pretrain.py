import argparse

import torch
import colossalai
from colossalai.booster import Booster
from colossalai.booster.plugin import GeminiPlugin, LowLevelZeroPlugin
from colossalai.nn.optimizer import HybridAdam
from transformers import LlamaConfig, LlamaForCausalLM


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-c", "--config", type=str, default="7b")
    parser.add_argument("-p", "--plugin", default="gemini")
    parser.add_argument("-b", "--batch_size", type=int, default=2)
    parser.add_argument("-l", "--max_length", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("-g", "--grad_checkpoint", action="store_true")
    parser.add_argument("-x", "--mixed_precision", default="fp16")
    args = parser.parse_args()
    colossalai.launch_from_torch()
    if args.plugin == "gemini":
        plugin = GeminiPlugin(precision=args.mixed_precision, initial_scale=2**16)
    else:
        plugin = LowLevelZeroPlugin(stage=2, precision=args.mixed_precision, initial_scale=2**16)
    booster = Booster(plugin=plugin)
    model = LlamaForCausalLM(MODEL_CONFIGS[args.config])
    if args.grad_checkpoint:
        model.gradient_checkpointing_enable()
    optimizer = HybridAdam(model.parameters(), lr=args.lr)
    dataloader = plugin.prepare_dataloader(dataset(), batch_size=args.batch_size, shuffle=True)
    model, optimizer, _, dataloader, _ = booster.boost(model, optimizer, dataloader=dataloader)
    for batch in dataloader:
        loss = model(**batch)[0]
        booster.backward(loss, optimizer)
        optimizer.step()


if __name__ == "__main__":
    main()
