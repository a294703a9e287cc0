#include "model/attention.h"

#include <stdio.h>

/* One of the three weights or biases. */
static vt_parameter *add_part(vt_parameters *parameters, const char *prefix, const vt_attention_options *options,
                              bool is_weight, int part)
{
    char full[VT_PARAMETER_NAME];
    const int64_t dim = options->dim;
    const bool is_uniform = options->weight_bound > 0;
    const double bound = is_weight ? options->weight_bound : options->bias_bound, normal = is_weight ? 0.02 : 0;
    const vt_start start = is_uniform ? VT_START_UNIFORM : is_weight ? VT_START_NORMAL : VT_START_VALUE;
    snprintf(full, sizeof full, "%s.%s", prefix, options->names[part]);
    vt_parameter *parameter = vt_parameters_add(parameters, full, is_weight ? "weight" : "bias", is_weight ? 2 : 1,
                                                (const int64_t[]){dim, dim}, start, is_uniform ? bound : normal);
    if (!options->in_one) return parameter;
    snprintf(parameter->file_name, sizeof parameter->file_name, "%s.in_proj_%s", prefix, is_weight ? "weight" : "bias");
    parameter->file_row = part * dim;
    parameter->file_rows = 3 * dim;
    return parameter;
}

/* Registers the three weights, then the three biases, so that they are one matrix [3 width, dim] and one vector
 * [3 width]. */
static void build_qkv(vt_attention *attention, vt_parameters *parameters, const char *prefix, vt_span share)
{
    const vt_attention_options *options = &attention->options;
    vt_parameter *added[6];
    for (int i = 0; i < 6; i++) {
        added[i] = add_part(parameters, prefix, options, i < 3, i % 3);
        vt_parameter_split(added[i], 0, VT_AXES(VT_AXIS_TENSOR), share);
        added[i]->joined = i % 3 > 0;
    }
    attention->qkv = (vt_linear){
        .weight = added[0], .bias = added[3], .in = options->dim, .out = (options->crosses ? 1 : 3) * share.count};
    attention->kv = (vt_linear){.weight = added[1], .bias = added[4], .in = options->dim, .out = 2 * share.count};
}

void vt_attention_build(vt_attention *attention, vt_parameters *parameters, const char *prefix,
                        const vt_attention_options *options)
{
    char name[VT_PARAMETER_NAME];
    const vt_parallel *parallel = parameters->parallel;
    vt_span share = vt_parallel_share(parallel, options->heads); /* whole heads */
    attention->options = *options;
    attention->width = share.count * (options->dim / options->heads);
    attention->heads = share.count;
    attention->first_head = share.first;
    build_qkv(attention, parameters, prefix, vt_parallel_share(parallel, options->dim));
    snprintf(name, sizeof name, "%s.%s", prefix, options->names[3]);
    vt_linear_build(&attention->proj, parameters, name, options->dim, options->dim, VT_LINEAR_BY_INPUT, true);
}

static void reserve_out(const vt_attention *attention, const vt_pass *pass, vt_attention_saved *saved)
{
    const int64_t rows = vt_pass_inner_rows(pass);
    saved->out = vt_pass_push(pass, rows, attention->width);
    saved->log_sum = vt_arena_push(pass->arena, (size_t)(rows * attention->heads) * sizeof(float));
}

void vt_attention_begin(const vt_attention *attention, const vt_pass *pass, bool keeps, vt_attention_saved *saved)
{
    *saved = (vt_attention_saved){.kept = keeps};
    if (keeps) reserve_out(attention, pass, saved);
}

/* The columns of q, k and v, or of their gradients, as separate matrices; kv: k and v as one. */
typedef struct {
    vt_matrix q, k, v, kv;
} parts;

static parts parts_of(vt_matrix qkv, int64_t width)
{
    return (parts){.q = vt_matrix_columns(qkv, 0, width),
                   .k = vt_matrix_columns(qkv, width, width),
                   .v = vt_matrix_columns(qkv, 2 * width, width),
                   .kv = vt_matrix_columns(qkv, width, 2 * width)};
}

static parts parts_of_kv(vt_matrix kv, int64_t width)
{
    return (parts){.k = vt_matrix_columns(kv, 0, width), .v = vt_matrix_columns(kv, width, width), .kv = kv};
}

/* This rank's queries and a span of keys. */
static vt_attention_shape shape_of(const vt_attention *attention, const vt_pass *pass, vt_span keys)
{
    return (vt_attention_shape){
        .batch = pass->batch,
        .heads = attention->heads,
        .head_dim = attention->width / attention->heads,
        .queries = pass->parallel->inner.count,
        .keys = keys.count,
        .first_head = attention->first_head,
        .first_query = pass->parallel->inner.first,
        .first_key = keys.first,
        .causal = attention->options.causal,
        .unscaled = attention->options.unscaled,
        .dropout = vt_pass_dropout(pass, attention->options.dropout, attention->options.layer, VT_SITE_ATTENTION)};
}

static vt_span all_keys(const vt_pass *pass)
{
    return (vt_span){0, pass->parallel->token_count};
}

static bool uses_ring(const vt_pass *pass)
{
    return pass->parallel->ring && pass->parallel->context->size > 1;
}

/* Whose block this rank has in a step of a ring. */
static int ring_source(const vt_group *group, int step)
{
    return (group->rank - step % group->size + group->size) % group->size;
}

/* In how many steps this rank's queries see some of the keys: causal ones see no later ranks'. */
static int ring_steps(const vt_attention *attention, const vt_group *group)
{
    return attention->options.causal ? group->rank + 1 : group->size;
}

/* Draws what dropout keeps, step by step of a ring, or of all keys; drawn NULL: only counts it. */
static int64_t draw(const vt_attention *attention, const vt_pass *pass, uint16_t *drawn)
{
    const vt_parallel *parallel = pass->parallel;
    const int steps = uses_ring(pass) ? ring_steps(attention, parallel->context) : 1;
    int64_t count = 0;
    if (!pass->backend->draws_ahead) return 0;
    for (int step = 0; step < steps; step++) {
        const vt_span keys =
            uses_ring(pass) ? parallel->context_spans[ring_source(parallel->context, step)] : all_keys(pass);
        const vt_attention_shape shape = shape_of(attention, pass, keys);
        if (shape.dropout.rate <= 0) return 0;
        if (drawn != NULL) pass->backend->attention_draw(pass->backend, &shape, drawn + count);
        count += vt_attention_drawn_count(&shape);
    }
    return count;
}

void vt_attention_reserve(const vt_attention *attention, const vt_pass *pass, vt_attention_saved *saved)
{
    const int64_t drawn = draw(attention, pass, NULL);
    saved->qkv_out = vt_pass_push(pass, vt_pass_inner_rows(pass), 3 * attention->width);
    saved->drawn = drawn > 0 ? vt_arena_push(pass->arena, (size_t)drawn * sizeof *saved->drawn) : NULL;
    if (!saved->kept) reserve_out(attention, pass, saved);
}

/* ---- keys and values gathered ---- */

static vt_matrix gather_keys(const vt_pass *pass, vt_matrix own)
{
    const vt_parallel *parallel = pass->parallel;
    vt_matrix whole = vt_pass_push(pass, pass->batch * parallel->token_count, own.columns);
    vt_region_gather(parallel->context, parallel->context_spans, pass->arena, pass->batch, own, whole);
    return whole;
}

static void forward_gathered(const vt_attention *attention, const vt_pass *pass, const vt_attention_saved *saved)
{
    vt_backend *backend = pass->backend;
    size_t mark = pass->arena->used;
    parts own = parts_of(saved->qkv_out, attention->width), keys = own;
    vt_span span = all_keys(pass);
    if (saved->cache.data != NULL) {
        const vt_span inner = pass->parallel->inner;
        backend->convert(backend, own.kv, vt_matrix_rows(saved->cache, inner.first, inner.count));
        keys = parts_of_kv(saved->cache, attention->width);
        span.count = inner.first + inner.count;
    } else if (pass->parallel->context->size > 1) {
        keys = parts_of_kv(gather_keys(pass, own.kv), attention->width);
    }
    vt_attention_shape shape = shape_of(attention, pass, span);
    shape.drawn = saved->drawn;
    backend->attention_forward(backend, &shape, own.q, keys.k, keys.v, saved->out, saved->log_sum);
    vt_arena_pop(pass->arena, mark);
}

static void backward_gathered(const vt_attention *attention, const vt_pass *pass, const vt_attention_saved *saved,
                              vt_matrix dout, vt_matrix dqkv)
{
    vt_backend *backend = pass->backend;
    const vt_parallel *parallel = pass->parallel;
    size_t mark = pass->arena->used;
    vt_attention_shape shape = shape_of(attention, pass, all_keys(pass));
    shape.drawn = saved->drawn;
    parts own = parts_of(saved->qkv_out, attention->width), keys = own;
    parts down = parts_of(dqkv, attention->width), dkeys = down;
    bool gathered = parallel->context->size > 1;
    if (gathered) {
        keys = parts_of_kv(gather_keys(pass, own.kv), attention->width);
        dkeys = parts_of_kv(vt_pass_push_float32(pass, keys.kv.rows, keys.kv.columns), attention->width);
    }
    backend->attention_backward(backend, &shape, own.q, keys.k, keys.v, saved->out, saved->log_sum, dout, down.q,
                                dkeys.k, dkeys.v);
    if (gathered)
        vt_region_reduce(parallel->context, parallel->context_spans, pass->arena, pass->batch, dkeys.kv, down.kv);
    vt_arena_pop(pass->arena, mark);
}

/* ---- keys and values passed from rank to rank (Liu et al. 2023, "Ring Attention") ---- */

/* Visits the keys and values of all ranks, one rank's block a step, while the next block arrives. */
typedef struct {
    const vt_attention *attention;
    const vt_pass *pass;
    vt_matrix room[2];     /* for the block in use and for the arriving one, in turn */
    const uint16_t *drawn; /* for the step's keys */
    int step;
    vt_request request;
} ring;

/* The block of a step, in `room`. */
static vt_matrix ring_block(const ring *r, vt_matrix room, int step)
{
    const vt_parallel *parallel = r->pass->parallel;
    room.rows = r->pass->batch * parallel->context_spans[ring_source(parallel->context, step)].count;
    return room;
}

static size_t matrix_bytes(vt_matrix matrix)
{
    return (size_t)(matrix.rows * matrix.columns) * vt_type_size(matrix.type);
}

/* Sends to the next rank and receives from the previous one; a matrix without rows does not go. */
static void pass_on(const vt_pass *pass, vt_matrix send, vt_matrix receive, vt_request *request)
{
    vt_group *group = pass->parallel->context;
    vt_group_exchange(group, send.data, matrix_bytes(send), (group->rank + 1) % group->size, receive.data,
                      matrix_bytes(receive), (group->rank + group->size - 1) % group->size, request);
}

/* The rows of the largest block. */
static int64_t ring_rows(const vt_pass *pass)
{
    int64_t most = 0;
    for (int i = 0; i < pass->parallel->context->size; i++)
        if (pass->parallel->context_spans[i].count > most) most = pass->parallel->context_spans[i].count;
    return pass->batch * most;
}

static ring ring_begin(const vt_attention *attention, const vt_pass *pass, const vt_attention_saved *saved)
{
    ring r = {.attention = attention, .pass = pass, .drawn = saved->drawn};
    for (int i = 0; i < 2; i++) r.room[i] = vt_pass_push(pass, ring_rows(pass), 2 * attention->width);
    pass->backend->convert(pass->backend, parts_of(saved->qkv_out, attention->width).kv, ring_block(&r, r.room[0], 0));
    return r;
}

/* Waits for the block of this step and starts the exchange for the next one, as far as somebody needs it. *keys: which
 * keys the block has. */
static parts ring_next(ring *r, vt_span *keys)
{
    const vt_parallel *parallel = r->pass->parallel;
    const vt_group *group = parallel->context;
    vt_request_wait(&r->request);
    vt_matrix here = ring_block(r, r->room[r->step % 2], r->step), send = here;
    vt_matrix next = ring_block(r, r->room[(r->step + 1) % 2], r->step + 1);
    *keys = parallel->context_spans[ring_source(group, r->step)];
    r->step++;
    if (r->step >= ring_steps(r->attention, group)) next.rows = 0;
    if (r->attention->options.causal ? group->rank + 1 == group->size : r->step == group->size) send.rows = 0;
    if (send.rows + next.rows > 0) pass_on(r->pass, send, next, &r->request);
    return parts_of_kv(here, r->attention->width);
}

/* Of the step whose keys ring_next gave. */
static vt_attention_shape ring_shape(ring *r, vt_span keys)
{
    vt_attention_shape shape = shape_of(r->attention, r->pass, keys);
    shape.drawn = r->drawn;
    if (r->drawn != NULL) r->drawn += vt_attention_drawn_count(&shape);
    return shape;
}

static void forward_ring(const vt_attention *attention, const vt_pass *pass, const vt_attention_saved *saved)
{
    vt_backend *backend = pass->backend;
    size_t mark = pass->arena->used;
    vt_matrix q = parts_of(saved->qkv_out, attention->width).q;
    vt_matrix out = pass->type == VT_FLOAT32 ? saved->out : vt_pass_push_float32(pass, q.rows, q.columns);
    vt_matrix part = vt_pass_push_float32(pass, q.rows, q.columns);
    float *part_log_sum = vt_arena_push(pass->arena, (size_t)(q.rows * attention->heads) * sizeof(float));
    ring r = ring_begin(attention, pass, saved);
    for (int step = 0; step < ring_steps(attention, pass->parallel->context); step++) {
        vt_span span;
        parts keys = ring_next(&r, &span);
        const vt_attention_shape shape = ring_shape(&r, span);
        if (step == 0) {
            backend->attention_forward(backend, &shape, q, keys.k, keys.v, out, saved->log_sum);
        } else {
            backend->attention_forward(backend, &shape, q, keys.k, keys.v, part, part_log_sum);
            backend->attention_merge(backend, &shape, part, part_log_sum, out, saved->log_sum);
        }
    }
    vt_request_wait(&r.request);
    if (out.data != saved->out.data) backend->convert(backend, out, saved->out);
    vt_arena_pop(pass->arena, mark);
}

/* The gradient of a block of keys travels with the block: each rank adds its part, if its queries see the keys, and
 * after the last step it is back at the rank that owns the block. */
static void backward_ring(const vt_attention *attention, const vt_pass *pass, const vt_attention_saved *saved,
                          vt_matrix dout, vt_matrix dqkv)
{
    vt_backend *backend = pass->backend;
    size_t mark = pass->arena->used;
    int64_t width = attention->width;
    int ranks = pass->parallel->context->size;
    parts down = parts_of(dqkv, width);
    vt_matrix q = parts_of(saved->qkv_out, width).q;
    vt_matrix dq = vt_pass_push_float32(pass, q.rows, width), dq_part = vt_pass_push_float32(pass, q.rows, width);
    vt_matrix part = vt_pass_push_float32(pass, ring_rows(pass), 2 * width);
    vt_matrix room[2];
    for (int i = 0; i < 2; i++) room[i] = vt_pass_push_float32(pass, ring_rows(pass), 2 * width);
    vt_request request = {0};
    ring r = ring_begin(attention, pass, saved);
    for (int step = 0; step < ranks; step++) {
        vt_matrix here = ring_block(&r, room[step % 2], step);
        if (step >= ring_steps(attention, pass->parallel->context)) {
            vt_request_wait(&request);
            pass_on(pass, here, ring_block(&r, room[(step + 1) % 2], step + 1), &request);
            continue;
        }
        vt_span span;
        parts keys = ring_next(&r, &span);
        const vt_attention_shape shape = ring_shape(&r, span);
        parts dkeys = parts_of_kv(step == 0 ? here : ring_block(&r, part, step), width);
        backend->attention_backward(backend, &shape, q, keys.k, keys.v, saved->out, saved->log_sum, dout,
                                    step == 0 ? dq : dq_part, dkeys.k, dkeys.v);
        vt_request_wait(&request); /* for the sum of the ranks before, in `here` */
        if (step > 0) {
            vt_matrix_add(backend, dq, dq_part, dq);
            vt_matrix_add(backend, here, dkeys.kv, here);
        }
        pass_on(pass, here, ring_block(&r, room[(step + 1) % 2], step + 1), &request);
    }
    vt_request_wait(&request);
    vt_request_wait(&r.request);
    backend->convert(backend, dq, down.q);
    backend->convert(backend, ring_block(&r, room[ranks % 2], ranks), down.kv);
    vt_arena_pop(pass->arena, mark);
}

/* ---- the layer ---- */

/* q of the stream, and keys and values of the memory. */
static void project(const vt_attention *attention, const vt_pass *pass, vt_matrix x, vt_matrix memory,
                    const vt_attention_saved *saved)
{
    const vt_parallel *parallel = pass->parallel;
    const size_t mark = pass->arena->used;
    const parts own = parts_of(saved->qkv_out, attention->width);
    const bool crosses = attention->options.crosses;
    vt_matrix input = vt_region_enter(parallel, pass->arena, pass->batch, x);
    vt_linear_forward(&attention->qkv, pass, input, crosses ? own.q : saved->qkv_out);
    if (crosses) {
        input = vt_region_enter(parallel, pass->arena, pass->batch, memory);
        vt_linear_forward(&attention->kv, pass, input, own.kv);
    }
    vt_arena_pop(pass->arena, mark);
}

void vt_attention_forward(const vt_attention *attention, const vt_pass *pass, vt_matrix x, vt_matrix memory,
                          vt_matrix y, const vt_attention_saved *saved)
{
    size_t mark = pass->arena->used;
    project(attention, pass, x, memory, saved);
    if (saved->drawn != NULL) draw(attention, pass, saved->drawn);
    if (uses_ring(pass) && !saved->made)
        forward_ring(attention, pass, saved);
    else if (!saved->made)
        forward_gathered(attention, pass, saved);
    vt_matrix output = vt_region_room(pass->parallel, pass->arena, pass->batch, y);
    vt_linear_forward(&attention->proj, pass, saved->out, output);
    vt_region_leave(pass->parallel, pass->arena, pass->batch, output, y);
    vt_arena_pop(pass->arena, mark);
}

/* From the gradient of what a linear layer made of x to that of x. */
static void backward_input(const vt_linear *linear, const vt_pass *pass, vt_matrix x, vt_matrix dy, vt_matrix dx)
{
    const vt_parallel *parallel = pass->parallel;
    const size_t mark = pass->arena->used;
    vt_matrix input = vt_region_enter(parallel, pass->arena, pass->batch, x);
    vt_matrix dinput = vt_region_room(parallel, pass->arena, pass->batch, dx);
    vt_linear_backward(linear, pass, input, dy, dinput);
    vt_region_leave(parallel, pass->arena, pass->batch, dinput, dx);
    vt_arena_pop(pass->arena, mark);
}

void vt_attention_backward(const vt_attention *attention, const vt_pass *pass, vt_matrix x, vt_matrix memory,
                           vt_matrix dy, vt_matrix dx, vt_matrix dmemory, const vt_attention_saved *saved)
{
    const bool crosses = attention->options.crosses;
    size_t mark = pass->arena->used;
    vt_matrix dout = vt_pass_push(pass, saved->out.rows, attention->width);
    vt_matrix dqkv = vt_pass_push(pass, saved->out.rows, 3 * attention->width);
    vt_matrix doutput = vt_region_enter(pass->parallel, pass->arena, pass->batch, dy);
    vt_linear_backward(&attention->proj, pass, saved->out, doutput, dout);
    if (uses_ring(pass))
        backward_ring(attention, pass, saved, dout, dqkv);
    else
        backward_gathered(attention, pass, saved, dout, dqkv);
    const parts down = parts_of(dqkv, attention->width);
    backward_input(&attention->qkv, pass, x, crosses ? down.q : dqkv, dx);
    if (crosses) backward_input(&attention->kv, pass, memory, down.kv, dmemory);
    vt_arena_pop(pass->arena, mark);
}
