#!/usr/bin/env bash
# tests/parallel/mutations.sh [part of a name ...]: would the tests notice if a reduction between ranks were missing?
# Not part of make test (minutes): run it when the regions of parallelism or their tests change.
#
# Copies the tree, with what is built of it, puts a switch before each reduction (VT_MUTATION=name leaves that one out),
# builds once, and runs the parallel tests once without a mutation, which must pass, and then with each, which must
# fail. Prints a line for each; exits 1 if any is not noticed. A mutation that ends in a time-out counts as noticed only
# if a test failed or the job was aborted.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cd "$top" || exit 1
git ls-files | tar -cf - -T - | tar -xf - -C "$copy"
[ ! -d build ] || cp -a build "$copy/build"
cd "$copy" || exit 1

# patch FILE OLD NEW: OLD stands there exactly once
patch() {
    OLD=$2 NEW=$3 perl -0pi -e '$n = s/\Q$ENV{OLD}\E/$ENV{NEW}/g; die "$ARGV: found $n times: $ENV{OLD}\n" unless $n == 1' "$1" || exit 2
}

# in group.h, which all of them include
patch src/parallel/group.h '#include "backend/backend.h"' '#include "backend/backend.h"
#include <stdlib.h>
#include <string.h>
static inline bool mutated(const char *name)
{
    const char *wanted = getenv("VT_MUTATION");
    return wanted != NULL && strcmp(wanted, name) == 0;
}'

region=src/parallel/region.c
patch $region '/* ---- tokens ---- */' 'static bool mute; /* the operations of the call that is left out */'
patch $region 'vt_group_all_gather(group, own.data, bytes, staged.data, NULL);' 'if (!mute) vt_group_all_gather(group, own.data, bytes, staged.data, NULL);'
patch $region 'vt_group_reduce_scatter(group, staged.data, counts, own.data, NULL);' 'if (!mute) vt_group_reduce_scatter(group, staged.data, counts, own.data, NULL);'
patch $region 'vt_group_all_reduce(parallel->tensor, VT_SUM_FLOAT32, x.data, x.rows * x.columns, NULL);' 'if (!mute) vt_group_all_reduce(parallel->tensor, VT_SUM_FLOAT32, x.data, x.rows * x.columns, NULL);'
patch $region 'sum_inner(parallel, arena, batch, partial, y);' 'mute = mutated("leave"); sum_inner(parallel, arena, batch, partial, y); mute = false;'
patch $region 'sum_inner(parallel, arena, batch, partial, dx);' 'mute = mutated("enter_backward"); sum_inner(parallel, arena, batch, partial, dx); mute = false;'
patch $region '    return gather_inner(parallel, arena, batch, x);' '    mute = mutated("enter"); vt_matrix whole = gather_inner(parallel, arena, batch, x); mute = false; return whole;'
patch $region '    return gather_inner(parallel, arena, batch, dy);' '    mute = mutated("leave_backward"); vt_matrix whole = gather_inner(parallel, arena, batch, dy); mute = false; return whole;'

attention=src/model/attention.c
patch $attention '    vt_region_gather(parallel->context,' '    if (!mutated("keys_gather")) vt_region_gather(parallel->context,'
patch $attention '        vt_region_reduce(parallel->context,' '        if (!mutated("keys_reduce")) vt_region_reduce(parallel->context,'
patch $attention '        pass_on(r->pass, here, ring_block' '        if (!mutated("ring_keys")) pass_on(r->pass, here, ring_block'
patch $attention '        pass_on(pass, here, ring_block' '        if (!mutated("ring_gradients")) pass_on(pass, here, ring_block'

patch src/model/parameters.c 'parameter->sum_axes = parameters->parallel->token_axes;' 'parameter->sum_axes = mutated("token_sum") ? 0 : parameters->parallel->token_axes;'
sync=src/optimizer/gradient_sync.c
patch $sync 'sync->off ? sum : sum | data' 'sync->off || mutated("data_sum") ? sum : sum | data'
patch $sync '    vt_group_reduce_scatter(group, state->gradients,' '    if (!mutated("zero_reduce_scatter")) vt_group_reduce_scatter(group, state->gradients,'
patch $sync 'if (sum != 0) VT_TRY(' 'if (sum != 0 && !mutated("zero_token_sum")) VT_TRY('
patch $sync 'if (shard_scope(config) == VT_SCOPE_WITHIN_NODE)
            VT_TRY' 'if (shard_scope(config) == VT_SCOPE_WITHIN_NODE && !mutated("zero_node_sum"))
            VT_TRY'
patch $sync '        vt_group_all_gather(sync->shards, slice,' '        if (!mutated("zero_gather_units")) vt_group_all_gather(sync->shards, slice,'
patch $sync '        vt_group_all_gather(sync->shards, values +' '        if (!mutated("zero_gather_values")) vt_group_all_gather(sync->shards, values +'
patch $sync 'if (reduce && state->bucket->first_unit == unit) start_bucket(sync, state);' 'if (reduce && state->bucket->first_unit == unit && !(mutated("last_bucket") && state == sync->buckets)) start_bucket(sync, state);'
patch src/optimizer/optimizer.c '    vt_group_all_reduce(optimizer->world,' '    if (!mutated("gradient_norm")) vt_group_all_reduce(optimizer->world,'
patch src/optimizer/optimizer.c '1 / (double)vt_parameters_copies(parameters, bucket, sliced)' 'mutated("norm_copies") ? 1 : 1 / (double)vt_parameters_copies(parameters, bucket, sliced)'
step=src/training/step.c
patch $step '    vt_group_all_reduce(trainer->parallel->tokens, VT_SUM_FLOAT64, trainer->squares,' '    if (!mutated("loss_norms")) vt_group_all_reduce(trainer->parallel->tokens, VT_SUM_FLOAT64, trainer->squares,'
patch $step '    vt_group_all_reduce(trainer->parallel->tokens, VT_SUM_FLOAT64, trainer->channel_squares,' '    if (!mutated("rmse_squares")) vt_group_all_reduce(trainer->parallel->tokens, VT_SUM_FLOAT64, trainer->channel_squares,'
patch $step '    vt_world_sum(trainer->world, &loss_sum, 1);' '    if (!mutated("loss_sum")) vt_world_sum(trainer->world, &loss_sum, 1);'
patch $step '    vt_world_sum(trainer->world, sums, count);' '    if (!mutated("evaluation_sum")) vt_world_sum(trainer->world, sums, count);'

make -s -j2 BUILD=build build/tests/vitrain-tests CFLAGS='-O2 -g' >make.log 2>&1 || { echo "does not build:"; grep error make.log; exit 2; }

tests() { # NAME TEST: on four ranks
    VT_MUTATION=$1 timeout 120 tests/mpirun -np 4 build/tests/vitrain-tests --parallel "$2" >"$1-$2.log" 2>&1 </dev/null
}
# each with the tests that are to notice it
list='leave as_one_rank
leave sequence_parallel
enter_backward as_one_rank
enter_backward sequence_parallel
enter sequence_parallel
leave_backward sequence_parallel
keys_gather as_one_rank
keys_reduce as_one_rank
ring_keys keys_passed_round
ring_gradients keys_passed_round
token_sum as_one_rank
token_sum sequence_parallel
data_sum as_one_rank
last_bucket as_one_rank
loss_norms as_one_rank
rmse_squares as_one_rank
loss_sum as_one_rank
evaluation_sum as_one_rank
gradient_norm as_one_rank
norm_copies as_one_rank
zero_reduce_scatter with_zero
zero_token_sum with_zero
zero_gather_units with_zero
zero_gather_values with_zero
zero_node_sum zero_within_nodes'

unnoticed=0
for test in as_one_rank sequence_parallel keys_passed_round with_zero zero_within_nodes; do
    tests none $test && grep -q "^ok  .*$test" none-$test.log || { echo "FAIL without a mutation: $test"; tail -n 5 none-$test.log; exit 1; }
done
while read -r name test; do
    if [ $# -gt 0 ]; then
        wanted=
        for word in "$@"; do [[ $name == *$word* ]] && wanted=1; done
        [ -n "$wanted" ] || continue
    fi
    if tests "$name" "$test"; then
        echo "NOT NOTICED $name ($test)"; unnoticed=$((unnoticed + 1))
    elif grep -q '^FAIL \|MPI_ABORT\|comm_timeout' "$name-$test.log"; then
        echo "noticed     $name ($test): $(grep -c 'training.c:[0-9]*: ' "$name-$test.log") messages"
    else
        echo "NO RESULT   $name ($test):"; tail -n 3 "$name-$test.log"; unnoticed=$((unnoticed + 1))
    fi
done <<<"$list"
[ "$unnoticed" -eq 0 ] || { echo "$unnoticed not noticed"; exit 1; }
