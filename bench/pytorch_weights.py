"""Converts weights from PyTorch to vitrain and back, and compares losses and forecasts.

    python bench/pytorch_weights.py ./vitrain

Needs torch, numpy, h5py and safetensors. Makes a synthetic data set and runs in a temporary directory. Each line of
output is a comparison; the exit status is 1 if one is out of bounds.

Shapes in comments: T times, C channels, H x W grid points.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import h5py
import numpy as np
import torch
import torch.distributed.checkpoint
from safetensors.torch import load_file, save_file

from pytorch_vit import VisionTransformer, relative_loss

HERE = pathlib.Path(__file__).resolve().parent
MOST_LOSS = 2e-6  # relative; float32 sums in another order
MOST_FIELD = 2e-5  # standard deviations; float32 fields in the units of the data have about six digits beside the mean
SIZES = {"img_size": (16, 32), "patch_size": 4, "n_in_channels": 3, "n_out_channels": 3, "embed_dim": 16, "depth": 2,
         "num_heads": 2}  # fmt: skip
FLAGS = ["--config=demo", "--data_dir=data", "--expdir=runs", "--global_batch_size=8", "--num_epochs=1"]
FLAGS += [f"--{name}={list(size) if name == 'img_size' else size}".replace(" ", "") for name, size in SIZES.items()]


def run(program, *arguments):
    """What it prints."""
    done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout)
    return done.stdout


def normalised(split):
    """The fields of a set, [T, C, H, W]."""
    means, stds = statistics()
    (path,) = pathlib.Path("data", split).glob("*.h5")
    with h5py.File(path) as file:
        return torch.tensor((file["fields"][:] - means) / stds, dtype=torch.float32)


def statistics():
    return [np.load(f"data/stats/global_{name}.npy").reshape(-1, 1, 1) for name in ("means", "stds")]


@torch.no_grad()
def loss_of(model, split):
    fields = normalised(split)
    return relative_loss(model(fields[:-1]), fields[1:]).item()


def joined(weights):
    """The weights with q, k and v in one tensor, as in the tutorial of 2023."""
    result = {}
    for name, value in weights.items():
        if ".attn.q." in name:
            parts = [weights[name.replace(".q.", part)] for part in (".q.", ".k.", ".v.")]
            result[name.replace(".q.", ".qkv.")] = torch.cat(parts)
        elif ".attn.k." not in name and ".attn.v." not in name:
            result[name] = value
    return result


def forms_of(model):
    """The same weights in the forms in which PyTorch programs write them."""
    wrap = torch.nn.DataParallel
    yield "as it is", model.state_dict()
    yield "module.", wrap(model).state_dict()
    yield "_orig_mod.", torch.compile(model).state_dict()
    yield "module._orig_mod.", wrap(torch.compile(model)).state_dict()
    yield "_orig_mod.module.", torch.compile(wrap(model)).state_dict()
    yield "qkv", joined(model.state_dict())
    yield "float64", {name: value.double() for name, value in model.state_dict().items()}


def files_of(model):
    """What programs save besides: names of files, or directories."""
    state = model.state_dict()
    torch.save(model, "whole.pt")
    torch.save(torch.nn.DataParallel(model), "wrapped.pt")
    torch.save({"epoch": 3, "model_state": state, "rates": torch.ones(3)}, "inside.pt")
    torch.distributed.checkpoint.save({"model": state, "step": torch.tensor(3)}, checkpoint_id="dcp")
    return "whole.pt", "wrapped.pt", "inside.pt", "dcp"


def compare(what, ours, theirs, most):
    difference = abs(ours - theirs) / abs(theirs)
    print(f"{what}: vitrain {ours:.9g}, PyTorch {theirs:.9g}, relative difference {difference:.1e} (most {most:g})")
    return difference <= most


def start_from(program, name, expected):
    """Compares the losses of a run that starts from model.safetensors and does not change it (learning rate 0)."""
    good = True
    log = run(program, *FLAGS, "--run_num=" + re.sub(r"\W", "_", name), "--init_from=model.safetensors", "--lr=0")
    found = {"valid": r"Avg val loss=(\S+)", "test": r"Final test loss: (\S+)"}
    for split, line in found.items():
        good &= compare(f"{name}, loss of {split}", float(re.search(line, log)[1]), expected[split], MOST_LOSS)
    return good


def to_vitrain(program, model):
    good = True
    expected = {split: loss_of(model, split) for split in ("valid", "test")}
    for form, weights in forms_of(model):
        save_file({name: value.contiguous() for name, value in weights.items()}, "model.safetensors")
        good &= start_from(program, form, expected)
    for path in files_of(model):
        run(sys.executable, HERE / "from_pytorch.py", path, "model.safetensors")
        good &= start_from(program, path, expected)
    return good


def to_pytorch(program, fresh):
    """Compares loss and forecast of a model that vitrain trained."""
    log = run(program, *FLAGS, "--run_num=trained", "--num_epochs=3")
    run(program, "export", "runs/demo/1CPU/trained", "--output=trained.safetensors")
    fresh.load_state_dict(load_file("trained.safetensors"))
    last = float(re.findall(r"Avg val loss=(\S+)", log)[-1])
    good = compare("export, loss of valid", last, loss_of(fresh, "valid"), MOST_LOSS)
    run(program, "predict", "runs/demo/1CPU/trained", "--time=2002-01-02T06:00", "--rollout=1", "--output=one.nc")
    means, stds = statistics()
    with h5py.File("one.nc") as file, torch.no_grad():
        forecast = np.stack([file[name][0] for name in ("u10", "v10", "t2m")])
        expected = fresh(normalised("valid")[5:6])[0].numpy()  # 30 hours into the set
    largest = np.abs((forecast - means) / stds - expected).max()
    print(f"forecast: largest difference {largest:.1e} standard deviations (most {MOST_FIELD:g})")
    return good and largest <= MOST_FIELD


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: python bench/pytorch_weights.py ./vitrain")
    program = str(pathlib.Path(sys.argv[1]).resolve())
    torch.manual_seed(3)
    with tempfile.TemporaryDirectory() as directory:
        FLAGS.insert(0, f"--yaml_config={HERE.parent / 'config/ViT.yaml'}")
        os.chdir(directory)
        run(program, "synth", "data", "--img_size=[16,32]", "--channels=3", "--years=1", "--steps_per_year=61",
            "--valid_steps=33", "--test_steps=29")  # fmt: skip
        model = VisionTransformer(**SIZES)
        for value in model.parameters():
            value.data += 0.05 * torch.randn_like(value)  # biases and norms no longer have their initial zeros and ones
        good = to_vitrain(program, model)
        good &= to_pytorch(program, VisionTransformer(**SIZES))
        os.chdir("/")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
