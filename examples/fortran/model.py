"""Writes flux.pt2, the model of learn_flux.f90: how much the mean flux out of each cell differs from the cell's value."""

import torch


class Flux(torch.nn.Module):
    def __init__(self):
        super().__init__()
        # The flux depends on the cell and three neighbours to each side.
        self.layers = torch.nn.Sequential(torch.nn.Conv1d(1, 16, 7), torch.nn.Tanh(), torch.nn.Conv1d(16, 16, 1), torch.nn.Tanh(), torch.nn.Conv1d(16, 1, 1))

    def forward(self, cells):  # [waves, cells with halo] in Python, (cells with halo, waves) in Fortran
        return self.layers(cells.unsqueeze(1)).squeeze(1)


torch.manual_seed(1)
varies = torch.export.Dim.DYNAMIC
program = torch.export.export(Flux(), (torch.zeros(8, 70),), dynamic_shapes=({0: varies, 1: varies},))
torch.export.save(program, "flux.pt2")
