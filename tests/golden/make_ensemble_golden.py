#!/usr/bin/env python3
"""Writes the golden file ensemble.h5: a small ViT with noise of its own, trained on the CRPS.

    OMP_NUM_THREADS=1 python tests/golden/make_ensemble_golden.py

needs torch, numpy and h5py. README.md beside this script says what the file holds. The noise is made
here once more from its definition (src/backend/dropout.h), so both sides have the same.
"""

import copy

import make_golden as golden
import numpy as np
import pytorch_vit
import torch

HEIGHT, WIDTH, PATCH, CHANNELS, BATCH, ROLLOUT, DIM, NUMBERS = 8, 16, 4, 2, 2, 3, 16, 5
TOKENS = HEIGHT // PATCH * (WIDTH // PATCH)
STEPS, SEED, SITE, WHOLE = 10, 333, 8, 0xFFFFFFFF

# name, members, alpha, sides of blocks, missing values
KINDS = [("pair", 2, 1.0, (1,), False), ("three", 3, 0.95, (1, 2, 8), False), ("gaps", 2, 0.9, (1, 4), True)]


def philox(key, counter):
    """Philox4x32-10 (Salmon et al. 2011): arrays of 32-bit words."""
    c, k = [np.uint64(word) for word in np.broadcast_arrays(*counter)], [np.uint64(word) for word in key]
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ k[0], p1 & low, (p0 >> np.uint64(32)) ^ c[3] ^ k[1], p0 & low]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    return c


def normals(rollout_step, step, rows, tokens):
    """[rows, tokens, NUMBERS], by Box and Muller."""
    key = ((SEED ^ (rollout_step * 0x9E3779B9)) & WHOLE, ((SITE * 0x85EBCA6B + 1) & WHOLE))
    rows, tokens = np.asarray(rows, np.uint64), np.asarray(tokens, np.uint64)
    quads = np.arange((NUMBERS + 3) // 4, dtype=np.uint64)
    words = philox(key, (quads[None, None, :], tokens[None, :, None], rows[:, None, None], np.uint64(step)))
    u = [((w >> np.uint64(9)).astype(np.float64) + 0.5) * 2.0**-23 for w in words]
    pairs = []
    for i in (0, 2):
        radius, angle = np.sqrt(-2 * np.log(u[i])), 2 * np.pi * u[i + 1]
        pairs += [radius * np.cos(angle), radius * np.sin(angle)]
    return np.stack(pairs, -1).reshape(len(rows), len(tokens), -1)[..., :NUMBERS]


def noise(rollout_step, step, rows):
    whole = np.repeat(normals(rollout_step, step, rows, [WHOLE]), TOKENS, axis=1)
    return torch.from_numpy(np.concatenate([whole, normals(rollout_step, step, rows, np.arange(TOKENS))], -1))


class NoisyTransformer(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.noise_embed = torch.nn.Linear(2 * NUMBERS, DIM, bias=False)
        with torch.no_grad():
            self.noise_embed.weight.copy_(0.2 * torch.randn(DIM, 2 * NUMBERS))

    def forward(self, fields, numbers):
        m = self.model
        tokens = m.patch_embed(fields) + m.pos_embed + self.noise_embed(numbers)
        for block in m.blocks:
            tokens = block(tokens)
        return m.lay_back(m.head(m.norm(tokens)))

    def names(self):
        return {n.removeprefix("model."): p for n, p in self.named_parameters()}


def block_means(fields, there, side):
    """Means over those points of side x side blocks that are there, and how many these are."""
    def sums(a):
        return a.unflatten(-1, (-1, side)).unflatten(-3, (-1, side)).sum((-3, -1))

    count = sums(there.double())
    return sums(torch.where(there, fields, 0.0)) / count.clamp(min=1), count


def crps(members, target, alpha, sides, units):
    """members [samples, members, channels, H, W]; target without members; units [sides, channels]. Returns [samples]."""
    count, there, total, weight = members.shape[1], ~target.isnan(), 0.0, 0.0
    pairs = (1 - (1 - alpha) / count) / (count * (count - 1))
    for side, unit in zip(sides, units):
        means, number = block_means(members, there[:, None].expand_as(members), side)
        truth, _ = block_means(target.nan_to_num(0.0), there, side)
        score = (means - truth[:, None]).abs().mean(1)
        for i in range(count):
            for j in range(i):
                score = score - pairs * (means[:, i] - means[:, j]).abs()
        total = total + (number[:, 0] * score * unit[:, None, None]).sum((1, 2, 3))
        weight = weight + number[:, 0].sum((1, 2, 3))
    return total / weight


def train(model, inputs, targets, changes, kind):
    name, members, alpha, sides, _ = kind
    units = [1 / changes if side == 1 else torch.ones_like(changes) for side in sides]  # no data say more of blocks
    optimizer = golden.make_optimizer({**golden.ADAM, "lr": 1e-3}, model.parameters())
    curve, gradients = [], None
    for step in range(STEPS):
        for rates in optimizer.param_groups:
            rates["lr"] = pytorch_vit.learning_rate_at(step, 1e-3, STEPS)
        optimizer.zero_grad(set_to_none=True)
        times = [inputs[:, :CHANNELS].repeat_interleave(members, 0), inputs[:, CHANNELS:].repeat_interleave(members, 0)]
        losses = []
        for k in range(ROLLOUT):
            output = model(torch.cat(times, 1).nan_to_num(0.0), noise(k, step, np.arange(BATCH * members)))
            state = times[0] + changes[:, None, None] * output
            target = targets[:, k].clone()
            own = state.unflatten(0, (BATCH, members))
            target[own[:, 0].isnan()] = torch.nan  # what is missing in the newest state stays missing
            losses.append(crps(own.nan_to_num(0.0), target, alpha, sides, units))
            times = [state, times[0]]
        loss = torch.stack(losses).mean()
        loss.backward()
        if step == 0:
            gradients = {n: p.grad.numpy(force=True).astype(np.float32) for n, p in model.names().items()}
        optimizer.step()
        curve.append(loss.item())
    print(f"{name}: losses {curve[0]:.6f} ... {curve[-1]:.6f}")
    return np.array(curve), gradients


def main():
    torch.set_num_threads(1)
    generator = np.random.default_rng(SEED + 6)
    inputs = generator.normal(size=(BATCH, 2 * CHANNELS, HEIGHT, WIDTH)).astype(np.float32)
    targets = generator.normal(size=(BATCH, ROLLOUT, CHANNELS, HEIGHT, WIDTH)).astype(np.float32)
    gaps = [np.where(generator.uniform(size=a.shape) < share, np.float32(np.nan), a)
            for a, share in ((inputs, 0.1), (targets, 0.2))]  # fmt: skip
    changes = np.array([0.5, 0.25], np.float32)
    plain = golden.make_awkward_model(SEED + 6, (HEIGHT, WIDTH), PATCH, 2 * CHANNELS, CHANNELS, DIM, 1, 2)
    model = NoisyTransformer(plain)
    with golden.create_file("ensemble.h5") as file:
        file.attrs.update(torch_version=str(torch.__version__))
        golden.write_all(file, {"inputs": inputs, "targets": targets, "inputs_gaps": gaps[0], "targets_gaps": gaps[1],
                                "changes": changes, "noise": noise(2, 7, np.arange(3)).numpy()})  # fmt: skip
        golden.write_all(file.create_group("parameters"), {n: p.numpy(force=True) for n, p in model.names().items()})
        for kind in KINDS:
            fields, wanted = (torch.from_numpy(a).double() for a in (gaps if kind[4] else (inputs, targets)))
            own = copy.deepcopy(model).double()
            losses, gradients = train(own, fields, wanted, torch.from_numpy(changes).double(), kind)
            group = file.create_group(kind[0])
            golden.write(group, "losses", losses)
            golden.write_all(group.create_group("gradients"), gradients)


if __name__ == "__main__":
    main()
