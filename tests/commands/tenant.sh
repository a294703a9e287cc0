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
    local flags="--yaml_config=$TOP/config/ViT.yaml --config=demo --model=two_linear --source=numbers --img_size=[8,12]
        --n_in_channels=2 --n_out_channels=2 --embed_dim=64 --global_batch_size=8 --limit_nsamples=64
        --limit_nsamples_val=16 --lr=1e-2 --expdir=runs" run=runs/demo/1CPU/00
    "$TENANT" plan $flags --ranks=1 | grep -q GB
    "$TENANT" $flags --num_epochs=4 >printed
    grep -q 'data: source numbers, 2 channels on 8×12 points' printed
    loss() { sed -n "s/.*Avg $1 loss=//p" "$2" | sed -n "$3p"; } # WHICH FILE EPOCH
    awk -v first="$(loss train printed 1)" -v last="$(loss train printed 4)" 'BEGIN { exit !(last < 0.7 * first) }' ||
        { echo "the loss does not fall"; cat printed; return 1; }
    [ -n "$(loss val printed 4)" ]
    [ "$(ls -d $run/checkpoints/step-00000032)" ] # and goes on to the bits of a run that never stopped
    "$TENANT" $flags --num_epochs=6 --resume >resumed
    "$TENANT" $flags --num_epochs=6 --run_num=whole >whole
    cmp <(tail -n 16 $run/metrics.csv | cut -d, -f1-5) <(tail -n 16 runs/demo/1CPU/whole/metrics.csv | cut -d, -f1-5)
    cmp <(loss val resumed 2) <(loss val whole 6)
    fails 1 "$TENANT" evaluate --checkpoint=$run/checkpoints/best
    says_once "trained on source numbers, but only fields in files can be forecast"
}
