#include "parallel/region.h"

#include <stdlib.h>

#include "base/memory.h"

vt_span vt_parallel_tokens(const vt_layout *layout, int rank, bool sequence, int64_t tokens)
{
    vt_span inner =
        vt_layout_span(tokens, layout->size[VT_AXIS_CONTEXT], vt_layout_coordinate(layout, rank, VT_AXIS_CONTEXT));
    if (!sequence) return inner;
    vt_span own =
        vt_layout_span(inner.count, layout->size[VT_AXIS_TENSOR], vt_layout_coordinate(layout, rank, VT_AXIS_TENSOR));
    own.first += inner.first;
    return own;
}

vt_status vt_parallel_open(const vt_config *config, vt_world *world, vt_backend *backend, int64_t tokens,
                           vt_parallel **result)
{
    vt_status status = VT_OK;
    const vt_layout *layout = &world->layout;
    vt_parallel *parallel = vt_allocate(1, sizeof *parallel, "the ranks' parts");
    parallel->world = world;
    parallel->sequence = config->sequence_parallel && layout->size[VT_AXIS_TENSOR] > 1;
    parallel->ring = config->cp_comm == VT_CP_RING;
    parallel->token_count = tokens;
    parallel->token_axes = VT_AXES(VT_AXIS_CONTEXT) | (parallel->sequence ? VT_AXES(VT_AXIS_TENSOR) : 0);
    VT_TRY(vt_world_group(world, VT_AXES(VT_AXIS_TENSOR), VT_SCOPE_ALL, NULL, backend, &parallel->tensor));
    VT_TRY(vt_world_group(world, VT_AXES(VT_AXIS_CONTEXT), VT_SCOPE_ALL, NULL, backend, &parallel->context));
    VT_TRY(vt_world_group(world, parallel->token_axes, VT_SCOPE_ALL, NULL, backend, &parallel->tokens));
    parallel->own = vt_parallel_tokens(layout, world->rank, parallel->sequence, tokens);
    parallel->inner = vt_parallel_tokens(layout, world->rank, false, tokens);
    parallel->tensor_spans = vt_allocate((size_t)parallel->tensor->size, sizeof(vt_span), "the ranks' parts");
    parallel->context_spans = vt_allocate((size_t)parallel->context->size, sizeof(vt_span), "the ranks' parts");
    for (int i = 0; i < parallel->tensor->size; i++)
        parallel->tensor_spans[i] =
            vt_parallel_tokens(layout, parallel->tensor->members[i], parallel->sequence, tokens);
    for (int i = 0; i < parallel->context->size; i++)
        parallel->context_spans[i] = vt_parallel_tokens(layout, parallel->context->members[i], false, tokens);
done:
    if (status != VT_OK) vt_parallel_close(&parallel);
    *result = parallel;
    return status;
}

void vt_parallel_close(vt_parallel **parallel)
{
    if (*parallel == NULL) return;
    free((*parallel)->tensor_spans);
    free((*parallel)->context_spans);
    free(*parallel);
    *parallel = NULL;
}

vt_span vt_parallel_share(const vt_parallel *parallel, int64_t whole)
{
    return vt_layout_span(whole, parallel->tensor->size, parallel->tensor->rank);
}

/* ---- tokens ---- */

/* Copies rows between two orders of the same tokens: `staged` has a rank's rows of all samples together, rank after
 * rank; `whole` has a sample's rows of all ranks together. */
static void reorder(vt_group *group, const vt_span *spans, vt_backend *backend, int64_t batch, vt_matrix staged,
                    vt_matrix whole, bool to_whole)
{
    if (group->engine->counts_only) { /* as one operation: in effect it is one copy of everything */
        backend->convert(backend, to_whole ? staged : whole, to_whole ? whole : staged);
        return;
    }
    const int64_t tokens = whole.rows / batch;
    for (int rank = 0; rank < group->size; rank++) {
        const int64_t before = spans[rank].first - spans[0].first;
        for (int64_t sample = 0; sample < batch; sample++) {
            vt_matrix a = vt_matrix_rows(staged, before * batch + sample * spans[rank].count, spans[rank].count);
            vt_matrix b = vt_matrix_rows(whole, sample * tokens + before, spans[rank].count);
            backend->convert(backend, to_whole ? a : b, to_whole ? b : a);
        }
    }
}

/* This rank's part of `staged`, which has the ranks' rows one rank after another. */
static vt_matrix own_rows(const vt_group *group, const vt_span *spans, int64_t batch, vt_matrix staged)
{
    const vt_span *own = &spans[group->rank];
    return vt_matrix_rows(staged, (own->first - spans[0].first) * batch, own->count * batch);
}

void vt_region_gather(vt_group *group, const vt_span *spans, vt_arena *arena, int64_t batch, vt_matrix x,
                      vt_matrix whole)
{
    vt_backend *backend = arena->backend;
    size_t mark = arena->used, bytes[group->size];
    bool in_place = batch == 1 && whole.stride == whole.columns; /* the ranks' rows are then one behind another */
    vt_matrix staged = in_place ? whole : vt_arena_push_matrix(arena, x.type, whole.rows, whole.columns);
    vt_matrix own = own_rows(group, spans, batch, staged);
    for (int i = 0; i < group->size; i++)
        bytes[i] = (size_t)(spans[i].count * batch * x.columns) * vt_type_size(x.type);
    backend->convert(backend, x, own);
    vt_group_all_gather(group, staged.data, bytes, NULL);
    if (!in_place) reorder(group, spans, backend, batch, staged, whole, true);
    vt_arena_pop(arena, mark);
}

void vt_region_reduce(vt_group *group, const vt_span *spans, vt_arena *arena, int64_t batch, vt_matrix whole,
                      vt_matrix x)
{
    vt_backend *backend = arena->backend;
    size_t mark = arena->used;
    int64_t counts[group->size];
    bool in_place = batch == 1 && whole.stride == whole.columns;
    vt_matrix staged = in_place ? whole : vt_arena_push_matrix(arena, VT_FLOAT32, whole.rows, whole.columns);
    vt_matrix own = own_rows(group, spans, batch, staged);
    for (int i = 0; i < group->size; i++) counts[i] = spans[i].count * batch * x.columns;
    if (!in_place) reorder(group, spans, backend, batch, staged, whole, false);
    vt_group_reduce_scatter(group, staged.data, counts, NULL);
    backend->convert(backend, own, x);
    vt_arena_pop(arena, mark);
}

/* ---- between enter and leave ---- */

vt_matrix vt_region_enter(const vt_parallel *parallel, vt_arena *arena, int64_t batch, vt_matrix x)
{
    if (!parallel->sequence) return x;
    vt_matrix whole = vt_arena_push_matrix(arena, x.type, batch * parallel->inner.count, x.columns);
    vt_region_gather(parallel->tensor, parallel->tensor_spans, arena, batch, x, whole);
    return whole;
}

vt_matrix vt_region_room(const vt_parallel *parallel, vt_arena *arena, int64_t batch, vt_matrix y)
{
    if (!parallel->sequence && (parallel->tensor->size == 1 || y.type == VT_FLOAT32)) return y;
    return vt_arena_push_matrix(arena, VT_FLOAT32, batch * parallel->inner.count, y.columns);
}

void vt_region_leave(const vt_parallel *parallel, vt_arena *arena, int64_t batch, vt_matrix partial, vt_matrix y)
{
    if (parallel->sequence) {
        vt_region_reduce(parallel->tensor, parallel->tensor_spans, arena, batch, partial, y);
    } else if (parallel->tensor->size > 1) {
        VT_ASSERT(partial.type == VT_FLOAT32 && partial.stride == partial.columns);
        vt_group_all_reduce(parallel->tensor, VT_SUM_FLOAT32, partial.data, partial.rows * partial.columns, NULL);
        if (partial.data != y.data) arena->backend->convert(arena->backend, partial, y);
    }
}
