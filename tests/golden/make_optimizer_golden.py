#!/usr/bin/env python3
"""Writes optimizers.h5: fifty steps of vit.h5's model by Muon, in float64.

    OMP_NUM_THREADS=1 python tests/golden/make_optimizer_golden.py

needs torch 2.9 or newer, numpy and h5py. Muon is written out here, because torch.optim.Muon multiplies in bfloat16; the
script checks that its losses are within 1 % of torch's.
"""

import copy
import math

import torch

import make_golden
from make_golden import BATCHES, STEPS, pytorch_vit

VARIANTS = {
    "muon": {"lr": 1e-3, "weight_decay": 0.1, "momentum": 0.95, "nesterov": True, "adjust": "match_rms_adamw", "steps": 5},
    "muon_original": {"lr": 2e-3, "weight_decay": 0.0, "momentum": 0.9, "nesterov": False, "adjust": "original", "steps": 4},
}
BETAS, EPS = (0.9, 0.95), 1e-8


def is_matrix(name, parameter):
    return name.startswith("blocks.") and parameter.dim() == 2


def orthogonal(x, steps):
    x = x / max(float(torch.linalg.matrix_norm(x)), 1e-7)
    transposed = x.shape[0] > x.shape[1]
    x = x.T if transposed else x
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if transposed else x


def scale(adjust, out, inner):
    if adjust == "match_rms_adamw":
        return 0.2 * math.sqrt(max(out, inner))
    return math.sqrt(max(1, out / inner))


class Muon:
    def __init__(self, model, variant):
        self.variant = variant
        self.matrices = [p for n, p in model.named_parameters() if is_matrix(n, p)]
        self.momenta = [torch.zeros_like(p) for p in self.matrices]
        rest = [p for n, p in model.named_parameters() if not is_matrix(n, p)]
        self.rest = torch.optim.AdamW(
            rest, lr=variant["lr"], betas=BETAS, eps=EPS, weight_decay=variant["weight_decay"], foreach=False
        )

    def step(self, rate):
        v = self.variant
        for group in self.rest.param_groups:
            group["lr"] = rate
        self.rest.step()
        with torch.no_grad():
            for p, b in zip(self.matrices, self.momenta):
                b += (p.grad - b) * (1 - v["momentum"])
                x = p.grad + (b - p.grad) * v["momentum"] if v["nesterov"] else b
                p *= 1 - rate * v["weight_decay"]
                p -= rate * scale(v["adjust"], *p.shape) * orthogonal(x, v["steps"])


class TorchMuon(Muon):
    def __init__(self, model, variant):
        super().__init__(model, variant)
        self.muon = torch.optim.Muon(
            self.matrices, lr=variant["lr"], weight_decay=variant["weight_decay"], momentum=variant["momentum"],
            nesterov=variant["nesterov"], ns_steps=variant["steps"], adjust_lr_fn=variant["adjust"],
        )  # fmt: skip

    def step(self, rate):
        for optimizer in (self.muon, self.rest):
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()


def train(initial, kind, variant, inputs, targets):
    model = copy.deepcopy(initial).double()
    optimizer = kind(model, variant)
    batches = [(torch.from_numpy(x).double(), torch.from_numpy(y).double()) for x, y in zip(inputs, targets)]
    losses, gradient_norms, rates = [], [], []
    for step in range(STEPS):
        rate = pytorch_vit.learning_rate_at(step, variant["lr"], STEPS, 0)
        x, y = batches[step % BATCHES]
        model.zero_grad(set_to_none=True)
        loss = pytorch_vit.relative_loss(model(x), y)
        loss.backward()
        gradient_norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), math.inf).item())
        optimizer.step(rate)
        losses.append(loss.item())
        rates.append(rate)
    norms = {n: torch.linalg.vector_norm(p.detach()).item() for n, p in model.named_parameters()}
    return losses, gradient_norms, rates, norms


def main():
    initial = make_golden.make_model()
    inputs, targets = make_golden.make_batches()
    with make_golden.create_file("optimizers.h5") as file:
        for name, variant in VARIANTS.items():
            losses, gradient_norms, rates, norms = train(initial, Muon, variant, inputs, targets)
            theirs = train(initial, TorchMuon, variant, inputs, targets)[0]
            difference = max(abs(a - b) / a for a, b in zip(losses, theirs))
            print(f"{name}: loss {losses[0]:.6f} to {losses[-1]:.6f}; torch.optim.Muon differs by {difference:.2e}")
            assert difference < 0.01
            group = file.create_group(f"training/{name}")
            make_golden.write(group, "losses_float64", losses)
            make_golden.write(group, "grad_norms_float64", gradient_norms)
            make_golden.write(group, "learning_rates", rates)
            make_golden.write_all(group.create_group("final_norms"), norms)


if __name__ == "__main__":
    main()
