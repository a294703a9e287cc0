# Looking at what a model does: inspect, evaluate, predict, report, watch.

SMALL="$SMALL --num_epochs=2"

small_run() { train "$@" >trained; }
data_and_run() {
    synth --valid_steps=33 --test_steps=29
    small_run
}
made_once data_and_run
run=$RUNS/00 best=$RUNS/00/checkpoints/best

# of the best checkpoint
evaluate() { "$VITRAIN" evaluate --checkpoint=$best "$@"; }
predict() { "$VITRAIN" predict --checkpoint=$best "$@"; }

# near A B: within 1 in 10^4
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(d <= 1e-4 * (b < 0 ? -b : b)) }' || { echo "$1 is not near $2"; return 1; }; }

test_inspect() {
    says "embed_dim 16" "steps: 14, 2 of 2 epochs done" "validation loss: " "state: ended" -- "$VITRAIN" inspect $run --verify
    contains "$output" "checkpoints: 2: step-00000007, step-00000014" "no faults"
    says "step 14, 2 epochs done" "channels: u10 v10 t2m" "parameters: 8656 in 38 tensors" -- "$VITRAIN" inspect $best
    says "train: 1 file 2001.h5, 61 times" "time_means.npy [1, 3, 16, 32]" -- "$VITRAIN" inspect data --verify
    cp -rL $best copy && touch copy/out.log && mkdir -p data/step-00000001
    says "copy: a checkpoint" "no faults" -- "$VITRAIN" inspect copy
    says "train: 1 file 2001.h5" -- "$VITRAIN" inspect data
    refuses "is not a directory of vitrain's" -- "$VITRAIN" inspect .
    refuses "No such file" -- "$VITRAIN" inspect nowhere
}

# Of a run whose files are not all there, what is there is shown.
test_inspect_shows_what_is_left() {
    mv $run/config.yaml kept
    sed -i 1q $run/metrics.csv
    refuses "FAULT: $run/config.yaml is missing" "steps: none yet" "checkpoints: 2: " "1 fault found" -- "$VITRAIN" inspect $run
    mv kept $run/config.yaml
    rm $run/metrics.csv
    refuses "embed_dim 16" "FAULT: $run has no metrics.csv" "checkpoints: 2: " "1 fault found" -- "$VITRAIN" inspect $run
}

test_inspect_names_what_is_damaged() {
    local step=$run/checkpoints/step-00000014
    mv $step/shard-00000-of-00001.h5 away
    refuses "FAULT: $step/shard-00000-of-00001.h5: No such file" "1 fault found" -- "$VITRAIN" inspect $run
    head -c 5000 away >$step/shard-00000-of-00001.h5
    refuses "has 5000 bytes, expected" -- "$VITRAIN" inspect $step
    cp away $step/shard-00000-of-00001.h5
    printf damaged | dd of=$step/checkpoint.h5 bs=1 seek=4000 conv=notrunc 2>/dev/null
    refuses "checkpoint.h5 is damaged" -- "$VITRAIN" inspect $step
    rm "$run/checkpoints/step-00000007/checkpoint.crc32c"
    refuses "FAULT: $run/checkpoints/step-00000007/checkpoint.crc32c is missing" "1 fault found" -- "$VITRAIN" inspect $run/checkpoints/step-00000007
    head -c 3000 data/train/2001.h5 >short
    mv short data/train/2000.h5
    rm data/stats/time_means.npy
    refuses "FAULT: data/train/2000.h5" "no time_means.npy: evaluate will score no mean field" -- "$VITRAIN" inspect data
    contains "$output" "1 fault found" # training takes no time_means.npy
    rm data/stats/global_stds.npy
    refuses "global_stds.npy: No such file" "2 faults found" -- "$VITRAIN" inspect data
    rm data/train/2000.h5 data/stats/global_means.npy
    says "stats: none yet; \`vitrain stats\` makes them" "no faults" -- "$VITRAIN" inspect data
}

# At the first lead time, the RMSE in standard deviations equals the validation's.
test_evaluate() {
    says "32 initial times, 1 step of 6 h" -- evaluate --rollout=1 --output=one
    logged=$(grep "Valid RMSE" trained | tail -n 1 | sed 's/.* t2m=//')
    awk -v a="$(column one rmse t2m 6)" -v s="$(column one channel_std t2m 6)" -v l="$logged" \
        'BEGIN { d = a / s - l; exit !(d < 6e-5 && d > -6e-5) }'
    evaluate --rollout=20 --map_channel=u10 >said
    local scores=$run/evaluation/step-00000014-valid
    [ "$(wc -l <$scores/scores.csv)" -eq 61 ] # 3 channels, 20 lead times
    contains "$(cat said)" "13 initial times, 20 steps of 6 h"
    narrow said
    [ "$(cd $scores && ls map-*)" = "$(printf 'map-u10-%sh.png\n' 006 024 072 120)" ]
    # batches change nothing
    evaluate --rollout=20 --map_channel=u10 --output=three --local_batch_size=3 >/dev/null
    evaluate --rollout=20 --map_channel=u10 --output=four --global_batch_size 4 >/dev/null
    for other in three four; do
        for lead in 6 60 120; do near "$(column $other rmse u10 $lead)" "$(column $scores rmse u10 $lead)"; done
    done
    says "on the test set data/test: 25 initial times" -- evaluate --rollout=4 --split=test
    rm data/stats/time_means.npy
    says "the mean field and ACC against it can't be scored" -- evaluate --rollout=1 --output=two
    [ "$(column two rmse_climatology u10 6)" = "" ]
    [ "$(column two rmse u10 6)" = "$(column one rmse u10 6)" ]
}

# Leads are told in the unit of the set's time step; files keep their hours.
test_evaluate_in_other_units() {
    step() { evaluate --accept=[step] --time_step=$1 --rollout=$2 --output=scores --force >said; leads=$(shown | head -$3 | paste -sd,); }
    shown() { awk '/^channel/ { on = 1; next } on { split(substr($0, 23), f, " "); print f[1], f[2] }' said; }
    hours() { cut -d, -f3 scores/scores.csv | sed -n "2,$(($1 + 1))p" | paste -sd,; }
    last() { sed 's/.*,//' "$@" | head -4 | paste -sd,; }
    maps() { (cd scores && ls map-* | sed 's/map-t2m-//' | paste -sd,); }
    step 30min 5 3
    contains "$(cat said)" "5 steps of 30 min"
    [ "$leads" = "30 min,60 min,150 min" ]
    [ "$(hours 5)" = 0.5,1,1.5,2,2.5 ]
    [ "$(last scores/scores.csv)" = lead_minutes,30,60,90 ]
    [ "$(maps)" = 030min.png,060min.png,150min.png ]
    contains "$(cat scores/scores.html)" "over minutes of lead time" "<th>90 min</th>"
    cut -d, -f1-22 scores/scores.csv >fine
    step 1month 4 4
    contains "$(cat said)" "4 steps of 1 month"
    [ "$leads" = "1 month,2 months,3 months,4 months" ]
    [ "$(hours 4)" = 730,1460,2190,2920 ]
    [ "$(last scores/scores.csv)" = lead_months,1,2,3 ]
    [ "$(head -1 scores/spectra.csv)" = channel,lead_hours,wavenumber,power_forecast,power_target,ratio,lead_months ]
    [ "$(cut -d, -f4,7 scores/horizons.csv | head -2 | paste -sd ' ')" = "last_lead_hours,last_lead_months 2920,4" ]
    [ "$(maps)" = 001month.png,002month.png,003month.png,004month.png ]
    contains "$(cat scores/scores.html)" "over months of lead time" "<th>1 month</th>" "<th>4 months</th>"
    step 43830min 3 3 # a twelfth of 365.25 days
    contains "$(cat said)" "3 steps of 730.5 h"
    [ "$leads" = "730.5 h,1461 h,2191.5 h" ]
    [ "$(hours 3)" = 730.5,1461,2191.5 ]
    step 1d 3 2
    [ "$leads" = "1 d,3 d" ]
    contains "$(cat scores/scores.html)" "over days of lead time" "<th>2 d</th>"
    [ "$(maps)" = 024h.png,072h.png ]
    evaluate --rollout=5 --output=scores --force >/dev/null
    [ "$(hours 5)" = 6,12,18,24,30 ]
    [ "$(head -1 scores/scores.csv)" = "$(head -1 fine)" ]
    [ "$(head -1 scores/horizons.csv)" = channel,skill_horizon_hours,skill_horizon_hours_persistence,last_lead_hours ]
    [ "$(cut -d, -f5-6 scores/scores.csv)" = "$(cut -d, -f5-6 fine)" ] # of the same fields
}

# Scores against the seasonal climatology, and what is said where it isn't there, isn't for this set, or knows no such times.
test_evaluate_against_the_season() {
    says "climatology: a mean for each of 4 times of day, fitted to 61 times, 2001-01-01 00:00 to 2001-01-16 00:00" "skill horizon, where ACC falls below 0.6: u10 " \
        -- "$VITRAIN" evaluate --checkpoint=$best --rollout=4 --output=one
    [ "$(head -n 1 one/horizons.csv)" = channel,skill_horizon_hours,skill_horizon_hours_persistence,last_lead_hours ]
    [ "$(wc -l <one/horizons.csv)" -eq 4 ]
    [ "$(wc -l <one/spectra.csv)" -eq $((1 + 3 * 4 * 16)) ]
    # 1 - skill is the ratio of the squares
    awk -v s="$(column one skill t2m 24)" -v f="$(column one rmse_pooled t2m 24)" -v c="$(column one rmse_pooled_seasonal t2m 24)" \
        'BEGIN { d = 1 - s - f * f / (c * c); exit !(d < 1e-6 && d > -1e-6) }'
    contains "$(cat one/scores.html)" "Skill against the seasonal climatology" "Skill against persistence" "RMSE by lead time" "Power spectra" '<th>t2m</th>' \
        "u10<small>, m s-1<" "t2m<small>, K<" "t2m<small><" # ACC has none
    "$VITRAIN" evaluate --checkpoint=$best --rollout=4 >/dev/null
    "$VITRAIN" report $run >/dev/null
    contains "$(cat $run/report.html)" "By vitrain evaluate: step-00000014-valid" "Skill against the seasonal climatology"
    cp data/stats/climatology.h5 kept.h5
    rm data/stats/climatology.h5
    says "climatology.h5' is not there, so skill, ACC against the season and the skill horizon can't be scored; \`vitrain stats data\` makes it" "mean field" \
        -- "$VITRAIN" evaluate --checkpoint=$best --rollout=4 --output=two
    for name in skill acc_seasonal rmse_seasonal; do [ "$(column two $name t2m 24)" = "" ]; done
    for name in rmse rmse_climatology acc bias mae; do [ "$(column two $name t2m 24)" = "$(column one $name t2m 24)" ]; done
    says "no climatology.h5: evaluate will score no skill" -- "$VITRAIN" inspect data
    evaluate_with() { "$VITRAIN" evaluate --checkpoint=$best --rollout=4 --output=three "$@"; }
    refuses "--climatology_path=none.h5 is not there; \`vitrain stats\` makes such a file" -- evaluate_with --climatology_path=none.h5
    refuses "climatology_path (\`vitrain stats\` makes such a file): can't read data/stats/time_means.npy" -- evaluate_with --climatology_path=data/stats/time_means.npy
    "$VITRAIN" synth other --img_size=[8,32] --channels=3 --years=1 --steps_per_year=20 --valid_steps=20 >/dev/null
    refuses "is of a grid of [8, 32], neither the window [16, 32] nor the grid [16, 32] of the data" -- evaluate_with --climatology_path=other/stats/climatology.h5
    "$VITRAIN" stats data/train --time_step=24h --output=daily >/dev/null
    refuses "--climatology_path=daily/climatology.h5: it has no climatology for the time of day of 2002-01-01 06:00" -- evaluate_with --climatology_path=daily/climatology.h5
    cp daily/climatology.h5 data/stats/climatology.h5
    says "it has no climatology for the time of day of 2002-01-01 06:00, so skill" -- evaluate_with
    head -c 3000 kept.h5 >data/stats/climatology.h5
    refuses "climatology_path (\`vitrain stats\` makes such a file): " -- evaluate_with
}

# The loss that evaluate prints is the validation's, whatever the initial times, the batches and the ranks; for the
# test set it is what the run printed at its end.
test_evaluate_prints_the_loss() {
    logged=$(grep "Avg val loss" trained | tail -n 1 | sed 's/.*=//')
    tested=$(sed -n 's/.* - INFO - Final test loss: //p' trained)
    for flags in --rollout=1 --rollout=30 "--rollout=20 --local_batch_size=3" "--steps=4 --cpu_isa=plain"; do
        "$VITRAIN" evaluate $run $flags --output=a --force >said
        contains "$(cat said)" "(relative L2 over 32 samples, as training logs it)"
        near "$(sed -n 's/^loss: \([^ ]*\) .*/\1/p' said)" "$logged"
        near "$(sed -n 's/^valid,32,//p' a/loss.csv)" "$logged"
    done
    "$VITRAIN" evaluate $run --rollout=2 --split=test --output=b >said
    near "$(sed -n 's/^test,28,//p' b/loss.csv)" "$tested"
    says "over 7 samples" -- "$VITRAIN" evaluate $run --rollout=2 --every=5 --output=c
    "$TESTS" --has-mpi >/dev/null && "$TOP/tests/mpirun" -np 1 true >/dev/null 2>&1 || return 0
    for ranks in 2 3; do
        "$TOP/tests/mpirun" -np $ranks "$VITRAIN" evaluate $run --rollout=20 --output=d >said
        near "$(sed -n 's/^valid,32,//p' d/loss.csv)" "$logged"
    done
}

# A checkpoint can be named in the same ways everywhere: by itself or by its run, as a word or with --checkpoint.
test_naming_a_checkpoint() {
    local last=$run/checkpoints/step-00000014
    for name in $last $best $run $run/ $run/checkpoints; do
        for way in $name --checkpoint=$name "--checkpoint $name"; do
            "$VITRAIN" export $way --output=a.safetensors --force >said
            [ ! -e b.safetensors ] || cmp a.safetensors b.safetensors
            mv a.safetensors b.safetensors
            says "(step 14, epoch 2) on the validation set" -- "$VITRAIN" evaluate $way --rollout=1 --output=scores
            says "f.nc: 2 forecasts of $run/checkpoints/" -- "$VITRAIN" predict $way --time=2002-01-02 --steps=2 --output=f.nc --force
            says "no faults" -- "$VITRAIN" inspect $way
        done
    done
    "$VITRAIN" evaluate --local_batch_size 3 $run --rollout=1 --shuffle --output=scores --force >said # 3 is no checkpoint
    contains "$(cat said)" "$RUNS/00/checkpoints/step-00000014 (step 14"
    refuses "expected one CHECKPOINT" -- "$VITRAIN" evaluate $run --checkpoint=$run
    refuses "expected one CHECKPOINT" -- "$VITRAIN" evaluate $run $run
    # --rollout and --steps are the same
    "$VITRAIN" evaluate $run --rollout=3 --output=e >said
    "$VITRAIN" evaluate $run --steps=3 --output=f >said
    cmp e/scores.csv f/scores.csv
    says "g.nc: 3 forecasts" -- "$VITRAIN" predict $run --time=2002-01-02 --rollout=3 --output=g.nc
    # runs begin with the best checkpoint of another run, and resume from their own newest
    local best_step; best_step=$(readlink $best)
    ln -sfn step-00000007 $best
    small_run --run_num=b --init_from=$run --num_epochs=1
    contains "$(cat trained)" "the parameters begin as those of $RUNS/00/checkpoints/step-00000007"
    small_run --run_num=c --resume=$RUNS/00 --num_epochs=3
    contains "$(cat trained)" "resuming from $RUNS/00/checkpoints/step-00000014"
    printf 'PK\003\004 a/data.pkl' >weights.pt
    for command in "export weights.pt --output=x.safetensors" "evaluate weights.pt" "predict weights.pt --time=2002-01-02 --output=x.nc" \
        "inspect weights.pt"; do
        refuses_once "weights.pt is a PyTorch file (a zip archive with data.pkl)" -- "$VITRAIN" $command
    done
    for flag in --init_from --resume; do
        refuses "weights.pt is a PyTorch file (a zip archive with data.pkl), which is not read" -- train --run_num=d $flag=weights.pt
        [ ! -e $RUNS/d ]
    done
    refuses "b.safetensors holds parameters alone, without the optimizer's moments" -- train --run_num=d --resume=b.safetensors
}

# The courses' last line, after the last epoch of a run with a test set.
test_final_test_loss() {
    contains "$(cat trained)" "INFO - test set data/test: going once through its 28 samples"
    grep -Eq ' - root - INFO - Final test loss: [0-9.]+$' $run/out.log
    contains "$(tail -n 1 $run/out.log)" "; run directory $run"
    # a run that max_time ends early has none
    fails 75 train --run_num=stopped --num_epochs=100000 --max_time=1 --checkpoint_every=0
    refuted grep "test set\|Final test loss" $RUNS/stopped/out.log
    # nor has a finished run that is started again
    small_run --run_num=00 --resume
    contains "$(cat trained)" "the run is finished"
    refuted grep "Final test loss" trained
    # a run that is stopped during the test set counts as finished
    "$VITRAIN" synth long --img_size=[16,32] --channels=3 --years=1 --steps_per_year=1460 --valid_steps=33 --test_steps=1460 >/dev/null
    "$VITRAIN" $SMALL --data_dir=long --run_num=late --num_epochs=1 --limit_nsamples=64 --cpu_isa=plain --embed_dim=64 >late &
    local pid=$! # seconds in the test set, on two idle cores
    wait_until grep "INFO - test set" late
    kill -TERM $pid
    wait $pid # its status is 0
    contains "$(cat late)" "no final test loss: stopped by SIGTERM; \`vitrain evaluate $RUNS/late --split=test\` computes it"
    contains "$(tail -n 1 late)" "; run directory $RUNS/late"
    refuted grep "Final test loss" late
    # an unusable set ends no run
    cp data/test/*.h5 kept.h5
    "$VITRAIN" synth other --img_size=[8,32] --channels=3 --years=1 --steps_per_year=20 --valid_steps=20 --test_steps=20 >/dev/null
    cp other/test/*.h5 data/test/
    small_run --run_num=other
    contains "$(cat trained)" "the test set can't be used, so there will be no final test loss: "
    refuted grep "Final test loss" trained
    rm -r data/test
    small_run --run_num=named --inf_data_path=nowhere
    contains "$(cat trained)" "the test set can't be used, so there will be no final test loss: inf_data_path 'nowhere'"
    small_run --run_num=none
    refuted grep "test set\|Final test loss" trained
    mkdir data/test
    small_run --run_num=empty
    refuted grep "test set\|Final test loss" trained
    needs_mpi
    mv kept.h5 data/test/2003.h5
    small_run --run_num=one
    one=$(sed -n 's/.*Final test loss: //p' trained)
    printf '#!/bin/sh\nexec "%s" -np 2 "%s" "$@"\n' "$TOP/tests/mpirun" "$VITRAIN" >two
    chmod +x two
    VITRAIN=./two small_run --run_num=two --tensor_parallel=2
    near "$(sed -n 's/.*Final test loss: //p' trained)" "$one"
    [ "$(grep -c "Final test loss" trained)" -eq 1 ]
}

# The maps of an evaluation are those of its scores.
test_evaluate_again() {
    evaluate --rollout=4 --output=scores >/dev/null
    cp scores/scores.csv first.csv
    evaluate --rollout=4 --output=scores >/dev/null # the same once more
    cmp scores/scores.csv first.csv
    cp -r scores kept
    # one of other flags, other data or another checkpoint is replaced only if that is wanted, or goes elsewhere
    refuses "scores holds an evaluation of another checkpoint, other data or flags" "--force replaces it" -- evaluate --rollout=1 --output=scores
    for name in $(ls kept); do cmp scores/$name kept/$name; done
    evaluate --rollout=4 >/dev/null
    says "step-00000014-valid holds an evaluation of other data or flags; this one goes to $run/evaluation/step-00000014-valid-2" -- evaluate --rollout=1
    evaluate --rollout=1 >/dev/null
    [ "$(ls $run/evaluation)" = "$(printf 'step-00000014-valid\nstep-00000014-valid-2')" ]
    cmp scores/scores.csv $run/evaluation/step-00000014-valid/scores.csv
    touch -d 2001-01-01 data/valid/*.h5 && echo >>data/valid/2002.h5
    refuses "scores holds an evaluation" -- evaluate --rollout=4 --output=scores
    rm scores/made_from.txt # as of an earlier version
    refuses "scores holds an evaluation" -- evaluate --rollout=4 --output=scores
    [ "$(cd scores && ls map-*)" = "$(printf 'map-t2m-%sh.png\n' 006 024)" ]
    touch scores/map-of-mine.png
    evaluate --rollout=1 --output=scores --force >/dev/null
    [ "$(cd scores && ls map-*)" = "$(printf 'map-%s.png\n' of-mine t2m-006h)" ]
    refuses "was made with num_heads 2, not 4" -- evaluate --rollout=1 --num_heads=4
    refuses "was made with img_size [16, 32], not [8, 64]" -- evaluate --rollout=1 --img_size=[8,64] # as many tokens
    refuses "--time_means_path=nowhere.npy is not there" -- evaluate --rollout=1 --time_means_path=nowhere.npy
}

# Too little memory: of a trained model only the samples at once can be reduced.
test_forecasts_that_do_not_fit() {
    refuses "are free. --local_batch_size=1000000 saves " -- evaluate --rollout=1 --output=scores --local_batch_size=2000000
    refuted grep -E -- '--(patch_size|global_batch_size|grad_accumulation|recompute)' <<<"$output"
    refuses "are free. --local_batch_size=1000000 saves " -- predict --time=2002-01-02T06 --output=f.nc --local_batch_size=2000000
}

# A checkpoint of any layout of ranks can be used for forecasts on one rank, or on several that divide the initial times.
test_evaluate_what_any_layout_trained() {
    "$TOP/tests/mpirun" -np 1 true >/dev/null 2>&1 || skip "no mpirun"
    evaluate --rollout=3 --output=one >/dev/null
    "$TOP/tests/mpirun" -np 2 "$VITRAIN" evaluate --checkpoint=$best --rollout=3 --output=shared >/dev/null
    for file in scores horizons spectra; do cmp one/$file.csv shared/$file.csv; done
    evaluate --rollout=20 --output=long >/dev/null
    "$TOP/tests/mpirun" -np 3 "$VITRAIN" evaluate --checkpoint=$best --rollout=20 --output=shared --force >/dev/null
    for file in scores horizons spectra; do cmp long/$file.csv shared/$file.csv; done # 13 initial times: 5, 5 and 3
    for flags in --tensor_parallel=2 --context_parallel=2 --zero_stage=3; do
        ranks 2 runs$flags $flags
        "$VITRAIN" evaluate --checkpoint="$(ls -d runs$flags/demo/*/00)/checkpoints/best" --rollout=3 --output=scores$flags >/dev/null
        for lead in 6 18; do near "$(column scores$flags rmse t2m $lead)" "$(column one rmse t2m $lead)"; done
        says "2 forecasts" -- "$VITRAIN" predict --checkpoint="$(ls -d runs$flags/demo/*/00)/checkpoints/best" --time=2002-01-05T06:00 --steps=2 --output=f$flags.nc
    done
    fails any "$TOP/tests/mpirun" -np 2 "$VITRAIN" evaluate --checkpoint=$best --tensor_parallel=2
    says_once "a forecast needs whole layers on each rank, whatever the model was trained on"
}

# Even a few initial times are divided, and a rank without any joins the others at every lead time, so that it does not take
# them for dead.
test_evaluate_on_ranks_that_meet() {
    needs_mpi
    rm -r data runs
    synth() { "$VITRAIN" synth "$@" --img_size=[12,20] --channels=3 >/dev/null; }
    synth data --steps_per_year=2509 --valid_steps=2509
    small_run --img_size=[12,20] --embed_dim=64 --depth=8 --num_epochs=1 --limit_nsamples=8 --limit_nsamples_val=8
    two() { "$TOP/tests/mpirun" -np 2 "$VITRAIN" evaluate --checkpoint=$RUNS/00/checkpoints/best --output=two --force "$@"; }
    local begin patience
    begin=$(date +%s%N)
    two --limit_nsamples_val=1 --rollout=2500 >said
    patience=$(awk -v begin=$begin -v end="$(date +%s%N)" 'BEGIN { print (end - begin) / 3e9 }') # a third of the time that it takes here
    says "1 initial times, 2500 steps" -- two --limit_nsamples_val=1 --rollout=2500 --comm_timeout=$patience
    synth damaged --steps_per_year=13 --valid_steps=13 --compress=1
    printf 'damaged damaged' | dd of=damaged/valid/2002.h5 bs=1 seek=$(($(wc -c <damaged/valid/2002.h5) * 3 / 5)) conv=notrunc status=none
    fails any two --data_dir=damaged --limit_nsamples_val=8 --rollout=1
    says_once "vitrain: rank 1 on " # times 0 to 4 are rank 0's, 4 to 8 rank 1's
    contains "$output" "can't read 'fields' at time 6"
}

# A mistake that all ranks see alike is reported once, whichever command it is.
test_ranks_tell_once() {
    needs_mpi
    two() { "$TOP/tests/mpirun" -np 2 "$VITRAIN" "$@"; }
    two_refuse() { fails any two "${@:2}" && says_once "$1"; }
    two_refuse "predict forecasts from one initial time, which the 2 ranks can only share as stages of the model: start one rank, or give --pipeline_parallel=2" predict --checkpoint=$best --time=2002-01-05T06:00 --output=two.nc
    two_refuse "unknown flag --wrong" predict --wrong=1
    for words in "synth two" "stats data --force" "export $best --output=two.safetensors" "report $run --output=two.html"; do
        two_refuse "${words%% *} runs on one rank" $words
    done
    [ -z "$(ls -d two* 2>/dev/null)" ]
    two_refuse "expected the directory of a checkpoint" evaluate --checkpoint=nowhere
    two_refuse "nowhere" evaluate --checkpoint=$best --data_dir=nowhere
    two_refuse "--rollout=0: 0 is out of range" evaluate --checkpoint=$best --rollout=0
    two_refuse "data_dir 'nowhere': no such directory" bench io --yaml_config="$TOP/config/ViT.yaml" --data_dir=nowhere
    ln -s "$TOP/config" config # the sanitizers' program has none beside it
    two_refuse "'h300' is not in" plan --yaml_config="$TOP/config/ViT.yaml" --hardware=h300
    two_refuse "embed_dim" plan --yaml_config="$TOP/config/ViT.yaml" --calibrate --embed_dim=zero
    two plan --yaml_config="$TOP/config/ViT.yaml" --config=mp --hardware=a100-40 >said
    [ "$(grep -c "configuration mp on 2 ranks" said)" -eq 1 ]
}

# A channel's name that would be a directory's and a file's.
test_evaluate_a_channel_with_a_slash() {
    LC_ALL=C sed -i 's|t2m|a/b|' data/{train,valid,test}/*.h5
    "$VITRAIN" stats data --force >/dev/null
    small_run --num_epochs=1
    says "maps of a/b" -- evaluate --rollout=1 --output=scores
    [ "$(cd scores && ls map-*)" = map-a_b-006h.png ]
}

test_evaluate_refuses() {
    refuses "--map_channel=snow: the model forecasts no such channel; it forecasts u10 v10 t2m" -- evaluate --rollout=1 --map_channel=snow
    refuses "no CHECKPOINT given" -- "$VITRAIN" evaluate
    refuses "expected the directory of a checkpoint" -- "$VITRAIN" evaluate --checkpoint=nowhere
    refuses "use a smaller --rollout" -- evaluate --rollout=40
    refuses "(expected valid|test)" -- evaluate --split=train
    refuses "embed_dim" -- evaluate --embed_dimm=3
    refuses "don't go with" -- evaluate --config=demo
}

# A model that forecasts fewer channels than it sees can't use its own forecast as input; one with a history can.
test_evaluate_fewer_channels_and_history() {
    small_run --n_out_channels=2
    refuses "only --rollout=1 is possible" -- evaluate
    says "v10" -- evaluate --rollout=1
    small_run --n_history=2 --n_in_channels=9 --run_num=h
    says "28 initial times, 3 steps" -- "$VITRAIN" evaluate --checkpoint=$RUNS/h/checkpoints/best --rollout=3
    fails 1 "$VITRAIN" predict --checkpoint=$RUNS/h/checkpoints/best --time=2002-01-01T06 --output=f.nc
    contains "$output" "can begin no earlier than 2002-01-01 12:00 (the model needs 2 earlier times"
}

test_predict() {
    needs hdf5-tools h5dump
    says "f.nc: 3 forecasts of $RUNS/00/checkpoints/step-00000014, 2002-01-02 12:00 to 2002-01-03 00:00 UTC, 3 channels" -- predict --time=2002-01-02T06:00 --steps=3 --output=f.nc
    mkdir netcdf
    cp f.nc netcdf/forecast_2002.nc
    says "files: 1 file forecast_2002.nc, 3 times (0.75 days), 2 channels of [" "channels: u10" " t2m (K)" -- "$VITRAIN" inspect netcdf --variables=[u10,t2m] --verify
    refuses "no variable 'snow'; found: " -- "$VITRAIN" inspect netcdf --variables=[u10,snow]
    refuses "netCDF: with --variables" -- "$VITRAIN" inspect netcdf
    refuses "variables: '[]' names none; expected the variables that are the channels, like [u10,v10,t2m,z@500]" -- "$VITRAIN" inspect netcdf --variables=[]
    h5dump -A f.nc >header
    [ "$(values f.nc height_2m),$(values f.nc height_10m)" = 2,10 ]
    contains "$(tr -s ' \n' ' ' <header)" '"forecast_reference_time height_10m"' \
        ": $("$VITRAIN" --version | head -n 1) predict --checkpoint=$best --time=2002-01-02T06:00 --steps=3 --output=f.nc"
    contains "$(cat header)" DIMENSION_LIST DIMENSION_SCALE REFERENCE_LIST _Netcdf4Dimid CF-1.8 air_temperature degrees_north \
        "hours since 2002-01-02 06:00:00"
    [ "$(values f.nc time | paste -sd ' ')" = "6 12 18" ]
    # the second forecast of one start differs from the first of the next, but the first of both are what the model gives
    predict --time=2002-01-02T06 --steps=1 --output=g.nc >/dev/null
    values f.nc t2m 0 512 >first
    values g.nc t2m >alone
    cmp first alone
    refuses "exists already; give --force" -- predict --time=2002-01-02T06 --output=g.nc
    refuses "--output=data: that is a directory; expected the name of a file" -- predict --time=2002-01-02T06 --output=data --force
    mkfifo pipe # nor is a device replaced by a file
    refuses "that is a device or a pipe" -- predict --time=2002-01-02T06 --output=pipe --force
    [ -p pipe ]
    refuses "--output=nowhere/h.nc: nowhere: No such file or directory; make the directory first" -- predict --time=2002-01-02T06 --output=nowhere/h.nc
    refuses "--output=h.txt: expected a name that ends in .nc" -- predict --time=2002-01-02T06 --output=h.txt
    refuses "predict: --time=: has no value" -- predict --time= --output=h.nc
    refuses "--steps=0: 0 is out of range (expected 1 to" -- predict --time=2002-01-02T06 --output=h.nc --steps=0
    refuses "expected a date" -- predict --time=2002-02-30 --output=h.nc
    refuses "valid_data_path 'data/valid' can begin no later than 2002-01-09 00:00" -- predict --time=2002-07-01 --output=h.nc
    refuses "can begin no earlier than 2002-01-01 00:00" -- predict --time=1999-07-01 --output=h.nc
    [ ! -e h.nc ]
}

# All forecasts in WeatherBench 2's form: RMSE and ACC that xarray finds in the file are those of scores.csv.
test_forecasts_that_others_score() {
    python_with python3-xarray "xarray, netCDF4"
    "$VITRAIN" stats data --force >/dev/null
    "$VITRAIN" evaluate "$best" --rollout=3 --forecasts=f.nc --output=scored >/dev/null
    "$python" - <<'PYTHON'
import csv
import datetime
import netCDF4
import numpy as np
import xarray

forecasts = xarray.open_dataset("f.nc").load()
truth = netCDF4.Dataset("data/valid/2002.h5")["fields"][:].astype(float)
season = netCDF4.Dataset("data/stats/climatology.h5")
minutes = list(season.minutes_of_day)
begin = np.datetime64("2002-01-01")

def climatology(date):
    angle = 2 * np.pi * ((date - begin) / np.timedelta64(365, "D"))
    of_day = int((date - date.astype("datetime64[D]")) / np.timedelta64(1, "m"))
    basis = [1, *(f(k * angle) for k in range(1, int(season.harmonics) + 1) for f in (np.cos, np.sin))]
    return np.tensordot(basis, season["coefficients"][minutes.index(of_day)].astype(float), 1)

assert forecasts.t2m.dims == ("time", "prediction_timedelta", "latitude", "longitude")
weights = np.cos(np.radians(forecasts.latitude.values))[:, None] * np.ones(forecasts.longitude.size)
mean = lambda field: (weights * field).sum() / weights.sum()
compared = 0
for row in csv.DictReader(open("scored/scores.csv")):
    channel, lead = list(forecasts.data_vars).index(row["channel"]), np.timedelta64(int(row["lead_hours"]), "h")
    rmse, acc = [], []
    for time in forecasts.time.values:
        valid = time + lead
        f = forecasts[row["channel"]].sel(time=time, prediction_timedelta=lead).values.astype(float)
        o, c = truth[round((valid - begin) / np.timedelta64(6, "h")), channel], climatology(valid)[channel]
        rmse.append(mean((f - o) ** 2) ** 0.5)
        acc.append(mean((f - c) * (o - c)) / (mean((f - c) ** 2) * mean((o - c) ** 2)) ** 0.5)
    for mine, theirs in (np.mean(rmse), row["rmse"]), (np.mean(acc), row["acc_seasonal"]):
        assert abs(mine - float(theirs)) <= 1e-6 * max(abs(mine), 1e-3), (row["channel"], lead, mine, theirs)
        compared += 1
assert compared == 2 * 3 * 3
PYTHON
    # the same from several initial times, and with members
    predict --time=2002-01-02/2002-01-03/12h --rollout=2 --output=g.nc >said
    contains "$(cat said)" "g.nc: 2 forecasts of " "step-00000014 from each of 3 initial times, 2002-01-02 00:00 to 2002-01-03 00:00 UTC"
    "$VITRAIN" evaluate "$best" --rollout=3 --every=2 --members=3 --input_noise=0.1 --forecasts=m.nc >/dev/null
    "$python" - <<'PYTHON'
import numpy as np
import xarray

f, g, m = (xarray.open_dataset(name).load() for name in ("f.nc", "g.nc", "m.nc"))
assert m.t2m.dims == ("time", "number", "prediction_timedelta", "latitude", "longitude") and m.t2m.shape[1] == 3
for name in f.data_vars:
    assert np.array_equal(g[name], f[name].sel(time=g.time, prediction_timedelta=g.prediction_timedelta))
    assert np.array_equal(m[name].sel(number=0), f[name].sel(time=m.time, prediction_timedelta=m.prediction_timedelta))
assert not np.array_equal(m.t2m.sel(number=1), m.t2m.sel(number=2))
PYTHON
    refuses "--forecasts: f.nc exists already; give --force" -- "$VITRAIN" evaluate "$best" --forecasts=f.nc
    refuses "--forecasts=f: expected a name that ends in .nc" -- "$VITRAIN" evaluate "$best" --forecasts=f
    refuses "--time=2002-01-02/2002-01-03: expected the first initial time, the last one and what lies between" -- \
        predict --time=2002-01-02/2002-01-03 --output=h.nc
    refuses "the last initial time is before the first" -- predict --time=2002-01-03/2002-01-02/6h --output=h.nc
    refuses "--time=2002-01-02 03:00: forecasts from valid_data_path 'data/valid' can begin at" -- \
        predict --time=2002-01-02/2002-01-03/3h --output=h.nc
    [ ! -e h.nc ]
    "$TESTS" --has-mpi >/dev/null || return 0
    "$TOP/tests/mpirun" -np 2 "$VITRAIN" evaluate "$best" --rollout=3 --forecasts=two.nc --output=two >/dev/null
    for name in time prediction_timedelta u10 v10 t2m; do cmp <(values f.nc $name) <(values two.nc $name); done
}

# The log says that the count of `variables` replaced the configuration's channels.
test_train_on_variables() {
    mkdir -p netcdf/train netcdf/valid
    predict --time=2002-01-02T06 --steps=12 --output=netcdf/train/a_2012-01.nc >/dev/null
    predict --time=2002-01-05T06 --steps=4 --output=netcdf/valid/a_2013-01.nc >/dev/null
    "$VITRAIN" stats netcdf --variables=[u10,t2m] >/dev/null
    "$VITRAIN" --yaml_config="$TOP/config/ViT.yaml" --config=demo --data_dir=netcdf --variables=[u10,t2m] --img_size=[16,32] --embed_dim=16 --depth=1 \
        --num_heads=2 --patch_size=4 --global_batch_size=4 --num_epochs=1 --expdir=runs --run_num=netcdf >said
    contains "$(cat said)" "data: netcdf/train and netcdf/valid: 2 channels (u10 t2m) on 16×32 points"
    contains "$(cat said)" "variables: its channels make n_in_channels 2 and n_out_channels 2; the configuration's 8 and 8 are not used"
}

# netCDF-4 without preparation: the files contain their times, whatever their names say.
test_predict_from_netcdf() {
    local variables=--variables=[u10,v10,t2m]
    predict --time=2002-01-02T06 --steps=8 --output=f.nc >/dev/null
    predict --time=2002-01-05T06 --steps=8 --output=g.nc >/dev/null
    mkdir months
    cp f.nc months/era5_2012-02.nc
    cp g.nc months/era5_2012-03.nc
    says "2002-01-04 00:00 to 2002-01-04 00:00 UTC" -- predict --time=2002-01-03T18 --steps=1 --output=h.nc --valid_data_path=months $variables
    cmp <(values f.nc t2m $((512 * 6)) 512) <(values h.nc t2m) # the sixth time of the file was that forecast's input
    says "12 initial times, 2 steps" -- evaluate --rollout=2 --output=scores --valid_data_path=months $variables
    from_months() { refuses "$2" -- predict --time=$1 --output=i.nc --valid_data_path=months $variables; }
    from_months 2002-01-04T18 "can begin at 2002-01-04 06:00 and at 2002-01-05 12:00, but not between"
    from_months 2012-02-01 "can begin no later than 2002-01-07 06:00"
    from_months 2002-01-02T06 "can begin no earlier than 2002-01-02 12:00"
    from_months 2002-01-03T07 "can begin at 2002-01-03 06:00 and at 2002-01-03 12:00, but not between"
    from_months 2002-02-30 "--time=2002-02-30: expected a date"
    says "16 times (4 days)" "times: 16, 2002-01-02 12:00 to 2002-01-07 06:00, every 6 h" -- "$VITRAIN" inspect months $variables
    refuses "time_means_path" -- evaluate --rollout=1 --time_means_path=data
}

# Without a time coordinate: by the names of the files, as in the layout with `fields`.
test_predict_by_file_names() {
    needs hdf5-tools h5copy
    local variables=--variables=[u10,v10,t2m]
    predict --time=2002-01-02T06 --steps=8 --output=f.nc >/dev/null
    mkdir months
    for name in u10 v10 t2m; do h5copy -i f.nc -o months/era5_2011-12.nc -s $name -d $name; done
    cp months/era5_2011-12.nc months/era5_2012-02.nc
    says "2012-02-02 12:00 to 2012-02-02 12:00 UTC" -- predict --time=2012-02-02T06 --steps=1 --output=g.nc --valid_data_path=months $variables
    from_months() { refuses "$2" -- predict --time=$1 --output=h.nc --valid_data_path=months $variables; }
    from_months 2012-01-31 "can begin at 2011-12-02 18:00 and at 2012-02-01 00:00, but not between"
    from_months 2011-11-30 "can begin no earlier than 2011-12-01 00:00"
    mv months/era5_2011-12.nc months/run_0099.nc
    from_months 2011-12-01 "--time: months/run_0099.nc says no dates, neither by a time coordinate nor by its name"
}

test_predict_ncdump() {
    needs netcdf-bin ncdump
    predict --time=2003-01-02 --steps=2 --output=f.nc --split=test >/dev/null
    [ "$(ncdump -k f.nc)" = netCDF-4 ]
    says 'float t2m(time, lat, lon)' '"2003-01-02 06", "2003-01-02 12"' -- ncdump -t -v time f.nc
    # times 6 minutes apart: in the units of the data
    command -v ncgen >/dev/null || return 0
    mkdir minutes
    ncdump f.nc | sed 's/hours since/minutes since/' | ncgen -4 -o minutes/of_2003.nc
    local set="--valid_data_path=minutes --variables=[u10,v10,t2m] --accept=[step]"
    says "1 step of 6 min" " 6 min " -- evaluate --rollout=1 --output=scores $set
    says "2003-01-02 00:12 to 2003-01-02 00:18 UTC" -- predict --time=2003-01-02T00:06 --steps=2 --output=g.nc $set
    says 'time:units = "minutes since 2003-01-02 00:00:00"' ' time = 12, 18 ;' -- ncdump -v time g.nc
}

test_report() {
    refuted grep -E '<script|https?:|<link|@import' $run/report.html
    contains "$(cat $run/report.html)" "validation loss" "persistence" "Learning rate" "data:image/png;base64," "prefers-color-scheme" \
        "embed_dim" "forward" "activations" "Loss<small>, relative_l2<" "t2m<small>, standard deviations<"
    [ "$(wc -l <$run/epochs.csv)" -eq 3 ]
    small_run --run_num=other --embed_dim=32 --num_heads=4 --global_batch_size=4
    "$VITRAIN" report $RUNS/00 $RUNS/other --output=both.html >said
    contains "$(cat both.html)" "demo/1CPU/00" "demo/1CPU/other" "embed_dim" "num_heads"
    grep -o 'class="card"><span>[^<]*' $run/report.html | sed 's/.*>//' >cards
    [ "$(wc -l <cards)" -eq 7 ]
    while read -r name; do contains "$(cat both.html)" "<th>$name</th>"; done <cards # the same words
    [ "$(grep -o 'class="name">samples<' both.html | wc -l)" -eq 2 ]
    cp $run/report.html before
    "$VITRAIN" report $run >/dev/null
    cmp <(sed 's/as of [-0-9: ]*//' before) <(sed 's/as of [-0-9: ]*//' $run/report.html)
    refuses "metrics.csv" -- "$VITRAIN" report data
    mkfifo page # is not replaced by a file
    refuses "--output=page: that is a device or a pipe" -- "$VITRAIN" report $run --output=page
    [ -p page ]
}

# TensorBoard's picture is the file's; but of a wind, whose file has the colours of a difference, it is drawn in turbo, too.
test_pictures_in_tensorboard() {
    python_with python3 glob
    train --run_num=wind --n_in_channels=2 --n_out_channels=2 --num_epochs=1 >/dev/null
    "$python" - $run $RUNS/wind <<'PYTHON'
import glob, sys
for run, alike in zip(sys.argv[1:], (True, False)):
    events = b"".join(open(path, "rb").read() for path in glob.glob(run + "/logs/events.out.tfevents.*"))
    file = open(sorted(glob.glob(run + "/images/epoch-*.png"))[-1], "rb").read()
    assert file[:8] == b"\x89PNG\r\n\x1a\n" and b"IEND" in file[-12:]
    assert (file in events) == alike and file[:24] in events, run
PYTHON
}

# Whatever the tables of a run hold, there is a page or a reason.
test_report_of_damaged_tables() {
    local table column
    cp -r $run whole
    damage() { rm -rf $run; cp -r whole $run; cat >$run/$1.csv; } # TABLE: to what comes
    without() { awk -F, -v OFS=, -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i } { for (i = c; i < NF; i++) $i = $(i + 1); NF--; print }' whole/$1.csv; }
    tells() { # PART...: in every command that reads the tables
        for command in report "watch --once" inspect; do fails 1 "$VITRAIN" $command $run && contains "$output" "$run/$@" || return 1; done
        fails 1 "$VITRAIN" report $run whole && contains "$output" "$run/$@"
    }
    for column in step epoch loss; do
        damage metrics < <(without metrics $column)
        tells "metrics.csv has no column '$column'"
    done
    for column in step epoch train_loss valid_loss; do
        damage epochs < <(without epochs $column)
        tells "epochs.csv has no column '$column'"
    done
    for table in metrics epochs; do
        damage $table < <(head -c 3000 /dev/zero | tr '\0' '\377'; echo)
        tells "$table.csv has no column 'step'"
        damage $table < <(head -n 1 whole/$table.csv; echo one,two,three)
        tells "$table.csv: the column 'step' of row 1 holds no number"
        damage $table < <(head -n 2 whole/$table.csv; echo 9,)
        tells "$table.csv: the column 'epoch' of row 2 holds no number"
        # in another order, with blanks and the line ends of Windows
        damage $table < <(awk -F, '{ for (i = NF; i > 0; i--) printf "%s%s", $i, (i > 1 ? " ," : "\r\n") }' whole/$table.csv)
        for command in report "watch --once" inspect; do "$VITRAIN" $command $run >/dev/null; done
        damage $table < <(head -n 1 whole/$table.csv; echo 1,1; echo 2,1,inf,nan,1e308,-1e308)
        "$VITRAIN" report $run >/dev/null
        damage $table < <(head -n 1 whole/$table.csv)
        "$VITRAIN" watch --once $run >/dev/null
        "$VITRAIN" inspect $run >/dev/null
    done
    "$VITRAIN" report $run >/dev/null # without an epoch
    damage metrics <whole/metrics.csv
    evaluate --rollout=1 >/dev/null
    local scores=$(echo $run/evaluation/*/)
    cp -r $scores kept
    for table in scores/lead_hours spectra/lead_hours spectra/wavenumber spectra/ratio; do
        sed "1s/${table#*/}/other/" kept/${table%/*}.csv >$scores/${table%/*}.csv
        refuses "${table%/*}.csv has no column '${table#*/}'" -- "$VITRAIN" report $run
        cp kept/${table%/*}.csv $scores
    done
    damage metrics < <(head -n 1 whole/metrics.csv)
    refuses "$run/metrics.csv has no rows: its run has not finished a step; $run/out.log says how far it is" -- "$VITRAIN" report $run
    damage metrics </dev/null
    tells "metrics.csv is empty; expected a line of names"
}

# Charts of one or two channels are as large as others; those of a single channel are side by side.
test_pages_of_few_channels() {
    local channels
    for channels in 1 2; do
        small_run --n_out_channels=$channels --run_num=$channels --num_epochs=1
        "$VITRAIN" evaluate $RUNS/$channels --rollout=1 --output=$channels >/dev/null
        refuted grep 'class="many"' $channels/scores.html
    done
    contains "$(cat 1/scores.html)" '<div class="charts"><section><h2>RMSE by lead time' "lead time, hours<"
    contains "$(cat $RUNS/1/report.html)" "Validation RMSE of u10<small>, standard deviations<"
    contains "$(cat $RUNS/2/report.html)" "<h2>Validation RMSE by channel</h2>"
    evaluate --rollout=1 --output=3 >/dev/null
    grep -q 'class="many"' 3/scores.html
}

# In a real browser, on a phone's and on a desk's screen: something is drawn, in dark mode too.
test_report_in_a_browser() {
    local browser=
    for name in chromium chromium-browser google-chrome; do [ -n "$browser" ] || browser=$(command -v $name) || true; done
    [ -n "$browser" ] || ! apt-cache show chromium >/dev/null 2>&1 || lacks chromium chromium
    [ -n "$browser" ] || skip "no chromium, and apt has none"
    shot() { # FILE WIDTH,HEIGHT FLAG...
        local file=$1 size=$2; shift 2
        timeout $HANG "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars \
            --user-data-dir="$PWD/profile" --window-size=$size --screenshot="$PWD/$file" "$@" "file://$PWD/$run/report.html" >chromium.log 2>&1 &&
            [ -s "$file" ]
    }
    shot phone.png 390,1600 || skip "the browser does not start here: $(tail -n 1 chromium.log)"
    shot wide.png 1200,1600
    # a page that is empty makes a picture of a few KB
    for file in phone wide; do [ "$(wc -c <$file.png)" -gt 30000 ] || { echo "$file.png is empty"; return 1; }; done
    # nothing is wider than a phone: a copy of the page is asked
    (cat $run/report.html; echo '<script>document.title = "width " + document.documentElement.scrollWidth + " of " + innerWidth</script>') >asked.html
    timeout $HANG "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$PWD/profile" --window-size=390,1600 \
        --dump-dom "file://$PWD/asked.html" >dom 2>chromium.log
    grep -q '<path class="faint"' dom
    sed -n 's/.*<title>width \([0-9]*\) of \([0-9]*\)<.*/\1 \2/p' dom | tee width
    [ -s width ]
    awk '{ exit !($1 <= $2) }' width
}

test_watch() {
    says "epoch 2/2" "7/7, loss 0." ", valid 0." -- "$VITRAIN" watch $run --once
    timeout $HANG "$VITRAIN" watch $run >said
    contains "$(cat said)" "ended: INFO - validation loss" "; run directory $run"
    narrow said
    small_run --resume # once more: nothing is left to do
    says "ended: INFO - the run is finished: 2 epochs are done" -- timeout $HANG "$VITRAIN" watch $run
    says "state: ended; the log's last line: INFO - the run is finished" -- "$VITRAIN" inspect $run
    small_run --run_num=measured --enable_benchy
    says "ended: INFO - BENCHY::INFO::Message: Tests completed" -- timeout $HANG "$VITRAIN" watch $RUNS/measured
    refuses "data/metrics.csv: No such file or directory; expected the directory of a run, like $RUNS/00" -- "$VITRAIN" watch data
    for command in watch report; do
        refuses "nowhere: No such file or directory; expected the directory of a run" -- "$VITRAIN" $command nowhere
        refuses "$run/config.yaml is a file; expected the directory of a run" -- "$VITRAIN" $command $run/config.yaml
    done
    rm $run/metrics.csv
    refuses "has no metrics.csv: its run has not finished a step; $run/out.log says how far it is" -- "$VITRAIN" report $run
}

test_watch_follows_a_run() {
    "$VITRAIN" --yaml_config=$run/config.yaml --config=demo --run_num=going --num_epochs=100000 --checkpoint_every=0 >going 2>&1 &
    local first=$!
    wait_until has_lines 2 $RUNS/going/epochs.csv
    "$VITRAIN" watch $RUNS/going --interval=0.2 >said &
    local second=$!
    wait_until has_lines 1 said
    kill -TERM $first
    wait $first || [ $? -eq 75 ]
    wait $second
    [ "$(wc -l <said)" -ge 2 ]
    contains "$(cat said)" "ended: INFO - Stopped by SIGTERM"
}

test_watch_tells_of_a_killed_run() {
    "$VITRAIN" --yaml_config=$run/config.yaml --config=demo --run_num=killed --num_epochs=100000 --checkpoint_every=0 >killed 2>&1 &
    local first=$!
    wait_until has_lines 2 $RUNS/killed/epochs.csv
    kill -KILL $first
    wait $first || true
    says "interrupted, no process runs it; its last line: " -- timeout $HANG "$VITRAIN" watch $RUNS/killed --interval=0.2
}
