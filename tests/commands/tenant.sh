# The tables with rows of the tests' own: $TENANT is the program with the rows of tests/tenant, $TENANT_TESTS the tests.

test_models_of_the_table() {
    "$TENANT_TESTS" unit/model unit/data_source
    fails 1 "$TENANT" layout --yaml_config="$TOP/config/ViT.yaml" --model=two_linear --ranks=2 --tensor_parallel=2
    contains "$output" "tensor_parallel 2: model two_linear can't be split this way; use --tensor_parallel=1"
    "$TENANT" options | grep -q two_linear
    refuted sh -c "'$VITRAIN' options | grep -q two_linear"
}

# The model and the source of the tests, through the whole program: two rows and two files.
test_trains_with_the_rows_of_the_tests() {
    local flags="--yaml_config=own.yaml --config=own --expdir=runs" run=runs/own/1CPU/00
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
    fails 1 "$TENANT" evaluate --checkpoint=$run/checkpoints/best
    says_once "trained on source numbers, but only fields in files can be forecast"
}
