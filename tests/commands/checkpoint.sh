# Checkpoints as a user meets them: resuming to the same bits after any end, which ones are kept, signals.

SMALL="$SMALL --dropout=0.1"
ENDLESS=--num_epochs=100000

kept() { ls "$RUNS/$1/checkpoints" | tr '\n' ' '; }

# The run must have ended like one that never stopped: figures, log of the epochs' losses, parameters and moments.
same_run() { # TAG EXPECTED_TAG
    cmp <(figures "$1") <(figures "$2")
    cmp <(losses "$1") <(losses "$2")
    cmp <(tensors "$(newest "$1")") <(tensors "$(newest "$2")")
}
# Each once: a run that was killed before the epoch's checkpoint logs the epoch again.
losses() { grep -ho 'Avg [a-z]* loss=.*' "$RUNS/$1/out.log" | sort -u; }
newest() { ls -d "$RUNS/$1"/checkpoints/step-???????? | tail -n 1; }

# Starts the endless run TAG and waits until metrics.csv has STEPS rows; its number is in $run.
start_run() { # TAG STEPS [flags]
    local tag=$1 steps=$2; shift 2
    env --default-signal="${default-INT,HUP}" ${shimmed-} "$VITRAIN" $SMALL --run_num="$tag" "$@" >"$tag.printed" 2>&1 &
    run=$!
    wait_until has_lines $((steps + 1)) "$RUNS/$tag/metrics.csv" || { cat "$tag.printed"; return 1; }
}

end_by() { # SIGNAL STATUS: of $run
    local got=0
    kill "-$1" "$run"
    gone "$run"
    wait "$run" || got=$?
    [ "$got" -eq "$2" ] || { echo "exit status $got, expected $2"; return 1; }
}

synth

test_resumed_at_the_end_of_an_epoch() {
    train --num_epochs=3 --lr_schedule=none --run_num=whole >/dev/null
    train --num_epochs=2 --lr_schedule=none --run_num=parts >/dev/null
    says "resuming from $RUNS/parts/checkpoints/step-00000014: step 14, epoch 3" -- train --num_epochs=3 --lr_schedule=none --run_num=parts --resume
    same_run parts whole
    [ "$(grep -c 'DONE ---- rank 0' $RUNS/parts/out.log)" -eq 2 ]
}

# Files that another program has rewritten (line ends of Windows) are not lost: the run begins new ones beside them.
test_unusable_rows_are_kept() {
    train --num_epochs=1 >/dev/null
    sed -i 's/$/\r/' $RUNS/00/metrics.csv $RUNS/00/epochs.csv
    cp $RUNS/00/metrics.csv rewritten
    says "WARNING - $RUNS/00/metrics.csv does not begin with the line 'step,epoch,loss," -- train --num_epochs=2 --resume
    cmp rewritten $RUNS/00/metrics.csv.old-*
    [ "$(wc -l <$RUNS/00/metrics.csv)" -eq 8 ]
    [ "$(cat $RUNS/00/epochs.csv.old-* | wc -l)" -eq 2 ]
}

# Lines that are damaged, and rows that are not there: the good ones stay, and the log says what is lost.
test_damaged_and_missing_rows() {
    rows() { cut -d, -f1 $RUNS/00/$1 | sed 1d | uniq | tr '\n' ' '; }
    train --num_epochs=3 --sample_trace >/dev/null
    local kept=$RUNS/00/metrics.csv epochs=$RUNS/00/epochs.csv trace=$RUNS/00/logs/samples-0.csv
    sed -i '5s/,/;/' $kept
    tail -n +21 $kept | cut -c 1-20 | head -n 1 >torn # step 20
    { sed -n 1,9p $kept; head -c 300 /dev/zero; sed -n '12,20p' $kept; cat torn; } >damaged
    cp damaged $kept
    sed -i 3d $epochs
    cp $epochs without
    sed -i '9s/.*/?/' $trace
    cp $trace trace
    train --num_epochs=4 --sample_trace --resume >said
    # the line behind the zeros is theirs
    contains "$(cat said)" "WARNING - $kept: 3 damaged lines were left out (line 5, 10, 19); the original is kept as $kept.old-" \
        "WARNING - $kept: 6 rows are missing (of step 4, 9 to 11, 20 to 21): damaged, or not yet on the disk when the machine stopped" \
        "WARNING - $epochs: 1 row is missing (of epoch 2): " "WARNING - $trace: 1 damaged line was left out (line 9); the original is kept as $trace.old-"
    cmp damaged $kept.old-*
    cmp trace $trace.old-*
    cmp without <(head -n 3 $epochs)
    [ "$(rows metrics.csv)" = "1 2 3 5 6 7 8 12 13 14 15 16 17 18 19 22 23 24 25 26 27 28 " ] || { rows metrics.csv; return 1; }
    [ "$(rows epochs.csv)" = "7 21 28 " ]
    cmp <(sed 9d trace) <(head -n $(($(wc -l <trace) - 1)) $trace)
    rm $epochs # again, and a file that is not there: an earlier copy stays
    sed -i '3s/,/;/' $kept
    train --num_epochs=5 --resume >said
    [ "$(ls $kept.old-* | wc -l)" -eq 2 ]
    contains "$(cat said)" "1 damaged line was left out (line 3)" "WARNING - $epochs: 4 rows are missing (of epoch 1 to 4): "
    # what lies behind the checkpoint is written again, so it is not missed
    printf '36,6,0.1\n##\n' >>$kept
    train --num_epochs=6 --resume >said
    refuted grep "damaged line" said
}

test_resumed_in_bfloat16() {
    train --num_epochs=2 --amp_mode=bf16 --run_num=whole >/dev/null
    train --num_epochs=2 --amp_mode=bf16 --run_num=parts --checkpoint_every=5 --keep_last=9 >/dev/null
    train --num_epochs=2 --amp_mode=bf16 --run_num=parts --resume=$RUNS/parts/checkpoints/step-00000005 >/dev/null
    same_run parts whole
}

test_every_checkpoint_leads_to_the_same_end() {
    train --num_epochs=2 --run_num=whole >/dev/null
    train --num_epochs=2 --run_num=parts --checkpoint_every=1 --keep_last=99 >/dev/null
    same_run parts whole
    local step
    for step in 13 6 8 1; do # the newer ones are set aside
        train --num_epochs=2 --run_num=parts --checkpoint_every=1 --keep_last=99 \
            --resume=$RUNS/parts/checkpoints/step-$(printf %08d $step) >printed
        cmp <(figures parts) <(figures whole)
        cmp <(tensors "$(newest parts)") <(tensors "$(newest whole)")
    done
    [ -d $RUNS/parts/checkpoints/step-00000014.aside ]
}

# Checkpoints that are written while training goes on hold what they would have held.
test_written_beside_the_steps() {
    train --num_epochs=2 --run_num=whole --ema_decay=0.9 --optimizer=AdamW8bit --embed_dim=64 --checkpoint_every=3 --keep_last=99 >/dev/null
    train --num_epochs=2 --run_num=beside --ema_decay=0.9 --optimizer=AdamW8bit --embed_dim=64 --checkpoint_every=3 --keep_last=99 \
        --async_checkpoint >printed
    same_run beside whole
    cmp <(ls $RUNS/whole/checkpoints) <(ls $RUNS/beside/checkpoints)
    local step
    for step in 3 6 9 12 14; do
        cmp <(tensors $RUNS/whole/checkpoints/step-$(printf %08d $step)) <(tensors $RUNS/beside/checkpoints/step-$(printf %08d $step))
    done
    [ "$(readlink $RUNS/whole/checkpoints/best)" = "$(readlink $RUNS/beside/checkpoints/best)" ]
    [ "$(grep -cE 'checkpoint step [0-9]+: [0-9.]+ s blocked, [0-9.]+ s writing$' printed)" -eq 5 ]
    start_run stopped 9 --num_epochs=40 --async_checkpoint
    end_by TERM 75
    [ -z "$(find $RUNS/stopped -name '*.tmp')" ]
}

# One run, stopped three times.
test_stopped_by_a_signal_and_resumed() {
    train --num_epochs=40 --run_num=whole >/dev/null
    local signal steps=9
    for signal in TERM INT USR1; do
        start_run parts $steps --num_epochs=40 --resume
        end_by $signal 75
        contains "$(cat parts.printed)" "Stopped by SIG$signal after step"
        steps=$(wc -l <$RUNS/parts/metrics.csv) # the next one makes two steps of its own, or more
        steps=$((steps + 1))
    done
    train --num_epochs=40 --run_num=parts --resume >/dev/null
    same_run parts whole
}

test_stopped_by_other_signals() {
    local signal
    for signal in USR2 HUP XCPU; do
        start_run $signal 2 $ENDLESS
        end_by $signal 75
        contains "$(cat $signal.printed)" "Stopped by SIG$signal after step"
        [ -d "$(newest $signal)" ]
    done
}

test_hangup_under_nohup() {
    local default=INT shimmed steps
    trap '' HUP # as nohup starts programs
    # the second time a library takes the signal for itself
    for shimmed in "" "FAULT_HANGUP=1 LD_PRELOAD=$(dirname "$TESTS")/fault_shim.so"; do
        start_run 00 9 $ENDLESS
        kill -HUP $run
        steps=$(wc -l <$RUNS/00/metrics.csv)
        wait_until has_lines $((steps + 4)) $RUNS/00/metrics.csv # several steps later it still runs
        end_by TERM 75
        contains "$(cat 00.printed)" "Stopped by SIGTERM after step"
        rm -r $RUNS
    done
}

test_killed_and_resumed() {
    train --num_epochs=40 --run_num=whole >/dev/null
    start_run killed 20 --num_epochs=40 --checkpoint_every=3
    end_by KILL 137
    mkdir -p $RUNS/killed/checkpoints/step-00009999.tmp
    : >$RUNS/killed/checkpoints/step-00009999.tmp/checkpoint.h5
    train --num_epochs=40 --run_num=killed --resume >/dev/null
    same_run killed whole
    [ ! -e $RUNS/killed/checkpoints/step-00009999.tmp ]
}

test_max_time() {
    fails 75 train $ENDLESS --max_time=1
    contains "$output" "Stopped by max_time after step"
    refuses "max_time '1:00': expected HH:MM:SS (01:30:00) or a number of seconds" -- train --max_time=1:00
    train --num_epochs=1 --max_time=00:10:00 --run_num=quick >/dev/null
}

# In the epoch's last step, or in its validation: the epoch is reported once, and completely.
test_stopped_at_the_end_of_an_epoch() {
    synth --force --steps_per_year=1400 --valid_steps=1400
    local steps line one="--num_iters=1 --embed_dim=64 --depth=8 --cpu_isa=plain" # a step: tenths of a second; the validation: seconds
    for steps in 0 1; do
        start_run $steps $steps $one
        end_by TERM 75
        contains "$(cat $steps.printed)" "Stopped by SIGTERM after step 1"
        train $one --run_num=$steps --resume --limit_nsamples_val=64 >/dev/null
        for line in "Time taken for epoch 1 is" "Avg train loss" "Waited for data" "Avg val loss"; do
            [ "$(grep -c "$line" $RUNS/$steps/out.log)" -eq 1 ] || { echo "not once: $line"; return 1; }
        done
        [ "$(cat $RUNS/$steps/logs/* | grep -ao 'Loss/train' | wc -l)" -eq 2 ] # before the step, and after it
        [ -s $RUNS/$steps/images/epoch-0001.png ]
        # the seconds of data, forward, backward and optimizer are those before the stop
        tail -n 1 $RUNS/$steps/epochs.csv | awk -F, '{ exit !(NF > 12 && $9 > 0 && $10 > 0 && $11 > 0 && $12 > 0) }'
    done
}

test_a_second_interrupt_ends_at_once() {
    "$VITRAIN" synth slow --img_size=[64,128] --channels=3 --years=1 --steps_per_year=140 --valid_steps=13 >/dev/null
    # one step takes seconds, so both signals arrive before its end
    start_run twice 0 $ENDLESS --data_dir=slow --img_size=[64,128] --embed_dim=128 --depth=8 --global_batch_size=128 --cpu_isa=plain
    kill -INT $run
    wait_until grep 'ShdPnd:.*[014589cd]$' /proc/$run/status # the first is no longer pending
    end_by INT 130
    [ ! -e $RUNS/twice/checkpoints ]
}

test_what_is_kept() {
    train --num_epochs=4 >/dev/null
    [ "$(kept 00)" = "best step-00000021 step-00000028 " ] || { kept 00; return 1; }
    # a worse one does not become the best, and the best stays
    train --num_epochs=8 --keep_last=1 --resume --lr=3 >/dev/null
    [ "$(kept 00)" = "best step-00000028 step-00000056 " ] || { kept 00; return 1; }
    [ "$(readlink $RUNS/00/checkpoints/best)" = step-00000028 ]
    train --num_epochs=1 --run_num=none --checkpoint_every=0 >/dev/null
    [ ! -e $RUNS/none/checkpoints ]
    train --num_epochs=2 --run_num=steps --checkpoint_every=5 --keep_last=9 >/dev/null
    [ "$(kept steps)" = "best step-00000005 step-00000010 step-00000014 " ] || { kept steps; return 1; }
}

# A checkpoint that another program reads is not removed meanwhile: here every step saves one and removes one.
test_read_while_it_is_written() {
    start_run 00 9 $ENDLESS --checkpoint_every=1 --keep_last=1
    local i command
    for i in $(seq 8); do
        for command in "inspect $RUNS/00" "inspect $RUNS/00/checkpoints --verify" "evaluate $RUNS/00 --rollout=1 --every=4 --output=scores --force"; do
            "$VITRAIN" $command >said 2>&1 || { echo "$command, try $i:"; cat said; kill $run; return 1; }
        done
    done
    end_by TERM 75
    fails 75 train $ENDLESS --max_time=1 --checkpoint_every=1 --keep_last=1 --resume
    [ "$(ls -d $RUNS/00/checkpoints/step-* | wc -l)" -le 2 ] # what was held goes at the next save
}

# Some optimizers keep less than others, or nothing; that is no fault.
test_inspect_of_each_optimizer() {
    local last=$RUNS/00/checkpoints/step-00000007
    train --num_epochs=1 --optimizer=SGD --momentum=0 --lr=0.01 >/dev/null
    says "SGD after 7 steps, 0 moments" "no faults" -- "$VITRAIN" inspect $last
    train --num_epochs=1 --optimizer=Adafactor --run_num=factored >/dev/null
    says "Adafactor after 7 steps, 1536 moments" "no faults" -- "$VITRAIN" inspect ${last/00/factored}
}

# A copy of a run that followed links has a whole checkpoint as `best`.
test_best_is_a_copy() {
    train --num_epochs=2 --keep_last=1 >/dev/null
    train --num_epochs=4 --keep_last=1 --resume --lr=3 >/dev/null
    local kept=$RUNS/00/checkpoints
    [ "$(kept 00)" = "best step-00000014 step-00000028 " ] || { kept 00; return 1; }
    mv runs linked
    cp -rL linked runs
    [ ! -L $kept/best ]
    says "checkpoints: 3: best, step-00000014, step-00000028; best is a whole copy" -- "$VITRAIN" inspect $RUNS/00
    says "step 14" -- "$VITRAIN" inspect $kept/best
    says "$kept/best" -- "$VITRAIN" export $RUNS/00 --output=copied.safetensors
    "$VITRAIN" export linked/demo/1CPU/00 --output=linked.safetensors >/dev/null
    cmp copied.safetensors linked.safetensors
    says "$kept/best (step 14, epoch 2)" -- "$VITRAIN" evaluate $RUNS/00 --rollout=1 --output=scores
    train --num_epochs=5 --keep_last=1 --resume --lr=3 >/dev/null
    [ "$(readlink $kept/best)" = step-00000014 ]
    [ "$(kept 00)" = "best step-00000014 step-00000035 " ] || { kept 00; return 1; }
    cmp <(tensors $kept/best) <(tensors linked/demo/1CPU/00/checkpoints/best)
    train --expdir=linked --num_epochs=5 --keep_last=1 --resume --lr=3 >/dev/null
    cmp <(tensors "$(newest 00)") <(tensors linked/demo/1CPU/00/checkpoints/step-00000035)
    # the only one of its step; one that is none, which is not lost
    rm -r $kept/best
    mv $kept/step-00000014 $kept/best
    says "resuming from $kept/best: step 14, epoch 3" -- train --num_epochs=3 --resume=$kept/best --lr=3
    [ "$(readlink $kept/best)" = step-00000014 ]
    rm $kept/best
    mkdir $kept/best
    echo mine >$kept/best/note
    says "$kept/best is a directory, not the name of a checkpoint of the run: renamed to $kept/best.aside" -- \
        train --num_epochs=4 --resume --lr=1e-9
    [ "$(cat $kept/best.aside/note)" = mine ]
}

test_parameters_of_another_run() {
    train --num_epochs=2 >/dev/null
    train --num_epochs=1 --run_num=tuned --init_from=$RUNS/00/checkpoints/best --optimizer=SGD --lr=0 >printed
    contains "$(cat printed)" "the parameters begin as those of $RUNS/00/checkpoints/$(readlink $RUNS/00/checkpoints/best)"
    # nothing was learnt at learning rate 0: the losses are the other run's last
    [ "$(grep -ho 'Avg val loss=.*' printed)" = "$(grep -ho 'Avg val loss=.*' $RUNS/00/out.log | tail -n 1)" ]
    fails 1 train --run_num=wide --init_from=$RUNS/00/checkpoints/best --embed_dim=32
    contains "$output" "none of its 38 tensors fits a parameter of the model by name and shape: patch_embed.proj.weight is [16, 3, 4, 4] there, [32, 3, 4, 4] here"
    [ ! -e $RUNS/wide ]
    refuses "nowhere: No such file or directory; expected" -- train --init_from=nowhere
    [ "$(ls $RUNS)" = "$(printf '00\ntuned')" ] || { ls $RUNS; return 1; } # the run of this tag stays what it was
}

# As a requeued job continues: from its own newest checkpoint once it has one, not from the one that it began with.
test_resumed_from_the_newest_of_its_own() {
    train --num_epochs=2 --keep_last=9 --run_num=a --lr_schedule=none >/dev/null
    local first=$RUNS/a/checkpoints/step-00000007
    says "resuming from $first: step 7, epoch 2" -- train --num_epochs=2 --run_num=b --lr_schedule=none --resume=$first --resume_newest
    train --num_epochs=3 --run_num=b --lr_schedule=none --resume=$first --resume_newest >printed
    contains "$(cat printed)" "resuming from $RUNS/b/checkpoints/step-00000014: step 14, epoch 3"
    # the place in the file, and none at all
    printf 'demo:\n  resume: %s\n' "$first" >own.yaml
    says "resuming from $first: step 7, epoch 2" -- train --yaml_config=own.yaml --num_epochs=2 --run_num=c --lr_schedule=none --resume_newest
    says "resuming from $RUNS/c/checkpoints/step-00000014: step 14, epoch 3" -- train --yaml_config=own.yaml --num_epochs=3 --run_num=c --lr_schedule=none --resume_newest
    says "there is no checkpoint in $RUNS/d/checkpoints, so the run starts afresh" -- train --num_epochs=1 --run_num=d --lr_schedule=none --resume_newest
    says "resuming from $RUNS/d/checkpoints/step-00000007: step 7, epoch 2" -- train --num_epochs=2 --run_num=d --lr_schedule=none --resume_newest
}

# Earlier content of the directory belongs to another history than the checkpoint's, and is kept beside it.
test_resumed_from_another_run() {
    train --num_epochs=3 --run_num=a --lr=1e-7 >/dev/null
    train --num_epochs=1 --run_num=b --lr=5e-3 >/dev/null
    local other=$RUNS/b/checkpoints/step-00000007
    fails 1 train --num_epochs=2 --run_num=a --resume=$other --embed_dim=32
    [ "$(ls $RUNS)" = "$(printf 'a\nb')" ] || { ls $RUNS; return 1; } # what can't go on changes nothing
    cp -r $RUNS/a before
    train --num_epochs=2 --run_num=a --resume=$other --lr=1e-9 >printed
    contains "$(cat printed)" "an earlier run with this tag is now $RUNS/a.old-" "resuming from $other: step 7, epoch 2"
    refuted grep "missing (of" printed # the new directory's rows begin with step 8
    for events in before/logs/events.*; do mv $events ${events/tfevents/old}; done # as TensorBoard is to see one run
    diff -r before $RUNS/a.old-*
    [ "$(figures a | cut -d, -f1 | tr '\n' ' ')" = "step 8 9 10 11 12 13 14 " ]
    [ "$(kept a)" = "best step-00000014 " ] || { kept a; return 1; }
    # its own checkpoints are recognised by any path
    ln -s "$PWD/$RUNS/a" link
    says "resuming from link/checkpoints/step-00000014: step 14, epoch 3" -- train --num_epochs=3 --run_num=a --resume=link/checkpoints/best --lr=1e-9
    refuted contains "$output" "missing (of"
    [ "$(figures a | wc -l)" -eq 15 ] || { figures a; return 1; }
}

# Each abandoned continuation is kept, and `best` names no checkpoint of one.
test_set_aside_twice() {
    train --num_epochs=3 --keep_last=9 --lr=1e-7 >/dev/null
    local kept=$RUNS/00/checkpoints i
    cp -r $kept/step-00000014 first
    for i in 1 2; do train --num_epochs=2 --keep_last=9 --lr=5e-$i --resume=$kept/step-00000007 >/dev/null; done
    diff -r first $kept/step-00000014.aside
    [ -d $kept/step-00000014.aside-1 ]
    [ -d $kept/step-00000021.aside ]
    train --num_epochs=2 --resume=$kept/step-00000007 --lr=9 >/dev/null
    [ "$(readlink $kept/best)" = step-00000007 ]
    says "the run is finished" -- train --num_epochs=2 --resume=$kept/step-00000014.aside --lr=9
    # what stands in the directory stays there if another run leaves nothing to do
    refuses "after its 2 epochs (14 steps) nothing is left to do" -- train --num_epochs=2 --run_num=parts --resume=$kept/step-00000014.aside
    [ -z "$(ls -d $RUNS/parts.old* 2>/dev/null)" ]
    [ "$(readlink $kept/best)" = step-00000007 ]
}

# An epoch that num_iters had ended early continues; the end is where num_iters says.
test_resumed_with_more_steps() {
    train --num_epochs=2 --lr_schedule=none --run_num=whole >/dev/null
    train --num_iters=3 --lr_schedule=none --run_num=parts >/dev/null
    says "the run is finished: 1 epoch is done, 3 steps" -- train --num_iters=3 --lr_schedule=none --run_num=parts --resume
    refuses "was saved in the middle of an epoch" -- train --num_iters=5 --lr_schedule=none --run_num=parts --resume --seed=1
    says "resuming from $RUNS/parts/checkpoints/step-00000003: step 3, epoch 1" -- train --num_iters=5 --lr_schedule=none --run_num=parts --resume
    contains "$output" "num_iters 5 is less than an epoch of 7 steps: training for 5 steps"
    train --num_iters=14 --lr_schedule=none --run_num=parts --resume >/dev/null
    cmp <(figures parts) <(figures whole)
    cmp <(tensors "$(newest parts)") <(tensors "$(newest whole)")
    [ "$(cut -d, -f1,2 $RUNS/parts/epochs.csv | tr '\n' ' ')" = "step,epoch 7,1 14,2 " ]
    # the epoch's mean is that of the steps since it was continued last
    awk -F, 'FNR == NR { if ($1 > 5 && $1 <= 7) mean += $3 / 2; next } $1 == 7 { exit !(($3 - mean) ^ 2 < 1e-12) }' \
        $RUNS/parts/metrics.csv $RUNS/parts/epochs.csv
    says "num_iters 16: after 14 steps no whole epoch of 7 is left" -- train --num_iters=16 --run_num=parts --resume
}

# The learning rate reaches 0 at the end, not before.
test_resumed_with_another_batch() {
    local length first then last
    for length in num_iters=14,num_iters=28,28 num_epochs=2,num_epochs=4,18; do
        IFS=, read -r first then last <<<"$length"
        train --run_num=$first --$first >/dev/null
        train --run_num=$first --$then --global_batch_size=30 --resume >/dev/null # 2 steps an epoch
        [ "$(figures $first | tail -n 1 | cut -d, -f1)" -eq $last ] || { figures $first; return 1; }
        figures $first | tail -n 3 | awk -F, '$4 <= 0 { exit 1 }' || { figures $first; return 1; }
    done
}

# Epochs of 15 steps after one of 7: the cosine goes on from a quarter, and restarts are in their epochs.
test_epochs_of_another_length() {
    rate() { awk -F, -v step=$2 '$1 == step { printf "%.6f\n", $4 / 1e-3 }' $RUNS/$1/metrics.csv; }
    cosine() { awk -v x=$1 'BEGIN { printf "%.6f\n", (1 + cos(3.14159265358979 * x)) / 2 }'; }
    train --num_epochs=4 --lr=1e-3 --checkpoint_every=7 --keep_last=9 --run_num=a >/dev/null
    cp -r $RUNS/a $RUNS/b
    refuted grep "an epoch has" <(train --num_epochs=4 --lr=1e-3 --run_num=a --resume=$RUNS/a/checkpoints/step-00000007)
    [ "$(rate a 8)" = "$(cosine 0.25)" ]
    says "an epoch has 15 steps from here on, before it had 7 (global_batch_size 4, was 8; 60 training samples, were 60)" \
        "after 1 epoch, 7 steps" "spread over the 45 steps that are left" \
        -- train --num_epochs=4 --lr=1e-3 --global_batch_size=4 --run_num=b --resume=$RUNS/b/checkpoints/step-00000007 --checkpoint_every=15
    [ "$(rate b 8)" = "$(cosine 0.25)" ]
    [ "$(rate b 23)" = "$(cosine 0.5)" ]
    [ "$(rate b 52)" = "$(cosine 0.98333333333)" ]
    figures b >whole
    refuted grep "an epoch has" <(train --num_epochs=4 --lr=1e-3 --global_batch_size=4 --run_num=b --resume=$RUNS/b/checkpoints/step-00000037)
    figures b | cmp - whole # another resume changes nothing
    rm -rf $RUNS/b
    train --num_epochs=1 --lr=1e-3 --lr_restarts=5e-4@2 --restart_warmup=0 --run_num=b >/dev/null
    train --num_epochs=4 --lr=1e-3 --lr_restarts=5e-4@2 --restart_warmup=0 --global_batch_size=4 --run_num=b --resume >/dev/null
    [ "$(rate b 8)" = "$(cosine 0.5)" ]
    [ "$(rate b 22)" = "$(cosine 0.96666666667)" ]
    [ "$(rate b 23)" = 0.500000 ]
}

# What the smallest validation loss and persistence measure: another loss, other statistics or other samples begin anew.
test_best_of_another_measure() {
    persistence() { sed -n 's/.*, persistence (nothing changes) \([0-9.]*\): .*/\1/p' $1 | tail -n 1; }
    resume() { train --run_num=a --resume "$@" >said; }
    train --num_epochs=1 --loss=mse --run_num=a >/dev/null
    train --num_epochs=1 --run_num=own >own
    resume --num_epochs=2 --loss=mse --valid_data_path=$PWD/data/../data/valid # the same place
    refuted grep "begin anew" said
    refuted test "$(persistence said)" = "$(persistence own)"
    resume --num_epochs=4
    contains "$(cat said)" "the smallest validation loss and the baseline's begin anew, as those of $RUNS/a/checkpoints/step-00000014 measure something else: loss mse, not relative_l2"
    [ "$(persistence said)" = "$(persistence own)" ]
    [ "$(readlink $RUNS/a/checkpoints/best)" = "step-000000$(awk -F, 'NR > 3 && (best == "" || $4 < best) { best = $4; step = $1 } END { print step }' $RUNS/a/epochs.csv)" ]
    resume --num_epochs=5
    refuted grep "begin anew" said
    resume --num_epochs=6 --limit_nsamples_val=5
    contains "$(cat said)" "measure something else: 12 validation samples, not 5"
    cp -r data/stats stats
    resume --num_epochs=7 --limit_nsamples_val=5 --global_stds_path=stats/global_stds.npy
    refuted grep "begin anew" said
    cp stats/time_diff_stds.npy stats/global_stds.npy
    resume --num_epochs=8 --limit_nsamples_val=5 --global_stds_path=stats/global_stds.npy
    contains "$(cat said)" "the means and standard deviations of the checkpoint $RUNS/a/checkpoints/step-" # stay in use
    refuted grep "begin anew" said
    cp -r data other
    resume --num_epochs=9 --limit_nsamples_val=5 --global_stds_path=stats/global_stds.npy --valid_data_path=other/valid
    contains "$(cat said)" "measure something else: valid_data_path " ", not other/valid"
}

# The means of --log_every are those of a run that never stopped.
test_means_of_the_log_go_on() {
    local step
    means() { grep -ho 'step [0-9]*: loss .*, learning rate [^,]*' $RUNS/$1/out.log | sort -u; }
    train --num_epochs=2 --log_every=4 --run_num=whole >/dev/null
    train --num_epochs=2 --log_every=4 --run_num=parts --checkpoint_every=3 --keep_last=9 >/dev/null
    [ "$(means whole | wc -l)" -eq 3 ]
    for step in 09 06 03; do
        train --num_epochs=2 --log_every=4 --run_num=parts --keep_last=9 --resume=$RUNS/parts/checkpoints/step-000000$step >/dev/null
        cmp <(means parts) <(means whole)
    done
}

# ctrl-C goes to all of `vitrain | tee log`: the reader of the log may have ended before the checkpoint is saved.
test_stopped_together_with_the_reader_of_its_log() {
    mkfifo pipe
    cat pipe >read &
    local reader=$! before
    env --default-signal=INT "$VITRAIN" $SMALL $ENDLESS --log_every=1 >pipe 2>errors &
    run=$!
    wait_until has_lines 4 "$RUNS/00/metrics.csv"
    kill $reader
    wait $reader || true
    before=$(wc -l <"$RUNS/00/metrics.csv")
    wait_until has_lines $((before + 4)) "$RUNS/00/metrics.csv"
    end_by INT 75 # several lines later it still runs
    contains "$(cat errors)" "vitrain: the log could not be written in full: Broken pipe"
    contains "$(cat $RUNS/00/out.log)" "Stopped by SIGINT after step"
    train $ENDLESS --max_time=1 --resume >printed || [ $? -eq 75 ]
    contains "$(cat printed)" "resuming from"
}

test_nothing_to_resume() {
    says "--resume: there is no checkpoint in $RUNS/00/checkpoints, so the run starts afresh" -- train --num_epochs=1 --resume
    cp $RUNS/00/metrics.csv before
    says "the run is finished: 1 epoch is done" -- train --num_epochs=1 --resume
    cmp before $RUNS/00/metrics.csv
    refuses "nowhere: No such file or directory; expected" -- train --num_epochs=1 --resume=nowhere
    fails 1 train --num_epochs=1 --resume=nowhere --run_num=new
    [ ! -e $RUNS/new ]
    refuses "a switch takes a value only after '='" -- train --resume nowhere
}

test_another_model_is_refused() {
    train --num_epochs=1 >/dev/null
    refuses "patch_embed.proj.weight is [16, 3, 4, 4] in the checkpoint, [32, 3, 4, 4] in the model" -- train --num_epochs=2 --resume --embed_dim=32
    refuses "holds 38 parameters, the model has 54: their depth differs" -- train --num_epochs=2 --resume --depth=3
    refuses "was made with the optimizer Adam, whose moments SGD cannot use" -- train --num_epochs=2 --resume --optimizer=SGD
    train --num_epochs=2 --resume >/dev/null
}

test_other_data_in_the_middle_of_an_epoch() {
    rm -r data
    synth --years=2 --steps_per_year=60
    train --num_epochs=1 --checkpoint_every=5 --keep_last=9 >/dev/null # 14 steps
    mkdir elsewhere
    mv "$(ls data/train/*.h5 | tail -n 1)" elsewhere
    local step
    for step in 5 10; do
        fails 1 train --num_epochs=1 --resume=$RUNS/00/checkpoints/step-$(printf %08d $step)
        contains "$output" "was saved in the middle of an epoch of 118 training samples, but the data now have 59"
    done
    train --num_epochs=2 --resume=$RUNS/00/checkpoints/step-00000014 >printed # between two epochs they may change
    contains "$(cat printed)" "2 epochs of 7 steps"
}

test_a_damaged_checkpoint() {
    train --num_epochs=3 >/dev/null
    local newest=$RUNS/00/checkpoints/step-00000021
    truncate -s -100 $newest/shard-00000-of-00001.h5
    refuses "shard-00000-of-00001.h5 has" -- train --num_epochs=3 --resume=$newest
    cp $RUNS/00/metrics.csv whole
    says "root - WARNING - $newest/shard-00000-of-00001.h5 has" -- train --num_epochs=3 --resume
    contains "$output" "resuming from $RUNS/00/checkpoints/step-00000014: step 14, epoch 3"
    cmp <(cut -d, -f1-5 whole) <(figures 00)
    for step in 14 21; do rm $RUNS/00/checkpoints/step-000000$step/shard-00000-of-00001.h5; done
    refuses "step-00000014/shard-00000-of-00001.h5: No such file or directory; the checkpoint is not whole" -- train --num_epochs=3 --resume
}

# overwrite FILE DATASET BYTE: all of the first chunk of DATASET, 64 numbers and their checksum, which HDF5 takes for whole if
# BYTE is 000 or 377.
overwrite() {
    head -c 260 /dev/zero | tr '\0' "\\$3" | dd of="$1" bs=1 seek="$("$TESTS" --hdf5 offset "$1" "$2")" conv=notrunc status=none
}

test_damage_that_hdf5_takes_for_whole() {
    train --num_epochs=3 --keep_last=9 >/dev/null
    cp -r $RUNS/00 good
    local newest=$RUNS/00/checkpoints/step-00000021 damage
    local shard=$newest/shard-00000-of-00001.h5
    for damage in "parameters/blocks.1.mlp.fc1.bias 000" "optimizer/moment2/blocks.1.mlp.fc1.bias 377"; do
        overwrite $shard $damage
        "$TESTS" --hdf5 values $shard ${damage% *} >/dev/null
        refuses "$shard is damaged or another checkpoint's: its checksum is" -- train --num_epochs=4 --resume=$newest
        refuses "$shard is damaged or another checkpoint's: its checksum is" -- train --num_epochs=1 --run_num=other --init_from=$newest
        refuses "$shard is damaged or another checkpoint's: its checksum is" -- "$VITRAIN" evaluate --checkpoint=$newest --rollout=1
        refuses "$shard is damaged or another checkpoint's: its checksum is" -- "$VITRAIN" export $newest --output=model.safetensors
        refuses "FAULT: $shard is damaged or another checkpoint's: its checksum is" -- "$VITRAIN" inspect --verify $RUNS/00
        cp good/checkpoints/step-00000021/shard-00000-of-00001.h5 $shard
    done
    overwrite $shard optimizer/moment1/blocks.0.mlp.fc1.bias 000
    says "WARNING - $shard is damaged or another checkpoint's: its checksum is" "; going back to an older checkpoint" \
        "resuming from $RUNS/00/checkpoints/step-00000014" -- train --num_epochs=3 --resume
    cmp <(cut -d, -f1-5 good/metrics.csv) <(figures 00)
}

# Damage from before checkpoints had checksums of their shards: training shows it in the second step.
test_a_checkpoint_without_finite_steps() {
    train --lr_schedule=none --num_epochs=3 --keep_last=9 >/dev/null
    cp -r $RUNS/00 good
    local newest=$RUNS/00/checkpoints/step-00000021
    overwrite $newest/shard-00000-of-00001.h5 optimizer/moment1/blocks.0.mlp.fc1.bias 377
    in_python $newest <<'END'
with h5py.File(sys.argv[1] + "/checkpoint.h5", "r+") as index:
    del index.attrs["shard_crc32c"]
write_checksum(sys.argv[1])
END
    cp -r $RUNS/00 damaged
    refuses "step 23: the gradients are not finite" -- train --lr_schedule=none --num_epochs=4 --resume=$newest
    [ -d $newest ]
    local more
    for more in "" --checkpoint_every=1 --on_nonfinite=skip; do
        rm -r $RUNS/00
        cp -r damaged $RUNS/00
        says "not finite" "; going back to an older checkpoint, once" \
            "$newest gives no finite numbers when the run continues from it: renamed to $newest.aside" \
            "resuming from $RUNS/00/checkpoints/step-00000014: step 14, epoch 3" -- train --lr_schedule=none --num_epochs=4 --resume $more
        cmp <(cut -d, -f1-5 good/metrics.csv) <(figures 00 | head -n 22)
        [ "$(readlink $RUNS/00/checkpoints/best)" = step-00000028 ]
    done
    # only once: here the loss scale is at fault
    refuses "not finite" "step-00000028 gives no finite numbers" "going back to an older checkpoint, once" \
        "the same happens from the older checkpoint" -- train --lr_schedule=none --num_epochs=6 --keep_last=9 --resume --amp_mode=fp16 --loss_scale=1e9
    [ "$(grep -c 'going back' <<<"$output")" -eq 1 ]
    says "step-00000028.aside: step 28, epoch 5" -- train --lr_schedule=none --num_epochs=5 --resume=$RUNS/00/checkpoints/step-00000028.aside
}

# A checkpoint's parameters as .safetensors, and a run that begins with them: equal to one that begins with the checkpoint.
test_export_and_back() {
    train --num_epochs=1 >/dev/null
    local last
    last=$(ls -d runs/demo/1CPU/00/checkpoints/step-* | tail -n 1)
    says "model.safetensors: the parameters of" -- "$VITRAIN" export "$last" --output=model.safetensors
    train --num_epochs=1 --run_num=a --init_from="$last" >/dev/null
    train --num_epochs=1 --run_num=b --init_from=model.safetensors >/dev/null
    cmp <(figures a) <(figures b)
    refuted cmp <(figures a) <(figures 00)
    refuses "exists already; give --force" -- "$VITRAIN" export "$last" --output=model.safetensors
    refuses "nowhere: No such file or directory; expected the directory of a checkpoint" -- "$VITRAIN" export nowhere --output=x.safetensors
    case $output in *flags* | *"errno"*) echo "$output"; return 1 ;; esac # HDF5's own words are longer
    refuses "--output=NAME.safetensors is needed" -- "$VITRAIN" export "$last"
    refuses "export: --output=model.foo: expected a name that ends in .safetensors" -- "$VITRAIN" export "$last" --output=model.foo
    [ ! -e model.foo ]
    refuses "model.safetensors: none of its 38 tensors fits" -- train --num_epochs=1 --run_num=c --init_from=model.safetensors --embed_dim=32
}

# Weights from PyTorch and back, with PyTorch itself.
test_weights_and_pytorch() {
    local python=${PYTHON:-python3}
    "$python" -c 'import torch, numpy, h5py, safetensors' 2>/dev/null || skip "no Python with torch, h5py and safetensors (PYTHON names one)"
    "$python" "$TOP/bench/pytorch_weights.py" "$VITRAIN" >said || { cat said; return 1; }
    [ "$(grep -c 'relative difference' said)" -eq 23 ]
    contains "$(cat said)" "forecast: largest difference"
}
