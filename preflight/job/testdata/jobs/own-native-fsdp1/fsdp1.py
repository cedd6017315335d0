import functools, os, torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy, CPUOffload
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

BATCH_SIZE = 2
SEQ_LEN = 2048
def main():
    dist.init_process_group("nccl")
    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf", torch_dtype=torch.bfloat16)
    wrap = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
    mp = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
    model = FSDP(model, auto_wrap_policy=wrap, mixed_precision=mp, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, cpu_offload=CPUOffload(offload_params=True), device_id=0)
    opt = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    loader = torch.utils.data.DataLoader(ds, batch_size=BATCH_SIZE)
    for batch in loader:
        loss = model(**batch).loss
        loss.backward()
        opt.step()
if __name__ == "__main__":
    main()
