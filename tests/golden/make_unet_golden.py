#!/usr/bin/env python3
"""Writes unet.h5: the 3-D U-Net of the 2022 tutorial in PyTorch, in float64 from float32 numbers.

    python3 tests/golden/make_unet_golden.py

needs torch, numpy and h5py. Weights and fields come from a formula that golden/unet.c has, too, so that the
file holds only what PyTorch makes of them: losses of 50 steps of Adam, some values of the prediction, and of
every tensor's first gradient. Values are taken at a fixed stride.

L1's gradient is a sign. So targets that are nearly predicted at first are moved away, lest a rounding turns one: the
file holds their places.
"""
import sys
from pathlib import Path

import h5py
import numpy as np
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "bench"))
from pytorch_unet import UNet  # noqa: E402  (found through the line above)

WIDTH, STEPS, RATE, MOST = 8, 50, 2e-4, 600
NEAR, MOVE = 1e-5, np.float32(0.01).item()


def numbers(seed, shape, scale):
    """About normal: the sum of four uniform numbers."""
    count = int(np.prod(shape))
    z = (np.uint64(seed << 32) + np.arange(4 * count, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    uniform = (z >> np.uint64(40)).astype(np.float64) / 2**24
    normal = (uniform.reshape(count, 4).sum(axis=1) - 2) * (np.sqrt(3.0) * scale)
    return torch.from_numpy(normal.astype(np.float32).reshape(shape))


def some(values):
    flat = values.detach().reshape(-1).double().numpy()
    return flat[:: len(flat) // MOST | 1]  # odd, so that all taps of a kernel are among them


def loss_of(prediction, target, weight):
    loss = (prediction - target).abs().mean()
    if weight != 0:
        loss = loss + weight * (torch.exp(14 * prediction[:, 0]) - torch.exp(14 * target[:, 0])).abs().mean()
    return loss


def run(group, side, batch, full_scale, weight):
    model = UNet(WIDTH, full_scale)
    for i, parameter in enumerate(model.parameters()):
        parameter.data = numbers(1 + i, tuple(parameter.shape), 0.06)
    model = model.double()
    fields = [numbers(100 + i, (batch, side, side, side, c), scale).permute(0, 4, 1, 2, 3).double()
              for i, (c, scale) in enumerate([(4, 0.3), (5, 0.15)])]
    with torch.no_grad():
        near = (model(fields[0]) - fields[1]).abs() < NEAR
    fields[1][near] += MOVE
    group["moved"] = near.permute(0, 2, 3, 4, 1).reshape(-1).nonzero()[:, 0].double().numpy()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    losses = []
    for step in range(STEPS if side < 96 else 3):
        optimizer.zero_grad()
        prediction = model(fields[0])
        loss = loss_of(prediction, fields[1], weight)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            group["prediction"] = some(prediction.permute(0, 2, 3, 4, 1))
            for name, parameter in model.named_parameters():
                group[f"gradients/{name}"] = some(parameter.grad)
        optimizer.step()
    group["losses"] = np.array(losses)
    print(group.name, losses[0], losses[-1])


def main():
    torch.manual_seed(0)
    with h5py.File(HERE / "unet.h5", "w", libver=("v110", "v110")) as file:
        for side, batch, full_scale in ((32, 2, False), (64, 1, True), (96, 1, False)):
            for name, weight in (("l1", 0.0), ("density", 0.01))[: 1 if side == 96 else 2]:
                run(file.create_group(f"{side}/{name}"), side, batch, full_scale, weight)


main()
