#!/usr/bin/env python3
"""Fits the polynomial of src/backend/cpu/vector/gelu.c: erfcx(z) = t P(t), t = 1 / (1 + p z), for 0 <= z <= 10.

Minimax by iteratively reweighted least squares; prints p, the largest relative error and P's coefficients, lowest first.
Needs torch (for erfcx in float64) and numpy.
"""

import numpy as np
import torch

z = np.concatenate([np.linspace(0, 1, 4001), np.linspace(1, 10, 6001)])
erfcx = torch.special.erfcx(torch.tensor(z, dtype=torch.float64)).numpy()
degree = 8
best = None
for p in np.arange(0.2, 0.8, 0.02):
    t = 1 / (1 + p * z)
    terms = np.stack([t ** (i + 1) for i in range(degree + 1)], 1) / erfcx[:, None]
    weights = np.ones(len(z))
    for _ in range(60):
        coefficients = np.linalg.lstsq(terms * weights[:, None], weights, rcond=None)[0]
        residual = abs(terms @ coefficients - 1)
        weights = weights * (residual / residual.max() + 0.02) ** 0.5
    error = residual.max()
    if best is None or error < best[0]:
        best = (error, p, coefficients)
print(f"p {best[1]:.2f}, relative error {best[0]:.2e}")
print("\n".join(f"{c: .10g}" for c in best[2]))
