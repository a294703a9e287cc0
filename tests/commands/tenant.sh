# The tables with rows of the tests' own: $TENANT is the program with the rows of tests/tenant, $TENANT_TESTS the tests.

test_models_of_the_table() {
    "$TENANT_TESTS" unit/model unit/data_source
    "$TENANT" options | grep -q two_linear
    refuted sh -c "'$VITRAIN' options | grep -q two_linear"
}
