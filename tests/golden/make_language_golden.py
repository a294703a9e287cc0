#!/usr/bin/env python3
"""Writes language.h5: the two transformers on text in PyTorch, in float64 from float32 numbers.

    python3 tests/golden/make_language_golden.py

needs torch, numpy and h5py. Weights and words come from formulas that golden/language.c has, too, so that the file
holds only what PyTorch makes of them: losses of 50 steps of AdamW, some of the first step's scores and of every
tensor's first gradient. Values are taken at a fixed stride. Of the course's full size there are losses alone: near 0 a
ReLU unit flips by a rounding, which changes gradients by up to 1e-3 there.
"""
import sys
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import torch
from torch.nn import functional

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "bench"))
from pytorch_language import Encoder, EncoderDecoder  # noqa: E402  (found through the line above)

HEADS, DEPTH, STEPS, MOST = 4, 2, 50, 200


class Size(NamedTuple):
    words: int
    dim: int
    length: int
    batch: int
    rate: float


SMALL, FULL = Size(101, 32, 16, 8, 2e-4), Size(6000, 128, 32, 16, 2e-3)


def hashed(seed, count):
    z = (np.uint64(seed) << np.uint64(32)) + np.arange(count, dtype=np.uint64)
    z = z * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def key_of(name):
    """32 bits of FNV-1a."""
    key = 0xCBF29CE484222325
    for byte in name.encode():
        key = (key ^ byte) * 0x100000001B3 % 2**64
    return key % 2**32


def start(name, shape):
    """About normal numbers: the sum of four uniform ones; a norm's weight lies round 1."""
    count = int(np.prod(shape))
    uniform = (hashed(key_of(name), 4 * count) >> np.uint64(40)).astype(np.float64) / 2**24
    normal = (uniform.reshape(count, 4).sum(axis=1) - 2) * np.sqrt(3.0)
    scale = 0.1 if len(shape) == 1 else 1.0 if name == "embed.weight" else 1 / np.sqrt(shape[1])
    middle = 1.0 if len(shape) == 1 and name.endswith("weight") else 0.0
    return torch.from_numpy((middle + scale * normal).astype(np.float32).reshape(shape))


def words_of(size, step):
    """Small numbers are frequent. [batch, length + 1]"""
    uniform = (hashed(1000 + step, size.batch * (size.length + 1)) >> np.uint64(40)).astype(np.float64) / 2**24
    return torch.from_numpy((uniform**2 * size.words).astype(np.int64).reshape(size.batch, size.length + 1))


def some(values):
    flat = values.detach().reshape(-1).double().numpy()
    return flat[:: len(flat) // MOST + 1]


def run(group, model, size, first):
    for name, parameter in model.named_parameters():
        parameter.data = start(name, tuple(parameter.shape))
    model = model.double()
    model.pos_encoder.pe = model.pos_encoder.pe.float().double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=size.rate, betas=(0.9, 0.999), weight_decay=0.01)
    losses = []
    for step in range(STEPS):
        words = words_of(size, first + step)
        optimizer.zero_grad()
        scores = model(words[:, :-1])
        loss = functional.cross_entropy(scores.reshape(-1, size.words), words[:, 1:].reshape(-1))
        loss.backward()
        losses.append(loss.item())
        if step == 0 and size is SMALL:
            group["scores"] = some(scores)
            for name, parameter in model.named_parameters():
                group[f"gradients/{name}"] = some(parameter.grad)
        optimizer.step()
    group["losses"] = np.array(losses)
    print(group.name, losses[0], losses[-1])


def main():
    with h5py.File(HERE / "language.h5", "w", libver=("v110", "v110")) as file:
        for causal in (False, True):
            kind = "causal" if causal else "plain"
            # with these words PyTorch's float32 is within 2e-6 of its float64; with others a ReLU unit near 0 flips
            first = 0 if causal else 100
            run(file.create_group(f"transformer/{kind}"),
                EncoderDecoder(SMALL.words, SMALL.dim, HEADS, DEPTH, 128, causal=causal), SMALL, first)
            run(file.create_group(f"encoder/{kind}"),
                Encoder(SMALL.words, SMALL.dim, HEADS, DEPTH, 512, causal=causal, scaled=causal), SMALL, first)
        run(file.create_group("transformer/full"), EncoderDecoder(FULL.words, FULL.dim, HEADS, DEPTH, 2048), FULL, 0)
        run(file.create_group("encoder/full"), Encoder(FULL.words, FULL.dim, HEADS, DEPTH, 2048), FULL, 0)


main()
