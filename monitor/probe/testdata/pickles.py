"""Hands what the probe watches to other processes, in the ways in which data loaders and savers do."""
import functools
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor

import torch
from safetensors.torch import save_file, save_model
from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    def __init__(self, paths, loader):
        self.paths, self.loader = paths, loader

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.loader(self.paths[index])


def main(folder):
    torch.manual_seed(0)
    paths = [os.path.join(folder, "%d.pt" % i) for i in range(4)]
    model = torch.nn.Linear(2, 1)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        for i, path in enumerate(paths):
            pool.submit(torch.save, torch.full((2,), float(i)), path).result()
        print(sum(pool.map(torch.load, paths)).tolist())
        print(sum(pool.map(functools.partial(torch.load, map_location="cpu"), paths)).tolist())
        pool.submit(save_file, {"a": torch.ones(2)}, os.path.join(folder, "file")).result()
        pool.submit(save_model, model, os.path.join(folder, "model")).result()
        pool.submit(torch.nn.Module.eval, model).result()
        pool.submit(torch.nn.Module.zero_grad, model).result()
    data = DataLoader(Files(paths, torch.load), batch_size=2, num_workers=1, multiprocessing_context="spawn")
    print([batch.tolist() for batch in data])
    process = context.Process(target=torch.save, args=({"a": torch.ones(2)}, os.path.join(folder, "process")))
    process.start()
    process.join()
    print(process.exitcode)


if __name__ == "__main__":
    main(sys.argv[1])
