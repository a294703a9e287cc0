# Gradients are reduced during backward (--comm_trace), and ranks read only their own rows of the files.

needs_mpi
synth --img_size=[128,256] --steps_per_year=17 --valid_steps=5
SMALL="$SMALL --img_size=[128,256] --num_heads=4 --patch_size=16 --global_batch_size=4 --num_epochs=1"

traced() { ranks 4 "$@" --comm_trace; } # NAME [flags]
trace_of() { echo "$1"/demo/*/00/logs/comm-"$2".csv; }
buckets() { awk -F, '$1 == 2 && $2 == "bucket"' "$(trace_of "$1" 1)" | wc -l; } # of step 2, on rank 1

# On each rank, in each of the four steps, at least this many buckets' reductions began before the last unit's backward
# ended; and some, on any rank in any step, also ended by then (which depends on the other ranks, too).
early() { # NAME FEWEST
    cat "$1"/demo/*/00/logs/comm-?.csv | awk -F, -v fewest="$2" '
        $1 == "step" { rank++ }
        { key = rank "/" $1 }
        $2 == "backward" && $6 > last[key] { last[key] = $6 }
        $2 == "bucket" { n[key]++; begin[key, n[key]] = $5; end[key, n[key]] = $6 }
        END { for (key in last) {
                  steps++; begun = 0
                  for (i = 1; i <= n[key]; i++) { begun += begin[key, i] < last[key]; ended += end[key, i] < last[key] }
                  if (begun < fewest) { print "rank/step " key ": " begun; bad = 1 }
              }
              if (bad || steps != 16 || ended == 0) { print steps, "steps,", ended, "ended early"; exit 1 } }'
}

test_reductions_begin_in_backward() {
    traced small --bucket_cap_mb=0.002 --context_parallel=2
    early small 3
    traced middle --bucket_cap_mb=0.02 --context_parallel=2
    traced large --context_parallel=2
    # tensors with other splits stay apart: pos_embed, those that tensor parallelism would split, and all others
    [ "$(buckets large)" -eq 3 ] && [ "$(buckets middle)" -gt 3 ] && [ "$(buckets small)" -gt "$(buckets middle)" ] ||
        { echo "buckets: $(buckets small), $(buckets middle), $(buckets large)"; return 1; }
    # their sizes change no sum by more than its order does
    paste -d, <(cut -d, -f3 small/demo/*/00/metrics.csv) <(cut -d, -f3 large/demo/*/00/metrics.csv) | tail -n +2 |
        awk -F, '{ d = $1 - $2; if (d > 1e-5 * $2 || -d > 1e-5 * $2) { print; exit 1 } }'
    traced zero --zero_stage=3
    early zero 4 # a bucket a unit, and the blocks have two
}

test_without_reductions() {
    traced apart --noddp
    [ "$(buckets apart)" -eq 0 ]
    grep -q '^2,backward,' "$(trace_of apart 3)"
    [ "$(wc -l <apart/demo/4CPU/00/metrics.csv)" -eq 5 ]
    # the sums over the ranks that share a sample are still computed
    traced together --noddp --context_parallel=4
    [ "$(buckets together)" -eq 2 ]
    traced ddp --context_parallel=4
    cmp <(cut -d, -f1-5 together/demo/4MP/00/metrics.csv) <(cut -d, -f1-5 ddp/demo/4MP/00/metrics.csv)
}

# The ranks' copies differ then: the checkpoint is rank 0's, as if it had been alone with its samples.
test_without_reductions_rank_0_is_saved() {
    local whole='--shuffle=false --lr=1e-3 --lr_schedule=none --checkpoint_every=5' parameters loss=
    traced apart --noddp $whole --global_batch_size=16 --num_epochs=5 # one step each
    # the other ranks have nothing to copy, but wait with rank 0
    traced beside --noddp $whole --global_batch_size=16 --num_epochs=5 --async_checkpoint
    cmp <(tensors apart/demo/4CPU/00/checkpoints/step-00000005) <(tensors beside/demo/4CPU/00/checkpoints/step-00000005)
    train --expdir=alone $whole --limit_nsamples=4 --num_epochs=5 >printed
    for parameters in apart alone; do
        train --expdir=then --lr=0 --init_from="$(echo $parameters/demo/*/00/checkpoints/step-00000005)" >printed
        loss="$loss $(sed -n 's/.*Avg val loss=//p' printed)"
    done
    # ten times what rounding does in so few steps, a tenth of what the other ranks' samples would do
    echo $loss | awk '{ d = $1 / $2 - 1; if (d > 1e-5 || d < -1e-5) { print "losses " $0; exit 1 } }'
}

test_ranks_read_their_own_rows() {
    needs strace strace
    strace -o none true 2>/dev/null || skip "strace may not trace here"
    ! grep -q __asan_init "$VITRAIN" || skip "LeakSanitizer does not run under strace"
    cat >watched <<'END'
#!/usr/bin/env bash
exec strace -f -y -e trace=read,pread64,readv,preadv -o reads-${OMPI_COMM_WORLD_RANK:-$PMI_RANK} "$@"
END
    chmod +x watched
    "$TOP/tests/mpirun" -np 4 ./watched "$VITRAIN" $SMALL --expdir=runs --context_parallel=4 \
        --data_loader_config=pytorch --num_data_workers=0 >printed 2>&1
    # 4 batches of 4 samples, and one before the first step: input and target of 3 channels, 32 of 128 rows
    local rank bytes expected=$(((16 + 4) * 2 * 3 * 32 * 256 * 4))
    for rank in 0 1 2 3; do
        bytes=$(grep 'train/2001.h5>' reads-$rank | awk '{ sum += $NF } END { print sum }')
        # plus what HDF5 reads of its own structures
        [ "$bytes" -ge $((expected / 2)) ] && [ "$bytes" -le $((expected * 11 / 10)) ] ||
            { echo "rank $rank read $bytes bytes, expected about $expected"; return 1; }
    done
}

# A full disk, for the traces only: the run continues without them, and each rank says so once.
test_trace_that_cannot_be_written() {
    local logs=runs/demo/2CPU/00/logs
    two() { "$TOP/tests/mpirun" -np 2 "$VITRAIN" $SMALL "$@" >printed 2>&1 || { cat printed; return 1; }; }
    two --expdir=runs
    mkdir -p $logs
    for rank in 0 1; do ln -s /dev/full $logs/comm-$rank.csv; done
    two --expdir=runs --num_epochs=3 --resume --comm_trace
    [ "$(grep -c "WARNING - can't write $logs/comm-0.csv: No space left on device; it ends in step 4$" printed)" -eq 1 ] || { cat printed; return 1; }
    [ "$(grep -c "^vitrain: rank 1: can't write $logs/comm-1.csv: No space left on device; it ends in step 4, " printed)" -eq 1 ] || { cat printed; return 1; }
    [ "$(tail -n 1 runs/demo/2CPU/00/metrics.csv | cut -d, -f1)" -eq 12 ]
}
