"""Fills a synthetic data set with real numbers, for `vitrain bench io` on gzip data. Each field is tiled with small fields
of another set, drawn at random, so that it compresses like real data and unlike the noise of `vitrain synth`.

    python bench/real_fields.py DIR/train/YEAR.h5 SMALL.h5 [SMALL.h5 ...]

Both sides of the grid must be multiples of those of the small fields. Needs numpy and h5py."""
import sys

import h5py
import numpy


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    small = []
    for path in sys.argv[2:]:
        with h5py.File(path, "r") as file:
            fields = file["fields"][:]
            small.append(fields.reshape(-1, *fields.shape[2:]))
    small = numpy.concatenate(small)
    with h5py.File(sys.argv[1], "r+") as file:
        fields = file["fields"]
        down, across = fields.shape[2] // small.shape[1], fields.shape[3] // small.shape[2]
        if (down * small.shape[1], across * small.shape[2]) != fields.shape[2:]:
            sys.exit(f"{sys.argv[1]}: its grid {fields.shape[2:]} is no multiple of {small.shape[1:]}")
        random = numpy.random.default_rng(1)
        for time in range(fields.shape[0]):
            for channel in range(fields.shape[1]):
                tiles = small[random.choice(len(small), down * across)].reshape(down, across, *small.shape[1:])
                fields[time, channel] = tiles.transpose(0, 2, 1, 3).reshape(fields.shape[2:])
        stored = fields.id.get_storage_size()
        print(f"{fields.shape} in chunks of {fields.chunks}: {fields.size * 4 / stored:.2f} to 1")


main()
