# Forcings, static fields and departures from the climatology, from the files to the forecast.

SMALL="$SMALL --n_history=1 --n_in_channels=6 --global_batch_size=4 --num_epochs=2"
ALL="--normalise=climatology --forcings=[cos_zenith,sin_lat,cos_year,sin_day] --static_fields=static.h5"

# Two static fields of the grid: a time of another set.
static() { "$VITRAIN" synth other --img_size="$1" --channels="$2" --years=1 --steps_per_year=1 --valid_steps=0 --force >/dev/null; }
make_all() {
    synth --test_steps=9
    static "[16,32]" 2
    mv other/train/2001.h5 static.h5
}

made() { made_once make_all; }

# loss COLUMN TAG: of the last epoch
validation() { tail -n 1 "$RUNS/$1/epochs.csv" | cut -d, -f4; }

test_from_the_files_to_the_forecast() {
    made
    says "the input also holds cos_zenith, sin_lat, cos_year, sin_day and 2 static fields of static.h5" \
        "fields are departures from the seasonal climatology data/stats/climatology.h5: " "persistence (no departure changes)" "Final test loss" -- train $ALL
    local checkpoint=$RUNS/00/checkpoints/last
    [ -d "$checkpoint" ] || checkpoint=$(ls -d $RUNS/00/checkpoints/step-* | tail -n 1)
    says "normalise climatology, forcings [cos_zenith, sin_lat, cos_year, sin_day], n_static_fields 2" -- "$VITRAIN" inspect "$checkpoint"
    # the same loss, made by the forecaster, from its own forcings and departures
    "$VITRAIN" evaluate --checkpoint="$checkpoint" --rollout=3 --output=scores >/dev/null
    awk -F, -v own="$(validation 00)" 'NR == 2 { d = $3 - own; exit !(d * d <= 1e-12 * own * own) }' scores/loss.csv
    refuted grep -E ',,|nan' scores/scores.csv
    # beyond the data's end (2002-01-04 00:00), in the units of the data
    "$VITRAIN" predict --checkpoint="$checkpoint" --time=2002-01-03T18:00 --rollout=9 --output=f.nc >/dev/null
    values f.nc t2m | awk 'NF { n++; if ($1 < 180 || $1 > 340) bad++ } END { exit n != 9 * 512 || bad > 0 }'
    "$VITRAIN" export "$checkpoint" --output=x.safetensors >/dev/null
    train $ALL --run_num=again --init_from=x.safetensors >/dev/null
}

test_same_bits_however_it_is_read() {
    made
    train $ALL --run_num=a >/dev/null
    for how in "--data_loader_config=pytorch" "--cache=host" "--num_data_workers=0" "--num_data_workers=3" "--data_loader_config=native --cache=host"; do
        train $ALL --run_num=b $how >/dev/null
        cmp <(figures a) <(figures b)
        cmp <(cut -d, -f1-4 $RUNS/a/epochs.csv) <(cut -d, -f1-4 $RUNS/b/epochs.csv)
        rm -r $RUNS/b
    done
    train $ALL --run_num=parts --num_epochs=1 --lr_schedule=none >/dev/null
    train $ALL --run_num=parts --lr_schedule=none --resume >/dev/null
    train $ALL --run_num=whole --lr_schedule=none >/dev/null
    cmp <(figures parts) <(figures whole)
    train $ALL --run_num=noise --data_loader_config=synthetic --limit_nsamples=16 --limit_nsamples_val=4 >/dev/null
}

test_what_a_checkpoint_was_trained_with() {
    made
    train $ALL --num_epochs=1 >/dev/null
    local best=$RUNS/00/checkpoints/best
    forecast() { "$VITRAIN" predict --checkpoint=$best --time=2002-01-02T06:00 --output=x.nc "$@"; }
    refuses_once "was made with normalise climatology, not mean" -- forecast --normalise=mean
    refuses_once "was made with forcings [cos_zenith, sin_lat, cos_year, sin_day], not [sin_lat, cos_zenith, cos_year, sin_day]" -- forecast "--forcings=[sin_lat,cos_zenith,cos_year,sin_day]"
    refuses_once "was made with n_static_fields 2, not 1" -- forecast --n_static_fields=1
    refuses_once "was made with normalise climatology, not mean" -- train $ALL --num_epochs=2 --normalise=mean --resume
    "$VITRAIN" synth apart --img_size=[16,32] --channels=3 --years=1 --steps_per_year=30 --valid_steps=0 --seed=7 >/dev/null
    refuses_once "has another climatology than the checkpoint " "departures in channel 0 (u10) is " "--accept=climatology goes on" -- forecast --climatology_path=apart/stats/climatology.h5
    refuses_once "has another climatology than the checkpoint " -- train $ALL --num_epochs=2 --climatology_path=apart/stats/climatology.h5 --resume
    mv static.h5 moved.h5
    refuses_once "static.h5" -- forecast
    forecast --static_fields=moved.h5 >/dev/null
}

# tests/unit/forcings.c has what else is refused.
test_data_without_dates() {
    made
    mv data/train/2001.h5 data/train/x9999.h5
    refuses_once "forcings: data/train/x9999.h5 says no dates, neither by a time coordinate nor by its name" -- train --forcings=cos_year
    train --forcings=sin_lon --num_epochs=1 >/dev/null # which needs none
}

# With all that training for skill has, over rollouts, and the same on two ranks.
test_with_rollouts() {
    made
    local skill="--rollout=1,3@1 --predict=tendency --augment=sign --input_noise=0.1"
    train $ALL $skill --run_num=a >/dev/null
    train $ALL $skill --run_num=b --cache=host --data_loader_config=pytorch >/dev/null
    cmp <(figures a) <(figures b)
    local best=$RUNS/a/checkpoints/best
    "$VITRAIN" evaluate --checkpoint=$best --rollout=3 --output=scores >/dev/null
    awk -F, -v own="$(tail -n +2 $RUNS/a/epochs.csv | cut -d, -f4 | sort -g | head -n 1)" \
        'NR == 2 { d = $3 - own; exit !(d * d <= 1e-12 * own * own) }' scores/loss.csv
    "$VITRAIN" predict --checkpoint=$best --time=2002-01-03T18:00 --rollout=9 --output=f.nc >/dev/null
    needs_mpi
    ranks 1 one $ALL $skill
    ranks 2 two $ALL $skill --context_parallel=2
    paste -d, <(cut -d, -f3 one/demo/*/00/metrics.csv) <(cut -d, -f3 two/demo/*/00/metrics.csv) |
        awk -F, 'NR > 1 { d = $1 - $2; if (d * d > 1e-10 * $1 * $1) bad++ } END { exit bad > 0 || NR < 20 }'
}

test_over_ranks() {
    needs_mpi
    made
    as_one_rank "$ALL" "--context_parallel=2" "--tensor_parallel=2 --sequence_parallel" "--zero_stage=3" \
        "--context_parallel=2 --cache=host --recompute=block"
    "$VITRAIN" evaluate --checkpoint="$(echo one/demo/*/00/checkpoints/best)" --rollout=3 --output=alone >/dev/null
    "$TOP/tests/mpirun" -np 2 "$VITRAIN" evaluate --checkpoint="$(echo one/demo/*/00/checkpoints/best)" --rollout=3 --output=both >/dev/null
    cmp alone/scores.csv both/scores.csv || paste -d, alone/scores.csv both/scores.csv | awk -F, 'NR > 1 { d = $5 - $(NF / 2 + 5); if (d * d > 1e-10 * $5 * $5) exit 1 }'
}

# The readers' batches hold five more fields, and both sets the climatology and what is fixed of the forcings.
test_planned_bytes() {
    made
    data_bytes() { sed -n 's/.*data \([0-9.]*\) \([KM]\)B.*/\1 \2/p' "$1" | awk '{ print $1 * ($2 == "M" ? 1048576 : 1024) }'; }
    train --num_epochs=1 --run_num=plain >plain
    train --num_epochs=1 --run_num=all $ALL >all
    local points=512 batches=6 # prefetch 3 and the one in use, for validation 1 and 1
    local terms; terms=$(($(values data/stats/climatology.h5 coefficients | wc -l) / (3 * points)))
    awk -v a="$(data_bytes plain)" -v b="$(data_bytes all)" -v more=$(((batches * 4 * 6 + 2 * (3 + 3 * $terms)) * points * 4)) \
        'BEGIN { d = b - a - more; if (d < 0) d = -d; exit !(d < 0.02 * b) }'
    says "configuration demo on 1 rank of cpu" -- "$VITRAIN" plan $SMALL $ALL --ranks=1 --hardware="$TOP/config/hardware.yaml:cpu"
    rm static.h5 # the plan needs no file where the number of its fields is given
    "$VITRAIN" plan $SMALL $ALL --n_static_fields=2 --ranks=2 --hardware="$TOP/config/hardware.yaml:cpu" >/dev/null
}
