#!/usr/bin/env python3
"""Writes optimizers.h5: fifty steps of vit.h5's model by Muon and by Adafactor, in float64.

    OMP_NUM_THREADS=1 python tests/golden/make_optimizer_golden.py

needs torch 2.9 or newer, numpy and h5py. Muon is written out here, because torch.optim.Muon multiplies in bfloat16; the
script checks that its losses are within 1 % of torch's. Adafactor is torch.optim.Adafactor; its original form, with a
first moment, is written out.
"""

import copy
import math

import torch

import make_golden
from make_golden import BATCHES, STEPS, pytorch_vit

VARIANTS = {
    "adafactor": {"lr": 2e-2, "weight_decay": 0.1, "decay": -0.8, "clip": 1.0, "eps": (2**-23, 1e-3)},
    "adafactor_numbers": {"lr": 5e-2, "weight_decay": 0.0, "decay": -0.5, "clip": 1.2, "eps": (1e-4, 0.1)},
    "adafactor_original": {"lr": 2e-2, "weight_decay": 0.1, "decay": -0.8, "clip": 1.0, "eps": (1e-30, 1e-3), "beta1": 0.9},
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


class TorchAdafactor:
    def __init__(self, model, variant):
        self.optimizer = torch.optim.Adafactor(
            model.parameters(), lr=variant["lr"], beta2_decay=variant["decay"], eps=variant["eps"], d=variant["clip"],
            weight_decay=variant["weight_decay"], foreach=False,
        )  # fmt: skip

    def step(self, rate):
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()


def rms(x):
    return float(torch.linalg.vector_norm(x)) / math.sqrt(x.numel())


class OriginalAdafactor:
    """Algorithms 4 and 5 of the paper, a first moment of the steps."""

    def __init__(self, model, variant):
        self.variant, self.parameters, self.updates = variant, list(model.parameters()), 0
        self.moments = [torch.zeros_like(p) for p in self.parameters]
        self.squares = [(0, 0)] * len(self.parameters)

    def step(self, rate):
        v = self.variant
        self.updates += 1
        keep = 1 - self.updates ** v["decay"]
        with torch.no_grad():
            for i, p in enumerate(self.parameters):
                alpha = max(v["eps"][1], rms(p)) * min(rate, 1 / math.sqrt(self.updates))
                square = p.grad**2 + v["eps"][0]
                of_rows, of_columns = (square, square) if p.dim() < 2 else (square.mean(-1, True), square.mean(-2, True))
                row, column = self.squares[i]
                row, column = keep * row + (1 - keep) * of_rows, keep * column + (1 - keep) * of_columns
                self.squares[i] = row, column
                mean = row if p.dim() < 2 else row * column / row.mean(-2, True)
                step = p.grad / mean.sqrt()
                step /= max(1, rms(step) / v["clip"])
                self.moments[i] = v["beta1"] * self.moments[i] + (1 - v["beta1"]) * alpha * step
                p *= 1 - rate * v["weight_decay"]
                p -= self.moments[i]


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
            kind = Muon if name.startswith("muon") else OriginalAdafactor if "beta1" in variant else TorchAdafactor
            losses, gradient_norms, rates, norms = train(initial, kind, variant, inputs, targets)
            print(f"{name}: loss {losses[0]:.6f} to {losses[-1]:.6f}")
            if kind is Muon:
                theirs = train(initial, TorchMuon, variant, inputs, targets)[0]
                difference = max(abs(a - b) / a for a, b in zip(losses, theirs))
                print(f"torch.optim.Muon differs by {difference:.2e}")
                assert difference < 0.01
            group = file.create_group(f"training/{name}")
            make_golden.write(group, "losses_float64", losses)
            make_golden.write(group, "grad_norms_float64", gradient_norms)
            make_golden.write(group, "learning_rates", rates)
            make_golden.write_all(group.create_group("final_norms"), norms)


if __name__ == "__main__":
    main()
