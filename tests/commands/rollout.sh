# Training over several steps of forecast, and on changes instead of states, from the files to the forecast.

FORECAST="$SMALL --config=base --depth=1 --img_size=[8,12] --n_in_channels=6 --n_history=1 --global_batch_size=4 \
    --num_epochs=4 --predict=tendency --rollout=1,2@1,3@2 --lr=1e-3 --lr_restarts=5e-4@2 --restart_warmup=2"

# 21 times for training: with two input times and three targets 17 samples, which are 4 steps an epoch.
make_data() {
    synth --img_size=[8,12] --steps_per_year=21 --valid_steps=9
    [ -e data/stats/time_diff_stds.npy ] || cp data/stats/global_stds.npy data/stats/time_diff_stds.npy
}

learn() { "$VITRAIN" $FORECAST --expdir=runs "$@"; }

test_rollouts_are_the_same_however_they_are_read_and_resumed() {
    local random="--normalise=climatology --augment=sign --input_noise=0.1 --dropout=0.1"
    make_data
    learn --run_num=whole $random >printed
    grep -q "samples: 17 for training, 7 for validation; 4 epochs of 4 steps" printed
    [ "$(figures whole | wc -l)" = 17 ]
    for how in cache=host num_data_workers=0 data_loader_config=pytorch; do
        learn --run_num=$how $random --$how >/dev/null
        cmp <(figures whole) <(figures $how)
    done
    # stopped in an epoch of two steps, and where the third stage and the learning rate begin anew
    for steps in 6 8; do
        learn --run_num=cut$steps $random --checkpoint_every=$steps --keep_last=9 >/dev/null
        learn --run_num=cut$steps $random \
            --resume=runs/base/1CPU/cut$steps/checkpoints/step-0000000$steps >/dev/null
        cmp <(figures whole) <(figures cut$steps)
    done
    learn --run_num=quiet >/dev/null
    refuted cmp <(figures whole) <(figures quiet)
    learn --run_num=last --rollout_gradient=last >/dev/null
    cmp <(figures quiet | head -n 5) <(figures last | head -n 5) # the same while samples are trained over one step
    refuted cmp <(figures quiet) <(figures last)
}

# Even where training over more steps ruins the loss of one.
test_best_is_the_newest_of_a_rollout() {
    make_data
    learn --run_num=ruined --lr_restarts=0.5@2 >/dev/null
    refuted [ "$(tail -n +2 runs/base/1CPU/ruined/epochs.csv | sort -t, -g -k4 | head -n 1 | cut -d, -f2)" -gt 2 ]
    [ "$(readlink runs/base/1CPU/ruined/checkpoints/best)" = step-00000016 ]
}

# The rate of each step: a cosine of 8 steps, then one that begins again with half the rate.
test_restarts() {
    make_data
    learn --run_num=restarts >/dev/null
    cut -d, -f4 runs/base/1CPU/restarts/metrics.csv | awk -v pi=3.14159265358979 '
        NR > 1 { step = NR - 2; at = step % 8
                 rate = (step < 8 ? 1e-3 : 5e-4) * (1 + cos(pi * at / 8)) / 2
                 if (step >= 8 && (at + 1) / 2 * 5e-4 < rate) rate = (at + 1) / 2 * 5e-4
                 if ($1 < rate * (1 - 1e-6) || $1 > rate * (1 + 1e-6)) { print "step", step, $1, "expected", rate; bad = 1 } }
        END { exit bad }'
}

test_forecasts_of_a_model_of_changes() {
    make_data
    learn >/dev/null
    local best=runs/base/1CPU/00/checkpoints/best
    "$VITRAIN" evaluate --checkpoint=$best --rollout=3 --output=scores >/dev/null
    grep -q "^" scores/scores.csv
    "$VITRAIN" predict --checkpoint=$best --time=2002-01-01T12 --steps=3 --output=forecast.nc >/dev/null
    refuses_once "predict" "its parameters were trained for that" -- "$VITRAIN" evaluate --checkpoint=$best --predict=state
    refuses_once "was made with predict tendency, not state: a run can't change its task" -- learn --resume --predict=state
    rm data/stats/time_diff_stds.npy
    cp scores/scores.csv before.csv
    "$VITRAIN" evaluate --checkpoint=$best --rollout=3 --output=scores >/dev/null # the checkpoint has them
    cmp before.csv scores/scores.csv
    refuses_once "time_diff_stds_path" -- learn --run_num=without
}

test_rollouts_that_are_refused() {
    make_data
    refuses_once "augment sign changes the sign of departures from the climatology, but with normalise mean there are none" -- learn --augment=sign
    refuses_once "rollout '1, x': 'x' is not one of steps (1 to 1000), and after how many epochs, like 1, 4@24, 12@26" -- learn --rollout="1, x"
    refuses_once "rollout '2@3': the first value, '2@3', must hold from the start on; write it without @" -- learn --rollout=2@3
    refuses_once "rollout '1,2@3,4@3': '4@3' must come after more epochs than the value before it" -- learn --rollout=1,2@3,4@3
    refuses_once "lr_restarts '1e-3': '1e-3' must come after more epochs" -- learn --lr_restarts=1e-3
    refuses_once "predict: tendency needs a model that forecasts all channels of its input, but n_out_channels is 2 and the input has 3 a time; use --n_out_channels=3, or --predict=state" \
        -- learn --n_out_channels=2
    refuses_once "so the run's length must be given by num_epochs, not by num_iters" -- \
        "$VITRAIN" ${FORECAST/--num_epochs=4/--num_iters=8}
    refuses_once "no file is long enough for one sample, which spans 32 times (n_history 1, dt 1, rollout 30)" -- learn --rollout=30
}
