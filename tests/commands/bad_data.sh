# NaN and Inf in files. Values that are only copied are not checked when they are read; a loss that is not finite triggers
# the check, and the place in the file is reported, whatever on_nonfinite says.

SMALL="$SMALL --config=base --img_size=[8,16] --depth=1 --n_out_channels=2 --global_batch_size=4 --num_epochs=2 --shuffle=false"

# 40 training samples, 10 steps an epoch in the order of time; 8 for validation
synth --img_size=[8,16] --steps_per_year=41 --valid_steps=9
cp -r data good

FILL='\000\000\360\174' # netCDF's fill value, 9.97e36
# poison FILE TIME CHANNEL ROW COLUMN BYTES: one value of fields [times, 3, 8, 16]
poison() { overwrite "$1" $(((($2 * 3 + $3) * 8 + $4) * 16 + $5)) "$6"; }
mend() { rm -r data; cp -r good data; }

# ended STEP RUN MESSAGE: the run ended with that message, once, after a checkpoint of that step, and metrics.csv has the rows up to it
ended() {
    [[ $output == *"vitrain: "*"$3"* ]]
    contains "$output" "; the training needs finite values everywhere"
    [ "$(messages <<<"$output" | wc -l)" -eq 1 ]
    contains "$(cat runs/base/*/"$2"/out.log)" \
        "ending after step $1, with a checkpoint; with the data mended, the same command with --resume goes on"
    [ -d runs/base/*/"$2/checkpoints/$(printf 'step-%08d' "$1")" ]
    [ "$(cat runs/base/*/"$2"/metrics.csv | wc -l)" -eq $(($1 + 1)) ]
}

test_a_bad_value_ends_the_run_and_nothing_is_lost() {
    for how in "float32 --amp_mode=none" "bf16 --amp_mode=bf16" "skip --on_nonfinite=skip" \
        "parts --grad_accumulation=2" \
        "plain --cpu_isa=plain" "native --data_loader_config=native" "serial --num_data_workers=0" "each --checkpoint_every=1"; do
        train --run_num=whole ${how#* } >/dev/null
        poison data/train/2001.h5 20 1 5 7 "$NAN" # sample 19 is the first that has it, as its target: step 5
        fails 1 train --run_num=${how%% *} ${how#* }
        if [ "${how%% *}" = each ]; then
            contains "$output" "'fields' is NaN at time 20, channel 1"
            [ -d runs/base/1CPU/each/checkpoints/step-00000004 ]
            [ ! -d runs/base/1CPU/each/checkpoints/step-00000005 ]
        else
            ended 4 ${how%% *} "data/train/2001.h5: 'fields' is NaN at time 20, channel 1"
            contains "$output" ", row 5, column 7; "
        fi
        refuted grep "the gradients are not finite" <<<"$output"
        mend
        train --run_num=${how%% *} ${how#* } --resume >/dev/null
        cmp <(figures whole) <(figures ${how%% *})
    done
}

# Bad values only in the input, not in the target; only in a target, in the file's last time; infinite ones; in fp16, whose
# own overflows are different.
test_wherever_it_is() {
    ends() { # STEP FILE WHAT TIME CHANNEL ROW COLUMN BYTES: of the flags' run
        poison "$2" "${@:4}"
        fails 1 train $flags
        ended "$1" "$type" "$2: $3 at time $4, channel $5"
        mend
    }
    for type in none bf16 fp16; do
        for skip in stop skip; do
            flags="--run_num=$type --amp_mode=$type --on_nonfinite=$skip"
            ends 1 data/train/2001.h5 "'fields' is NaN" 6 2 0 0 "$NAN"
            ends 9 data/train/2001.h5 "'fields' is infinite" 40 0 7 15 "$INF"
            ends 10 data/valid/2002.h5 "'fields' is NaN" 8 1 3 3 "$NAN"
            poison data/train/2001.h5 20 2 5 7 "$FILL"
            refuses "data/train/2001.h5: 'fields' is 9.96921e+36, which is no data, at time 20, channel 2" -- train $flags
            mend
            poison data/valid/2002.h5 8 1 3 3 "$FILL"
            refuses "data/valid/2002.h5: 'fields' is 9.96921e+36, which is no data, at time 8, channel 1" -- train $flags --missing=mask
            mend
        done
    done
    poison data/train/2001.h5 1 1 1 1 "$NAN" # the very first batch: nothing is learnt yet
    refuses "data/train/2001.h5: 'fields' is NaN at time 1, channel 1" -- train --run_num=first
    [ -z "$(ls runs/base/1CPU/first/checkpoints 2>/dev/null)" ]
}

# A target that is the mean everywhere is not a bad value, but has no relative error: the reason for the infinite loss is given
# with its sample, on the terminal and in the log.
test_a_target_without_a_norm() {
    local zero="its target is 0 everywhere once it is normalised" channel row values
    all_mean() { # FILE TIME
        for channel in 0 1; do
            values=$(tail -c +$((129 + 4 * channel)) data/stats/global_means.npy | head -c 4 | od -An -to1 | sed 's/ /\\/g')
            for _ in {1..4}; do values+=$values; done # a row of 16
            for row in {0..7}; do poison "$1" "$2" $channel $row 0 "$values"; done
        done
    }
    all_mean data/train/2001.h5 20
    for how in "plain --cpu_isa=plain" "auto --cpu_isa=auto" "bf16 --amp_mode=bf16" "parts --grad_accumulation=2"; do
        refuses "vitrain: sample data/train/2001.h5, time 19: step 5: $zero" "(loss relative_l2) is infinite, and no update was made" \
            -- train --run_num=${how%% *} ${how#* }
        refuted grep -q 'lower --lr' <<<"$output"
        contains "$(tail -n 1 runs/base/1CPU/${how%% *}/out.log)" " - root - ERROR - sample data/train/2001.h5, time 19: step 5: "
    done
    refuses "vitrain: sample data/train/2001.h5, time 18: step 5: $zero" -- train --n_out_channels=3 --channel_weights=[1,1,0] --rollout=2 --run_num=rollout
    for how in "skip --on_nonfinite=skip" "fp16 --amp_mode=fp16"; do
        says "WARNING - sample data/train/2001.h5, time 19: $zero" -- train --run_num=${how%% *} ${how#* }
    done
    train --loss=mse --run_num=mse >log
    refuted grep -q infinite log
    mend
    all_mean data/valid/2002.h5 4
    says "WARNING - the loss of this set is infinite: sample data/valid/2002.h5, time 3: $zero" "nan of it" -- train --run_num=valid
    refuted grep -q -- '-nan' <<<"$output"
    says "loss: inf (relative L2 over" "the loss is infinite because of a sample: $zero" -- "$VITRAIN" evaluate runs/base/1CPU/valid --rollout=1 --output=scores
    mend
    for time in {1..10}; do all_mean data/train/2001.h5 $time; done
    refuses "vitrain: step 10: the gradients were not finite in 10 steps in a row (loss inf, first in " ": data/train/2001.h5, time 9: $zero" "; --resume goes on" \
        -- train --on_nonfinite=skip --global_batch_size=1 --run_num=row
}

# In chunks, in a cache that is filled once, and where samples may be left out.
test_other_ways_of_reading() {
    train --run_num=whole >/dev/null
    poison data/train/2001.h5 20 1 5 7 "$NAN"
    fails 1 train --run_num=kept --cache=host
    ended 4 kept "data/train/2001.h5: 'fields' is NaN at time 20, channel 1"
    train --run_num=left-out --skip_bad_samples >log 2>&1
    [ "$(grep -c "WARNING - 2 samples of this epoch could not be read, and others took their place" log)" = 2 ]
    train --run_num=left-out-native --skip_bad_samples --data_loader_config=native >/dev/null 2>&1
    cmp <(figures left-out) <(figures left-out-native)
    repack -l fields:CHUNK=4x3x8x16 -f fields:SHUF -f fields:GZIP=1
    fails 1 train --run_num=chunks
    ended 4 chunks "data/train/2001.h5: 'fields' is NaN at time 20, channel 1"
    poison good/valid/2002.h5 3 0 0 0 "$NAN"
    mend
    train --run_num=left-out --skip_bad_samples >log 2>&1
    contains "$(cat log)" "WARNING - 2 validation samples could not be read, and others took their place"
}

# The rank that holds the bad value reports it; the others know, and all save and end.
test_on_two_ranks() {
    needs_mpi
    two="timeout $HANG $TOP/tests/mpirun -np 2 $VITRAIN $SMALL"
    export ASAN_OPTIONS=detect_leaks=0
    for how in --tensor_parallel=2 --global_batch_size=4 --zero_stage=3 --context_parallel=2 "--context_parallel=2 --on_nonfinite=skip" "--amp_mode=fp16"; do
        rm -rf runs/*/*/bad
        case $how in
        *" "* | *fp16) ;; # the whole run is that of --context_parallel=2; there is none to compare with
        *) rm -rf runs; $two $how --run_num=whole >/dev/null 2>&1 ;;
        esac
        poison data/train/2001.h5 20 1 5 7 "$NAN" # row 5: the second rank's, of two along the context
        fails any $two $how --run_num=bad
        ended 4 bad "data/train/2001.h5: 'fields' is NaN at time 20, channel 1"
        [ "${how#--context}" = "$how" ] || contains "$output" "vitrain: rank 1 on "
        mend
        poison data/valid/2002.h5 8 1 6 3 "$NAN"
        fails any $two $how --run_num=bad --resume
        ended 10 bad "data/valid/2002.h5: 'fields' is NaN at time 8, channel 1"
        mend
        $two $how --run_num=bad --resume >/dev/null 2>&1
        [ "$how" = --amp_mode=fp16 ] || cmp <(figures whole) <(figures bad)
    done
    rm -rf runs
    poison data/train/2001.h5 20 1 5 7 "$NAN"
    $two --context_parallel=2 --skip_bad_samples --run_num=left-out >log 2>&1
    [ "$(grep -c "WARNING - 2 samples of this epoch could not be read" log)" = 2 ]
}
