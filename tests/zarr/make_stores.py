"""Makes tests/zarr/stores.tar.gz: small Zarr stores of every codec, type and order, and netCDF copies of their fields.

    python2 make_stores.py DIR    with zarr 2.18 and xarray: the stores of version 2
    python3 make_stores.py DIR    with zarr 3.1 and xarray: those of version 3, and stores.tar.gz

Both in virtual environments with numcodecs, xarray, dask, netCDF4 (the archive was made with numcodecs 0.15 and 0.16).
"""
import os, sys, tarfile
import numcodecs, numpy as np, xarray as xr, zarr

root = sys.argv[1]
os.makedirs(root, exist_ok=True)
version = int(zarr.__version__.split(".")[0])
random = np.random.default_rng(1)
TIMES, LEVELS, ROWS, COLUMNS = 60, [500, 850], 8, 12
times = np.arange(TIMES) * 6
phase = 2 * np.pi * (times[:, None, None] / 40 + np.arange(COLUMNS) / COLUMNS + np.arange(ROWS)[:, None] / 7)
t2m = (280 + 10 * np.sin(phase) + random.normal(size=phase.shape)).round(1).astype("f4")
z = np.stack([50000 + 300 * np.cos(phase), 15000 + 200 * np.sin(2 * phase)], 1).round(0).astype("f4")
latitudes, longitudes = np.linspace(70, 0, ROWS), np.arange(COLUMNS) * 30.0
units = {"units": "hours since 2001-12-20 00:00:00", "calendar": "proleptic_gregorian"}
full = xr.Dataset({"t2m": (("time", "lat", "lon"), t2m, {"units": "K"}),
                   "z": (("time", "level", "lat", "lon"), z, {"units": "m2 s-2"})},
                  {"time": ("time", times, units), "level": ("level", LEVELS, {"units": "hPa"}),
                   "lat": ("lat", latitudes, {"units": "degrees_north"}),
                   "lon": ("lon", longitudes, {"units": "degrees_east"})})
small = full.isel(time=slice(0, 7))


def coordinates(group, data, names=("time", "level", "lat", "lon")):
    for name in names:
        values = data[name].values
        if version == 2:
            array = group.create_dataset(name, data=values, fill_value=None)
            array.attrs["_ARRAY_DIMENSIONS"] = [name]
        else:
            array = group.create_array(name, data=values, dimension_names=[name] if group.metadata.zarr_format == 3 else None)
        array.attrs.update(data[name].attrs)


def put(group, name, values, dims, chunks, attributes={}, **settings):
    if version == 2:
        array = group.create_dataset(name, data=values, chunks=chunks, **settings)
        array.attrs["_ARRAY_DIMENSIONS"] = list(dims)
    else:
        array = group.create_array(name, shape=values.shape, dtype=settings.pop("dtype", values.dtype), chunks=chunks,
                                   dimension_names=list(dims), **settings)
        array[...] = values
    array.attrs.update(attributes)
    return array


def store(name, data=small, order=("time", "level", "lat", "lon"), consolidate=True, chunk={}, group_settings={}, **settings):
    path = f"{root}/{name}.zarr"
    group = zarr.open_group(path, mode="w", **group_settings) if version == 2 else zarr.open_group(path, mode="w", zarr_format=3)
    coordinates(group, data)
    for variable in ("t2m", "z"):
        dims = [d for d in order if d in data[variable].dims]
        sizes = {"time": 3, "level": 1, "lat": 5, "lon": 12, **chunk}
        put(group, variable, data[variable].transpose(*dims).values, dims, tuple(sizes[d] for d in dims), data[variable].attrs,
            **settings)
    if consolidate:
        zarr.consolidate_metadata(path)
    return path


def netcdf(name, data):
    data.to_netcdf(f"{root}/{name}", engine="netcdf4", encoding={v: {"_FillValue": None} for v in data.variables})


# Types: the reference holds the same stored numbers and attributes, as netCDF has them.
def typed():
    values = random.integers(-100, 100, size=(7, ROWS, COLUMNS))
    values[0, 0, 0] = 99
    packing = {"scale_factor": 0.25, "add_offset": 10.0}
    return {"f2": (values.astype("f2") / 8, {}), "f4": (values.astype("f4"), {}), "f8": (values / 3.0, {}),
            "i2": (values.astype("i2"), {**packing, "_FillValue": 99}), "i4": (values.astype("i4"), {**packing, "_FillValue": 99}),
            "u1": (abs(values).astype("u1"), packing), "i1": (values.astype("i1"), packing)}


types = typed()
if version == 2:
    from numcodecs.checksum32 import CRC32C
    from numcodecs import LZ4, Blosc, GZip, Zlib, Zstd
    for codec in ("lz4", "zstd", "zlib", "blosclz", "lz4hc"):
        for shuffle in (0, 1, 2):
            store(f"v2_blosc_{codec}_{shuffle}", compressor=Blosc(codec, 5, shuffle), fill_value=None)
    store("v2_zstd", compressor=Zstd(3), fill_value=None)
    store("v2_lz4", compressor=LZ4(), fill_value=None)
    store("v2_gzip", compressor=GZip(5), fill_value=None)
    store("v2_zlib", compressor=Zlib(5), fill_value=None)
    store("v2_none", compressor=None, fill_value=None)
    store("v2_crc32c", compressor=Zstd(3), filters=[CRC32C()], fill_value=None)
    store("v2_crc32c_last", compressor=CRC32C(), filters=[Zlib(3)], fill_value=None)
    path = f"{root}/v2_F.zarr"
    group = zarr.open_group(path, mode="w")
    coordinates(group, small)
    for variable, chunk in (("t2m", (3, 5, 12)), ("z", (3, 2, 8, 7))):
        put(group, variable, small[variable].values, small[variable].dims, chunk, order="F", fill_value=None)
    zarr.consolidate_metadata(path)
    store("v2_big", dtype=">f4", fill_value=None)
    store("v2_slash", dimension_separator="/", fill_value=None)
    store("v2_apart", consolidate=False, fill_value=None)
    store("v2_lon_lat", order=("time", "level", "lon", "lat"), fill_value=None)
    store("v2_level_last", order=("lat", "time", "lon", "level"), chunk={"level": 2}, fill_value=None)
    store("v2_whole", chunk={"time": 1, "level": 2, "lat": ROWS, "lon": COLUMNS}, fill_value=None)
    store("v2_south", data=small.isel(lat=slice(None, None, -1)), fill_value=None)
    store("v2_train", data=full, order=("time", "level", "lon", "lat"), chunk={"time": 8, "level": 2}, fill_value=None)
    store("v2_missing", fill_value=7.0, write_empty_chunks=True)
    os.remove(f"{root}/v2_missing.zarr/t2m/1.0.0")
    store("v2_filter", filters=[numcodecs.Delta("f4")], fill_value=None)
    store("v2_bz2", compressor=numcodecs.BZ2(), fill_value=None)
    named = small.rename(t2m="2m_temperature", z="geopotential", lat="latitude", lon="longitude")
    named.drop_encoding().to_zarr(f"{root}/v2_xarray.zarr", mode="w", consolidated=True,
                                  encoding={"2m_temperature": {"chunks": (2, 8, 12)}})
    # hourly times that xarray encodes itself, and packed numbers with a gap
    hourly = xr.Dataset({"t": (("time", "lat", "lon"), t2m[:48].copy())},
                        {"time": np.datetime64("2001-12-31T00:00", "ns") + np.arange(48) * np.timedelta64(3600 * 10**9, "ns"),
                         "lat": latitudes, "lon": longitudes})
    hourly["t"][3, 2, 1] = np.nan
    packed = {"t": {"dtype": "i2", "scale_factor": 0.1, "add_offset": 280.0, "_FillValue": -32768}}
    hourly.to_zarr(f"{root}/v2_hourly.zarr", mode="w", encoding=packed)
    hourly.to_netcdf(f"{root}/hourly_2001.nc", encoding=packed)
    netcdf("small_2001.nc", small)
    for year in (2001, 2002):
        netcdf(f"train_{year}.nc", full.isel(time=slice(0, 48) if year == 2001 else slice(48, None)))
    group = zarr.open_group(f"{root}/v2_types.zarr", mode="w")
    reference = xr.Dataset({name: (("time", "lat", "lon"), values.astype("f4") if name == "f2" else values, attributes)
                            for name, (values, attributes) in types.items()}, small.drop_vars(["t2m", "z", "level"]).coords)
    reference.to_netcdf(f"{root}/types_2001.nc", encoding={v: {"_FillValue": None} for v in ("f2", "f4", "f8", "u1", "i1")})
    np.savez(f"{root}/types.npz", **{name: values for name, (values, _) in types.items()})
    coordinates(group, small, ("time", "lat", "lon"))
    for name, (values, attributes) in types.items():
        attributes = dict(attributes)
        fill = attributes.pop("_FillValue", None)
        put(group, name, values, ("time", "lat", "lon"), (4, 5, 7), attributes, fill_value=fill)
        if values.dtype.itemsize > 1:
            put(group, "big_" + name, values, ("time", "lat", "lon"), (4, 5, 7), attributes, fill_value=fill,
                dtype=values.dtype.newbyteorder(">"))
else:
    from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
    for shuffle in ("noshuffle", "shuffle", "bitshuffle"):
        store(f"v3_blosc_{shuffle}", compressors=BloscCodec(cname="lz4", shuffle=shuffle))
    store("v3_zstd", compressors=ZstdCodec())
    store("v3_gzip", compressors=GzipCodec())
    store("v3_none", compressors=None)
    store("v3_crc32c", compressors=[ZstdCodec(), Crc32cCodec()])
    store("v3_lz4", compressors=numcodecs.zarr3.LZ4() if hasattr(numcodecs, "zarr3") else zarr.codecs.numcodecs.LZ4())
    store("v3_zlib", compressors=numcodecs.zarr3.Zlib() if hasattr(numcodecs, "zarr3") else zarr.codecs.numcodecs.Zlib())
    store("v3_big", serializer=BytesCodec(endian="big"))
    store("v3_apart", consolidate=False)
    store("v3_keys", chunk_key_encoding={"name": "v2", "separator": "."})
    store("v3_lon_lat", order=("time", "level", "lon", "lat"))
    for where in ("start", "end"):
        path = f"{root}/v3_shards_{where}.zarr"
        group = zarr.open_group(path, mode="w", zarr_format=3)
        coordinates(group, small)
        for variable, inner, shard in (("t2m", (1, 4, 6), (4, 8, 12)), ("z", (1, 2, 4, 12), (2, 2, 8, 12))):
            inside = [TransposeCodec(order=tuple(range(len(inner)))[::-1])] if where == "start" else []
            codec = ShardingCodec(chunk_shape=inner, codecs=inside + [BytesCodec(), ZstdCodec(), Crc32cCodec()],
                                  index_codecs=[BytesCodec(), Crc32cCodec()], index_location=where)
            put(group, variable, small[variable].values, small[variable].dims, shard, small[variable].attrs, serializer=codec,
                compressors=None)
        zarr.consolidate_metadata(path)
    path = f"{root}/v3_transposed.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=3)
    coordinates(group, small)
    for variable, order in (("t2m", (1, 2, 0)), ("z", (3, 0, 1, 2))):
        put(group, variable, small[variable].values, small[variable].dims, (3, 5, 12) if variable == "t2m" else (3, 2, 8, 7),
            small[variable].attrs, filters=[TransposeCodec(order=order)])
    store("v3_train", data=full, chunk={"time": 1, "level": 2, "lat": ROWS})
    small.drop_encoding().to_zarr(f"{root}/v3_xarray.zarr", mode="w", zarr_format=3, consolidated=True)
    hourly = xr.open_dataset(f"{root}/hourly_2001.nc")
    hourly.drop_encoding().to_zarr(f"{root}/v3_hourly.zarr", mode="w", zarr_format=3,
                                   encoding={"t": {"dtype": "i2", "scale_factor": 0.1, "add_offset": 280.0, "_FillValue": -32768}})
    types = np.load(f"{root}/types.npz")
    group = zarr.open_group(f"{root}/v3_types.zarr", mode="w", zarr_format=3)
    coordinates(group, small, ("time", "lat", "lon"))
    reference = xr.open_dataset(f"{root}/types_2001.nc", decode_cf=False)
    for name in types.files:
        attributes = {k: v.item() for k, v in reference[name].attrs.items() if k in ("scale_factor", "add_offset", "_FillValue")}
        put(group, name, types[name], ("time", "lat", "lon"), (4, 5, 7), attributes)
    # the layout of anemoi: [dates, variables, ensemble, cells]
    path = f"{root}/v2_anemoi.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=2)
    cells = np.concatenate([small.t2m.values[:, None], small.z.values], 1).reshape(7, 3, 1, -1)
    data = group.create_array("data", shape=cells.shape, dtype="f4", chunks=(1, 3, 1, ROWS * COLUMNS), fill_value=np.nan)
    data[...] = cells
    start = np.datetime64("2001-12-20T00:00:00", "s")
    group.create_array("dates", data=(start + small.time.values.astype("m8[h]")).astype("M8[s]"))
    group.create_array("latitudes", data=np.repeat(latitudes, COLUMNS))
    group.create_array("longitudes", data=np.tile(longitudes, ROWS))
    group.attrs.update({"variables": ["2t", "z_500", "z_850"], "field_shape": [ROWS, COLUMNS], "ensemble_dimension": 2})
    os.remove(f"{root}/types.npz")
    with tarfile.open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "stores.tar.gz"), "w:gz", compresslevel=9) as archive:
        for name in sorted(os.listdir(root)):
            archive.add(f"{root}/{name}", arcname=name, filter=lambda i: (setattr(i, "mtime", 0), setattr(i, "uid", 0), setattr(i, "gid", 0),
                        setattr(i, "uname", ""), setattr(i, "gname", ""), i)[-1])
