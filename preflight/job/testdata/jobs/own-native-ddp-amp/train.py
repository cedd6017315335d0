import argparse, torch
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import GPT2LMHeadModel

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
args = parser.parse_args()
model = GPT2LMHeadModel.from_pretrained("gpt2").cuda()
model = DDP(model, device_ids=[0])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for batch in []:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(**batch).loss
    loss.backward()
