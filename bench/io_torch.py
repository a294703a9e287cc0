"""Times a PyTorch DataLoader over h5py, as in the tutorials, for comparison with vitrain's reader: a sample is fields[t]
and fields[t + 1] of a yearly file, float32, shuffled. Prints samples/s and GB/s, the medians of several rounds.

    python bench/io_torch.py DATA_DIR --batch 4 --workers 2 --batches 24 --height 360 --width 720 --channels 20
"""
import argparse
import glob
import os
import statistics
import time

os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")
import h5py
import torch
from torch.utils.data import DataLoader, Dataset


class Years(Dataset):
    def __init__(self, directory, channels, height, width):
        self.paths = sorted(glob.glob(os.path.join(directory, "*.h5")))
        self.window = (slice(0, channels), slice(0, height), slice(0, width))
        self.index = []
        for number, path in enumerate(self.paths):
            with h5py.File(path) as file:
                self.index += [(number, t) for t in range(len(file["fields"]) - 1)]
        self.files = [None] * len(self.paths)

    def __len__(self):
        return len(self.index)

    def __getitem__(self, sample):
        number, t = self.index[sample]
        if self.files[number] is None:
            self.files[number] = h5py.File(self.paths[number], "r")["fields"]
        fields = self.files[number]
        return torch.as_tensor(fields[(t, *self.window)]), torch.as_tensor(fields[(t + 1, *self.window)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data_dir")
    for name, value in dict(batch=4, workers=2, batches=24, rounds=5, height=360, width=720, channels=20).items():
        parser.add_argument("--" + name, type=int, default=value)
    a = parser.parse_args()
    years = Years(os.path.join(a.data_dir, "train"), a.channels, a.height, a.width)
    loader = DataLoader(years, a.batch, shuffle=True, num_workers=a.workers, drop_last=True,
                        persistent_workers=a.workers > 0)
    rates = []
    for _ in range(a.rounds + 1):
        batches, start = iter(loader), None
        for i, _ in enumerate(batches):
            if start is None:  # the first batch is here: the workers have started
                start = time.perf_counter()
            elif i == a.batches:
                break
        rates.append(i * a.batch / (time.perf_counter() - start))
        for _ in batches:  # take one more of the requested batches
            break
    rate = statistics.median(rates[1:])
    size = 2 * a.channels * a.height * a.width * 4
    print(f"{'DataLoader':12} {rate:10.1f} samples/s {rate * size * 1e-9:8.3f} GB/s")


if __name__ == "__main__":
    main()
