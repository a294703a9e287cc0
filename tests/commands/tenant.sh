# The tables with rows of the tests' own: $TENANT is the program with the rows of tests/tenant, $TENANT_TESTS the tests.

test_models_of_the_table() {
    for file in model data_source; do
        "$TENANT_TESTS" unit/$file | tee said
        grep -q "^[1-9][0-9]* passed, 0 failed, 0 skipped" said
    done
    fails 1 "$TENANT" layout --yaml_config="$TOP/config/ViT.yaml" --model=two_linear --ranks=2 --tensor_parallel=2
    contains "$output" "tensor_parallel 2: model two_linear can't be split this way; use --tensor_parallel=1"
    fails 1 "$TENANT" layout --yaml_config="$TOP/config/ViT.yaml" --model=two_linear --forcings=sin_year
    contains "$output" "forcings and static_fields: model two_linear takes none; leave them out"
    "$TENANT" options | grep -q two_linear
    refuted sh -c "'$VITRAIN' options | grep -q two_linear"
}

# A configuration of the tests' model and source.
write_own() {
    cat >own.yaml <<EOF
own:
  model: two_linear
  source: numbers
  img_size: [4, 4]
  n_in_channels: 2
  n_out_channels: 2
  global_batch_size: 8
  limit_nsamples: 64
  limit_nsamples_val: 16
  lr: 1e-2
  lr_schedule: none
EOF
}

# The model and the source of the tests, through the whole program: two rows and two files.
test_trains_with_the_rows_of_the_tests() {
    local flags="--yaml_config=own.yaml --config=own --expdir=runs" run=runs/own/1CPU/00
    write_own
    "$TENANT" plan $flags --ranks=1 --hardware="$TOP/config/hardware.yaml:a100-40" >planned
    grep -q "configuration own on 1 rank" planned
    "$TENANT" $flags --num_epochs=12 >printed
    grep -q 'data: source numbers, 2 channels on 4×4 points' printed
    loss() { sed -n "s/.*Avg $1 loss=//p" "$2" | sed -n "$3p"; } # WHICH FILE EPOCH
    awk -v first="$(loss train printed 1)" -v last="$(loss train printed 12)" 'BEGIN { exit !(last < 0.8 * first) }' ||
        { echo "the loss does not fall"; cat printed; return 1; }
    [ -n "$(loss val printed 12)" ]
    [ "$(ls -d $run/checkpoints/step-00000096)" ] # and goes on to the bits of a run that never stopped
    "$TENANT" $flags --num_epochs=14 --resume >resumed
    "$TENANT" $flags --num_epochs=14 --run_num=whole >whole
    cmp <(tail -n 16 $run/metrics.csv | cut -d, -f1-5) <(tail -n 16 runs/own/1CPU/whole/metrics.csv | cut -d, -f1-5)
    cmp <(loss val resumed 2) <(loss val whole 14)
    refuses_once "trained on source numbers, but only fields in files can be forecast" -- "$TENANT" evaluate --checkpoint=$run/checkpoints/best
}

# A store of the tests: source/fields reads the same bits from it, past it and through it, as from HDF5.
test_store_of_the_tests() {
    local set year times
    synth
    for set in "train 2001 61" "valid 2002 13"; do
        read -r set year times <<<"$set"
        mkdir -p raw/$set
        { printf '%-63s\n' "raw $times 3 16 32"; "$TESTS" --hdf5 bytes data/$set/$year.h5 fields; } >raw/$set/raw_$year.h5
    done
    "$TENANT" stats raw >/dev/null
    for file in global_means global_stds time_means; do cmp {data,raw}/stats/$file.npy; done
    "$TENANT" $SMALL --run_num=hdf5 >/dev/null
    says "reading: past HDF5" -- "$TENANT" $SMALL --data_dir=raw --run_num=direct --data_loader_config=direct
    says "reading: through HDF5" -- "$TENANT" $SMALL --data_dir=raw --run_num=library --data_loader_config=native
    for run in direct library; do cmp <(figures hdf5) <(figures $run); done
    says "of [16, 32]" -- "$TENANT" inspect raw --verify
    refuses_once "raw/train/raw_2001.h5 is not a readable HDF5 file" -- "$VITRAIN" stats raw --force
    truncate -s 1064 raw/train/raw_2001.h5
    refuses_once "raw/train/raw_2001.h5: 'fields' is damaged: 1000 bytes are stored" -- "$TENANT" stats raw --force
    echo something >raw/train/raw_2001.h5
    refuses_once "raw_2001.h5 does not begin with a line 'raw TIMES" -- "$TENANT" stats raw --force
}

# A loss and an optimizer of the tests: a row each, and their functions in one file.
test_loss_and_optimizer_of_the_tests() {
    local flags="--yaml_config=own.yaml --config=own --expdir=runs --num_epochs=2"
    write_own
    for loss in relative_l2 twice_relative_l2; do "$TENANT" $flags --loss=$loss --run_num=$loss >/dev/null; done
    first() { sed -n 2p runs/own/1CPU/$1/metrics.csv | cut -d, -f3; }
    awk -v one="$(first relative_l2)" -v two="$(first twice_relative_l2)" \
        'BEGIN { exit !(one > 0 && two > 1.999999 * one && two < 2.000001 * one) }'
    "$TENANT" $flags --optimizer=descent --lr=0.3 --run_num=descent >printed
    grep -q "optimizer: descent" printed
    "$TENANT" inspect runs/own/1CPU/descent/checkpoints/best >inspected
    grep -q "optimizer: descent after 16 steps, 0 moments" inspected
    cut -d, -f3 runs/own/1CPU/descent/metrics.csv | tail -n +2 | awk '{ sum[NR > 8] += $1 } END { exit !(sum[1] < sum[0]) }'
    "$TENANT" $flags --optimizer=descent --lr=0.3 --run_num=descent --num_epochs=3 --resume >/dev/null
}

# A task of the tests: its score is in the log and in epochs.csv, and it takes certain models, losses and sources only.
test_task_of_the_tests() {
    local flags="--yaml_config=own.yaml --config=own --expdir=runs --task=worst_point" run=runs/own/1CPU/00
    write_own
    "$TENANT" $flags --num_epochs=6 >printed
    grep -q "Valid error of the worst point: point=[0-9.]*$" printed
    head -n 1 $run/epochs.csv | grep -q ",worst_point,zero_worst_point$"
    score() { awk -F, -v name="$1" -v row="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i } NR == row + 1 { print $at }' $run/epochs.csv; }
    awk -v first="$(score worst_point 1)" -v last="$(score worst_point 6)" -v zero="$(score zero_worst_point 1)" \
        -v loss="$(score zero_loss 1)" 'BEGIN { exit !(last < first && last < zero && loss > 0.999999 && loss < 1.000001) }' ||
        { echo "the worst point gets no better"; cat $run/epochs.csv; return 1; }
    refuses_once "was made with task worst_point, not weather: a run can't change its task" -- "$TENANT" $flags --num_epochs=7 --resume --task=weather
    refuses_once "model vit does not go with task worst_point, which takes two_linear" -- "$TENANT" $flags --model=vit
    refuses_once "loss twice_relative_l2 does not go with task worst_point, which takes relative_l2" -- "$TENANT" $flags --loss=twice_relative_l2
    refuses_once "source fields does not go with task worst_point, which takes numbers" -- "$TENANT" $flags --source=fields
    "$TENANT" $flags --num_epochs=1 --run_num=cached --cache=host >printed
    grep -q "WARNING - cache has no effect: source numbers has no frames that it could keep" printed
}
