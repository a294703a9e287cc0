"""Weights that a PyTorch program saved, as a .safetensors file for vitrain's --init_from.

    python bench/from_pytorch.py FILE_OR_DIRECTORY OUTPUT.safetensors

Reads what torch.save wrote: a state_dict, alone or in a dictionary beside other things ("model", "state_dict",
"model_state", ...), or a whole module, also wrapped by DDP or torch.compile; the program that defines its class is not
needed. (As ever with such files, read only those of people whom you trust.) Reads a directory of
torch.distributed.checkpoint (DCP), however many ranks wrote it. Names lose the wrappers' prefixes; nothing else is
changed. Needs torch and safetensors.
"""

import os
import pickle
import sys
import tempfile
import types

import torch
from safetensors.torch import save_file

WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
OWN = ("torch", "collections", "numpy")  # packages whose classes are taken as they are, but for those of modules:
MODULES = ("torch.nn.modules", "torch.nn.parallel", "torch.distributed.fsdp", "torch.distributed.algorithms",
           "torch._dynamo")  # fmt: skip


class Unknown:
    """Stands for an object of a class that is not here; keeps its attributes, and what it was made of."""

    def __init__(self, *arguments, **named):
        self.arguments = arguments

    def __setstate__(self, state):
        if isinstance(state, dict):
            self.__dict__.update(state)

    def __setitem__(self, key, value):
        pass

    def append(self, value):
        pass

    def __call__(self, *arguments, **named):
        return Unknown()


class Unpickler(pickle.Unpickler):
    """Classes that torch itself does not need become Unknown, so no code of the file's program runs."""

    def find_class(self, module, name):
        if module.split(".")[0] in OWN and not module.startswith(MODULES):
            return super().find_class(module, name)
        return Unknown


PICKLE = types.SimpleNamespace(Unpickler=Unpickler, load=pickle.load, loads=pickle.loads, __name__="pickle")


def tensors_of(value, prefix=""):
    """The tensors of a state_dict or a module, by their names."""
    if isinstance(value, dict):
        return {name: t for name, t in value.items() if isinstance(name, str) and isinstance(t, torch.Tensor)}
    found = {}
    for kind in ("_parameters", "_buffers"):
        for name, tensor in getattr(value, kind, {}).items():
            if tensor is not None:
                found[prefix + name] = tensor
    for name, module in getattr(value, "_modules", {}).items():
        found.update(tensors_of(module, prefix + name + "."))
    for part in getattr(value, "arguments", ()):  # torch.compile's module is made of the real one
        found.update(tensors_of(part, prefix))
    return found


def weights_in(value):
    """The largest state_dict or module in what was saved. (An optimizer's state is a dictionary for each parameter.)"""
    found = tensors_of(value)
    for part in value.values() if isinstance(value, dict) else ():
        found = max(found, weights_in(part), key=len)
    return found


def whole(name, tensor):
    """A plain tensor; of a rank's part of one there is only an error to tell."""
    if not hasattr(tensor, "placements"):
        return tensor.detach().contiguous().clone()
    if tensor.device_mesh.size() > 1 and any(place.is_shard() for place in tensor.placements):
        sys.exit(f"'{name}' is one rank's part of a tensor: save the full state, or with torch.distributed.checkpoint")
    return whole(name, tensor.to_local())


def load(path):
    if not os.path.isdir(path):
        return torch.load(path, map_location="cpu", weights_only=False, pickle_module=PICKLE)
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    with tempfile.TemporaryDirectory() as directory:
        dcp_to_torch_save(path, directory + "/whole.pt")
        return torch.load(directory + "/whole.pt", map_location="cpu", weights_only=False, pickle_module=PICKLE)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        weights = weights_in(load(sys.argv[1]))
    except Exception as error:
        sys.exit(f"{sys.argv[1]}: can't be read as a file of torch.save, nor as a directory of DCP: {error}")
    if not weights:
        sys.exit(f"{sys.argv[1]}: holds no weights: neither a state_dict nor a module was found")
    plain = {}
    for name, tensor in weights.items():
        parts = [part for part in name.split(".") if part not in WRAPPERS]
        plain[".".join(parts)] = whole(name, tensor)
    save_file(plain, sys.argv[2])
    print(f"{sys.argv[2]}: {len(plain)} tensors, {sum(t.numel() for t in plain.values())} numbers")


if __name__ == "__main__":
    main()
