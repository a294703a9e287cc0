# Ensembles: of noise on the initial state, and of several checkpoints.

SMALL="$SMALL --num_epochs=1 --input_noise=0.2"

data_and_runs() {
    synth --valid_steps=13
    for seed in 1 2; do train --run_num=$seed --seed=$seed >/dev/null; done
}
made_once data_and_runs
A=$RUNS/1 B=$RUNS/2

evaluate() { "$VITRAIN" evaluate --rollout=4 "$@" >said; }
predict() { "$VITRAIN" predict --time=2002-01-02T06 --rollout=3 "$@" >said; }
scores() { cut -d, -f"$2" "$1/scores.csv"; }

# One member is the forecast without an ensemble, to the bit: its CRPS is the MAE, and it has no spread. Noise that is too
# small for the numbers makes equal members.
test_ensembles_of_one() {
    evaluate $A --output=alone
    evaluate $A --output=one --members=1
    for file in loss horizons spectra; do cmp alone/$file.csv one/$file.csv; done
    cmp alone/scores.csv <(scores one 1-22)
    [ "$(scores one 23- | head -n 1)" = members,spread,spread_error_ratio,crps,spread_error_ratio_8,crps_8,spread_error_ratio_24,crps_24,crps_dressed,crps_climatology ]
    [ "$(scores one 23-25 | sed 1d | sort -u)" = 1,, ]
    cmp <(scores one 22 | sed 1d) <(scores one 26 | sed 1d)
    evaluate $A --output=equal --members=3 --input_noise=1e-30
    for name in 5 8 19 21 22; do cmp <(scores alone $name) <(scores equal $name); done # rmse, acc, skill, bias, mae
    cmp <(scores equal 22 | sed 1d) <(scores equal 26 | sed 1d)
    scores equal 24,25 | sed 1d | awk -F, '$1 > 1e-5 || $2 > 1e-5 { exit 1 }'
    contains "$(cat said)" "ensemble: 3 members, 2 with input_noise 1e-30 on the initial state; its mean is the forecast that is scored"
}

# The noise depends on the seed, the member, the date and the place, and on nothing else.
test_ensembles_are_the_same_however_they_are_made() {
    evaluate $A --members=5
    contains "$(cat said)" "spread/error" "CRPS" "/evaluation/step-00000007-valid-5-members"
    narrow said
    cp -r $A/evaluation/step-00000007-valid-5-members five
    contains "$(cat five/scores.html)" "<h2>Ensemble of 5</h2>" "RMSE of the mean" "spread / error" "ensemble of 5 members"
    "$VITRAIN" report $A >/dev/null
    contains "$(cat $A/report.html)" "<h2>Ensemble of 5</h2>"
    [ "$(column five members)" = 5 ]
    awk -v crps="$(column five crps)" -v mae="$(column five mae)" -v spread="$(column five spread)" 'BEGIN { exit !(crps > 0 && crps < mae && spread > 0) }'
    evaluate $A --output=again --members=5 --cache=none
    cmp five/scores.csv again/scores.csv
    for most in 1 3 20; do # members one by one, three by three, and those of four initial times
        evaluate $A --output=batches --force --members=5 --local_batch_size=$most
        cmp five/scores.csv batches/scores.csv
    done
    evaluate $A --output=other --members=5 --seed=9
    refuted cmp five/scores.csv other/scores.csv
    evaluate $A --output=more --members=5 --input_noise=0.3
    awk -v a="$(column five spread)" -v b="$(column more spread)" 'BEGIN { exit !(b > 1.4 * a && b < 1.6 * a) }'
    needs_mpi
    for ranks in 2 3; do # 9 initial times
        "$TOP/tests/mpirun" -np $ranks "$VITRAIN" evaluate $A --rollout=4 --members=5 --output=shared --force >/dev/null
        for file in loss scores horizons spectra rank_histogram; do cmp five/$file.csv shared/$file.csv; done
        for name in u10_error_std t2m_error_std latitude prediction_timedelta; do cmp <(values five/error_stds.nc $name) <(values shared/error_stds.nc $name); done
    done
}

# Against the definitions, in numpy: fair CRPS and ratio of means over blocks of points, the rank histogram, and the CRPS of the
# mean and of the climatology with a normal distribution around them. The standard deviations are those that the forecasts of
# `predict` from the training set have. The model sees departures and forcings, of the dates of either set.
test_scores_of_ensembles_in_numpy() {
    python_with "python3-xarray python3-netcdf4" "xarray, netCDF4"
    rm -rf data runs
    synth --valid_steps=13 --img_size=[28,48]
    train --img_size=[28,48] --run_num=1 --normalise=climatology --forcings=[cos_zenith,sin_day] --n_history=1 --n_in_channels=6 --predict=tendency >/dev/null
    evaluate $A --members=5 --input_noise=0.6 --forecasts=f.nc --output=scored --error_times=1000 --rollout=2
    contains "$(cat said)" "errors from 58 initial times of the training set data/train"
    predict $A --members=5 --input_noise=0.6 --split=train --time=2001-01-01T06/2001-01-15T12/6h --rollout=2 --output=train.nc
    "$python" - <<'END'
import csv, math
import netCDF4, numpy as np, xarray

erf = np.vectorize(math.erf)
truth = {name: netCDF4.Dataset(f"data/{name}/{year}.h5")["fields"][:].astype(float) for name, year in (("valid", 2002), ("train", 2001))}
season = netCDF4.Dataset("data/stats/climatology.h5")
assert season.harmonics == 0 and list(season.minutes_of_day) == [0, 360, 720, 1080]
f, train, stds = (xarray.open_dataset(name).load() for name in ("f.nc", "train.nc", "scored/error_stds.nc"))
assert list(stds.data_vars) == [f"{name}_error_std" for name in f.data_vars] and "number" not in stds.dims, stds
stds = stds.rename({f"{name}_error_std": name for name in f.data_vars})
assert stds.t2m.dims == ("prediction_timedelta", "latitude", "longitude"), stds.t2m
assert stds.t2m.standard_name == "air_temperature standard_error" and stds.attrs["checkpoint"] == f.attrs["checkpoint"]
weights = np.cos(np.radians(f.latitude.values))[:, None] * np.ones(f.longitude.size)

def blocks(x, b):
    x = x[..., :x.shape[-2] // b * b, :x.shape[-1] // b * b]
    return x.reshape(*x.shape[:-2], x.shape[-2] // b, b, x.shape[-1] // b, b).mean((-3, -1))

def crps(mean, std, value):
    z = (value - mean) / std
    return std * (z * erf(z / 2 ** 0.5) + 2 * np.exp(-z * z / 2) / (2 * np.pi) ** 0.5 - 1 / np.pi ** 0.5)

def fields(name, channel, starts, lead):
    times = np.arange(starts) + lead + 2 # the first initial time has one before it
    return truth[name][times, channel], season["coefficients"][:, 0, channel].astype(float)[times % 4]

ranks = {}
for row in csv.DictReader(open("scored/rank_histogram.csv")):
    assert abs(float(row["ratio"]) - 6 * float(row["frequency"])) < 1e-8
    ranks.setdefault((row["channel"], row["lead_hours"]), []).append(float(row["frequency"]))
compared = 0
for row in csv.DictReader(open("scored/scores.csv")):
    name, lead = row["channel"], int(row["lead_hours"]) // 6 - 1
    channel = list(f.data_vars).index(name)
    x = f[name][:, :, lead].values.astype(float).swapaxes(0, 1)
    o, c = fields("valid", channel, x.shape[1], lead)
    found = {}
    for b in 1, 8, 24:
        xb, ob, w = blocks(x, b), blocks(o, b), blocks(weights, b)
        mean = lambda v: (w * v).sum((-2, -1)).mean() / w.sum()
        pairs = sum(abs(xi - xj) for xi in xb for xj in xb) / (2 * 5 * 4)
        end = "" if b == 1 else f"_{b}"
        found["crps" + end] = mean(abs(xb - ob).mean(0) - pairs)
        found["spread_error_ratio" + end] = (6 / 5 * mean(xb.var(0, ddof=1)) / mean((xb.mean(0) - ob) ** 2)) ** 0.5
    below = (x < o).sum(0)
    for rank in range(6):
        assert abs((weights * (below == rank)).sum((-2, -1)).mean() / weights.sum() - ranks[name, row["lead_hours"]][rank]) < 1e-7
    assert abs(sum(ranks[name, row["lead_hours"]]) - 1) < 1e-7
    y = train[name][:, :, lead].values.astype(float).mean(1)
    std = ((y - fields("train", channel, len(y), lead)[0]) ** 2).mean(0) ** 0.5
    np.testing.assert_allclose(stds[name][lead].values, std, rtol=1e-5)
    departures = np.concatenate([np.subtract(*fields("train", channel, len(y), k)) for k in range(2)])
    assert len(y) == 58 and len(departures) == 2 * 58
    mean = lambda v: (weights * v).sum((-2, -1)).mean() / weights.sum()
    found["crps_dressed"] = mean(crps(x.mean(0), stds[name][lead].values.astype(float), o))
    found["crps_climatology"] = mean(crps(c, (departures ** 2).mean(0) ** 0.5, o))
    for key, value in found.items():
        assert abs(value / float(row[key]) - 1) < 1e-6, (name, lead, key, value, row[key])
        compared += 1
assert compared == 6 * 8
END
}

# The table and the page say whether the ensemble is worth its cost. Plain evaluations cost and write nothing more, unless
# --error_times asks for it.
test_cheap_rivals() {
    evaluate $A --output=plain
    refuted grep -i dressed said
    cp said plain.said
    [ "$(ls plain | grep -v map)" = "$(printf '%s\n' horizons.csv loss.csv made_from.txt scores.csv scores.html spectra.csv)" ]
    evaluate $A --output=none --error_times=0
    diff <(sed '/ root /d; s/none/plain/' said) <(sed '/ root /d' plain.said)
    evaluate $A --output=dressed --error_times=4
    contains "$(cat said)" "CRPS of the forecast with a normal distribution around it, as wide as its errors from 4 initial times of the training set data/train"
    refuted grep "the ensemble is" said
    [ "$(grep -c "CRPS dressed climatology" said)" = 1 ]
    narrow said
    for file in loss horizons spectra; do cmp plain/$file.csv dressed/$file.csv; done
    cmp plain/scores.csv none/scores.csv
    cmp plain/scores.csv <(scores dressed 1-22)
    [ "$(scores dressed 23- | head -n 1)" = crps_dressed,crps_climatology ]
    contains "$(cat dressed/scores.html)" "CRPS and its cheap rivals"
    evaluate $A --output=five --members=5
    contains "$(cat said)" "dressed climatology" "errors from 9 initial times" "elsewhere it is not worth its cost."
    narrow said
    contains "$(cat five/scores.html)" "Rank histogram" "means of 8 × 8 points" "dressed forecast" "elsewhere it is not worth its cost."
    evaluate $A --output=five --members=5 --error_times=0 --force
    refuted grep -i dressed said five/scores.html five/scores.csv
    [ ! -e five/error_stds.nc ]
    evaluate $A --output=five --force
    [ ! -e five/rank_histogram.csv ]
    cp -r data/train bad
    overwrite bad/2001.h5 $((40 * 3 * 512)) "$INF"
    refuses_once "forecasts from the training set, which --error_times=0 leaves out: bad/2001.h5: 'fields' is infinite at time 40" -- "$VITRAIN" evaluate $A --rollout=4 --members=2 --output=bad.scores --train_data_path=bad --error_times=100
    mv data/train away
    says "WARNING" "dressed forecasts can't be scored, as the training set can't be used" "data/train" "--train_data_path=DIR names it; --error_times=0 leaves that score out" -- "$VITRAIN" evaluate $A --rollout=4 --members=2 --output=two
    [ "$(scores two 30- | head -n 1)" = crps_24 ]
    evaluate $A --output=again --members=2 --train_data_path=away
    [ "$(scores again 31- | head -n 1)" = crps_dressed,crps_climatology ]
    needs_mpi
    says "as the training set can't be used" -- "$TOP/tests/mpirun" -np 2 "$VITRAIN" evaluate $A --rollout=4 --members=2 --output=shared
    cmp two/scores.csv shared/scores.csv
}

# How large the errors are, beside the forecast, or its mean.
test_predict_with_error_stds() {
    python_with "python3-xarray python3-netcdf4" "xarray, netCDF4"
    evaluate $A --output=scored --error_times=9
    local stds=scored/error_stds.nc
    predict $A --output=f.nc --error_stds=$stds
    predict $A --output=four.nc --error_stds=$stds --members=4
    "$VITRAIN" predict $A --time=2002-01-02/2002-01-03/12h --rollout=2 --output=g.nc --error_stds=$stds >/dev/null
    "$python" - <<'END'
import numpy as np, xarray
f, g, four, stds = (xarray.load_dataset(name) for name in ("f.nc", "g.nc", "four.nc", "scored/error_stds.nc"))
stds = stds.rename({f"{name}_error_std": name for name in ("u10", "v10", "t2m")})
for name in "u10", "v10", "t2m":
    assert f[name + "_error_std"].dims == four[name + "_error_std"].dims == f[name].dims == ("time", "lat", "lon")
    assert g[name + "_error_std"].dims == stds[name].dims == ("prediction_timedelta", "latitude", "longitude")
    assert np.array_equal(f[name + "_error_std"], stds[name][:3]) and np.array_equal(four[name + "_error_std"], stds[name][:3])
    assert np.array_equal(g[name + "_error_std"], stds[name][:2]) and (stds[name] > 0).all()
    assert f[name + "_error_std"].standard_name == f[name].standard_name + " standard_error" and f[name + "_error_std"].units == f[name].units
    assert f[name].ancillary_variables == four[name + "_mean"].ancillary_variables == name + "_error_std"
    assert "ancillary_variables" not in four[name].attrs
END
    cp $stds other.nc
    refuses_once "--error_stds=$stds (" "'u10_error_std' has 4 lead times of [16, 32], but the forecast 5 of [16, 32]" -- "$VITRAIN" predict $A --time=2002-01-02T06 --rollout=5 --output=x.nc --error_stds=$stds
    refuses_once "--error_stds=$stds (\`vitrain evaluate $B/checkpoints/step-00000007 --rollout=N --error_times=N\` makes such a file)" "it is of the checkpoint 'step 7, crc32c " "but $B/checkpoints/step-00000007 is 'crc32c " -- predict $B --output=x.nc --error_stds=$stds
    "$python" -c "
import netCDF4
with netCDF4.Dataset('other.nc', 'a') as other:
    other.about = other.about.replace('[90.0, 78.0', '[90.0, 79.0')"
    refuses_once "--error_stds=other.nc (" "latitude" -- predict $A --output=x.nc --error_stds=other.nc
    refuses_once "--error_stds=g.nc (" "'u10_error_std' has 2 lead times of [16, 32], but the forecast 3 of [16, 32]" -- predict $A --output=x.nc --error_stds=g.nc
    refuses_once "nowhere.nc" -- predict $A --output=x.nc --error_stds=nowhere.nc
    refuses_once "said" -- predict $A --output=x.nc --error_stds=said
    [ ! -e x.nc ]
}

test_ensembles_of_checkpoints() {
    evaluate --checkpoints=$A,$B --output=both
    contains "$(cat said)" "ensemble: 2 members, of 2 checkpoints; its mean" "also of $B/checkpoints/step-00000007" "mean of the checkpoints)"
    evaluate $A --output=a
    evaluate $B --output=b
    awk -F, 'FNR == 2 { loss[++n] = $3 } END { d = loss[1] - (loss[2] + loss[3]) / 2; exit !(n == 3 && d < 1e-6 && d > -1e-6) }' {both,a,b}/loss.csv
    # by the definition: with two members the spread is |a - b| / sqrt(2), and the mean's bias that of both
    awk -v m="$(column both bias)" -v a="$(column a bias)" -v b="$(column b bias)" 'BEGIN { d = m - (a + b) / 2; exit !(d < 1e-5 && d > -1e-5) }'
    evaluate --checkpoints=$B,$A --output=turned --seed=1
    for name in 5 8 22 24 26; do cmp <(scores both $name) <(scores turned $name); done
    evaluate --checkpoints=$A,$B --members=6 --output=six
    contains "$(cat said)" "ensemble: 6 members, of 2 checkpoints, 4 with input_noise 0.2 on the initial state"
    evaluate --checkpoints=$A,$B --members=6 --local_batch_size=2 --output=batches --force
    cmp six/scores.csv batches/scores.csv
    needs_mpi
    "$TOP/tests/mpirun" -np 2 "$VITRAIN" evaluate --checkpoints=$A,$B --members=6 --rollout=4 --output=shared --force >/dev/null
    for file in loss scores; do cmp six/$file.csv shared/$file.csv; done
}

# Of three times with 512 points each. Member 0 is the forecast alone; each member has the bits that it has in any other
# ensemble and batch.
test_predict_an_ensemble() {
    needs hdf5-tools h5dump
    predict $A --output=alone.nc
    predict $A --members=1 --output=one.nc
    predict $A --members=5 --output=five.nc
    contains "$(cat said)" "five.nc: 3 forecasts of $A/checkpoints/step-00000007, 2002-01-02 12:00 to 2002-01-03 00:00 UTC, 3 channels; 5 members, 4 with input_noise 0.2"
    predict $A --members=3 --local_batch_size=2 --output=three.nc
    for time in 0 2; do
        values alone.nc t2m $((512 * time)) 512 >alone
        [ "$(wc -c <alone)" -gt 3000 ]
        for file in one five; do values $file.nc t2m $((512 * time)) 512 | cmp alone -; done
        values one.nc t2m_mean $((512 * time)) 512 | cmp alone -
        values five.nc t2m $((512 * (6 + time))) 512 >second
        values three.nc t2m $((512 * (6 + time))) 512 | cmp second -
        refuted cmp alone second
    done
    predict --checkpoints=$A,$B --output=both.nc
    predict $B --output=b.nc
    predict $B --output=b16.nc --amp_mode=bf16
    predict --checkpoints=$A,$B --output=both16.nc --amp_mode=bf16
    for bits in "" 16; do
        values both$bits.nc u10 $((512 * 4)) 512 >second
        values b$bits.nc u10 512 512 | cmp second -
    done
    refuted cmp <(values b.nc u10 512 512) second
    says realization 'DATASET "number"' 'DATASET "t2m_mean"' "realization: mean" "H5T_STD_I32LE" -- h5dump -A five.nc
    refuted grep -q number <(h5dump -A alone.nc)
    needs netcdf-bin ncdump
    says "float t2m(number, time, lat, lon)" "float t2m_mean(time, lat, lon)" "int number(number)" " number = 0, 1, 2, 3, 4 ;" -- ncdump -v number five.nc
}

# In xarray, where there is one: the mean of the members is NAME_mean.
test_ensembles_in_xarray() {
    python_with "python3-xarray python3-netcdf4" "xarray, netCDF4"
    predict $A --members=4 --output=four.nc
    "$python" - <<'END'
import numpy as np, xarray
with xarray.open_dataset("four.nc") as f:
    assert f.u10.dims == ("number", "time", "lat", "lon") and f.u10.shape == (4, 3, 16, 32), f.u10
    assert f.number.values.tolist() == [0, 1, 2, 3] and f.number.attrs["standard_name"] == "realization", f.number
    for name in "u10", "v10", "t2m":
        mean = f[name].astype("f8").mean("number").astype("f4")
        np.testing.assert_array_equal(mean.values, f[name + "_mean"].values)
        spread = f[name].std("number").values
        assert (spread > 0).mean() > 0.99, spread
        assert f[name + "_mean"].attrs["cell_methods"] == "realization: mean"
END
}

# Members of a model that sees departures and forcings have those of their own dates, whichever batch they are in; and those
# of predict are those of evaluate.
test_ensembles_of_departures() {
    local flags="--normalise=climatology --forcings=[cos_zenith,sin_day] --n_history=1 --n_in_channels=6 --predict=tendency"
    for seed in 3 4; do train --run_num=$seed --seed=$seed $flags >/dev/null; done
    evaluate $RUNS/3 --members=4 --output=four
    evaluate $RUNS/3 --members=4 --output=batches --local_batch_size=1
    cmp four/scores.csv batches/scores.csv
    # This model hardly changes its input yet, so that the spread of u10 is the noise's: 0.2 departure_change_stds, times the
    # root of 3/4 because one of the members has none.
    awk -v spread="$(column four spread)" -v change="$(values data/stats/climatology.h5 departure_change_stds 0 1)" \
        'BEGIN { ratio = spread / (0.2 * sqrt(0.75) * change); print "ratio", ratio; exit !(ratio > 0.9 && ratio < 1.1) }'
    evaluate --checkpoints=$RUNS/3,$RUNS/4 --members=4 --output=both
    refuted cmp four/scores.csv both/scores.csv
    says "4 members" -- "$VITRAIN" predict $RUNS/3 --members=4 --time=2002-01-02T06 --rollout=3 --output=f.nc
    "$VITRAIN" stats data/train --harmonics=0 --output=other >/dev/null
    train --run_num=5 $flags --climatology_path=other/climatology.h5 >/dev/null
    refuses_once "has climatology_path data/stats/climatology.h5, but" "must see the same data" -- evaluate --checkpoints=$RUNS/3,$RUNS/5 --output=x
    train --run_num=6 ${flags/climatology/mean} >/dev/null
    refuses_once "has normalise climatology, but" "may differ in their weights alone" -- evaluate --checkpoints=$RUNS/3,$RUNS/6 --output=x
}

test_ensembles_that_are_refused() {
    for command in "evaluate --output=x" "predict --time=2002-01-02T06 --output=x.nc"; do
        run() { "$VITRAIN" $command "$@"; }
        refuses_once "--members=0: 0 is out of range (expected 1 to 100000" -- run $A --members=0
        refuses_once "--members=-2: -2 is out of range (expected 1 to 100000" -- run $A --members=-2
        refuses_once "--members=4: the members of a checkpoint differ by noise on their initial state, but input_noise is 0; set --input_noise=S" \
            -- run $A --members=4 --input_noise=0
        refuses_once "CHECKPOINT $A and --checkpoints=$A,$B: give one of the two" -- run $A --checkpoints=$A,$B
        refuses_once "--checkpoints=$A: expected at least two checkpoints with commas between them, like --checkpoints=A,B,C" -- run --checkpoints=$A
        refuses_once "there is nothing before or after a comma" -- run --checkpoints=$A,
        refuses_once "$A/checkpoints/step-00000007 and $A/checkpoints/step-00000007 are the same checkpoint; name each one once" \
            -- run --checkpoints=$A,$B,$A/checkpoints/step-00000007
        refuses_once "--members=3: 2 checkpoints can't have as many members each; use a multiple of 2" -- run --checkpoints=$A,$B --members=3
        refuses_once "nowhere" "expected the directory of a checkpoint" -- run --checkpoints=$A,nowhere
    done
    refuses_once "no CHECKPOINT given" -- "$VITRAIN" evaluate
    run() { "$VITRAIN" evaluate --checkpoints=$A,$RUNS/other --rollout=1 --output=x; }
    for flag in embed_dim=32 depth=1 patch_size=8 num_heads=4 dt=2 predict=tendency n_out_channels=2; do
        rm -rf $RUNS/other
        train --run_num=other --$flag --accept=step >/dev/null
        refuses_once "--checkpoints: $A/checkpoints/step-00000007 has ${flag%=*} " ", but $RUNS/other/checkpoints/step-00000007 has ${flag#*=}: the models of an ensemble may differ in their weights alone" -- run
    done
    rm -rf $RUNS/other
    cp -r data moved
    train --run_num=other --data_dir=moved >/dev/null
    refuses_once "has global_means_path data/stats/global_means.npy, but" "must see the same data; --data_dir=DIR names it for all" -- run
    "$VITRAIN" evaluate --checkpoints=$A,$RUNS/other --rollout=1 --output=x --data_dir=moved >/dev/null
    [ ! -e x.nc ]
}
