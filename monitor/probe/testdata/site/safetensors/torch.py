"""Stands for the library of that name: the functions that the probe watches, with their signatures."""
import os
from typing import Dict, Optional, Union

import torch


def save_file(tensors: Dict[str, torch.Tensor], filename: Union[str, os.PathLike], metadata: Optional[Dict[str, str]] = None):
    with open(filename, "wb") as file:
        for tensor in tensors.values():
            file.write(bytes(str(tensor.tolist()), "ascii"))


def save_model(model: torch.nn.Module, filename: str, metadata: Optional[Dict[str, str]] = None, force_contiguous: bool = True):
    save_file(model.state_dict(), filename, metadata)
