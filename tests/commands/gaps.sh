# Missing values and grids that patches don't fill, from the files to the forecast.

SMALL="$SMALL --config=base --depth=1 --global_batch_size=4 --num_epochs=2"

# make_data HEIGHT,WIDTH: 20 training samples, 8 for validation
make_data() { synth --img_size="$1" --steps_per_year=21 --valid_steps=9; }

# poison FILE COUNT NUMBER...: COUNT values from each of these on become NaN
poison() {
    local file=$1 nans='' i; shift
    for ((i = 0; i < $1; i++)); do nans+=$NAN; done
    shift
    for place in "$@"; do overwrite "$file" "$place" "$nans"; done
}

# Of an 11 x 13 grid with 3 channels: points 50 to 54 of channel 1 are land; channel 0 of time 3 is missing.
make_gaps() {
    local times
    make_data "[11,13]"
    for times in "data/train/2001.h5 21" "data/valid/2002.h5 9"; do
        set -- $times
        poison "$1" 5 $(for ((t = 0; t < $2; t++)); do echo $(((t * 3 + 1) * 143 + 50)); done)
        poison "$1" 143 $((3 * 3 * 143))
    done
}

test_without_gaps_nothing_changes() {
    make_data "[8,12]"
    for how in "--cpu_isa=auto" "--cpu_isa=plain" "--amp_mode=bf16"; do
        train --img_size=[8,12] $how --run_num=refuse >/dev/null
        train --img_size=[8,12] $how --run_num=mask --missing=mask --pad=wrap >/dev/null
        cmp <(figures refuse) <(figures mask)
        cmp <(cut -d, -f1-4 runs/base/1CPU/refuse/epochs.csv) <(cut -d, -f1-4 runs/base/1CPU/mask/epochs.csv)
        rm -r runs
    done
    cp -r data/stats stats
    "$VITRAIN" stats data --force --missing=mask >/dev/null
    for file in global_means global_stds time_means time_diff_stds; do cmp {stats,data/stats}/$file.npy; done
}

test_refused_unless_masked() {
    make_gaps
    refuses_once "data/train/2001.h5: 'fields' is NaN at time 0, channel 1 (v10), row 3, column 11; the training needs finite" -- "$VITRAIN" stats data --force
    contains "$output" "unless --missing=mask leaves out what is missing"
    "$VITRAIN" stats data --force --missing=mask >/dev/null
    refuses_once "row 3, column 11; the training needs finite values everywhere, unless --missing=mask" -- train --img_size=[11,13] --pad=edge
    refuses_once "add --missing=mask" -- train --img_size=[11,13] --pad=edge --mask_channels
    refuses_once "patch_size 4 does not divide both of img_size [11, 13]" -- train --img_size=[11,13] --missing=mask
    contains "$output" "or --pad=edge or --pad=wrap"
    refuses_once "(expected refuse|mask)" -- "$VITRAIN" stats data --force --missing=maks
    refuses "FAULT: data/valid/2002.h5: 'fields' is NaN at time 0, channel 1 (v10), row 3, column 11" -- "$VITRAIN" inspect data --verify
    "$VITRAIN" inspect data --verify --missing=mask >/dev/null
}

# An infinite value is not a missing one.
test_infinite_values_are_still_faults() {
    make_gaps
    "$VITRAIN" stats data --force --missing=mask >/dev/null
    overwrite data/train/2001.h5 $((5 * 3 * 143)) "$INF"
    refuses "'fields' is infinite at time 5, channel 0" -- train --img_size=[11,13] --pad=edge --missing=mask
    refuses_once "'fields' is infinite at time 5, channel 0 (u10), row 0, column 0; the training needs finite values everywhere" -- "$VITRAIN" stats data --force --missing=mask
    "$VITRAIN" stats data --force --missing=mask --skip_bad_samples >log 2>&1
    contains "$(cat log)" "time 5 of data/train/2001.h5 is left out: data/train/2001.h5: 'fields' is infinite"
    contains "$(cat log)" "20 times of data/train, 1 left out; written to data/stats"
    train --img_size=[11,13] --pad=edge --missing=mask --skip_bad_samples >/dev/null
}

# The checkpoint remembers; a forecast has no value where the initial time has none.
test_from_the_files_to_the_forecast() {
    make_gaps
    "$VITRAIN" stats data --force --missing=mask >/dev/null
    train --img_size=[11,13] --pad=wrap --missing=mask --mask_channels --run_num=whole >/dev/null
    refuted grep -i "nan" runs/base/1CPU/whole/metrics.csv
    contains "$(cat runs/base/1CPU/whole/out.log)" ", 12 tokens of 4×4 points"
    local checkpoint=runs/base/1CPU/whole/checkpoints/best
    contains "$("$VITRAIN" inspect $checkpoint)" "(n_history 0, dt 1), pad wrap, missing mask, mask_channels"
    "$VITRAIN" evaluate --checkpoint=$checkpoint --rollout=2 --output=scores >/dev/null
    refuted grep -E ',,|nan' scores/scores.csv
    "$VITRAIN" evaluate --checkpoint=$checkpoint --rollout=2 --members=3 --input_noise=0.2 --output=members >/dev/null
    refuted grep -iE 'nan|,$' members/scores.csv members/rank_histogram.csv
    [ "$(values members/error_stds.nc v10_error_std 143 143 | grep -n nan | cut -d: -f1 | tr '\n' ' ')" = "51 52 53 54 55 " ]
    refuted grep nan <(values members/error_stds.nc u10_error_std)
    "$VITRAIN" predict --checkpoint=$checkpoint --time=2002-01-01T06:00 --steps=2 --output=forecast.nc >/dev/null
    needs hdf5-tools h5dump
    contains "$(h5dump -a /v10/_FillValue forecast.nc)" "(0): nan"
    for time in 0 1; do
        values forecast.nc v10 $((143 * time)) 143 >values
        [ "$(wc -l <values)" -eq 143 ]
        [ "$(grep -n nan values | cut -d: -f1 | tr '\n' ' ')" = "51 52 53 54 55 " ]
    done
    values forecast.nc u10 >values
    refuted grep nan values
    refuses_once "was made with pad wrap, not edge" -- "$VITRAIN" predict --checkpoint=$checkpoint --time=2002-01-01T06:00 --output=x.nc --pad=edge
    refuses_once "was made with mask_channels true, not false" -- "$VITRAIN" evaluate --checkpoint=$checkpoint --mask_channels=false
    refuses_once "add --missing=mask" -- "$VITRAIN" evaluate --checkpoint=$checkpoint --missing=refuse --mask_channels=true
    says "WARNING - init_from: it was made with pad wrap, not edge" -- \
        train --img_size=[11,13] --pad=edge --missing=mask --mask_channels --run_num=edge --init_from=$checkpoint
    "$VITRAIN" export $checkpoint --output=x.safetensors >/dev/null
    train --img_size=[11,13] --pad=wrap --missing=mask --mask_channels --run_num=again --init_from=x.safetensors >/dev/null
}

test_over_ranks() {
    needs_mpi
    make_gaps
    "$VITRAIN" stats data --force --missing=mask >/dev/null
    train --img_size=[11,13] --pad=wrap --missing=mask --mask_channels --run_num=one >/dev/null
    "$TOP/tests/mpirun" -np 2 "$VITRAIN" $SMALL --img_size=[11,13] --pad=wrap --missing=mask --mask_channels --context_parallel=2 \
        --run_num=two >/dev/null
    paste -d, <(cut -d, -f3 runs/base/1CPU/one/metrics.csv) <(cut -d, -f3 runs/base/*/two/metrics.csv) |
        awk -F, 'NR > 1 { d = $1 - $2; if (d * d > 1e-10 * $1 * $1) bad++ } END { exit bad > 0 || NR != 11 }'
}
