# Pipelines as a user runs them: checkpoints of any layout, the opening's lines, refusals, ranks that fail, memory.

needs_mpi
synth --img_size=[12,20] # 15 tokens
SMALL="$SMALL --img_size=[12,20] --num_heads=4 --dropout=0.1 --num_epochs=2 --keep_last=99 --depth=4 --grad_accumulation=4"

test_resumed_with_other_stages() {
    ranks 1 one
    ranks 4 four --pipeline_parallel=4 --checkpoint_every=4
    ranks 1 alone --resume="$(step_of four 4)" --checkpoint_every=6
    ranks 4 two --tensor_parallel=2 --pipeline_parallel=2 --resume="$(step_of alone 6)" --checkpoint_every=9
    ranks 3 three --pipeline_parallel=3 --pipeline_split=[0,1,3] --resume="$(step_of two 9)" --checkpoint_every=11
    ranks 2 last --zero_stage=3 --resume="$(step_of three 11)"
    as_promised <(figures_of four | head -n 4; figures_of alone | head -n 2; figures_of two | head -n 3; figures_of three | head -n 2; figures_of last) \
        <(figures_of one)
    as_promised <(figures_of four) <(figures_of one)
    near <(validations four) <(validations one) 1e-5
}

test_resumed_with_the_same_stages() {
    same_bits 4 --tensor_parallel=2 --pipeline_parallel=2 --grad_clip=0.5
    same_bits 4 --pipeline_parallel=4 --pipeline_schedule=gpipe --amp_mode=bf16 --ema_decay=0.9
    same_bits 8 --pipeline_parallel=2 --context_parallel=2 --zero_stage=1 --parallel_order=pp-dp-cp
}

# Trained over several steps of forecast: a forecast goes back to the first stage. Any layout goes on as one rank would.
test_rollouts_of_stages() {
    local over="--rollout=1,3@1 --predict=tendency --augment=sign --normalise=climatology --input_noise=0.1"
    ranks 1 one $over
    ranks 4 four --pipeline_parallel=4 --checkpoint_every=10 $over
    ranks 4 two --tensor_parallel=2 --pipeline_parallel=2 --zero_stage=1 --resume="$(step_of four 10)" $over
    as_promised <(figures_of four | head -n 10; figures_of two) <(figures_of one)
    as_promised <(figures_of four) <(figures_of one)
    contains "$(cat four.printed)" "idle 42.9 % by (p - 1)/(m + p - 1); 17.0 % in rollouts of 3 steps"
    same_bits 4 --tensor_parallel=2 --pipeline_parallel=2 --recompute=block $over
    same_bits 3 --pipeline_parallel=3 --pipeline_schedule=gpipe --amp_mode=bf16 --rollout_gradient=last $over
    # in a step of a rollout of two, the last stage waits for two gradients more
    ranks 3 traced --pipeline_parallel=3 --comm_trace --num_epochs=1 --rollout=2 --predict=tendency --grad_accumulation=2
    [ "$(passes_of traced 2)" = "R0 F0 R1 F1 R0 F0 B0 R1 F1 B1 R0 R1 R0 F0 B0 R1 F1 B1 " ]
    "$VITRAIN" report "$(directory_of traced)" >/dev/null
    contains "$(cat "$(directory_of traced)/report.html")" "50.0 % by (p - 1)/(m + p - 1), with 3 stages and 2 micro-batches, in steps without a rollout"
}

# What goes between stages in half the bytes.
test_stages_that_send_bfloat16() {
    local more="--amp_mode=bf16" name
    ranks 3 wide --pipeline_parallel=3
    ranks 3 full --pipeline_parallel=3 $more
    ranks 3 half --pipeline_parallel=3 $more --pipeline_comm=bf16
    for name in wide full half; do figures_of $name | cut -d, -f1,2 >$name.losses; done
    as_in_16_bits wide.losses full.losses half.losses
    refuted cmp -s half.losses full.losses
    for type in float32 bf16; do
        "$VITRAIN" layout $SMALL --ranks=3 --pipeline_parallel=3 $more --pipeline_comm=$type | tr -s ' ' | grep '^ pp .* operations'
    done >sent
    [ "$(cat sent)" = " pp 7.50 KB in 4 operations
 pp 3.75 KB in 4 operations" ]
}

# The model of a run of one rank, in stages: what evaluate and predict find is what one rank finds.
test_forecasts_of_stages() {
    ranks 1 one --num_epochs=1
    local best="$(directory_of one)/checkpoints/best"
    numbers() { sed 's/[^0-9.,eE+-]//g' "$1" | tail -n +2; }
    several() { "$TOP/tests/mpirun" -np "$1" "$VITRAIN" "${@:2}" >said 2>&1 || { cat said; return 1; }; }
    "$VITRAIN" evaluate $best --rollout=3 --output=alone >said
    several 4 evaluate $best --rollout=3 --output=four --pipeline_parallel=4
    several 4 evaluate $best --rollout=3 --output=two --pipeline_parallel=2 --parallel_order=pp-dp --limit_nsamples_val=7
    "$VITRAIN" evaluate $best --rollout=3 --output=seven --limit_nsamples_val=7 >said
    "$VITRAIN" evaluate $best --rollout=3 --output=members --members=3 --input_noise=0.1 >said
    several 3 evaluate $best --rollout=3 --output=members3 --members=3 --input_noise=0.1 --pipeline_parallel=3 --local_batch_size=4
    for pair in alone,four seven,two members,members3; do
        for file in scores spectra; do
            [ "$(wc -l <${pair%,*}/$file.csv)" -gt 6 ]
            near <(numbers ${pair#*,}/$file.csv) <(numbers ${pair%,*}/$file.csv) 1e-5
        done
    done
    "$VITRAIN" predict $best --time=2002-01-02T06:00 --rollout=3 --output=alone.nc >said
    several 3 predict $best --time=2002-01-02T06:00 --rollout=3 --output=three.nc --pipeline_parallel=3
    [ "$(grep -c "3 forecasts of" said)" -eq 1 ]
    command -v h5diff >/dev/null || return 0
    h5diff -p 1e-4 alone.nc three.nc /u10
}

# Without grad_clip, whose norm is added up in another order.
test_export_of_stages() {
    ranks 1 one
    ranks 4 four --pipeline_parallel=4
    for name in one four; do "$VITRAIN" export "$(step_of $name 14)" --output=$name.safetensors >/dev/null; done
    cmp one.safetensors four.safetensors
    "$VITRAIN" inspect --verify "$(step_of four 14)" >text
    # the picture of the last epoch, whose fields rank 0 gets from the last stage
    for epoch in 0001 0002; do cmp one/demo/1CPU/00/images/epoch-$epoch.png four/demo/4MP/00/images/epoch-$epoch.png; done
}

test_what_the_opening_says() {
    ranks 4 many --pipeline_parallel=4 --num_epochs=1
    contains "$(cat many.printed)" "tensor 1 × context 1 × pipeline 4 × data 1" \
        "pipeline: 4 stages, 4 micro-batches of 2 samples, 1f1b, idle 42.9 % by (p - 1)/(m + p - 1)"
    refuted grep -q "each stage idles" many.printed
    # rank 0's is as `layout` prints it; with all micro-batches alive at once and all blocks behind, the last stage needs more
    [ "$(grep -c 'memory the run needs: ' many.printed)" -eq 1 ]
    contains "$(cat many.printed)" "memory that stage 0 needs, the most of all stages: $(sed -n 's/.*memory the run needs: \(.*)\);.*/\1/p' many.printed)"
    ranks 4 behind --pipeline_parallel=4 --pipeline_split=[0,1,1,2] --pipeline_schedule=gpipe --num_epochs=1
    contains "$(cat behind.printed)" "memory that stage 3 needs, the most of all stages: "
    refuted grep -q "all stages: $(sed -n 's/.*memory the run needs: \([0-9.]*\) .*/\1/p' behind.printed) " behind.printed
    contains "$(head -n 1 many/demo/4MP/00/parameters.csv)" "name,global_shape,local_shape,bytes,stage"
    grep -qx 'patch_embed.proj.weight,16x3x4x4,16x3x4x4,3072,0' many/demo/4MP/00/parameters.csv
    grep -qx 'head.weight,48x16,0x16,0,3' many/demo/4MP/00/parameters.csv
    ranks 4 few --pipeline_parallel=4 --num_epochs=1 --grad_accumulation=2
    contains "$(cat few.printed)" "2 micro-batches (grad_accumulation) for 4 stages: each stage idles 60.0 % of the time; --grad_accumulation=4 leaves 42.9 %"
    ranks 4 small --pipeline_parallel=4 --num_epochs=1 --grad_accumulation=2 --global_batch_size=2
    contains "$(cat small.printed)" "a rank's batch of 2 samples can't be cut into as many parts as there are stages"
}

# The passes of a rank in the third step of its trace, with the messages they waited for: R0 F0 … B3.
passes_of() { # NAME RANK
    awk -F, '$1 == 2 && $2 ~ /^(receive|forward|backward)$/ { printf "%s%s ", toupper(substr($2, 1, 1)), $3 }' "$(directory_of $1)/logs/comm-$2.csv"
}

test_trace_and_timeline() {
    local order=(--pipeline_parallel=4 --comm_trace --num_epochs=1)
    ranks 4 one_each "${order[@]}"
    ranks 4 all_first "${order[@]}" --pipeline_schedule=gpipe
    [ "$(for rank in 0 1 2 3; do passes_of one_each $rank; echo; done)" = "F0 F1 F2 F3 R0 B0 R1 B1 R2 B2 R3 B3 
R0 F0 R1 F1 R2 F2 R0 B0 R3 F3 R1 B1 R2 B2 R3 B3 
R0 F0 R1 F1 R0 B0 R2 F2 R1 B1 R3 F3 R2 B2 R3 B3 
R0 F0 B0 R1 F1 B1 R2 F2 B2 R3 F3 B3 " ]
    [ "$(for rank in 0 1 3; do passes_of all_first $rank; echo; done)" = "F0 F1 F2 F3 R0 B0 R1 B1 R2 B2 R3 B3 
R0 F0 R1 F1 R2 F2 R3 F3 R0 B0 R1 B1 R2 B2 R3 B3 
R0 F0 R1 F1 R2 F2 R3 F3 B0 B1 B2 B3 " ]
    for name in one_each all_first; do
        # a message: 2 samples of 15 tokens; passes and waits follow one another
        awk -F, '$2 == "receive" && $4 != 2 * 15 * 16 * 4 { print; bad = 1 } $6 < $5 { print; bad = 1 }
            $2 ~ /^(receive|forward|backward)$/ { if ($1 == step && $5 < end) { print; bad = 1 } step = $1; end = $6 }
            END { exit bad || NR < 100 }' "$(directory_of $name)/logs/comm-1.csv"
        "$VITRAIN" report "$(directory_of $name)" >/dev/null
        contains "$(cat "$(directory_of $name)/report.html")" "% of the time in the 6 steps of the trace; 42.9 % by (p - 1)/(m + p - 1), with 4 stages and 4 micro-batches"
        for part in forward backward; do
            [ "$(grep -o "<title>$part of micro-batch [0-3]: " "$(directory_of $name)/report.html" | sort | uniq -c | awk '$1 == 4' | wc -l)" -eq 4 ]
        done
        [ "$(grep -o '>stage [0-3]</text>' "$(directory_of $name)/report.html" | sort -u | wc -l)" -eq 4 ]
    done
    # a run that goes on from another one's checkpoint has its own steps alone
    ranks 4 later "${order[@]}" --num_epochs=2 --resume="$(step_of one_each 7)"
    "$VITRAIN" report "$(directory_of later)" >/dev/null
    contains "$(cat "$(directory_of later)/report.html")" "% of the time in the 6 steps of the trace; 42.9 %"
    # a bar for each stage, of its first rank; without stages none, and units keep their rows' name
    ranks 4 wide --tensor_parallel=2 --pipeline_parallel=2 --parallel_order=pp-tp --comm_trace --num_epochs=1
    "$VITRAIN" report "$(directory_of wide)" >/dev/null
    [ "$(grep -o '<title>waiting (rank [0-9]*)' "$(directory_of wide)/report.html" | tr -dc '0-9\n' | tr '\n' ' ')" = "0 1 " ]
    ranks 2 flat --comm_trace --num_epochs=1
    "$VITRAIN" report "$(directory_of flat)" >/dev/null
    refuted grep -q '<h2>Stages' "$(directory_of flat)/report.html"
    refuted grep -Eq ',(forward|receive|unit),' "$(directory_of flat)/logs/comm-0.csv"
    # a trace that lacks a rank draws nothing
    rm "$(directory_of wide)/logs/comm-3.csv"
    "$VITRAIN" report "$(directory_of wide)" >/dev/null
    refuted grep -q '<h2>Stages' "$(directory_of wide)/report.html"
}

test_layout_of_stages() {
    "$VITRAIN" layout $SMALL --ranks=8 --tensor_parallel=2 --pipeline_parallel=4 --grad_accumulation=8 >text
    contains "$(cat text)" "8 ranks: tp 2 x cp 1 x pp 4 x dp 1, order tp-cp-dp" \
        "  stage 0: embedding, block 0, 26.2 % of the work, keeps 4 micro-batches, needs " "  stage 3: block 3, head, 27.9 %" \
        "  idle     27.3 % of the time, by (p - 1)/(m + p - 1)"
    contains "$(tr -s ' ' <text)" " 7 1 0 3 0 0-7 0-14" " pp 7.50 KB in 8 operations"
    contains "$(tr -s ' \n' ' ' <text)" "pp are the stages of one model [0 2 4 6] [1 3 5 7]" "tp-cp-pp one model [0 1 2 3 4 5 6 7]"
    # 4 passes each way and 3 forwards more of 8 micro-batches, and the gradients of 3 forecasts, which are larger
    "$VITRAIN" layout $SMALL --ranks=4 --pipeline_parallel=4 --grad_accumulation=8 --rollout=4 >text
    contains "$(tr -s ' ' <text)" " idle 7.0 % of the time" " pp 120.00 KB in 80 operations"
}

# Of each stage: the bytes it needs as `layout` says, and those it has taken at most after some steps.
stage_memory() { # NAME [flags]
    "$VITRAIN" layout $SMALL --ranks=4 --pipeline_parallel=4 "${@:2}" |
        sed -n 's/^  stage .*, needs \([0-9.]*\) \([KM]B\)$/\1 \2/p' | awk '{ printf "%.0f\n", $1 * ($2 == "MB" ? 1048576 : 1024) }' >"$1.planned"
    start_stages "$1" 4 --pipeline_parallel=4 "${@:2}"
    for pid in $pids; do awk '$1 == "VmHWM:" { printf "%.0f\n", 1024 * $2 }' /proc/$pid/status; done >"$1.taken"
    kill $pids
    wait $launcher || true
}

# With what a stage takes to start, seen with a tiny model. GPipe keeps all micro-batches on each stage, 1F1B fewer the later it is.
long_memory_of_stages_is_known_beforehand() {
    needs_kernels
    ! grep -q __asan_init "$VITRAIN" || skip "AddressSanitizer takes memory of its own"
    local large="--embed_dim=384 --depth=12 --patch_size=2 --grad_accumulation=8"
    stage_memory tiny
    for schedule in 1f1b gpipe rollout; do
        case $schedule in
        rollout) stage_memory rollout $large --rollout=4 --predict=tendency ;;
        *) stage_memory $schedule $large --pipeline_schedule=$schedule ;;
        esac
        paste tiny.planned tiny.taken $schedule.planned $schedule.taken |
            awk '{ print; ratio = ($4 - $2) / ($3 - $1); print ratio; if (ratio < 0.9 || ratio > 1.1) bad = 1 } END { exit bad || NR != 4 }'
    done
    paste 1f1b.taken gpipe.taken | awk 'NR == 1 { first = $2 - $1 } NR == 4 { exit !(first > 0 && $2 - $1 > 1.5 * first) }'
}

# What one rank has no memory for, four stages have.
long_a_model_too_large_for_one_rank() {
    needs_kernels
    ! grep -q __asan_init "$VITRAIN" || skip "AddressSanitizer takes address space of its own"
    local large="--embed_dim=512 --depth=24 --num_epochs=1 --checkpoint_every=0" limit=1000000 # KiB of address space
    refuses "memory" -- bash -c "ulimit -v $limit; exec '$VITRAIN' $(echo $SMALL) $large --run_num=one"
    "$TOP/tests/mpirun" -np 4 bash -c 'ulimit -v '$limit'; exec "$0" "$@"' "$VITRAIN" $SMALL $large --pipeline_parallel=4 --expdir=four >printed 2>&1
    grep -q "DONE" printed
}

# start_stages NAME N [flags]: a long run over N ranks in the background; the ranks' processes in order are in $pids.
start_stages() {
    local name=$1 count=$2; shift 2
    "$TOP/tests/mpirun" -np "$count" sh -c 'echo $$ >pid.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; exec "$0" "$@"' "$VITRAIN" $SMALL --expdir="$name" \
        --num_epochs=100000 "$@" >"$name.printed" 2>&1 &
    launcher=$!
    wait_until has_lines 4 "$name/demo/*/00/metrics.csv" || { cat "$name.printed"; return 1; }
    pids=$(for ((rank = 0; rank < count; rank++)); do cat pid.$rank; done)
}

# The first stage reads inputs, the last one targets, those between nothing.
test_stages_read_their_part() {
    start_stages reading 3 --pipeline_parallel=3 --checkpoint_every=0
    read_by() { awk '$1 == "rchar:" { print $2 }' /proc/$(pid_of $1)/io; }
    local before=($(read_by 0) $(read_by 1) $(read_by 2))
    has_read() { [ "$(read_by 0)" -ge $((before[0] + 3000000)) ]; }
    wait_until has_read
    local after=($(read_by 0) $(read_by 1) $(read_by 2))
    kill $pids
    wait $launcher || true
    echo "${before[@]} ${after[@]}"
    [ $((50 * (after[1] - before[1]))) -lt $((after[0] - before[0])) ]
    # a validation, in which it reads both, is a fifth as long as an epoch
    [ $((after[2] - before[2])) -lt $((2 * (after[0] - before[0]))) ]
    [ $((2 * (after[2] - before[2]))) -gt $((after[0] - before[0])) ]
}

pid_of() { echo $pids | cut -d' ' -f$(($1 + 1)); }

test_signal_at_any_stage() {
    for stage in 0 1 2; do
        local status=0
        start_stages signal$stage 3 --pipeline_parallel=3 --checkpoint_every=0
        kill -USR1 "$(pid_of $stage)"
        wait $launcher || status=$?
        [ $status -eq 75 ] || { echo "stage $stage: exit status $status"; tail -n 5 signal$stage.printed; return 1; }
        [ "$(ls -d signal$stage/demo/3MP/00/checkpoints/step-* | wc -l)" -eq 1 ]
        [ "$(ls signal$stage/demo/3MP/00/checkpoints/step-*/shard-* | wc -l)" -eq 3 ]
    done
}

# Of each stage the one that does not answer is named, not the neighbour that waits for another one.
test_stopped_stage_is_named() {
    for stage in 0 1 2 3; do
        local status=0
        start_stages stopped$stage 4 --pipeline_parallel=4 --comm_timeout=3
        kill -STOP "$(pid_of $stage)"
        wait $launcher || status=$?
        kill -KILL "$(pid_of $stage)" 2>/dev/null || true
        [ $status -ne 0 ]
        # the launcher wakes the stopped rank to end it, which may then complain as well
        output=$(messages <stopped$stage.printed | head -n 1)
        contains "$output" "rank $stage (" "pid $(pid_of $stage)" "within 3 s (comm_timeout): it is stopped, dead or far behind"
    done
}

test_killed_stage_ends_all() {
    for stage in 0 1 2; do
        local status=0
        start_stages killed$stage 3 --pipeline_parallel=3 --comm_timeout=3
        kill -KILL "$(pid_of $stage)"
        wait $launcher || status=$?
        [ $status -ne 0 ]
        gone $pids
    done
}
