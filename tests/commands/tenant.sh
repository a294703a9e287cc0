# The tables with rows of the tests' own: $TENANT is the program with the rows of tests/tenant, $TENANT_TESTS the tests.

test_models_of_the_table() {
    "$TENANT_TESTS" unit/model unit/data_source
    fails 1 "$TENANT" layout --yaml_config="$TOP/config/ViT.yaml" --model=two_linear --ranks=2 --tensor_parallel=2
    contains "$output" "tensor_parallel 2: model two_linear can't be split this way; use --tensor_parallel=1"
    "$TENANT" options | grep -q two_linear
    refuted sh -c "'$VITRAIN' options | grep -q two_linear"
}
