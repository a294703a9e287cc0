# A model, its statistics and its forecasts know which data they belong to (docs/data.md, "What belongs together").

SMALL="$SMALL --config=base --depth=1 --embed_dim=16 --global_batch_size=4 --num_epochs=1 --img_size=[6,8] --patch_size=2 --n_in_channels=2 --n_out_channels=2"

# make_set DIRECTORY [KEY=VALUE...]: netCDF files of t2m and z with their CF attributes: train_2001.nc, valid_2002.nc. Keys: units
# (of t2m), west (first longitude), north (first latitude), step (hours), calendar, times, order (of the channels in `fields`).
make_set() {
    in_python "$@" <<'PYTHON'
directory, given = sys.argv[1], dict(word.split("=") for word in sys.argv[2:])
units, west, north = given.get("units", "K"), float(given.get("west", 0)), float(given.get("north", 75))
step, calendar, times = int(given.get("step", 6)), given.get("calendar", "standard"), int(given.get("times", 40))
columns = 8
for part, year in (("train", 2001), ("valid", 2002)):
    os.makedirs(f"{directory}/{part}", exist_ok=True)
    random = np.random.default_rng(year)
    with h5py.File(f"{directory}/{part}/{part}_{year}.nc", "w") as f:
        count = times if part == "train" else 16
        scale(f, "time", np.arange(count, dtype="f8") * step, units=f"hours since {year}-01-01", calendar=calendar)
        scale(f, "lat", north - 30.0 * np.arange(6), units="degrees_north")
        scale(f, "lon", west + 45.0 * np.arange(columns), units="degrees_east")
        wave = np.sin(np.arange(count)[:, None, None] / 5 + np.arange(columns) * np.pi / 4) * 8
        noise = random.standard_normal((2, count, 6, columns))
        fields = {"t2m": 280 + wave + noise[0], "z": 5000 + 90 * noise[1] + 9 * wave}
        if units == "degC": fields["t2m"] -= 273.15
        # the same weather, stored from another meridian on
        shift = int(round(west / 45))
        for name, values in fields.items():
            variable(f, name, np.roll(values, -shift, axis=2).astype("f4"), ("time", "lat", "lon"),
                     units=units if name == "t2m" else "m**2 s**-2")
PYTHON
    "$VITRAIN" stats "$1" --variables=[t2m,z] --force >/dev/null
}

run() { train --variables=[t2m,z] --lr_schedule=none "$@"; }
best=runs/base/1CPU/00/checkpoints/best
scores() { "$VITRAIN" evaluate $best --rollout=1 --output=scores --force "$@" 2>&1; }
forecast() { rm -f x.nc; "$VITRAIN" predict $best --time=2002-01-02T06:00 --output=x.nc "$@" 2>&1; }
rmse() { awk -F, 'NR == 2 { print $5 }' scores/scores.csv; }

test_statistics_of_other_channels() {
    make_set data
    run --run_num=one >one.log
    refuted grep "doesn't say" one.log
    # in another order they are the same
    "$VITRAIN" stats data --variables=[z,t2m] --output=other >/dev/null
    run --run_num=two --global_means_path=other/global_means.npy --global_stds_path=other/global_stds.npy >/dev/null
    cmp <(cut -d, -f1-4 runs/base/1CPU/one/metrics.csv) <(cut -d, -f1-4 runs/base/1CPU/two/metrics.csv)
    # of a channel alone they can be read, of one that they lack not
    train --variables=z --n_in_channels=1 --n_out_channels=1 --run_num=z >/dev/null
    grep -q '"means": \[4999\|"means": \[500' runs/base/1CPU/z/checkpoints/best/about.json
    "$VITRAIN" stats data --variables=t2m --output=one --force >/dev/null
    refuses_once "channel 0 is 'z' in data/train, but 't2m' in one/global_means.npy; --accept=channels goes on all the same" -- \
        train --variables=z --n_in_channels=1 --n_out_channels=1 --global_means_path=one/global_means.npy --global_stds_path=one/global_stds.npy
    # files of other programs say nothing
    mkdir plain
    cp data/stats/*.npy plain
    run --global_means_path=plain/global_means.npy --global_stds_path=plain/global_stds.npy --run_num=plain >plain.log
    contains "$(cat plain.log)" "plain/global_means.npy doesn't say which data it was made from: its channels are taken to be those of data/train, in their order and units"
    cmp <(cut -d, -f1-4 runs/base/1CPU/one/metrics.csv) <(cut -d, -f1-4 runs/base/1CPU/plain/metrics.csv)
    # and so do files that replaced others
    cp one/global_means.npy data/stats/global_means.npy
    refuses_once "expected [1, C, 1, 1] with C at least 2" -- run
}

test_statistics_of_other_units_and_lengths() {
    make_set data
    make_set celsius units=degC
    local of_celsius="--global_means_path=celsius/stats/global_means.npy --global_stds_path=celsius/stats/global_stds.npy"
    refuses_once "channel 0 (t2m) is in 'K' in data/train, but in 'degC' in celsius/stats/global_means.npy" "--accept=units" -- run $of_celsius
    run $of_celsius --accept=units >log 2>&1
    contains "$(cat log)" "WARNING - accepted: channel 0 (t2m) is in 'K'"
    run >/dev/null
    refuses "channel 0 (t2m) is in 'K' in data/valid, but in 'degC' in celsius/stats/climatology.h5" -- scores --climatology_path=celsius/stats/climatology.h5
    refuses "channel 0 (t2m) is in 'K' in data/valid, but in 'degC' in celsius/stats/time_means.npy" -- scores --time_means_path=celsius/stats/time_means.npy
    cp -r data mixed
    cp celsius/stats/* mixed/stats
    refuses "FAULT: channel 0 (t2m) is in 'K' in the data, but in 'degC' in mixed/stats/global_means.npy" -- "$VITRAIN" inspect mixed --variables=[t2m,z]
    says "no faults" -- "$VITRAIN" inspect data --variables=[t2m,z]
    make_set kelvin units=kelvin
    run --global_means_path=kelvin/stats/global_means.npy --global_stds_path=kelvin/stats/global_stds.npy --run_num=kelvin >/dev/null
    refuses_once "changes are over 24 h in data/train, but over 6 h in data/stats/" "--accept=step" -- run --dt=4 --predict=tendency
    says "changes are over 24 h in data/train, but over 6 h in" -- run --dt=4 --run_num=dt
    "$VITRAIN" stats data --variables=[t2m,z] --dt=4 --force >/dev/null
    run --dt=4 --predict=tendency --run_num=tendency >/dev/null
    refuses_once "accept: there is no 'unit'; there are channels, units, grid" -- run --accept=[grid,unit]
}

# What was trained with is kept, whatever becomes of the files.
test_the_checkpoints_own_normalisation() {
    make_set data
    run >/dev/null
    scores >/dev/null
    local before
    before=$(rmse)
    forecast >/dev/null
    cp x.nc before.nc
    python_with python3-h5py h5py,numpy
    same_forecast() { "$python" -c 'import h5py, sys; a, b = (h5py.File(n) for n in sys.argv[1:]); sys.exit(any((a[k][()] != b[k][()]).any() for k in ("t2m", "z")))' before.nc x.nc; }
    make_set longer times=90
    rm -r data/stats
    cp -r longer/stats data/stats
    says "the means and standard deviations of the checkpoint runs/base/1CPU/00/checkpoints/step-00000009 are used; those of data/stats/global_means.npy differ" -- scores
    [ "$(rmse)" = "$before" ]
    if "$TESTS" --has-mpi >/dev/null; then
        "$TOP/tests/mpirun" -np 2 "$VITRAIN" evaluate $best --rollout=1 --output=scores --force >said 2>&1
        [ "$(grep -c "are used; those of" said)" -eq 1 ]
    fi
    forecast >/dev/null
    same_forecast
    rm -r data/stats # and without any
    scores >/dev/null
    [ "$(rmse)" = "$before" ]
    forecast >/dev/null
    same_forecast
    # a run goes on with what it began with
    cp -r longer/stats data/stats
    says "are used; those of data/stats/global_means.npy differ from them" -- run --num_epochs=2 --resume
    make_set data
    run --num_epochs=2 --run_num=whole >/dev/null
    cmp <(tail -n 1 runs/base/1CPU/00/metrics.csv | cut -d, -f1-4) <(tail -n 1 runs/base/1CPU/whole/metrics.csv | cut -d, -f1-4)
}

test_other_data_than_the_models() {
    make_set data
    run >/dev/null
    local other set what word
    make_set west west=-180
    make_set south north=80
    make_set celsius units=degC
    make_set daily step=24
    make_set leap calendar=noleap
    for other in "west|longitudes differ: those of |grid" "south|latitudes differ: those of |grid" \
        "celsius|channel 0 (t2m) is in 'degC' in |units" "daily|times are 24 h apart in |step"; do
        IFS='|' read -r set what word <<<"$other"
        refuses "$what" "the checkpoint runs/base/1CPU/00/checkpoints/" "--accept=$word goes on all the same" -- scores --data_dir=$set
        refuses "$what" "--accept=$word goes on all the same" -- run --data_dir=$set --num_epochs=2 --resume
        says "accepted: $what" -- scores --data_dir=$set --accept=$word
    done
    refuses "longitudes differ" "--accept=grid" -- forecast --data_dir=west
    says "the calendar of leap/valid is noleap, that of the checkpoint" -- scores --data_dir=leap
    says "longitudes differ: those of west/train go from -180 to 135, those of the checkpoint" -- run --run_num=begun --init_from=$best --data_dir=west
    says "those that the checkpoint runs/base/1CPU/00/checkpoints/" "was trained on, 2001-01-01 00:00 to 2001-01-10 18:00, overlap" -- \
        scores --valid_data_path=data/train
}

# Channels of `fields` are matched by their names.
test_channels_in_another_order() {
    make_data() {
        in_python "$@" <<'PYTHON'
directory, names = sys.argv[1], sys.argv[2].split(",")
for part, year in (("train", 2001), ("valid", 2002)):
    os.makedirs(f"{directory}/{part}", exist_ok=True)
    random = np.random.default_rng(year)
    fields = {"t2m": 280 + random.standard_normal((20, 6, 8)), "z": 5000 + 90 * random.standard_normal((20, 6, 8))}
    with h5py.File(f"{directory}/{part}/{year}.h5", "w") as f:
        f["fields"] = np.stack([fields[n] for n in names], 1).astype("f4")
        f["fields"].attrs["channels"] = names
PYTHON
        "$VITRAIN" stats $1 >/dev/null
    }
    make_data data t2m,z
    make_data turned z,t2m
    train >/dev/null
    scores >/dev/null
    cp scores/scores.csv before.csv
    scores --data_dir=turned >/dev/null
    cmp <(cut -d, -f1-5 scores/scores.csv) <(cut -d, -f1-5 before.csv)
    refuses_once "channel 0 is 'z' in turned/train, but 't2m' in the checkpoint" -- train --data_dir=turned --num_epochs=2 --resume
}

# Before there were descriptions, a checkpoint knew the names of its channels alone.
test_a_checkpoint_without_a_description() {
    make_set data
    run >/dev/null
    in_python $best <<'PYTHON'
directory = os.path.realpath(sys.argv[1])
with h5py.File(f"{directory}/checkpoint.h5", "r+") as f:
    del f.attrs["about_crc32c"]
    f.attrs.create("channels", np.bytes_("t2m\nz"), dtype="S5")
os.remove(f"{directory}/about.json")
write_checksum(directory)
PYTHON
    says "doesn't say its units, latitudes, longitudes, calendar, time step, so these are taken to be those of data/valid" -- scores
    make_set west west=-180
    scores --data_dir=west >/dev/null # as before
    rm data/stats/climatology.h5
    refuses "channel 0 is 'z' in data/valid, but 't2m' in the checkpoint" -- scores --variables=[z,t2m]
}

test_what_inspect_says_of_it() {
    make_set data
    run >/dev/null
    forecast >/dev/null
    local thing
    for thing in $best data/stats data/stats/global_stds.npy data/stats/climatology.h5 x.nc; do
        says "channels: t2m (K) z (m**2 s**-2)" "grid: 6×8, latitudes 75 to -75, longitudes 0 to 315" "every 6 h" -- "$VITRAIN" inspect $thing
    done
    says "times: 40, 2001-01-01 00:00 to 2001-01-10 18:00, every 6 h, calendar standard" "made by: vitrain " -- "$VITRAIN" inspect data/stats
    make_set celsius units=degC step=24
    says "channel 0 (t2m) is in 'K' in $best, but in 'degC' in celsius" "times are 6 h apart in $best, but 24 h in celsius" -- \
        "$VITRAIN" inspect $best celsius --variables=[t2m,z]
    says "no differences" -- "$VITRAIN" inspect data/stats data --variables=[t2m,z]
    echo "{" >data/stats/about.json
    refuses_once "data/stats/about.json is no JSON: " -- run --run_num=broken
    rm data/stats/about.json
    printf x >>$best/about.json
    refuses "about.json is damaged or another checkpoint's: its checksum is " -- "$VITRAIN" inspect $best
    refuses "about.json is damaged or another checkpoint's: its checksum is " -- scores
    refuses "'data' after 'data': expected PATH [OTHER]" -- "$VITRAIN" inspect data data data
}

# Files of any names: their time coordinates say when they are, and a period which times are whose.
test_files_whose_names_say_no_date() {
    make_set data
    mkdir any named
    cp data/train/train_2001.nc any/zulu.nc # the earlier times have the later name
    cp data/valid/valid_2002.nc any/alpha.nc
    cp data/train/train_2001.nc named/x_2001.nc
    cp data/valid/valid_2002.nc named/x_2002.nc
    in_python <<<'with h5py.File("any/mask.nc", "w") as f: f["lsm"] = [0.0]'
    local set periods="--train_period=2001 --valid_period=2002"
    for set in named any; do
        says "40 times of $set; written to $set/stats" -- "$VITRAIN" stats $set --variables=[t2m,z] --train_period=2001
        run --data_dir=$set $periods --run_num=$set >/dev/null
    done
    cmp named/stats/global_stds.npy any/stats/global_stds.npy
    cmp <(cut -d, -f1-4 runs/base/1CPU/any/metrics.csv) <(cut -d, -f1-4 runs/base/1CPU/named/metrics.csv)
    says "train: 2 files zulu.nc … alpha.nc, 40 times" "valid: 2 files zulu.nc … alpha.nc, 16 times" "no faults" -- "$VITRAIN" inspect any --variables=[t2m,z] $periods
    best=runs/base/1CPU/any/checkpoints/best
    forecast >/dev/null
    # one variable a file
    mkdir apart
    for name in t2m z; do
        in_python $name <<'PYTHON'
other = {"t2m": "z", "z": "t2m"}[sys.argv[1]]
shutil.copy("data/train/train_2001.nc", "apart/%s.nc" % sys.argv[1])
with h5py.File("apart/%s.nc" % sys.argv[1], "r+") as f: del f[other]
PYTHON
    done
    says "40 times of apart" -- "$VITRAIN" stats apart --variables=[t2m,z] --train_period=2001
    cmp named/stats/global_stds.npy apart/stats/global_stds.npy
    refuses "no files *YYYY.nc or *YYYY.h5" "it holds t2m.nc, z.nc" "--train_period=1979..2015" -- "$VITRAIN" stats apart --variables=[t2m,z] --output=x
    refuses "no files *YYYY.nc or *YYYY.h5" "it holds t2m.nc, z.nc" -- "$VITRAIN" inspect apart --variables=[t2m,z]
}

test_the_table_of_the_docs() {
    "$VITRAIN" options --rules >rules
    [ "$(wc -l <rules)" -gt 8 ]
    sed -n '/^| property | `accept` |/,/^$/p' "$TOP/docs/data.md" | sed '/^$/d' | cmp - rules || { echo "docs/data.md is old: make docs"; return 1; }
}
