# Roles of variables: some are only forecast, some only seen.

SMALL="--yaml_config=$TOP/config/ViT.yaml --config=demo --img_size=[16,32] --embed_dim=16 --depth=2 --num_heads=2 --patch_size=4
    --global_batch_size=4 --num_epochs=2 --expdir=runs"
ALL="--variables=[t,sst,q@500,tp,q@850]"
ROLES="$ALL --roles=[tp=diagnostic,sst=forcing,q@850=forcing]"
SKILL="--rollout=1,3@1 --predict=tendency --n_history=1 --input_noise=0.1 --forcings=[cos_zenith,sin_lat]"

# sets: the same numbers in three forms. flat: floats in one piece; chunked: one or four times and both levels of q to a chunk. And
# more: the forcings of valid alone, which begin later and last longer.
sets() {
    in_python <<'PYTHON'
R, C = 16, 32
lat, lon = np.linspace(75, -75, R).astype("f4"), (np.arange(C) * 11.25).astype("f4")

def write(path, year, first, fields, times_a_chunk=0):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with h5py.File(path, "w") as f:
        times = len(next(iter(fields.values())))
        hours = 6.0 * np.arange(first, first + times)
        for name, values, units in (("time", hours, f"hours since {year}-01-01"), ("level", [500.0, 850.0], "hPa"),
                                    ("lat", lat, "degrees_north"), ("lon", lon, "degrees_east")):
            scale(f, name, values, units=units)
        for name, values in fields.items():
            chunk = dict(chunks=(times_a_chunk,) + values.shape[1:], compression="gzip") if times_a_chunk else {}
            scales = ("time", "level", "lat", "lon") if values.ndim == 4 else ("time", "lat", "lon")
            variable(f, name, values, scales, chunk, units="K")

for year, split, times in ((2001, "train", 30), (2002, "valid", 20)):
    noise = np.random.default_rng(year).normal(size=(6, times + 20, R, C)).astype("f4")
    wave = np.cos(np.arange(times + 20) / 3)[:, None, None] * np.cos(np.deg2rad(lon)) * np.ones((R, 1))
    t, sst, tp = 280 + 3 * wave + noise[0], 290 + noise[1], np.maximum(0, wave + noise[2])
    q = 1 + 0.2 * noise[3:5].transpose(1, 0, 2, 3) + 0.1 * wave[:, None]
    fields = {"t": t, "sst": sst, "tp": tp, "q": q}
    fields = {name: values.astype("f4") for name, values in fields.items()}
    for form, times_a_chunk in ("flat", 0), ("chunked4", 4), ("chunked1", 1):
        write(f"{form}/{split}/{year}.nc", year, 0, {n: v[:times] for n, v in fields.items()}, times_a_chunk)
    if split == "valid":
        write("more/2002.nc", year, 12, {n: fields[n][12:] for n in ("sst", "q")})
PYTHON
    for form in flat chunked4 chunked1; do "$VITRAIN" stats $form $ALL >/dev/null; done
}
made() { made_once sets; }

learn() { "$VITRAIN" $SMALL --data_dir=flat "$@"; }

# Over one step, a forcing is an input channel that isn't forecast, and the diagnostic one a further channel of the output.
test_one_step_as_without_roles() {
    made
    learn --run_num=roles --variables=[t,sst,q@500] --roles=[sst=forcing] >/dev/null
    learn --run_num=plain --variables=[t,q@500,sst] --n_out_channels=2 >/dev/null
    cmp <(figures roles) <(figures plain)
    for how in --data_dir=flat --data_dir=chunked4 "--data_dir=chunked1 --cache=host"; do
        learn --run_num=levels --variables=[t,q@500,q@850] --roles=[q@850=forcing] $how >/dev/null # which are side by side
        learn --run_num=alike --variables=[t,q@500,q@850] --n_out_channels=2 $how >/dev/null
        cmp <(figures levels) <(figures alike) || { echo "$how"; return 1; }
        rm -r $RUNS/levels $RUNS/alike
    done
    learn --run_num=further --variables=[tp,t,q@500] --roles=[tp=diagnostic] >/dev/null
    learn --run_num=more --variables=[t,q@500,tp] --n_in_channels=2 >/dev/null
    cmp <(figures further) <(figures more)
    says "3 channels (t q500 tp) on 16×32 points; 3 channels are forecast" -- learn --run_num=said --variables=[tp,t,q@500] --roles=[tp=diagnostic] --num_epochs=1
    # where the rest is predicted as a change, too
    for what in state tendency; do
        learn --run_num=$what --variables=[tp,t] --roles=[tp=diagnostic] --predict=$what --lr=0 --num_epochs=1 >/dev/null
        "$VITRAIN" predict $RUNS/$what --time=2002-01-02 --rollout=1 --output=$what.nc >/dev/null
    done
    cmp <(values state.nc tp) <(values tendency.nc tp)
    refuted cmp <(values state.nc t) <(values tendency.nc t)
    # in a file, and of all levels
    cat >roles.yaml <<YAML
demo: {data_dir: flat, model: vit, img_size: [16, 32], embed_dim: 16, depth: 2, num_heads: 2, patch_size: 4, global_batch_size: 4, num_epochs: 2,
       variables: [q@850, t, q@500], roles: {q: forcing}}
YAML
    "$VITRAIN" --yaml_config=roles.yaml --config=demo --expdir=runs --run_num=file >said
    contains "$(cat said)" "3 channels (t q850 q500)" "1 channel is forecast" "the input also holds q850 of the files, q500 of the files"
}

test_same_bits_however_it_is_read() {
    made
    learn $ROLES $SKILL --run_num=a >said
    contains "$(cat said)" "5 channels (t q500 tp sst q850)" "3 channels are forecast" "the input also holds cos_zenith, sin_lat, sst of the files, q850 of the files"
    for how in --data_dir=chunked4 --cache=host "--data_dir=chunked4 --cache=host" --data_loader_config=pytorch "--data_dir=chunked1 --data_loader_config=pytorch" \
        --num_data_workers=0 --num_data_workers=3 "--data_loader_config=native --cache=host" --variables=[tp,t,sst,q@500,q@850]; do
        learn $ROLES $SKILL --run_num=b $how >/dev/null
        cmp <(figures a) <(figures b) || { echo "$how"; return 1; }
        cmp <(cut -d, -f1-4 $RUNS/a/epochs.csv) <(cut -d, -f1-4 $RUNS/b/epochs.csv)
        rm -r $RUNS/b
    done
    learn $ROLES $SKILL --run_num=parts --checkpoint_every=8 --keep_last=9 >/dev/null
    learn $ROLES $SKILL --run_num=parts --resume=$RUNS/parts/checkpoints/step-00000008 >/dev/null
    cmp <(figures a) <(figures parts)
    learn $ROLES $SKILL --run_num=noise --data_loader_config=synthetic --limit_nsamples=16 --limit_nsamples_val=4 >/dev/null
}

test_departures_and_missing_values() {
    made
    in_python <<'PYTHON'
for split, year in ("train", 2001), ("valid", 2002):
    with h5py.File(f"flat/{split}/{year}.nc", "r+") as f: f["sst"][:, 5:9, 3:20] = float("nan")
PYTHON
    "$VITRAIN" stats flat $ALL --missing=mask --force >/dev/null
    refuses_once "sst" -- learn $ROLES --run_num=refused
    learn $ROLES $SKILL --normalise=climatology --missing=mask --run_num=a >/dev/null
    learn $ROLES $SKILL --normalise=climatology --missing=mask --run_num=b --cache=host >/dev/null
    cmp <(figures a) <(figures b)
    refuted grep -E 'nan|inf' $RUNS/a/metrics.csv
    "$VITRAIN" evaluate $RUNS/a --rollout=3 --output=scores >/dev/null
    refuted grep -E 'nan|inf' scores/scores.csv
    [ "$(grep -c '^tp,' scores/scores.csv)" = 3 ]
    awk -F, -v own="$(tail -n +2 $RUNS/a/epochs.csv | cut -d, -f4 | sort -g | head -n 1)" \
        'NR == 2 { d = $3 - own; exit !(d * d <= 1e-12 * own * own) }' scores/loss.csv
    refuses_once "augment sign changes the sign of what is forecast, but variables that are forcings keep theirs" -- learn $ROLES --normalise=climatology --augment=sign
}

# The loss of a step over a rollout of three is that of the forecasts that `predict` writes: two engines, one in training
# and one that reads its forcings at each lead.
test_training_and_forecasts_agree() {
    made
    learn $ROLES $SKILL --lr=1e-2 --num_epochs=8 >/dev/null
    "$VITRAIN" export $RUNS/00 --output=w.safetensors >/dev/null
    learn $ROLES $SKILL --rollout=3 --input_noise=0 --init_from=w.safetensors --lr=0 --global_batch_size=1 --limit_nsamples=1 --num_epochs=1 --run_num=one >/dev/null
    "$VITRAIN" predict $RUNS/00 --split=train --time=2001-01-01T06 --rollout=3 --output=f.nc >/dev/null
    in_python "$(tail -n 1 $RUNS/one/metrics.csv | cut -d, -f3)" <<'PYTHON'
means, stds = (np.load(f"flat/stats/global_{what}.npy").ravel() for what in ("means", "stds"))
order = {"t": 0, "sst": 1, "q500": 2, "tp": 3, "q850": 4}  # of the statistics
losses = []
with h5py.File("flat/train/2001.nc") as truth, h5py.File("f.nc") as forecast:
    for step in range(3):
        squares = [0, 0]
        for name in ("t", "q500", "tp"):
            fields = truth["q"][:, 0] if name == "q500" else truth[name]
            mean, std = means[order[name]], stds[order[name]]
            target, own = (fields[2 + step] - mean) / std, (forecast[name][-3:][step] - mean) / std
            squares[0] += ((own - target) ** 2).sum()
            squares[1] += (target ** 2).sum()
        losses.append(np.sqrt(squares[0] / squares[1]))
print(losses, sys.argv[1])
assert abs(np.mean(losses) - float(sys.argv[1])) < 2e-5 * np.mean(losses)
PYTHON
}

# Forcings are transformed, too.
test_forcings_at_each_lead() {
    local transform="--transform=[sst=sqrt,tp=log1p(1e-2)]"
    made
    "$VITRAIN" stats flat $ALL "$transform" --force >/dev/null
    learn $ROLES $SKILL "$transform" --bounds=[tp=[0,inf]] >/dev/null
    forecast() { "$VITRAIN" predict $RUNS/00 "$@"; }
    forecast --time=2002-01-04T00 --rollout=6 --output=a.nc >/dev/null # by 2002-01-05 12:00, where the set ends at 18:00
    forecast --time=2002-01-04T00 --rollout=6 --forcing_path=more --output=b.nc >/dev/null
    for name in t tp; do cmp <(values a.nc $name) <(values b.nc $name); done
    refuses_once "needs the forcings [sst, q@850] at each of its times, but valid_data_path 'flat/valid' does not have them from 2002-01-06 00:00 to 2002-01-06 06:00" \
        "--forcing_path=DIR" -- forecast --time=2002-01-04T00 --rollout=10 --output=c.nc
    [ ! -e c.nc ]
    forecast --time=2002-01-04T00 --rollout=10 --forcing_path=more --output=c.nc >/dev/null
    cmp <(values a.nc tp | head -n 3072) <(values c.nc tp | head -n 3072)
    refuses_once "and --forcing_path do not have them from 2002-01-11 00:00 to" -- forecast --time=2002-01-04T00 --rollout=40 --forcing_path=more --output=d.nc
    refuses_once "--forcing_path 'none': no such directory" -- forecast --time=2002-01-04T00 --rollout=4 --forcing_path=none --output=d.nc
    in_python <<<'with h5py.File("more/2002.nc", "r+") as f: f["sst"].attrs["units"] = "m"'
    refuses_once "(sst) is in 'm' in more, but in 'K' in flat/valid" -- forecast --time=2002-01-04T00 --rollout=10 --forcing_path=more --output=d.nc
    # a forecast that sees other forcings is another one
    in_python <<'PYTHON'
with h5py.File("more/2002.nc", "r+") as f:
    f["sst"].attrs["units"] = "K"
    f["sst"][3] += 2
PYTHON
    forecast --time=2002-01-04T00 --rollout=6 --forcing_path=more --output=e.nc >/dev/null
    cmp <(values a.nc tp | head -n 1536) <(values e.nc tp | head -n 1536) # leads 0, 1 and 2: forcings up to 2002-01-04 12:00
    refuted cmp <(values a.nc tp) <(values e.nc tp)
}

test_over_ranks() {
    needs_mpi
    made
    local some="--data_dir=flat $ROLES $SKILL"
    as_one_rank "$some" --context_parallel=2 --tensor_parallel=2 --zero_stage=3 "--pipeline_parallel=2 --grad_accumulation=2 --global_batch_size=4"
    "$VITRAIN" evaluate one/demo/1CPU/00 --rollout=3 --output=alone >/dev/null
    "$TOP/tests/mpirun" -np 2 "$VITRAIN" evaluate one/demo/1CPU/00 --rollout=3 --output=both >/dev/null
    paste -d, alone/scores.csv both/scores.csv | awk -F, 'NR > 1 { d = $5 - $(NF / 2 + 5); if (d * d > 1e-10 * $5 * $5) exit 1 }'
    says "on 1 rank of cpu" -- "$VITRAIN" plan $SMALL $ROLES $SKILL --ranks=1 --hardware="$TOP/config/hardware.yaml:cpu"
}

test_roles_that_are_refused() {
    made
    refuses_once "roles: 'tp=output' is no role of a variable; expected NAME=ROLE, in a file NAME: ROLE, with one of the roles prognostic, diagnostic and forcing" -- learn $ALL --roles=[tp=output]
    refuses_once "roles: 'tp' is no role of a variable" -- learn $ALL --roles=[tp]
    refuses_once "roles: 'u10' is none of the variables [t,sst,q@500,tp,q@850]" -- learn $ALL --roles=[u10=forcing]
    refuses_once "roles: the variable q@500 is given 2 roles; give it one" -- learn $ALL --roles=[q=forcing,q@500=diagnostic]
    refuses_once "roles: no variable is prognostic" -- learn --variables=[t] --roles=[t=forcing]
    refuses_once "roles are those of variables, but variables names none" -- learn --roles=[t=forcing]
    refuses_once "n_in_channels 5 and n_out_channels 3 don't go with the roles of the variables, which make 2 and 3; leave both options out" -- learn $ROLES --n_in_channels=5
    learn $ROLES --num_epochs=1 >/dev/null
    refuses_once "channel 2 is 'sst' in flat/train, but 'tp' in the checkpoint" -- learn $ALL --roles=[tp=forcing,sst=diagnostic,q@850=forcing] --num_epochs=2 --resume
    refuses_once "was made with roles [tp=diagnostic,sst=forcing,q@850=forcing], not [tp=forcing,sst=diagnostic,q@850=forcing]" -- \
        learn $ALL --roles=[tp=forcing,sst=diagnostic,q@850=forcing] --num_epochs=2 --resume --accept=channels
    refuses_once "no variable of this model is a forcing" -- eval 'learn --variables=[t] --run_num=t >/dev/null; "$VITRAIN" predict $RUNS/t --time=2002-01-04T00 --rollout=1 --forcing_path=more --output=d.nc'
}
