"""Beside bench/io: `write STORE` makes a Zarr store of version 2 with smooth random fields, blosc (lz4) in chunks of one time, all
levels and the whole grid; `read STORE` loads samples (two neighbouring times of all variables) in random order through xarray
and dask, with two threads, in batches of four, and prints samples a second of the best round."""
import sys, time
import numpy as np, xarray

what, store = sys.argv[1:3]
TIMES, LEVELS, ROWS, COLUMNS = 60, 10, 360, 720
names = ["2m_temperature", "geopotential", "temperature"]
if what == "write":
    random = np.random.default_rng(0)
    y, x = np.arange(ROWS)[:, None] / 40, np.arange(COLUMNS) / 50
    field = lambda k: (280 + 10 * np.sin(x + y + k) + 0.01 * random.standard_normal((ROWS, COLUMNS))).astype("f4")
    data = {names[0]: (("time", "latitude", "longitude"), np.stack([field(t) for t in range(TIMES)]))}
    for n in names[1:]:
        data[n] = (("time", "level", "latitude", "longitude"),
                   np.stack([[field(t + k) for k in range(LEVELS)] for t in range(TIMES)]))
    coordinates = {"time": np.datetime64("2001-01-01", "ns") + np.arange(TIMES) * np.timedelta64(6 * 3600 * 10**9, "ns"),
                   "level": np.arange(100, 100 * LEVELS + 1, 100), "latitude": np.linspace(90, -90, ROWS),
                   "longitude": np.arange(COLUMNS) / 2}
    import numcodecs
    chunks = {n: {"chunks": tuple(1 if d == "time" else s for d, s in zip(v[0], v[1].shape)),
                  "compressors": [numcodecs.Blosc("lz4", 5, 1)]} for n, v in data.items()}
    xarray.Dataset(data, coordinates).to_zarr(store, mode="w", zarr_format=2, encoding=chunks)
else:
    import dask
    dask.config.set(scheduler="threads", num_workers=2)
    data = xarray.open_zarr(store)
    best = 0
    for r in range(3):
        order = np.random.default_rng(r).permutation(TIMES - 1)[:24]
        begin = time.time()
        for first in range(0, 24, 4):
            for t in (0, 1):
                part = data.isel(time=np.sort(order[first : first + 4]) + t).load()
                batch = [part[n].values for n in names]
        best = max(best, 24 / (time.time() - begin))
    print(f"xarray and dask {best:8.1f} samples/s")
