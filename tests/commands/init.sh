# `vitrain init`: a configuration for whatever data there are, which runs as it is.

needs_kernels
export OMP_NUM_THREADS=1 # other tests run beside these, and times are measured

# set NAME ROWS COLUMNS CHANNELS HOURS TIMES [gaps|missing]: netCDF files of waves that travel and change, with seasons.
set_of() {
    in_python "$@" <<'PYTHON'
name, (R, C, channels, hours, times) = sys.argv[1], map(int, sys.argv[2:7])
what = sys.argv[7:]
lat, lon = np.linspace(80, -80, R), np.arange(C) * 360 / C
x, y = np.deg2rad(lon)[None, None], np.deg2rad(lat)[None, :, None]
for split, year, count in (("train", 2001, times), ("valid", 2002, times // 3)):
    draw = np.random.default_rng(year)
    at = [i for i in range(count) if "gaps" not in what or i % 29 not in (3, 4, 20)]
    days = (np.array(at) * hours / 24)[:, None, None]
    os.makedirs(f"{name}/{split}", exist_ok=True)
    with h5py.File(f"{name}/{split}/{year}.nc", "w") as f:
        scale(f, "time", np.array(at, "f8") * hours, units=f"hours since {year}-01-01")
        scale(f, "lat", lat, units="degrees_north")
        scale(f, "lon", lon, units="degrees_east")
        for c in range(channels):
            field = 3 * np.sin(2 * np.pi * days / 365) * np.sin(y)
            for k in range(3):
                m = 1 + (k + c) % 3
                field = field + (1 + 0.5 * np.sin(days / (2 + k) + draw.uniform(0, 6))) * np.cos(
                    m * x - 2 * np.pi * m * days / (5 + 2 * k) + draw.uniform(0, 6)) * np.cos(y) ** m
            field = field + 0.03 * draw.normal(size=field.shape)
            if "missing" in what: field[:, : R // 3, : C // 4] = np.nan
            variable(f, f"v{c}", (280 + 5 * field).astype("f4"), ("time", "lat", "lon"))
PYTHON
}

# learns NAME [flags]: trains as the file says, and must be better than persistence.
learns() {
    local name=$1; shift
    "$VITRAIN" --yaml_config=$name.yaml --config=$name --expdir=runs "$@" >$name.log
    sed -n 's/.*persistence.*: \([0-9.]*\) of it;.*/\1/p' $name.log | awk '{ print "'$name'", $1; if ($1 < 0.9) good = 1 } END { exit !good }'
}

# has NAME LINE...: lines of its file
has() {
    local name=$1 line; shift
    for line; do grep -qxF "  $line" $name.yaml || { echo "$name.yaml lacks '$line':"; cat $name.yaml; return 1; }; done
}

test_odd_grid() {
    set_of odd 17 31 3 6 200
    says "v0" "odd.yaml: 4 blocks of width 64 on patches of 2 × 2" "vitrain --yaml_config=odd.yaml --config=odd" -- "$VITRAIN" init odd --hours=0.004
    has odd "pad: wrap" "n_history: 1" 'variables: "[v0, v1, v2]"' "img_size: [17, 31]" "predict: tendency" "normalise: climatology"
    learns odd
    # what channels become, in the statistics, too
    mv odd/stats before
    "$VITRAIN" init odd --hours=0.003 --output=roots.yaml --transform=[v2=sqrt] >/dev/null
    "$VITRAIN" --yaml_config=roots.yaml --config=odd --num_epochs=1 --lr_restarts=None --rollout=1 --expdir=runs >/dev/null
    rm -r odd/stats
    mv before odd/stats
    refuses_once "odd.yaml exists already; give --force" -- "$VITRAIN" init odd
    # what is given stays, and is written first
    "$VITRAIN" init odd/ --hours=0.003 --force --variables=[v2] --embed_dim=32 --rollout=1 --lr=1e-3 >said
    has odd "# as given" 'variables: "[v2]"' "embed_dim: 32" 'rollout: "1"' "lr: 0.001" 'data_dir: "odd"'
    refuted grep -q "lr_restarts\|embed_dim: 64" odd.yaml
}

test_missing_values_and_times() {
    set_of holes 16 32 2 6 300 gaps missing
    "$VITRAIN" init holes --hours=0.01 >/dev/null
    has holes "missing: mask" "n_history: 3"
    refuted grep -q "12@\|40@" holes.yaml # no stretch of times is so long
    "$VITRAIN" --yaml_config=holes.yaml --config=holes --num_epochs=1 --lr_restarts=None --rollout=1 --expdir=runs >/dev/null
}

# Of hourly times one of six hours is a step, of daily ones one; the statistics are of these steps.
test_steps() {
    set_of hourly 8 16 4 1 400
    "$VITRAIN" init hourly --hours=0.01 >/dev/null
    has hourly "dt: 6"
    contains "$(cat hourly/stats/about.json)" '"dt": 6'
    set_of daily 8 16 5 24 300
    "$VITRAIN" init daily --hours=0.01 >/dev/null
    has daily "dt: 1" "n_history: 0" "forcings: [cos_zenith, sin_year, cos_year, sin_lat, cos_lat, sin_lon, cos_lon]"
    # of statistics that are there, with another dt
    "$VITRAIN" stats hourly --variables=[v0,v1,v2,v3] --dt=3 --force >/dev/null
    "$VITRAIN" init hourly --hours=0.01 --force >/dev/null
    has hourly "dt: 3"
}

# One directory of files, and one store: the last fifth of the times is for validation.
test_sets_that_are_not_divided() {
    set_of all 8 16 2 6 300
    mv all/train/2001.nc all
    rm -r all/train all/valid
    "$VITRAIN" init all --hours=0.01 >/dev/null
    has all 'train_period: "2001-01-01..2001-02-28"' 'valid_period: "2001-03-01..2001-03-16"'
    "$VITRAIN" --yaml_config=all.yaml --config=all --num_epochs=1 --lr_restarts=None --rollout=1 --expdir=runs >/dev/null
    "$VITRAIN" synth data --img_size=[8,16] --channels=3 --steps_per_year=100 --valid_steps=30 >/dev/null
    "$VITRAIN" init data --hours=0.01 --output=fields.yaml >/dev/null # `fields`, whose statistics are there
    grep -q "n_in_channels: 6" fields.yaml
    "$VITRAIN" --yaml_config=fields.yaml --config=data --num_epochs=1 --lr_restarts=None --rollout=1 --expdir=runs >/dev/null
    tar -xzf "$TOP/tests/zarr/stores.tar.gz" train_2001.nc train_2002.nc # with levels
    mkdir -p levels/train levels/valid
    mv train_2001.nc levels/train
    mv train_2002.nc levels/valid
    "$VITRAIN" init levels --hours=0.01 >/dev/null
    has levels 'variables: "[t2m, z@500, z@850]"'
    mv data/valid data/elsewhere
    refuses "data/valid" -- "$VITRAIN" init data --hours=0.01 --output=none.yaml
    [ ! -e none.yaml ]
    refuses_once "'nowhere': no such directory" -- "$VITRAIN" init nowhere
    refuses_once "hours are too few for all: a step takes" -- "$VITRAIN" init all --hours=0.001 --embed_dim=512 --force
}

test_other_machines() {
    set_of far 16 32 8 6 100
    "$VITRAIN" init far --hours=2 --hardware="$TOP/config/hardware.yaml:h100-sxm" --ranks=8 >said
    has far "amp_mode: bf16" "enable_jit: true" "tensor_parallel: 1" "grad_accumulation: 1"
    grep -q "# the fastest layout of 8 ranks of h100-sxm" far.yaml
    says "8 ranks of h100-sxm" -- "$VITRAIN" plan --yaml_config=far.yaml --config=far --ranks=8 --hardware="$TOP/config/hardware.yaml:h100-sxm"
    has far "global_batch_size: 16"
}

# Everything else that the rules are for; each run ends in time, and is better than persistence.
long_all_kinds() {
    set_of one 20 40 1 6 700
    set_of seventy 12 24 70 6 300
    set_of daily 16 32 4 24 800
    set_of hourly 16 32 4 1 2500
    set_of gaps 16 32 4 6 700 gaps
    set_of tiny 5 7 2 6 400
    set_of wide 90 180 5 6 120
    set_of holes 16 32 2 6 300 gaps missing
    for name in one seventy daily hourly gaps tiny wide holes; do
        "$VITRAIN" init $name --hours=0.03 >/dev/null
        local begin=$SECONDS
        learns $name
        [ $((SECONDS - begin)) -lt 150 ] || { echo "$name took $((SECONDS - begin)) s, not 108"; return 1; }
    done
}
