#!/usr/bin/env python3
"""Writes the golden files vit.h5, gaps.h5, forcings.h5 and operations.h5 (and, on stdout, the table for README.md).

    OMP_NUM_THREADS=1 python tests/golden/make_golden.py

needs torch, numpy and h5py; runs on one CPU thread in under a minute. What the files hold is listed
in README.md beside this script. Everything is computed twice: in float64 from the float32 weights and
inputs (the truth), and in float32 (what PyTorch itself makes of it, which tells how much of a
difference to the truth is mere rounding).
"""

import copy
import math
import sys
from pathlib import Path

import h5py
import numpy as np
import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bench"))
import pytorch_vit  # noqa: E402  (found through the line above)

SEED = 333

# Awkward on purpose: an odd number of tokens (5 x 3), a head size (8) and an embed_dim (24) that are not
# multiples of a 16-float vector, a grid that is not square, inputs that hold two times.
HEIGHT, WIDTH, PATCH_SIZE = 20, 12, 4
CHANNELS, N_HISTORY = 3, 1
N_IN_CHANNELS, N_OUT_CHANNELS = CHANNELS * (N_HISTORY + 1), CHANNELS
EMBED_DIM, DEPTH, NUM_HEADS = 24, 2, 3
BATCHES, BATCH_SIZE, STEPS = 10, 4, 50

# At the usual std of 0.02 so narrow a model has almost uniform attention, and the gradients of q and k
# vanish in rounding. Larger weights make every part of the model matter.
WEIGHT_FACTOR = 8.0

ADAM = {"optimizer": "Adam", "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.0}
VARIANTS = {
    "adam": {**ADAM, "lr": 1e-3},
    "adam_warmup": {**ADAM, "lr": 1e-3, "warmup": 10},
    "adamw": {**ADAM, "optimizer": "AdamW", "lr": 1e-3, "weight_decay": 0.05},
    "sgd": {"optimizer": "SGD", "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4},
    "adam_clip": {**ADAM, "lr": 1e-3, "grad_clip": 0.3},
    "adamw_betas": {"optimizer": "AdamW", "lr": 1e-3, "betas": (0.8, 0.999), "eps": 1e-4, "weight_decay": 0.05},
    "sgd_nesterov": {"optimizer": "SGD", "lr": 0.02, "momentum": 0.95, "nesterov": True, "weight_decay": 1e-4},
    "sgd_plain": {"optimizer": "SGD", "lr": 0.2, "momentum": 0.0, "weight_decay": 1e-4},
}

# Of the model with missing points, whose two channels weigh differently.
WEIGHTS = {"latitude_weights": True, "channel_weights": [1.75, 0.25]}
EMA_DECAY = 0.7
LOSSES = {
    "mse": {"loss": "mse"},
    "mae": {"loss": "mae"},
    "relative_l2_weighted": {"loss": "relative_l2", **WEIGHTS},
    "mse_weighted": {"loss": "mse", **WEIGHTS},
    "mae_weighted": {"loss": "mae", **WEIGHTS},
}


# ---------------------------------------------------------------------------------------------------
# The model and its data
# ---------------------------------------------------------------------------------------------------


def make_model():
    """A model in float32 whose every parameter is away from its trivial value."""
    torch.manual_seed(SEED)
    model = pytorch_vit.VisionTransformer(
        (HEIGHT, WIDTH), PATCH_SIZE, N_IN_CHANNELS, N_OUT_CHANNELS, EMBED_DIM, DEPTH, NUM_HEADS
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("patch_embed"):
                continue
            if parameter.dim() == 1:  # biases, and the weights of LayerNorm
                parameter.add_(0.1 * torch.randn_like(parameter))
            else:
                parameter.mul_(WEIGHT_FACTOR)
    return model


def make_batches():
    """Travelling waves with a little noise: inputs at times t and t-1, targets at t+1.

    Returns float32 inputs [BATCHES, B, C_in, H, W] and targets [BATCHES, B, C_out, H, W]. Values are
    multiples of 1/1024: exact in float32, and small once compressed.
    """
    generator = np.random.default_rng(SEED)
    waves = 5
    shape = (BATCHES, BATCH_SIZE, CHANNELS, waves)
    amplitude = generator.normal(size=shape) / np.sqrt(waves / 2)
    row_number = generator.uniform(0.2, 1.5, size=shape)
    column_number = generator.integers(0, 4, size=shape)
    frequency = generator.uniform(-0.8, 0.8, size=shape)
    phase = generator.uniform(0, 2 * np.pi, size=shape)
    rows = 2 * np.pi * np.arange(HEIGHT)[:, None] / HEIGHT
    columns = 2 * np.pi * np.arange(WIDTH)[None, :] / WIDTH

    def fields_at(time):
        angle = (
            row_number[..., None, None] * rows
            + column_number[..., None, None] * columns
            + (phase - frequency * time)[..., None, None]
        )
        fields = (amplitude[..., None, None] * np.cos(angle)).sum(axis=3)
        fields += 0.05 * generator.normal(size=fields.shape)
        return (np.round(fields * 1024) / 1024).astype(np.float32)

    before, now, after = fields_at(-1), fields_at(0), fields_at(1)
    return np.concatenate([now, before], axis=2), after


def with_gelu(model, gelu):
    other = copy.deepcopy(model)
    for block in other.blocks:
        block.mlp.gelu_approximation = {"erf": "none", "tanh": "tanh"}[gelu]
    return other


def forward_and_gradients(model, inputs, targets):
    """The first batch, in the model's own precision, as numpy arrays."""
    dtype = model.pos_embed.dtype
    inputs, targets = torch.from_numpy(inputs[0]).to(dtype), torch.from_numpy(targets[0]).to(dtype)
    model.zero_grad(set_to_none=True)
    prediction = model(inputs)
    losses = pytorch_vit.sample_losses(prediction, targets)
    losses.mean().backward()
    with torch.no_grad():
        prediction_tanh = with_gelu(model, "tanh")(inputs)
        forward = {
            "prediction": prediction.numpy(force=True),
            "loss": losses.mean().numpy(force=True),
            "sample_losses": losses.numpy(force=True),
            "channel_rmse": pytorch_vit.channel_rmse(prediction, targets).numpy(force=True),
            "prediction_tanh": prediction_tanh.numpy(force=True),
            "loss_tanh": pytorch_vit.relative_loss(prediction_tanh, targets).numpy(force=True),
        }
    gradients = {name: parameter.grad.numpy(force=True).copy() for name, parameter in model.named_parameters()}
    return forward, gradients


# ---------------------------------------------------------------------------------------------------
# Training curves
# ---------------------------------------------------------------------------------------------------


def make_optimizer(variant, parameters):
    kind = getattr(torch.optim, variant["optimizer"])
    keys = ("lr", "betas", "eps", "momentum", "nesterov", "weight_decay")
    # One tensor at a time: the plainest of PyTorch's implementations.
    return kind(parameters, foreach=False, **{key: variant[key] for key in keys if key in variant})


def train(initial_model, variant, inputs, targets, dtype):
    """STEPS steps; returns losses (before each update), gradient norms (before clipping), learning
    rates, and the final norm of every parameter tensor."""
    model = copy.deepcopy(initial_model).to(dtype)
    optimizer = make_optimizer(variant, model.parameters())
    batches = [(torch.from_numpy(x).to(dtype), torch.from_numpy(y).to(dtype)) for x, y in zip(inputs, targets)]
    losses, gradient_norms, learning_rates = [], [], []
    for step in range(STEPS):
        rate = pytorch_vit.learning_rate_at(step, variant["lr"], STEPS, variant.get("warmup", 0))
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch_inputs, batch_targets = batches[step % BATCHES]
        optimizer.zero_grad(set_to_none=True)
        loss = pytorch_vit.relative_loss(model(batch_inputs), batch_targets)
        loss.backward()
        # Without a limit this only measures.
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), variant.get("grad_clip", math.inf))
        optimizer.step()
        losses.append(loss.item())
        gradient_norms.append(norm.item())
        learning_rates.append(rate)
    norms = {
        name: torch.linalg.vector_norm(parameter.detach().double()).item()
        for name, parameter in model.named_parameters()
    }
    return np.array(losses), np.array(gradient_norms), np.array(learning_rates), norms


# ---------------------------------------------------------------------------------------------------
# Single operations
# ---------------------------------------------------------------------------------------------------


def gelu_cases():
    """Truth by formulas that keep their relative accuracy in the tails, where 1 + erf(x) and
    1 + tanh(x), as PyTorch writes them, cancel to nothing even in float64."""
    generator = np.random.default_rng(SEED + 1)
    tiny = np.array([0.0, 1e-38, 1e-30, 1e-20, 1e-10, 1e-7, 1e-5, 1e-3])
    x = np.concatenate([np.linspace(-12, 12, 193), tiny, -tiny[1:], generator.normal(size=61)]).astype(np.float32)
    grad_output = generator.normal(size=x.shape).astype(np.float32)
    exact = x.astype(np.float64)

    normal_cdf = 0.5 * np.array([math.erfc(-value / math.sqrt(2)) for value in exact])
    normal_density = np.exp(-0.5 * exact**2) / math.sqrt(2 * math.pi)
    erf_slope = normal_cdf + exact * normal_density

    # (1 + tanh(u))/2 is the logistic function of 2u.
    argument = 2 * math.sqrt(2 / math.pi) * (exact + 0.044715 * exact**3)
    argument_slope = 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * exact**2)
    logistic = np.where(argument < 0, np.exp(-abs(argument)), 1.0) / (1 + np.exp(-abs(argument)))
    complement = np.where(argument < 0, 1.0, np.exp(-abs(argument))) / (1 + np.exp(-abs(argument)))
    tanh_slope = logistic + exact * logistic * complement * argument_slope

    cases = {}
    for name, approximation, output, slope in (
        ("erf", "none", exact * normal_cdf, erf_slope),
        ("tanh", "tanh", exact * logistic, tanh_slope),
    ):
        cases[name] = {"x": x, "grad_output": grad_output, "output": output, "grad_x": grad_output * slope}
        leaf = torch.from_numpy(exact).requires_grad_()
        theirs = torch.nn.functional.gelu(leaf, approximate=approximation)
        theirs.backward(torch.from_numpy(grad_output).double())
        np.testing.assert_allclose(output, theirs.numpy(force=True), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(cases[name]["grad_x"], leaf.grad.numpy(), rtol=1e-12, atol=1e-13)
    return cases


def layer_norm_case(x, generator):
    dim = x.shape[-1]
    inputs = {
        "x": x.astype(np.float32),
        "weight": (1 + 0.3 * generator.normal(size=dim)).astype(np.float32),
        "bias": (0.3 * generator.normal(size=dim)).astype(np.float32),
    }
    leaves = {name: torch.from_numpy(value).double().requires_grad_() for name, value in inputs.items()}
    output = torch.nn.functional.layer_norm(
        leaves["x"], (dim,), leaves["weight"], leaves["bias"], pytorch_vit.LAYER_NORM_EPS
    )
    inputs["grad_output"] = generator.normal(size=x.shape).astype(np.float32)
    output.backward(torch.from_numpy(inputs["grad_output"]).double())
    exact = inputs["x"].astype(np.float64)
    return {
        **inputs,
        "output": output.numpy(force=True),
        "mean": exact.mean(axis=-1),
        "rstd": 1 / np.sqrt(exact.var(axis=-1) + pytorch_vit.LAYER_NORM_EPS),
        **{f"grad_{name}": leaf.grad.numpy() for name, leaf in leaves.items()},
    }


def layer_norm_cases():
    generator = np.random.default_rng(SEED + 2)
    rows, dim = 5, 37
    plain = generator.normal(size=(rows, dim))
    small_variance = 1e-3 * generator.normal(size=(rows, dim))  # variance about eps, so that eps matters
    small_variance[0] = 0.25  # variance 0
    offset = 1000.0 + generator.normal(size=(rows, dim))  # a variance by E[x*x] - E[x]^2 fails here
    return {
        "plain": layer_norm_case(plain, generator),
        "small_variance": layer_norm_case(small_variance, generator),
        "offset": layer_norm_case(offset, generator),
    }


def attention_case(score_scale, generator):
    """q, k, v and output are [B, N, heads * d], head i in channels [i*d, (i+1)*d)."""
    batch, tokens, heads, head_dim = 2, 13, 3, 8
    inputs = {name: generator.normal(size=(batch, tokens, heads * head_dim)).astype(np.float32) for name in "qkv"}
    inputs["q"] *= np.float32(score_scale)
    grad_output = generator.normal(size=inputs["q"].shape).astype(np.float32)
    leaves = {name: torch.from_numpy(value).double().requires_grad_() for name, value in inputs.items()}
    query, key, value = (leaves[name].unflatten(-1, (heads, head_dim)).transpose(1, 2) for name in "qkv")
    # Written out, so that it checks the fused function the model uses, below.
    scores = query @ key.transpose(-2, -1) / math.sqrt(head_dim)
    output = (scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(2)
    fused = torch.nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
    torch.testing.assert_close(output, fused, rtol=1e-12, atol=1e-13)
    output.backward(torch.from_numpy(grad_output).double())
    case = {**inputs, "grad_output": grad_output, "output": output.numpy(force=True)}
    case.update({f"grad_{name}": leaf.grad.numpy() for name, leaf in leaves.items()})
    attributes = {"num_heads": heads, "head_dim": head_dim, "largest_score": scores.abs().max().item()}
    return case, attributes


# ---------------------------------------------------------------------------------------------------
# Files
# ---------------------------------------------------------------------------------------------------


def create_file(name):
    # The 1.10 format has no per-dataset index for single chunks: many small tensors stay small.
    return h5py.File(HERE / name, "w", libver=("v110", "v110"))


def write(group, name, values):
    values = np.asarray(values)
    if values.size >= 256:
        group.create_dataset(name, data=values, chunks=values.shape, compression="gzip", compression_opts=9, shuffle=True)
    else:
        group.create_dataset(name, data=values)


def write_all(group, tensors):
    for name, values in tensors.items():
        write(group, name, values)


def write_vit():
    model = make_model()
    model64 = copy.deepcopy(model).double()
    inputs, targets = make_batches()
    with create_file("vit.h5") as file:
        file.attrs.update(
            img_size=[HEIGHT, WIDTH], patch_size=PATCH_SIZE, n_channels=CHANNELS, n_history=N_HISTORY,
            n_in_channels=N_IN_CHANNELS, n_out_channels=N_OUT_CHANNELS, embed_dim=EMBED_DIM, depth=DEPTH,
            num_heads=NUM_HEADS, layer_norm_eps=pytorch_vit.LAYER_NORM_EPS, batches=BATCHES,
            batch_size=BATCH_SIZE, steps=STEPS, torch_version=str(torch.__version__),
        )  # fmt: skip
        write_all(file.create_group("parameters"), {n: p.numpy(force=True) for n, p in model.named_parameters()})
        write(file, "inputs", inputs)
        write(file, "targets", targets)

        forward, gradients = forward_and_gradients(model64, inputs, targets)
        forward32, gradients32 = forward_and_gradients(model, inputs, targets)
        group = file.create_group("forward")
        write_all(group, forward)
        write_all(group, {f"{name}_float32": values for name, values in forward32.items()})
        write_all(file.create_group("gradients"), {n: g.astype(np.float32) for n, g in gradients.items()})
        write_all(file.create_group("gradients_float32"), gradients32)
        report_forward(forward, forward32, gradients, gradients32)

        training = file.create_group("training")
        for name, variant in VARIANTS.items():
            losses64, norms64, rates, final64 = train(model, variant, inputs, targets, torch.float64)
            losses32, norms32, _, final32 = train(model, variant, inputs, targets, torch.float32)
            group = training.create_group(name)
            group.attrs.update({"lr_schedule": "cosine", "num_iters": STEPS, "warmup": 0, **variant})
            write(group, "losses", losses32)
            write(group, "losses_float64", losses64)
            write(group, "grad_norms", norms32)
            write(group, "grad_norms_float64", norms64)
            write(group, "learning_rates", rates)
            write_all(group.create_group("final_norms"), final64)
            report_training(name, variant, losses32, losses64, norms32, norms64, final32, final64)


def losses_of(prediction, wanted, there, variant):
    """Of each sample: over its points that are there, weighted; relative_l2 without weights is the model's own."""
    channels, height = wanted.shape[1:3]
    channel_weights = torch.tensor(variant.get("channel_weights", [1.0] * channels), dtype=torch.float64)
    weights = channel_weights[:, None, None] * there
    if variant.get("latitude_weights"):
        weights = weights * pytorch_vit.latitude_weights(height)[:, None]
    if variant["loss"] == "relative_l2" and "channel_weights" not in variant:
        return pytorch_vit.sample_losses(torch.where(there, prediction, 0.0), wanted)
    errors = prediction - wanted
    if variant["loss"] == "relative_l2":
        squares = (weights * errors**2).sum(dim=(1, 2, 3)), (weights * wanted**2).sum(dim=(1, 2, 3))
        return (squares[0] / squares[1]).sqrt()
    errors = errors.abs() if variant["loss"] == "mae" else errors**2
    return (weights * errors).sum(dim=(1, 2, 3)) / weights.sum(dim=(1, 2, 3))


def ten_steps(model, seen, wanted, there, variant):
    """In float64, with Adam, on one batch that may have missing points: the losses, what the first step has, its
    gradients, and the loss of the average of the weights behind the last one."""
    height, width = wanted.shape[-2:]
    trained = copy.deepcopy(model)
    averaged = torch.optim.swa_utils.AveragedModel(
        trained, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(EMA_DECAY)
    )
    optimizer = make_optimizer({**ADAM, "lr": 1e-3}, trained.parameters())
    curve = []
    for step in range(10):
        for group in optimizer.param_groups:
            group["lr"] = pytorch_vit.learning_rate_at(step, 1e-3, 10)
        optimizer.zero_grad(set_to_none=True)
        prediction = trained(seen)[..., :height, :width]
        losses = losses_of(prediction, wanted, there, variant)
        losses.mean().backward()
        if step == 0:
            gradients = {n: p.grad.numpy(force=True).astype(np.float32) for n, p in trained.named_parameters()}
            weights = pytorch_vit.latitude_weights(height)[:, None] * there
            squares = (weights * (prediction - wanted) ** 2).sum(dim=(-2, -1)) / weights.sum(dim=(-2, -1))
            first = {
                "prediction": prediction.numpy(force=True),
                "sample_losses": losses.numpy(force=True),
                # the mean over those samples that have the channel
                "channel_rmse": squares.sqrt().nanmean(dim=0).numpy(force=True),
            }
        optimizer.step()
        averaged.update_parameters(trained)
        curve.append(losses.mean().item())
    with torch.no_grad():
        of_average = losses_of(averaged(seen)[..., :height, :width], wanted, there, variant).mean().item()
    return np.array(curve), first, gradients, of_average


def write_case(name, model, tensors, seen, wanted, variants):
    """One golden file: a model on one batch, with the default loss and with those of the variants."""
    parameters = {n: p.numpy(force=True).copy() for n, p in model.named_parameters()}
    model, there, wanted = model.double(), ~wanted.isnan(), wanted.nan_to_num(0.0)
    curve, first, gradients, of_average = ten_steps(model, seen, wanted, there, {"loss": "relative_l2"})
    with create_file(name) as file:
        file.attrs.update(torch_version=str(torch.__version__))
        write_all(file, {**tensors, "losses": curve, "average_loss": of_average, **first})
        write_all(file.create_group("parameters"), parameters)
        write_all(file.create_group("gradients"), gradients)
        for loss, variant in variants.items():
            losses, _, of_loss, _ = ten_steps(model, seen, wanted, there, variant)
            group = file.create_group(f"loss/{loss}")
            group.attrs.update(variant)
            write_all(group, {"losses": losses})
            if "channel_weights" in variant:
                write_all(group.create_group("gradients"), of_loss)
            print(f"{name}, {loss}: losses {losses[0]:.6f} ... {losses[-1]:.6f}")
    print(f"{name}: losses {curve[0]:.6f} ... {curve[-1]:.6f}, {int(there.sum())} of {there.numel()} points")


def make_awkward_model(seed, *sizes):
    """The usual initial weights are small; these are not, but for the embedding's."""
    torch.manual_seed(seed)
    model = pytorch_vit.VisionTransformer(*sizes)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.startswith("patch_embed"):
                parameter.copy_(0.2 * torch.randn_like(parameter))
    return model


def with_mask(fields):
    return torch.cat([fields.nan_to_num(0.0), (~fields.isnan()).double()], dim=1)


def write_gaps():
    """Points that are missing, on a grid that patches do not fill: 11 x 13 in patches of 4, so the model sees 12 x 16."""
    height, width, patch, channels, batch = 11, 13, 4, 2, 3
    generator = np.random.default_rng(SEED + 4)
    shape = (batch, 2 * channels, height, width)
    inputs, targets = generator.normal(size=shape), generator.normal(size=(batch, channels, height, width))
    inputs[generator.uniform(size=shape) < 0.2] = np.nan
    targets[generator.uniform(size=targets.shape) < 0.3] = np.nan
    inputs[:, 0, 4:7, 5:10] = targets[:, 0, 4:7, 5:10] = np.nan  # land
    targets[1, 1] = np.nan  # a channel that one sample lacks
    inputs, targets = inputs.astype(np.float32), targets.astype(np.float32)
    model = make_awkward_model(SEED + 4, (12, 16), patch, 4 * channels, channels, 16, 1, 2)
    seen = with_mask(torch.from_numpy(inputs).double())
    seen = torch.nn.functional.pad(seen, (0, 3, 0, 0), mode="circular")  # the first columns again, in the east
    seen = torch.nn.functional.pad(seen, (0, 0, 0, 1), mode="replicate")  # the last row again, in the south
    tensors = {"inputs": inputs, "targets": targets}
    write_case("gaps.h5", model, tensors, seen, torch.from_numpy(targets).double(), LOSSES)


def write_forcings():
    """Forcings behind the input's channels and their mask: 9 x 7 points in patches of 3, so the model sees 9 x 9."""
    height, width, patch, channels, forcings, batch = 9, 7, 3, 2, 3, 3
    generator = np.random.default_rng(SEED + 5)
    shape = (batch, channels, height, width)
    inputs, targets = generator.normal(size=shape), generator.normal(size=shape)
    inputs[generator.uniform(size=shape) < 0.2] = np.nan
    known = generator.normal(size=(batch, forcings, height, width)).astype(np.float32)
    inputs, targets = inputs.astype(np.float32), targets.astype(np.float32)
    model = make_awkward_model(SEED + 5, (9, 9), patch, 2 * channels + forcings, channels, 16, 1, 2)
    seen = torch.cat([with_mask(torch.from_numpy(inputs).double()), torch.from_numpy(known).double()], dim=1)
    seen = torch.nn.functional.pad(seen, (0, 2, 0, 0), mode="replicate")  # the last column again, in the east
    tensors = {"inputs": inputs, "targets": targets, "forcings": known}
    write_case("forcings.h5", model, tensors, seen, torch.from_numpy(targets).double(), {})


def write_rollout(file_name, forcings, kinds):
    """Losses over three steps of forecast, each from the one before, on the grid of write_gaps; with predict: state and
    tendency, with points that are missing, and with forcings of each step."""
    height, width, patch, channels, batch, steps = 11, 13, 4, 2, 3, 3
    generator = np.random.default_rng(SEED + 5)
    inputs = generator.normal(size=(batch, 2 * channels, height, width))  # the newest time first
    targets = generator.normal(size=(batch, steps, channels, height, width))
    changes = np.array([0.5, 0.25], np.float32)
    gaps_in, gaps_out = generator.uniform(size=inputs.shape) < 0.2, generator.uniform(size=targets.shape) < 0.3
    inputs, targets = inputs.astype(np.float32), targets.astype(np.float32)
    known = generator.normal(size=(batch, steps, forcings, height, width)).astype(np.float32)
    with_gaps = np.where(gaps_in, np.float32(np.nan), inputs), np.where(gaps_out, np.float32(np.nan), targets)

    model32 = make_awkward_model(SEED + 5, (12, 16), patch, 2 * channels + forcings, channels, 16, 1, 2)

    def output_of(model, times, step):
        seen = torch.cat([*times, torch.from_numpy(known[:, step]).double()], dim=1).nan_to_num(0.0)
        seen = torch.nn.functional.pad(seen, (0, 3, 0, 0), mode="circular")
        seen = torch.nn.functional.pad(seen, (0, 0, 0, 1), mode="replicate")
        return model(seen)[..., :height, :width]

    def step_losses(model, fields, wanted, tendency):
        times = [fields[:, :channels], fields[:, channels:]]  # the newest first
        losses = []
        for step in range(steps):
            newest = times[0]
            state = output_of(model, times, step)
            if tendency:
                state = newest + torch.from_numpy(changes).double()[:, None, None] * state
            target = wanted[:, step]
            there = ~(target.isnan() | state.isnan())
            losses.append(pytorch_vit.sample_losses(
                torch.where(there, state, 0.0), torch.where(there, target, 0.0)))  # fmt: skip
            times = [torch.where(newest.isnan(), torch.nan, state), newest]
        return torch.stack(losses)  # [step, sample]

    with create_file(file_name) as file:
        file.attrs.update(torch_version=str(torch.__version__))
        if forcings > 0:
            write(file, "forcings", known)
        write_all(file, {"inputs": inputs, "targets": targets, "inputs_gaps": with_gaps[0], "targets_gaps": with_gaps[1],
                         "changes": changes})  # fmt: skip
        write_all(file.create_group("parameters"), {n: p.numpy(force=True) for n, p in model32.named_parameters()})
        for kind in kinds:
            tendency, gaps = kind.startswith("tendency"), kind.endswith("gaps")
            model = copy.deepcopy(model32).double()
            fields, wanted = (torch.from_numpy(a).double() for a in (with_gaps if gaps else (inputs, targets)))
            optimizer = make_optimizer({**ADAM, "lr": 1e-3}, model.parameters())
            curve, group = [], file.create_group(kind)
            for step in range(10):
                for rates in optimizer.param_groups:
                    rates["lr"] = pytorch_vit.learning_rate_at(step, 1e-3, 10)
                optimizer.zero_grad(set_to_none=True)
                losses = step_losses(model, fields, wanted, tendency)
                losses.mean().backward()
                if step == 0:
                    write(group, "step_losses", losses.numpy(force=True))
                    write_all(group.create_group("gradients"),
                              {n: p.grad.numpy(force=True).astype(np.float32) for n, p in model.named_parameters()})
                optimizer.step()
                curve.append(losses.mean().item())
            write(group, "losses", np.array(curve))
            print(f"{file_name}, {kind}: losses {curve[0]:.6f} ... {curve[-1]:.6f}")


def write_operations():
    generator = np.random.default_rng(SEED + 3)
    with create_file("operations.h5") as file:
        file.attrs.update(layer_norm_eps=pytorch_vit.LAYER_NORM_EPS, torch_version=str(torch.__version__))
        for operation, cases in (("gelu", gelu_cases()), ("layer_norm", layer_norm_cases())):
            for name, tensors in cases.items():
                write_all(file.create_group(f"{operation}/{name}"), tensors)
        for name, score_scale in (("plain", 1.0), ("large_scores", 60.0)):
            tensors, attributes = attention_case(score_scale, generator)
            group = file.create_group(f"attention/{name}")
            group.attrs.update(attributes)
            write_all(group, tensors)
            print(f"attention/{name}: largest |score| {attributes['largest_score']:.4g}")


# ---------------------------------------------------------------------------------------------------
# The table for README.md
# ---------------------------------------------------------------------------------------------------


def relative_difference(values, truth):
    return np.max(np.abs(np.asarray(values) - truth) / np.abs(truth))


def is_key_bias(name):
    """The exact gradient is 0 (softmax does not see what is added to a whole row of scores)."""
    return name.endswith("attn.k.bias")


def report_forward(forward, forward32, gradients, gradients32):
    difference = {
        name: np.linalg.norm(gradients32[name] - truth) / np.linalg.norm(truth)
        for name, truth in gradients.items()
        if not is_key_bias(name)
    }
    worst = max(difference, key=difference.get)
    largest = {name: np.abs(truth).max() for name, truth in gradients.items() if not is_key_bias(name)}
    per_element = max(np.abs(gradients32[name] - gradients[name]).max() / largest[name] for name in largest)
    smallest = min(largest, key=largest.get)
    key_bias = max(np.abs(g).max() for n, g in gradients32.items() if is_key_bias(n))
    print(f"loss {forward['loss']:.9f}, with tanh {forward['loss_tanh']:.9f}; channel_rmse {forward['channel_rmse']}")
    tanh_effect = np.abs(forward["prediction_tanh"] - forward["prediction"]).max()
    print(f"prediction with tanh differs from that with erf by at most {tanh_effect:.1e}")
    print(f"float32 - float64: loss {relative_difference(forward32['loss'], forward['loss']):.1e} relative, "
          f"prediction {np.abs(forward32['prediction'] - forward['prediction']).max():.1e} absolute")
    print(f"gradients: largest ||difference||/||truth|| of a tensor {difference[worst]:.1e} ({worst}); "
          f"largest |difference|/max|truth| of an element {per_element:.1e}; "
          f"tensor of the smallest gradients {smallest}, max {largest[smallest]:.1e}; "
          f"k.bias float32 noise {key_bias:.1e}")


def report_training(name, variant, losses32, losses64, norms32, norms64, final32, final64):
    clipped = int(np.sum(norms64 > variant.get("grad_clip", math.inf)))
    names = [n for n in final64 if not is_key_bias(n)]
    final = relative_difference([final32[n] for n in names], np.array([final64[n] for n in names]))
    print(f"| `{name}` | {losses64[0]:.4f} | {losses64[-1]:.4f} | {relative_difference(losses32, losses64):.1e} "
          f"| {relative_difference(norms32, norms64):.1e} | {final:.1e} "
          f"| {norms64.min():.3f} … {norms64.max():.3f} | {clipped} |")


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    write_vit()
    write_gaps()
    write_forcings()
    write_rollout("rollout.h5", 0, ("state", "tendency", "state_gaps", "tendency_gaps"))
    write_rollout("rollout_forcings.h5", 2, ("state_gaps", "tendency"))
    write_operations()


if __name__ == "__main__":
    main()
