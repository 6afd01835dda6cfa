"""Writes ranks.pt2, whose parameters have one to five dimensions, in float32 and float64: ranks_model.py FOLDER."""

import pathlib
import sys

import torch


class Ranks(torch.nn.Module):
    """The product of x and the sum of all parameters' squares. Element k of a parameter in C's order is (k + 1) / 1000."""

    def __init__(self):
        super().__init__()
        for rank in range(1, 6):
            shape = (2, 3, 4, 5, 6)[:rank]
            for name, dtype in ("double", torch.float64), ("single", torch.float32):
                values = (torch.arange(torch.Size(shape).numel(), dtype=torch.float64) + 1) / 1000
                self.register_parameter(f"{name}{rank}", torch.nn.Parameter(values.reshape(shape).to(dtype)))

    def forward(self, x):
        return x * sum(parameter.double().square().sum() for parameter in self.parameters())


program = torch.export.export(Ranks(), (torch.zeros(4, 1, dtype=torch.float64),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
for node in program.graph.nodes:
    node.meta.pop("stack_trace", None)  # which has this file's path
torch.export.save(program, pathlib.Path(sys.argv[1]) / "ranks.pt2")
