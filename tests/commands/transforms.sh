# Options `transform` and `bounds`, from the files to the forecast: channel 2 (t2m) becomes rain, skewed and almost never below 0.

SMALL="$SMALL --loss=mse --predict=tendency --num_epochs=2 --lr=2e-3"
RAIN='--transform=[t2m=log1p(1e-5)]'

# What values of 200 to 300 become: rare rain in m; -1e-9, as packing leaves it, elsewhere. And the same as the model sees it, in
# the set `hand`; `data` has statistics of the transformed channel, `plain` of none.
make_rain() {
    synth --steps_per_year=61 --valid_steps=25
    in_python <<'END'
for path in glob.glob("data/*/*.h5"):
    if "stats" in path: continue
    with h5py.File(path, "r+") as file:
        fields = file["fields"][:]
        x = fields[:, 2].astype("f8")
        x = (x - 280) / 20
        fields[:, 2] = 2e-3 * np.maximum(0, x) ** 3 - 1e-9
        file["fields"][:] = fields
END
    cp -r data hand
    cp -r data plain
    in_python <<'END'
for path in glob.glob("hand/*/200*.h5"):
    with h5py.File(path, "r+") as file:
        fields = file["fields"][:]
        fields[:, 2] = np.log1p(np.maximum(fields[:, 2].astype("f8"), 0) / 1e-5)
        file["fields"][:] = fields
END
    "$VITRAIN" stats data --force "$RAIN" >printed
    grep -q ' t2m .*  of log1p(1e-05)$' printed
    refuted grep ' u10 .* of ' printed
    "$VITRAIN" stats hand --force >/dev/null
    "$VITRAIN" stats plain --force >/dev/null
}
made() {
    python_with python3-h5py h5py,numpy
    made_once make_rain
}

# What depends on the transformed values is that of the set by hand; what scores need, that of the values themselves.
test_statistics() {
    made
    in_python <<'END'
close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6 * np.abs(b).max())
for name in ("global_means", "global_stds", "time_diff_stds"):
    close(np.load("data/stats/%s.npy" % name), np.load("hand/stats/%s.npy" % name))
close(np.load("data/stats/time_means.npy"), np.load("plain/stats/time_means.npy"))
sets = {name: h5py.File(name + "/stats/climatology.h5") for name in ("data", "hand", "plain")}
for name in ("coefficients", "departure_stds", "departure_change_stds"):
    for c in range(3):
        part = lambda s: sets[s][name][:, :, c] if name == "coefficients" else sets[s][name][c:c + 1]
        close(part("data"), part("hand"))
for c in range(3):
    close(sets["data"]["value_coefficients"][:, :, c], sets["plain"]["coefficients"][:, :, c])
assert "value_coefficients" not in sets["plain"]
END
    says "channels: u10 v10 t2m as log1p(1e-05)" -- "$VITRAIN" inspect data/stats
    says "no faults seen" -- "$VITRAIN" inspect data # whatever its files will be transformed by
    says "the transform of channel 2 (t2m) is none in data, but log1p(1e-05) in data/stats" -- "$VITRAIN" inspect data data/stats
    cmp <("$VITRAIN" stats data --force --transform=[] | head -n 4) <("$VITRAIN" stats plain --force | head -n 4)
    cmp {data,plain}/stats/global_stds.npy
}

# losses TAG: of all steps, and of the validations
losses() { { tail -n +2 "$RUNS/$1/metrics.csv" | cut -d, -f1,3; tail -n +2 "$RUNS/$1/epochs.csv" | cut -d, -f1,4; }; }

test_training_sees_what_it_becomes() {
    made
    train "$RAIN" --run_num=a >/dev/null
    train --data_dir=hand --run_num=b >/dev/null
    near <(losses a) <(losses b) 0 1e-5
    train --data_dir=plain --run_num=c >/dev/null
    losses c >c
    refuted near <(losses a) c 0 1e-3
    for how in "--cache=host" "--data_loader_config=pytorch" "--num_data_workers=0" "--skip_bad_samples --num_data_workers=2"; do
        train "$RAIN" --run_num=d $how >/dev/null
        cmp <(figures a) <(figures d)
        rm -r "$RUNS/d"
    done
    train "$RAIN" --normalise=climatology --run_num=e >/dev/null
    train --data_dir=hand --normalise=climatology --run_num=f >/dev/null
    near <(losses e) <(losses f) 0 1e-4
    # bounds that no state reaches change no bit, and those of a file are those of a flag
    train "$RAIN" --bounds=[u10=[-1e9,1e9],v10=[-inf,inf]] --run_num=g >/dev/null
    cmp <(figures a) <(figures g)
    train "$RAIN" --bounds=[t2m=[0,1e-3]] --run_num=h >/dev/null
    refuted cmp <(figures a) <(figures h)
    printf 'rain:\n  transform: {t2m: log1p(1e-5)}\n  bounds: {t2m: [0, 1e-3]}\n' >rain.yaml
    train --run_num=i --yaml_config=rain.yaml --config=rain --num_epochs=2 >/dev/null
    cmp <(figures h) <(figures i)
    # chunks of one channel and four times, with a value that can't be used: its neighbours are read once more
    in_python <<'END'
for path in glob.glob("data/*/200*.h5") + glob.glob("hand/*/200*.h5"):
    with h5py.File(path, "r+") as file:
        fields, attributes = file["fields"][:], dict(file["fields"].attrs)
        if "hand" in path: fields[:, 0] = np.sqrt(np.maximum(fields[:, 0], 0))
        if "train" in path: fields[9::12, 1, 3, 4] = np.nan
        del file["fields"]
        file.create_dataset("fields", data=fields, chunks=(4, 1, 16, 32), compression=1).attrs.update(attributes)
END
    "$VITRAIN" stats data --force --missing=mask "--transform=[t2m=log1p(1e-5),u10=sqrt]" >/dev/null
    "$VITRAIN" stats hand --force --missing=mask >/dev/null
    train "--transform=[t2m=log1p(1e-5),u10=sqrt]" --skip_bad_samples --global_batch_size=20 --run_num=j >printed
    train --data_dir=hand --skip_bad_samples --global_batch_size=20 --run_num=k >/dev/null
    grep -q 'skipped: ' printed
    near <(losses j) <(losses k) 0 1e-5
}

# Scores and forecasts are in the units of the data; without bounds some of them are below 0.
test_scores_and_forecasts() {
    made
    train "$RAIN" --run_num=free >/dev/null
    train "$RAIN" --bounds=[t2m=[0,5e-3]] --run_num=bound >/dev/null
    train --data_dir=plain --run_num=plain >/dev/null
    for run in free bound plain; do
        "$VITRAIN" evaluate $RUNS/$run --rollout=10 --output=$run.scores --forecasts=$run.nc >/dev/null
        "$VITRAIN" predict $RUNS/$run --time=2002-01-01T00:00 --rollout=10 --output=$run.one.nc >/dev/null
    done
    "$VITRAIN" evaluate $RUNS/free --rollout=10 --bounds=[t2m=[0,5e-3]] --output=late.scores --forecasts=late.nc >/dev/null
    in_python <<'END'
truth = h5py.File("data/valid/2002.h5")["fields"][:, 2].astype("f8")
weights = np.cos(np.radians(np.linspace(90, -90, 16)))[:, None]
weights = weights / weights.mean()
low, high = np.float32(0), np.float32(5e-3)
rows = {run: [r for r in csv.DictReader(open(run + ".scores/scores.csv")) if r["channel"] == "t2m"] for run in ("free", "bound", "plain", "late")}
for run in rows:
    forecast = h5py.File(run + ".nc")["t2m"][:]
    assert forecast.shape[1] == 10
    for lead in range(10):
        seen = truth[lead + 1:][:len(forecast)]
        error = forecast[:, lead] - seen
        score = lambda name: float(rows[run][lead][name])
        rmse = np.sqrt((weights * error ** 2).mean((1, 2)))
        np.testing.assert_allclose(score("rmse"), rmse.mean(), rtol=1e-6)
        np.testing.assert_allclose(score("bias"), (weights * error).mean(), rtol=1e-4, atol=1e-4 * score("mae"))
        np.testing.assert_allclose(score("rmse_persistence"), np.sqrt((weights * (truth[:len(forecast)] - seen) ** 2).mean((1, 2))).mean(), rtol=1e-6)
        for name in ("rmse_persistence", "rmse_climatology", "rmse_seasonal", "acc_persistence", "acc_seasonal_persistence"):
            np.testing.assert_allclose(score(name), float(rows["plain"][lead][name]), rtol=1e-5)
        assert (rows[run][lead]["channel_std"] == "") == (run != "plain")
    inside = (forecast >= low).all() and (forecast <= high).all()
    assert inside == (run in ("bound", "late")), (run, forecast.min(), forecast.max())
    if run in ("bound", "late"): assert (forecast < 1e-9).any()
    if run != "late": np.testing.assert_array_equal(h5py.File(run + ".one.nc")["t2m"][:], forecast[0])
END
    # the loss is the training's, of what the model sees
    awk -F, -v own="$(tail -n +2 $RUNS/bound/epochs.csv | cut -d, -f4 | sort -g | head -n 1)" \
        'NR == 2 { d = $3 - own; exit !(d * d <= 1e-12 * own * own) }' bound.scores/loss.csv
}

test_what_belongs_together() {
    made
    refuses_once "the transform of channel 2 (t2m) is none in data/train, but log1p(1e-05) in data/stats/global_means.npy; make statistics again by \`vitrain stats\` with --transform as the run has it" -- train
    refuses_once "is log1p(0.001) in data/train, but log1p(1e-05) in data/stats/global_means.npy" -- train '--transform=[t2m=log1p(1e-3)]'
    refuses_once "is log1p(1e-05) in plain/train, but none in plain/stats/global_means.npy" -- train "$RAIN" --data_dir=plain
    refuses_once "but none in plain/stats/climatology.h5" -- train "$RAIN" --data_dir=plain --normalise=climatology
    refuses_once "transform: there is no channel 'rain'; the data have u10, v10, t2m" -- train '--transform=[rain=sqrt]'
    refuses_once "bounds: there is no channel 'rain'; the data have u10, v10, t2m" -- train "$RAIN" '--bounds=[rain=[0,1]]'
    refuses_once "transform: 'cube' of channel 't2m' is none of log1p(e), log(e) and sqrt" -- "$VITRAIN" stats data --force '--transform=[t2m=cube]'
    refuses_once "use --normalise=mean, or --bounds=None" -- train "$RAIN" --normalise=climatology '--bounds=[t2m=[0,1]]'
    train "$RAIN" --num_epochs=1 >/dev/null
    says "channels: u10 v10 t2m as log1p(1e-05)" -- "$VITRAIN" inspect $RUNS/00/checkpoints/best
    refuses_once "--transform must be that of the training" -- "$VITRAIN" evaluate $RUNS/00 --transform=None --output=x
    "$VITRAIN" stats data --transform=[t2m=sqrt] --output=roots >/dev/null
    refuses_once "--transform must be that of the training" -- train --transform=[t2m=sqrt] --resume --num_epochs=2 \
        --global_means_path=roots/global_means.npy --global_stds_path=roots/global_stds.npy --time_diff_stds_path=roots/time_diff_stds.npy
    says "the transform of channel 2 (t2m) is none in " -- train --data_dir=plain --init_from=$RUNS/00/checkpoints/best --run_num=init --num_epochs=1
}

test_resumed_and_over_ranks() {
    made
    local all=("$RAIN" '--bounds=[t2m=[0,5e-3],u10=[-5,5]]' --rollout=1,2@1 --grad_accumulation=2)
    OMP_NUM_THREADS=1 train "${all[@]}" --expdir=cut --num_epochs=1 --lr_schedule=none >/dev/null
    OMP_NUM_THREADS=1 train "${all[@]}" --expdir=cut --lr_schedule=none --resume >/dev/null
    OMP_NUM_THREADS=1 train "${all[@]}" --expdir=whole --lr_schedule=none >/dev/null
    cmp <(figures_of cut) <(figures_of whole)
    needs_mpi
    as_one_rank "${all[*]}" "--context_parallel=2" "--pipeline_parallel=2" "--tensor_parallel=2" ""
    scores() { tail -n +2 "$1/scores.csv" | cut -d, -f5-9; } # RMSE and ACC
    "$VITRAIN" evaluate one/demo/1CPU/00 --rollout=4 --output=alone >/dev/null
    for how in "" --pipeline_parallel=2; do
        "$TOP/tests/mpirun" -np 2 "$VITRAIN" evaluate one/demo/1CPU/00 --rollout=4 --output=both --force $how >/dev/null
        near <(scores both) <(scores alone) 1e-5
    done
}
