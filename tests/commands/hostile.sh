# What strangers may send: files that are none, and checkpoints made to do harm. Nothing may crash, hang, or take memory
# without a bound: `timeout` ends only what hangs.

CHECKPOINT=$RUNS/00/checkpoints/best

hostile_run() { synth; train --num_epochs=1 >/dev/null; }

# bounded WORD...: the program, within the time that only a hang takes.
bounded() { timeout -s KILL "$HANG" "$VITRAIN" "$@"; }

# Pipes, devices and directories where files should be: each is named, by whatever would read it.
test_files_that_are_none() {
    made_once hostile_run
    local good name kind what
    good=$(realpath $CHECKPOINT)
    for name in checkpoint.h5 checkpoint.crc32c shard-00000-of-00001.h5 about.json; do
        for kind in pipe device directory; do
            rm -rf bad; cp -r "$good" bad; rm bad/$name
            case $kind in pipe) mkfifo bad/$name ;; device) ln -s /dev/zero bad/$name ;; directory) mkdir bad/$name ;; esac
            what="bad/$name is no regular file"
            [ $name != shard-00000-of-00001.h5 ] || what="bad/$name has"
            refuses "$what" -- bounded inspect bad
            refuses "$what" -- bounded evaluate --checkpoint=bad --data_dir=data --rollout=2
            refuses "$what" -- bounded $SMALL --num_epochs=2 --run_num=resumed --resume=bad
            refuses "$what" -- bounded $SMALL --num_epochs=1 --run_num=begun --init_from=bad
        done
    done
}

# The same of single files, and of those that a configuration names. A pipe is fine for a configuration: --yaml_config=<(…).
test_single_files_that_are_none() {
    synth
    "$VITRAIN" synth --text text --tokens=6000 >/dev/null
    local kind name
    for kind in pipe device; do
        for name in model.safetensors global_means.npy about.h5 words; do
            rm -f $name
            case $kind in pipe) mkfifo $name ;; device) ln -s /dev/zero $name ;; esac
        done
        refuses "model.safetensors is no regular file" -- bounded $SMALL --init_from=model.safetensors
        refuses "model.safetensors is a file; expected" -- bounded inspect model.safetensors
        refuses "global_means.npy is no regular file" -- bounded $SMALL --global_means_path=global_means.npy
        refuses "global_means.npy is no regular file" -- bounded inspect ./global_means.npy
        refuses "about.h5 is no regular file" -- bounded inspect about.h5
        refuses "words is no regular file" -- bounded --yaml_config="$TOP/config/LM.yaml" --config=lm --data_dir=text --vocabulary=words
    done
    refuses "/dev/zero: larger than 1048576 bytes" -- bounded --yaml_config=/dev/zero --config=demo
    bounded ${SMALL/"$TOP/config/ViT.yaml"//dev/stdin} --num_iters=1 >/dev/null < <(cat "$TOP/config/ViT.yaml")
}

# harmless COMMAND...: it succeeds or fails with a message of its own: no crash, and no hang.
harmless() {
    local got=0
    bounded "$@" >said 2>&1 || got=$?
    [ "$got" -eq 0 ] || { [ "$got" -eq 1 ] && grep -qE '^vitrain: |FAULT: ' said; } || { echo "exit status $got: $*"; tail -n 5 said; return 1; }
}

# damaged_checkpoints FIRST LAST: what the program makes of checkpoints that are damaged by these seeds.
damaged_checkpoints() {
    made_once hostile_run
    local good seed refused=0
    good=$(realpath $CHECKPOINT)
    ulimit -c 0
    for seed in $(seq "$1" "$2"); do
        rm -rf bad; cp -r "$good" bad
        "$TESTS" --damage bad "$seed"
        harmless inspect bad || { echo "seed $seed"; return 1; }
        ! grep -q FAULT said || refused=$((refused + 1))
        harmless inspect bad --verify || { echo "seed $seed"; return 1; }
        harmless export bad --output=model.safetensors || { echo "seed $seed"; return 1; }
    done
    echo "$refused of $(($2 - $1 + 1)) refused"
    [ "$refused" -gt $((($2 - $1) / 6)) ] # it was about a third; so the damage is not all harmless
    [ "$refused" -le $(($2 - $1)) ]
}

test_damaged_checkpoints() { damaged_checkpoints 1 40; }
# DAMAGED=1000 in the environment tries more.
long_damaged_checkpoints() { damaged_checkpoints 41 "${DAMAGED:-100}"; }

# The trial, and the lists of names, take time in proportion to the number of tensors.
long_a_checkpoint_of_very_many_tensors() {
    synth
    train --num_iters=1 --depth=260 --embed_dim=8 --patch_size=8 >/dev/null
    says "in 4166 tensors" "no faults seen" -- bounded inspect $CHECKPOINT
    says "all lead times: " -- bounded evaluate --checkpoint=$CHECKPOINT --data_dir=data --rollout=1 --limit_nsamples_val=1
}
