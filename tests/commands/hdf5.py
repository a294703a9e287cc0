# The beginning of every program of in_python (common): HDF5 files, netCDF-4 files and checkpoints.
import csv, glob, os, shutil, sys
import h5py
import numpy as np


def scale(f, name, values, **attributes):
    """A coordinate that is its own dimension."""
    f[name] = values
    f[name].attrs.update(attributes)
    f[name].make_scale(name)


def variable(f, name, values, scales, storage={}, **attributes):
    """Over dimensions with these scales."""
    f.create_dataset(name, data=values, **storage).attrs.update(attributes)
    for dimension, of in enumerate(scales): f[name].dims[dimension].attach_scale(f[of])


def write_checksum(directory):
    """The checksum of a checkpoint.h5 that was changed."""
    crc = 0xffffffff
    for byte in open(f"{directory}/checkpoint.h5", "rb").read():
        crc ^= byte
        for _ in range(8): crc = crc >> 1 ^ 0x82f63b78 * (crc & 1)
    open(f"{directory}/checkpoint.crc32c", "w").write(f"{crc ^ 0xffffffff:08x}  checkpoint.h5\n")
