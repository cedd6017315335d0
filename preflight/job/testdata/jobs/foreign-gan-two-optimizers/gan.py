import argparse
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--n_gpu", type=int, default=1)
opt = parser.parse_args()
G, D = nn.Linear(100, 784).cuda(), nn.Linear(784, 1).cuda()
if opt.n_gpu > 1:
    G, D = nn.DataParallel(G), nn.DataParallel(D)
optG = torch.optim.Adam(G.parameters())
optD = torch.optim.Adam(D.parameters())
for real in torch.utils.data.DataLoader(data, batch_size=opt.batch_size):
    lossD = D(real).mean()
    lossD.backward()
    optD.step()
    lossG = D(G(noise)).mean()
    lossG.backward()
    optG.step()
