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
