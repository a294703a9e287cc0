#!/usr/bin/env python3
"""Writes the golden file positions.h5: position embeddings interpolated to another grid of tokens.

    OMP_NUM_THREADS=1 python tests/golden/make_positions_golden.py

needs torch, numpy and h5py. README.md beside this script says what the file holds. The function is
timm.layers.resample_abs_pos_embed's (timm 1.0) without a class token.
"""

from pathlib import Path

import h5py
import torch
import torch.nn.functional as F

# old grid, new grid: wider, narrower, uneven, one side each way, a single row
CASES = [((4, 8), (8, 16)), ((8, 16), (4, 8)), ((5, 3), (7, 4)), ((7, 5), (3, 11)), ((6, 6), (6, 9)), ((1, 4), (2, 3)), ((9, 20), (2, 3))]
DIM = 5


def resample(embedding, old, new):
    grid = embedding.reshape(1, old[0], old[1], -1).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=new, mode="bicubic", antialias=True)
    return grid.permute(0, 2, 3, 1).reshape(1, new[0] * new[1], -1)


def main():
    torch.manual_seed(333)
    with h5py.File(Path(__file__).resolve().parent / "positions.h5", "w") as file:
        file.attrs["torch_version"] = str(torch.__version__)
        file.attrs["cases"], file.attrs["dim"] = len(CASES), DIM
        for i, (old, new) in enumerate(CASES):
            embedding = torch.randn(1, old[0] * old[1], DIM)
            file[f"{i}/grids"] = [float(side) for side in old + new]
            file[f"{i}/there"] = embedding.numpy()
            file[f"{i}/here"] = resample(embedding.double(), old, new).numpy()  # the truth
            file[f"{i}/here_float32"] = resample(embedding, old, new).numpy()


main()
