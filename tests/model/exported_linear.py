"""Writes linear_by_torch_X_Y.pt2 with the torch that runs it: exported_linear.py FOLDER. load_exported.cpp next to it reads the file of each torch version."""

import pathlib
import sys

import torch

model = torch.nn.Linear(3, 2)
with torch.no_grad():
    model.weight.copy_(torch.arange(6.0).reshape(2, 3) / 8)
    model.bias.copy_(torch.tensor([0.5, -0.25]))
program = torch.export.export(model, (torch.arange(6.0).reshape(2, 3),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
version = "_".join(torch.__version__.split(".")[:2])
torch.export.save(program, pathlib.Path(sys.argv[1]) / f"linear_by_torch_{version}.pt2")
