import torch
from accelerate import Accelerator
from accelerate.utils import ParallelismConfig
from transformers import AutoModelForCausalLM

parallelism = ParallelismConfig(sp_backend="deepspeed", sp_size=4)
accelerator = Accelerator(parallelism_config=parallelism)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", torch_dtype=torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
loader = torch.utils.data.DataLoader(rows(), batch_size=1)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    accelerator.backward(model(**batch).loss)
    optimizer.step()
