# The 3-D U-Net of the 2022 tutorial, as its users run it: small cubes of a small synthetic universe.

"$VITRAIN" synth data --model=unet3d --box_size=[40,36] --npy >/dev/null
SMALL="--data_dir=data --box_size=None --data_size=32 --full_scale=false --unet_width=4 --expdir=runs --num_threads=1"

# unet CONFIG FLAG...
unet() { local config=$1; shift; "$VITRAIN" --yaml_config="$TOP/config/UNet.yaml" --config="$config" $SMALL "$@"; }

# What a run learnt: the losses of all steps, and of the validations.
learnt() { cut -d, -f1,3 runs/unet_demo/*/"$1"/metrics.csv; cut -d, -f1,4 runs/unet_demo/*/"$1"/epochs.csv; }

alike() { # RUN RUN: losses within 1e-5, that of the first step, from equal weights, within 1e-6
    paste -d, <(learnt "$1") <(learnt "$2") |
        awk -F, '$2 + 0 > 0 { n++; if (($2 - $4) ^ 2 > ((n == 1 ? 1e-6 : 1e-5) * $2) ^ 2) { print; bad = 1 } } END { exit bad || n < 5 }'
}

DEMO="--Nsamples=16 --Nsamples_val=6 --num_epochs=1"

test_all_configurations() {
    local config configs="base short short_opt bs64_opt bs256_opt bs512_test bs512_opt bs2048_opt bs8192_opt base_sm
        shorter_sm short_sm short_opt_sm bs32_opt_sm bs576_test_sm bs576_opt_sm bs2304_opt_sm bs9216_opt_sm"
    for config in $configs; do
        unet $config --local_batch_size=4 --Nsamples=8 --Nsamples_val=4 --num_epochs=1 >$config.log ||
            { echo "$config:"; tail -1 $config.log; return 1; }
    done
    [ "$(wc -w <<<"$configs")" -eq 18 ]
}

test_flags_of_the_scripts() {
    says "Time taken for epoch 4 is " "  Avg train loss=" "  Avg val loss=" "DONE ---- rank 0" \
        "copying (dark matter's fields)" "fp16" -- unet short --num_epochs 4 --num_data_workers 8 \
        --data_loader_config=dali-lowmem --amp_mode=fp16 --enable_apex --enable_jit --Nsamples=8 --Nsamples_val=4 \
        --global_batch_size=4
    contains "$output" "  Valid L1 by channel: density=0." " temperature=0." "reading: from .npy files, 8 threads"
    says "DONE" -- unet bs64_opt --num_epochs 2 --local_batch_size 4 --enable_manual_profiling --noddp --run_num=b \
        --disable_broadcast_buffers --bucket_cap_mb 100 --Nsamples=8 --Nsamples_val=4
    [ -s runs/short/1CPU/00/images/epoch-0004.png ]
    head -1 runs/short/1CPU/00/epochs.csv | grep -q ',l1_density,l1_vx,.*,copying_l1_temperature$'
}

test_readers_agree() {
    local reader
    mkdir chunked && cp data/*.h5 chunked
    unet unet_demo $DEMO >/dev/null
    data_of() { grep -o 'data [0-9.]* [KMG]B' runs/unet_demo/1CPU/$1/out.log | awk '{ print $2 * ($3 == "KB" ? 1 : $3 == "MB" ? 1024 : 1024 ^ 2) }'; }
    for reader in lowmem native direct inmem dali-lowmem; do
        unet unet_demo $DEMO --data_loader_config=$reader --num_data_workers=3 --run_num=$reader >/dev/null
        cmp <(learnt 00) <(learnt $reader)
    done
    # inmem's boxes are planned: their files have (40³ + 36³) · 9 · 4 bytes
    awk -v more="$(data_of inmem)" -v less="$(data_of 00)" 'BEGIN { d = more - less - (40 ^ 3 + 36 ^ 3) * 36 / 1024; exit d * d > 20 ^ 2 }'
    unet unet_demo $DEMO --use_cache=chunked --run_num=copy >/dev/null
    cmp <(learnt 00) <(learnt copy)
    needs hdf5-tools h5repack
    for file in train valid; do h5repack -l Nbody:CHUNK=2x16x9x40 -l Hydro:CHUNK=1x7x7x7 -f Nbody:GZIP=1 -f Nbody:SHUF data/$file.h5 chunked/$file.h5; done
    for reader in auto lowmem inmem; do
        unet unet_demo $DEMO --use_cache=chunked --data_loader_config=$reader --run_num=c-$reader >/dev/null
        cmp <(learnt 00) <(learnt c-$reader)
    done
    grep -q "chunks past HDF5" runs/unet_demo/1CPU/c-auto/out.log
}

test_learns() {
    unet unet_demo --unet_width=8 --Nsamples=240 --Nsamples_val=8 --num_epochs=1 --num_threads=2 >/dev/null
    grep -o '[0-9.]* of it' runs/unet_demo/1CPU/00/out.log | awk '{ exit !($1 < 1.2) }'
}

test_resumed_to_the_bit() {
    local whole="--Nsamples=16 --Nsamples_val=4 --num_epochs=2"
    unet unet_demo $whole >/dev/null
    unet unet_demo $whole --checkpoint_every=3 --run_num=cut >/dev/null
    rm -r runs/unet_demo/1CPU/cut/checkpoints/step-00000008 # goes on after step 6, in the middle of an epoch
    unet unet_demo $whole --checkpoint_every=3 --run_num=cut --resume >resumed.log
    grep -q "step 6" resumed.log
    cmp <(learnt 00) <(learnt cut)
}

test_recomputed_to_the_bit() {
    local mode
    for mode in none bf16; do
        unet unet_demo $DEMO --amp_mode=$mode --run_num=$mode >/dev/null
        unet unet_demo $DEMO --amp_mode=$mode --recompute=block --run_num=$mode-block >/dev/null
        cmp <(learnt $mode) <(learnt $mode-block)
    done
}

test_evaluated() {
    unet unet_demo $DEMO >/dev/null
    says "channel" "copying" "density: waves along a cube" -- "$VITRAIN" evaluate runs/unet_demo/1CPU/00 --output=scores --num_threads=1
    local logged; logged=$(grep -o 'Avg val loss=[0-9.]*' runs/unet_demo/1CPU/00/out.log | cut -d= -f2)
    awk -F, -v logged="$logged" '$1 == "loss" { exit !(($2 - logged) ^ 2 < 1e-13) }' scores/l1.csv
    local batch # means over cubes, also where the last batch is smaller
    for batch in 1 4 5; do
        "$VITRAIN" evaluate runs/unet_demo/1CPU/00 --output=other --force --num_threads=1 --local_batch_size=$batch >/dev/null
        paste -d, scores/l1.csv other/l1.csv | awk -F, 'NR > 1 { n += ($2 / $5 - 1) ^ 2 + ($3 / $6 - 1) ^ 2 < 1e-10 } END { exit n != 6 }'
    done
    [ "$(wc -l <scores/spectrum.csv)" -eq 17 ] # waves 1 to 16 of a cube of 32
    awk -F, 'NR > 1 && !($3 > 0 && $5 <= 1 && $5 >= -1) { exit 1 }' scores/spectrum.csv
    refuses_once "a U-Net has a validation set alone" -- "$VITRAIN" evaluate runs/unet_demo/1CPU/00 --split=test
    refuses_once "its model was trained on source volumes" -- "$VITRAIN" predict runs/unet_demo/1CPU/00 --time=2001-01-01 --output=x.nc
    says "model: 3-D U-Net, width 4" -- "$VITRAIN" inspect runs/unet_demo/1CPU/00/checkpoints/best
    "$VITRAIN" export runs/unet_demo/1CPU/00/checkpoints/best --output=weights.safetensors
    unet unet_demo $DEMO --init_from=weights.safetensors --lr_schedule.start_lr=0 --run_num=from >/dev/null
    grep -q "Avg val loss=$logged\$" runs/unet_demo/1CPU/from/out.log # a rate of 0 changes nothing
}

long_layouts() {
    needs_mpi
    local n zero
    unet unet_demo $DEMO >/dev/null
    unet unet_demo $DEMO --grad_accumulation=2 --run_num=parts >/dev/null
    alike 00 parts
    for n in 2 4; do
        for zero in 0 1 3; do
            "$TOP/tests/mpirun" -np $n "$VITRAIN" --yaml_config="$TOP/config/UNet.yaml" --config=unet_demo $SMALL $DEMO \
                --zero_stage=$zero --run_num=$n-$zero >/dev/null
            alike 00 $n-$zero
        done
    done
    unet unet_demo $DEMO --checkpoint_every=2 --keep_last=4 --run_num=cut >/dev/null # two ranks go on in the middle
    "$TOP/tests/mpirun" -np 2 "$VITRAIN" --yaml_config="$TOP/config/UNet.yaml" --config=unet_demo $SMALL $DEMO \
        --zero_stage=2 --resume=runs/unet_demo/1CPU/cut/checkpoints/step-00000002 --run_num=on >/dev/null
    paste -d, <(cut -d, -f3 runs/unet_demo/1CPU/00/metrics.csv | tail -n 2) <(cut -d, -f3 runs/unet_demo/2CPU/on/metrics.csv | tail -n 2) |
        awk -F, '{ n++; if (($1 - $2) ^ 2 > (1e-5 * $1) ^ 2) { print; bad = 1 } } END { exit bad || n != 2 }'
    unet unet_demo $DEMO --amp_mode=bf16 --run_num=half >/dev/null
    for zero in 1 2 3; do # in 16 bits: layouts differ by the order of sums and by roundings that follow from it
        "$TOP/tests/mpirun" -np 2 "$VITRAIN" --yaml_config="$TOP/config/UNet.yaml" --config=unet_demo $SMALL $DEMO \
            --zero_stage=$zero --amp_mode=bf16 --grad_accumulation=2 --run_num=half-$zero >/dev/null
        as_in_16_bits <(learnt 00) <(learnt half) <(learnt half-$zero)
    done
    "$TOP/tests/mpirun" -np 2 "$VITRAIN" --yaml_config="$TOP/config/UNet.yaml" --config=unet_demo $SMALL $DEMO \
        --data_loader_config=inmem --run_num=inmem >/dev/null
    alike 00 inmem
    "$VITRAIN" evaluate runs/unet_demo/1CPU/00 --output=one --num_threads=1 >/dev/null
    "$TOP/tests/mpirun" -np 2 "$VITRAIN" evaluate runs/unet_demo/1CPU/00 --output=two --num_threads=1 >/dev/null
    paste -d, one/spectrum.csv two/spectrum.csv | # all ranks' cubes, in another order
        awk -F, 'NR > 1 { n++; for (i = 2; i < 6; i++) if (($i - $(i + 5)) ^ 2 > (1e-5 * $i) ^ 2) { print; bad = 1 } } END { exit bad || n != 16 }'
    refuses "tensor_parallel 2: model unet3d can't be split this way; use --tensor_parallel=1" -- \
        "$TOP/tests/mpirun" -np 2 "$VITRAIN" --yaml_config="$TOP/config/UNet.yaml" --config=unet_demo $SMALL --tensor_parallel=2
}

test_npy_command() {
    "$VITRAIN" synth volumes --model=unet3d --box_size=[40,36] >/dev/null
    cmp volumes/train.h5 data/train.h5
    [ "$(ls volumes | wc -l)" -eq 2 ]
    mkdir made && cd made
    says "train_data.npy" "train_label.npy" -- "$VITRAIN" npy -i ../data/train.h5 -d Nbody -l Hydro
    cmp train_data.npy ../data/train_data.npy
    cmp train_label.npy ../data/train_label.npy
    refuses "there is no dataset 'Gas'" -- "$VITRAIN" npy ../data/train.h5 --label_field=Gas
    [ "$(ls | wc -l)" -eq 2 ]
}

test_bad_boxes() {
    refuses_once "the box has 40 points along each axis, fewer than data_size 64" -- unet unet_demo --data_size=64
    refuses_once "has 40 points along each axis, but box_size says 64" -- unet unet_demo --box_size=64,32
    refuses_once "data_size 33: expected a multiple of 32" -- unet unet_demo --data_size=33
    refuses_once "none.h5" "No such file" -- unet unet_demo --train_path=none.h5 --data_dir=None
    head -c 100000 data/train_data.npy >cut.npy
    refuses_once "cut.npy: cut short" -- unet unet_demo --data_loader_config=dali-lowmem --train_path_npy_data=cut.npy
    refuses_once "train_label.npy: the array has 5 channels, but 7 are needed" -- unet unet_demo --data_loader_config=dali-lowmem --N_out_channels=7
    refuses_once "exists already" -- "$VITRAIN" synth data --model=unet3d
    refuses_once "--years=2 is an option of model vit, but model is unet3d" -- "$VITRAIN" synth other --model=unet3d --years=2
    refuses_once "--tile=2 is an option of model unet3d, but model is vit" -- "$VITRAIN" synth other --tile=2
    refuses_once "box_size 7: expected an even number" -- "$VITRAIN" synth other --model=unet3d --box_size=8,7
    [ ! -e runs ]
}

# A NaN in the box ends the run with its place.
test_a_bad_number() {
    # all ones is a NaN: channels of many points from point [7, 0, 0] on
    head -c 60000 /dev/zero | tr '\0' '\377' | dd of=data/train_data.npy bs=16 seek=$(((128 + 7 * 40 * 40 * 16) / 16)) conv=notrunc 2>/dev/null
    refuses "train_data.npy" "nan at channel" "point [" -- unet unet_demo $DEMO --data_loader_config=dali-lowmem
}
