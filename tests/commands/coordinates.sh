# Coordinates, times, units and missing values: how files describe themselves, in every command.

SMALL="$SMALL --n_in_channels=2 --n_out_channels=2 --global_batch_size=4 --num_epochs=1"

# sets: two years of the same numbers in several forms, each a folder: plain `fields`; `fields` reversed, packed, with another
# name of the latitudes; netCDF variables with dimension scales, reversed and packed; with gaps.
sets() {
    in_python <<'PYTHON'
T, R, C = 16, 16, 32
lat, lon = np.linspace(45, -30, R).astype("f4"), ((350 + 2 * np.arange(C)) % 360).astype("f4")

for year, split in ((2001, "train"), (2002, "valid")):
    number = np.random.default_rng(year).integers(-300, 300, (T, 2, R, C)).astype("i2")
    plain = (280 + 0.25 * number.astype("f8")).astype("f4")
    for form in ("plain", "turned", "packed", "netcdf", "bare", "gaps", "monthly"):
        os.makedirs(f"{form}/{split}", exist_ok=True)
        end = "nc" if form in ("netcdf", "monthly") else "h5"
        with h5py.File(f"{form}/{split}/{year}.{end}", "w") as f:
            if end == "h5":
                values = {"turned": plain[:, :, ::-1], "packed": number[:, :, ::-1]}.get(form, plain)
                f["fields"] = values
                f["fields"].attrs["channels"] = ["air", "wind"]
            if form == "packed":
                f["fields"].attrs["scale_factor"], f["fields"].attrs["add_offset"] = 0.25, 280.0
                f["fields"].attrs["_FillValue"] = np.int16(-32767)
            if form == "plain":
                f["lat"], f["lon"] = lat, lon
            if form in ("turned", "packed"):
                rows = "FNOCY" if form == "turned" else "y"
                scale(f, rows, lat[::-1])
                scale(f, "FNOCX", lon, units="degrees_E")
                for d, other in (2, rows), (3, "FNOCX"): f["fields"].dims[d].attach_scale(f[other])
            if form == "gaps":
                f["fields"][3:5, 1, 4, 5] = 9.96921e36
            if end == "nc":
                if form == "monthly":
                    scale(f, "T", np.arange(T) + 0.5 + 16 * (year - 2001), units="months since 1960-01-01")
                else:
                    days = np.arange(T) + 0.5 + 365 * (year - 1900)
                    scale(f, "T", days, units="days since 1900-01-01", calendar="noleap")
                scale(f, "Latitude", lat[::-1], units="degrees_north")
                scale(f, "Longitude", lon, units="degrees_east")
                for c, name, units in ((0, "air", "degC"), (1, "wind", "knots")):
                    variable(f, name, number[:, c, ::-1], ("T", "Latitude", "Longitude"),
                             dict(chunks=(4, R, C), compression="gzip"),
                             scale_factor=0.25, add_offset=280.0, units=units, long_name=f"{name}, daily mean")
PYTHON
}

# Losses, statistics and scores are the same, bit by bit.
test_forms_train_alike() {
    sets
    for form in plain turned packed netcdf; do
        local also=
        [ $form != netcdf ] || also=--variables=[air,wind]
        "$VITRAIN" stats $form $also >/dev/null
        for file in global_means time_means global_stds time_diff_stds; do cmp $form/stats/$file.npy plain/stats/$file.npy; done
        train --data_dir=$form --run_num=$form $also >$form.log
        for column in 1-5; do cut -d, -f$column runs/demo/1CPU/$form/metrics.csv; done >$form.losses
        sed -n 's/.*\(Avg .* loss=.*\)/\1/p; s/.*\(RMSE by channel.*\)/\1/p' $form.log >>$form.losses
        cmp $form.losses plain.losses
        "$VITRAIN" evaluate --checkpoint=runs/demo/1CPU/$form/checkpoints/best --rollout=1 --output=scores-$form >$form.said
    done
    [ "$(wc -l <plain.losses)" -gt 5 ]
    refuted grep "turned round" plain.log
    contains "$(cat turned.log)" "grid: rows that run from south to north are turned round"
    contains "$(cat plain.log)" "times: every 6 h is assumed, as the files don't say it"
    contains "$(cat netcdf.log)" "times: 2001-01-01 12:00 to 2001-01-16 12:00, every 24 h"
    contains "$(cat plain.said)" "1 step of 6 h (assumed: the files don't say it"
    contains "$(cat netcdf.said)" "1 step of 24 h"
    refuted grep assumed netcdf.said
    cut -d, -f5-10 scores-plain/scores.csv >one
    for form in turned packed netcdf; do cut -d, -f5-10 scores-$form/scores.csv | cmp - one; done
    contains "$(cat scores-netcdf/scores.csv)" 'wind,knots,24,' ',"wind, daily mean"'
    contains "$(cat netcdf.said)" "degC"
    # time_step says it where the files don't
    "$VITRAIN" evaluate --checkpoint=runs/demo/1CPU/plain/checkpoints/best --rollout=2 --time_step=1d --output=daily >said
    contains "$(cat said)" "2 steps of 24 h"
    refuted grep assumed said
    fails 1 "$VITRAIN" evaluate --checkpoint=runs/demo/1CPU/netcdf/checkpoints/best --rollout=2 --time_step=6h --output=daily
    contains "$output" "netcdf/valid/2002.nc: its times are 24 h apart, and 6h, as time_step says, is no multiple"
}

test_forecast_files_keep_what_files_say() {
    sets
    "$VITRAIN" stats netcdf --variables=[air,wind] >/dev/null
    train --data_dir=netcdf --variables=[air,wind] >/dev/null
    local best=runs/demo/1CPU/00/checkpoints/best
    says "2002-01-06 12:00 to 2002-01-08 12:00 UTC" -- "$VITRAIN" predict --checkpoint=$best --time=2002-01-05T12:00 --steps=3 --output=f.nc
    "$VITRAIN" predict --checkpoint=$best --time=2002-01-05 --variables=None --n_in_channels=2 --n_out_channels=2 --steps=2 --output=g.nc \
        --valid_data_path=bare/valid --time_step=24h --accept=grid >said 2>&1
    contains "$(cat said)" "bare/valid/2002.h5: no latitudes are known, so the forecast only numbers its rows; --coordinates=[lat=NAME] would name them"
    contains "$(cat said)" "2002-01-06 00:00 to 2002-01-07 00:00 UTC"
    "$VITRAIN" stats monthly --variables=[air,wind] >/dev/null
    "$VITRAIN" predict --checkpoint=$best --time=1961-08-01 --data_dir=monthly --valid_data_path=monthly/valid --steps=2 --output=h.nc --accept=[units,grid,step] >said
    contains "$(cat said)" "1961-09-16 00:00 to 1961-10-16 12:00 UTC"
    in_python <<'PYTHON'
def text(item, key):
    value = item.attrs[key]
    return value.decode() if isinstance(value, bytes) else value

with h5py.File("f.nc") as f:
    assert text(f["time"], "units") == "days since 1900-01-01" and text(f["time"], "calendar") == "noleap"
    first = 365 * 102 + 4.5 # the initial time
    assert list(f["time"][:]) == [first + 1, first + 2, first + 3] and f["forecast_reference_time"][()] == first
    assert text(f["air"], "units") == "degC" and text(f["air"], "long_name") == "air, daily mean"
    assert f["lat"][0] == 45 and f["lat"][-1] == -30
    assert list(f["lon"][:]) == [350 + 2 * i for i in range(32)]
with h5py.File("g.nc") as f:
    assert "lat" not in f and "lon" not in f
    assert text(f["y"], "NAME").startswith("This is a netCDF dimension but not a netCDF variable")
    assert f["air"].dims[1][0].name == "/y" and f["air"].dims[2][0].name == "/x" and f["air"].shape == (2, 16, 32)
with h5py.File("h.nc") as f: # months have no length: days
    assert text(f["time"], "units") == "days since 1960-01-01 00:00:00"
    start = np.datetime64("1960-01-01T00")
    hours = [int((start + np.timedelta64(round(24 * d), "h") - np.datetime64("1961-09-16T12")) / np.timedelta64(1, "h")) for d in f["time"][:]]
    assert hours == [-12, 24 * 30], hours # the middles of September and October
PYTHON
}

# Months dated by their middles, at 00 or 12 UTC: the climatology is one for any time of day, and forecasts have the stamps of
# the truth as far as files have it, in one or several files.
test_months_keep_their_stamps() {
    sets
    local all="--variables=[air,wind] --data_dir=late" best=runs/demo/1CPU/00/checkpoints/best
    in_python <<'PYTHON'
os.makedirs("late/train"), os.makedirs("late/valid"), os.makedirs("single/valid")
def copy(source, to, first, stamps=None):
    shutil.copy(source, to)
    with h5py.File(to, "a") as f:
        f["T"][:] = first + f["T"][:] - f["T"][0] if stamps is None else stamps
        if stamps is not None: f["T"].attrs["units"] = "days since 1960-01-01"
copy("monthly/train/2001.nc", "late/train/2001.nc", 0, [15.5 + 30.4375 * m - (15.5 + 30.4375 * m) % 1 + 0.5 for m in range(16)]) # all at 12 UTC
copy("monthly/valid/2002.nc", "late/valid/2002.nc", 20.5) # September 1961 to December 1962
copy("monthly/valid/2002.nc", "late/valid/2003.nc", 36.5)
with h5py.File("late/valid/2002.nc") as f: # the same times, a file each
    for t in range(16):
        with h5py.File(f"single/valid/x_{1961 + (8 + t) // 12}-{(8 + t) % 12 + 1:02}.nc", "w") as own:
            for name in f:
                own[name] = f[name][t : t + 1] if name in ("air", "wind", "T") else f[name][:]
                for key in ("scale_factor", "add_offset", "units"):
                    if key in f[name].attrs: own[name].attrs[key] = f[name].attrs[key]
                if name not in ("air", "wind"): own[name].make_scale(name)
            for name in ("air", "wind"):
                for d, other in enumerate(("T", "Latitude", "Longitude")): own[name].dims[d].attach_scale(own[other])
PYTHON
    says "for any time of day" -- "$VITRAIN" stats late --variables=[air,wind]
    train $all --normalise=climatology >said
    says "1961-09-16 00:00 to 1964-04-16 00:00, every 1 month" -- "$VITRAIN" inspect late/valid --variables=[air,wind]
    says "1962-12-16 12:00 to 1963-03-16 12:00 UTC" -- "$VITRAIN" predict --checkpoint=$best --time=1962-11-01 --steps=4 --output=f.nc
    "$VITRAIN" predict --checkpoint=$best --time=1964-03-31 --steps=2 --output=g.nc >said
    says "1961-10-16 12:00 to 1961-12-16 12:00 UTC" -- "$VITRAIN" predict --checkpoint=$best --time=1961-09-01 --steps=3 --output=h.nc \
        --valid_data_path=single/valid
    says "4 months" -- "$VITRAIN" evaluate --checkpoint=$best --rollout=4 --output=scores
    in_python <<'PYTHON'
def stamps(path, name): return h5py.File(path)[name][()].tolist()
def middles(first, count): # days since 1960
    import datetime
    for m in range(first, first + count):
        begin, end = (datetime.datetime(1960 + k // 12, k % 12 + 1, 1) for k in (m, m + 1))
        yield ((begin - datetime.datetime(1960, 1, 1)) + (end - begin) / 2) / datetime.timedelta(1)
truth = list(middles(20, 32))
assert set(stamps("f.nc", "time")) <= set(truth) and len(stamps("f.nc", "time")) == 4
assert stamps("h.nc", "time") == truth[1:4] and stamps("h.nc", "forecast_reference_time") == truth[0]
first, second = stamps("g.nc", "time")
assert first == truth[-1] and first + 30.5 == second, (first, second) # no file has May: two months after March's
PYTHON
}

test_inspect_shows_what_is_missing() {
    sets
    fails 1 "$VITRAIN" inspect gaps --verify
    contains "$output" "FAULT: gaps/train/2001.h5: 'fields' is 9.96921e+36, which is no data, at time 3, channel 1 (wind), row 4, column 5"
    contains "$output" "9.96921e+36" "no latitudes are known" "no longitudes are known"
    refuses "which is no data, at time 3" -- "$VITRAIN" stats gaps
    in_python <<<'with h5py.File("gaps/train/2001.h5", "a") as f: f["fields"].attrs["_FillValue"] = np.float32(9.96921e36)'
    refuses "'fields' is NaN or missing (_FillValue) at time 3" "2 missing" -- "$VITRAIN" inspect gaps --verify
    "$VITRAIN" inspect netcdf/train --variables=[air,wind] >said
    contains "$(cat said)" "latitudes 45 to -30, longitudes 350 to 412" "rows run from south to north in the file, and are turned round"
    contains "$(cat said)" ", 2001-01-01 12:00 to 2001-01-16 12:00, every 24 h" "wind         knots"
    says "16 times (486.7 days)" "1960-01-16 12:00 to 1961-04-16 00:00, every 1 month" -- "$VITRAIN" inspect monthly/train --variables=[air,wind]
    says "the files don't say when their times are: in the year of their names, every 1 month by --time_step" -- "$VITRAIN" inspect bare/train --time_step=1month
    refuses "time_step: 'often' is no length of time" -- "$VITRAIN" inspect bare --time_step=often
    refuses "has no dataset of numbers 'here'" -- "$VITRAIN" inspect bare --coordinates=[lat=here]
}

# The lines of Python in docs/data.md, on files as NOAA and the Copernicus store have them.
test_recipe_of_the_docs() {
    sed -n '/^# make_year.py/,/^```/p' "$TOP/docs/data.md" | sed '$d' >recipe.py
    sed -e '/^    ("air.sig995.2013.nc"/d' -e 's/("hgt.2013.nc", "hgt", 500, "z500")/("a.nc", "air", None, "air"), ("b.nc", "z", 500, "z500")/' recipe.py >make_year.py
    in_python <<'PYTHON'
lat, lon, days = np.arange(-30.0, 31, 10), np.arange(0.0, 40, 5), np.arange(12) * 1.0
values = np.random.default_rng(5).integers(0, 2000, (12, 2, 7, 8)).astype("i2")
for name, variable, shape in (("a.nc", "air", values[:, 0]), ("b.nc", "z", values)):
    with h5py.File(name, "w") as f:
        f[variable] = shape
        f[variable].attrs.update({"units": "K" if name == "a.nc" else "m**2 s**-2", "long_name": "of " + variable})
        f[variable].attrs.update({"scale_factor": 0.5, "add_offset": 100.0, "_FillValue": np.int16(-32767)})
        f["FNOCY"], f["FNOCX"], f["valid_time"], f["level"] = lat, lon, days, np.array([850.0, 500.0])
        f["FNOCY"].attrs["units"], f["FNOCX"].attrs["units"], f["level"].attrs["units"] = "degrees_north", "degrees_east", "hPa"
        f["valid_time"].attrs.update({"units": "days since 2013-03-01 12:00", "calendar": "noleap"})
PYTHON
    mkdir -p train nc
    "$python" make_year.py train/2013.h5
    cp a.nc nc/a_2013.nc
    cp b.nc nc/b_2013.nc
    says "times: 12, 2013-03-01 12:00 to 2013-03-12 12:00, every 24 h" ", latitudes 30 to -30, longitudes 0 to 35" -- "$VITRAIN" inspect train --verify
    contains "$output" "channels: air" " z500 (m**2 s**-2)" "z500         m**2 s**-2"
    "$VITRAIN" stats train --output=one >/dev/null
    "$VITRAIN" stats nc --variables=[air,z@500] --output=two >/dev/null
    for file in global_means time_means global_stds time_diff_stds; do cmp one/$file.npy two/$file.npy; done
}

# The same meridian at both ends of the grid, which losses would count twice.
test_a_meridian_at_both_ends_is_named() {
    sets
    "$VITRAIN" stats plain >/dev/null
    in_python <<'PYTHON'
for name in ("plain/train/2001.h5", "plain/valid/2002.h5"):
    with h5py.File(name, "r+") as f:
        f["lon"][:] = np.linspace(0, 360, 32)
PYTHON
    says "WARNING - grid: column 31 of train_data_path 'plain/train' (longitude 360) is column 0 (0) once more" "--img_size=[16,31] leaves it out" -- \
        train --data_dir=plain --pad=wrap
    train --data_dir=plain --img_size=[16,28] >said
    refuted grep "once more" said
}
