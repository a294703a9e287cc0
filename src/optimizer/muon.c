/* Muon (Jordan et al. 2024; Liu et al. 2025, arXiv 2502.16982): the momentum of a matrix, of which all singular values
 * are made nearly 1, is its step. Its own are the weights of layers inside the model; the others are AdamW's. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "optimizer/optimizer.h"
#include "storage/tensor_box.h"

typedef struct {
    int64_t part;     /* among the whole's */
    int64_t elements; /* of the tensor */
    double cost;
    int64_t offset; /* of the tensor in the memory of its round */
} matrix_of;

/* Matrices are dealt out by their cost: in each round every rank of the group steps one, and a round's cost alike. */
typedef struct {
    matrix_of *matrices;     /* [count], the dearest first */
    float *round;            /* a round's matrices, whole */
    float *piece;            /* of one matrix, this rank's */
    float *product;          /* as large as a matrix */
    float *square, *square2; /* side × side, of the shorter side */
    double *norm;
} muon;

static bool takes(const vt_parameter *parameter)
{
    return parameter->dimensions == 2 &&
           (strstr(parameter->name, "blocks.") != NULL || strstr(parameter->name, "layers.") != NULL);
}

enum { MOMENTUM, MOMENT2 /* of the others */ };

static vt_kept_form form(const vt_config *config, int state, const vt_parameter *parameter)
{
    (void)config;
    return state == MOMENT2 && takes(parameter) ? VT_KEPT_NOTHING : VT_KEPT_NUMBERS;
}

static void configure(const vt_config *config, vt_update *rule)
{
    vt_adam_configure(config, rule);
    rule->momentum = config->momentum;
    rule->nesterov = config->nesterov;
}

static int64_t shorter(const vt_parameter *p)
{
    return p->shape[0] < p->shape[1] ? p->shape[0] : p->shape[1];
}

/* The dearest first; of alike ones the first, so that all ranks have one order. */
static int by_cost(const void *one, const void *other)
{
    const matrix_of *a = one, *b = other;
    return a->cost != b->cost ? (a->cost > b->cost ? -1 : 1) : a->part < b->part ? -1 : 1;
}

static void close_muon(const vt_optimizer *optimizer)
{
    muon *m = optimizer->whole.memory;
    vt_backend *backend = optimizer->backend;
    float *const memory[] = {m->round, m->piece, m->product, m->square, m->square2};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) backend->release(backend, memory[i]);
    backend->release(backend, m->norm);
    free(m->matrices);
    free(m);
}

static vt_status open_muon(vt_optimizer *optimizer)
{
    vt_status status = VT_OK;
    vt_backend *backend = optimizer->backend;
    muon *m = vt_allocate(1, sizeof *m, "the optimizer");
    int64_t largest = 0, side = 0, piece = 0, round = 0, in_round = 0;
    optimizer->whole.memory = m;
    m->matrices = vt_allocate((size_t)optimizer->whole.count + 1, sizeof *m->matrices, "the optimizer");
    for (int64_t i = 0; i < optimizer->whole.count; i++) {
        const vt_parameter *p = optimizer->whole.parts[i].parameter;
        m->matrices[i] = (matrix_of){i, p->whole_count, (double)p->whole_count * (double)shorter(p), 0};
        if (m->matrices[i].elements > largest) largest = m->matrices[i].elements;
        if (shorter(p) > side) side = shorter(p);
        if (optimizer->whole.parts[i].own.count > piece) piece = optimizer->whole.parts[i].own.count;
    }
    qsort(m->matrices, (size_t)optimizer->whole.count, sizeof *m->matrices, by_cost);
    for (int64_t i = 0; i < optimizer->whole.count; i++) {
        if (i % optimizer->whole.group->size == 0) in_round = 0;
        m->matrices[i].offset = in_round;
        in_round += m->matrices[i].elements;
        if (in_round > round) round = in_round;
    }
    VT_TAKE(backend, VT_MEMORY_WORKSPACE, round, m->round);
    VT_TAKE(backend, VT_MEMORY_WORKSPACE, piece, m->piece);
    VT_TAKE(backend, VT_MEMORY_WORKSPACE, largest, m->product);
    VT_TAKE(backend, VT_MEMORY_WORKSPACE, side * side, m->square);
    VT_TAKE(backend, VT_MEMORY_WORKSPACE, side * side, m->square2);
    VT_TAKE(backend, VT_MEMORY_WORKSPACE, 1, m->norm);
done:
    return status;
}

/* Copies this rank's piece of a matrix into the whole one, or out of it. */
static void copy_piece(vt_backend *backend, const vt_whole_part *part, float *matrix, float *piece, bool out)
{
    const vt_parameter *p = part->parameter;
    const vt_tensor_shape local = {.dimensions = 2, .shape = {p->local[0], p->local[1]}};
    vt_tensor_box boxes[VT_TENSOR_BOXES];
    const int count = vt_tensor_boxes(&local, part->first, part->own.count, boxes);
    for (int i = 0; i < count; i++) {
        const int64_t rows = boxes[i].shape.shape[0], columns = boxes[i].shape.shape[1];
        int64_t first[2] = {boxes[i].first[0], boxes[i].first[1]};
        if (p->split >= 0) first[p->split] += p->first;
        const vt_matrix flat = vt_matrix_make(piece, rows, columns);
        const vt_matrix there = {.data = matrix + first[0] * p->shape[1] + first[1],
                                 .rows = rows,
                                 .columns = columns,
                                 .stride = p->shape[1]};
        backend->convert(backend, out ? there : flat, out ? flat : there);
        piece += rows * columns;
    }
}

/* Singular values of x, scaled to a norm of 1, become about 1, by Newton and Schulz's iteration. */
static void orthogonalise(const vt_optimizer *optimizer, muon *m, float *data, int64_t rows, int64_t columns)
{
    static const float a = 3.4445f, b = -4.7750f, c = 2.0315f;
    vt_backend *backend = optimizer->backend;
    const bool wide = rows <= columns;
    const int64_t side = wide ? rows : columns;
    const vt_matrix x = vt_matrix_make(data, rows, columns), product = vt_matrix_make(m->product, rows, columns);
    const vt_matrix square = vt_matrix_make(m->square, side, side), square2 = vt_matrix_make(m->square2, side, side);
    backend->zero(backend, m->norm, sizeof *m->norm);
    backend->sum_of_squares(backend, data, rows * columns, 1, m->norm);
    backend->divide_by_norm(backend, m->norm, 1e-7f, data, rows * columns);
    for (int64_t step = 0; step < optimizer->config->muon_steps; step++) {
        if (wide) { /* x xᵀ */
            backend->linear_forward(backend, x, x, NULL, NULL, square);
        } else { /* xᵀ x */
            backend->zero(backend, m->square, (size_t)(side * side) * sizeof(float));
            backend->linear_backward_weight(backend, x, x, m->square, NULL);
        }
        backend->linear_forward(backend, square, square, NULL, NULL, square2); /* it is symmetric */
        backend->combine(backend, b, m->square, c, m->square2, m->square, side * side);
        if (wide)
            backend->linear_backward_input(backend, square, x, product);
        else
            backend->linear_backward_input(backend, x, square, product);
        backend->combine(backend, a, data, 1, m->product, data, rows * columns);
    }
}

/* What makes a step of one lr suit all shapes. */
static double step_scale(const vt_config *config, const vt_parameter *p)
{
    const double out = (double)p->shape[0], in = (double)p->shape[1];
    if (config->muon_adjust == VT_MUON_MATCH_RMS_ADAMW) return 0.2 * sqrt(out > in ? out : in);
    if (config->muon_adjust == VT_MUON_SPECTRAL_UNCLAMPED) return sqrt(out / in);
    return out > in ? sqrt(out / in) : 1;
}

/* The momenta of a round's matrices, whole, each at its owner; then their steps, all on every rank. */
static void step_round(const vt_optimizer *optimizer, muon *m, int64_t first, int64_t count)
{
    vt_backend *backend = optimizer->backend;
    vt_group *group = optimizer->whole.group;
    int64_t elements[group->size], total = 0;
    size_t bytes[group->size];
    for (int64_t i = 0; i < group->size; i++) {
        elements[i] = i < count ? m->matrices[first + i].elements : 0;
        bytes[i] = (size_t)elements[i] * sizeof(float);
        total += elements[i];
    }
    if (group->size > 1) backend->zero(backend, m->round, (size_t)total * sizeof(float));
    for (int64_t i = first; i < first + count; i++) {
        const vt_whole_part *part = &optimizer->whole.parts[m->matrices[i].part];
        backend->muon_momentum(backend, &optimizer->rule, optimizer->state, part->own.gradients,
                               part->own.kept[MOMENTUM].numbers, m->piece, part->own.count);
        if (part->counts) copy_piece(backend, part, m->round + m->matrices[i].offset, m->piece, false);
    }
    float *own = m->round + (group->rank < count ? m->matrices[first + group->rank].offset : 0);
    if (group->size > 1) vt_group_reduce_scatter(group, m->round, elements, NULL);
    if (group->rank < count) {
        const vt_parameter *p = optimizer->whole.parts[m->matrices[first + group->rank].part].parameter;
        orthogonalise(optimizer, m, own, p->shape[0], p->shape[1]);
    }
    if (group->size > 1) vt_group_all_gather(group, m->round, bytes, NULL);
    for (int64_t i = first; i < first + count; i++) {
        const vt_whole_part *part = &optimizer->whole.parts[m->matrices[i].part];
        copy_piece(backend, part, m->round + m->matrices[i].offset, m->piece, true);
        backend->muon_apply(backend, &optimizer->rule, optimizer->state, step_scale(optimizer->config, part->parameter),
                            m->piece, part->own.values, part->own.rounded, part->own.count);
    }
}

static void step_muon(const vt_optimizer *optimizer)
{
    muon *m = optimizer->whole.memory;
    const int64_t size = optimizer->whole.group->size;
    for (int64_t first = 0; first < optimizer->whole.count; first += size)
        step_round(optimizer, m, first, optimizer->whole.count - first < size ? optimizer->whole.count - first : size);
}

static const vt_whole_update whole_matrices = {takes, VT_AXES(VT_AXIS_TENSOR), open_muon, NULL, step_muon, close_muon};

const vt_optimizer_kind vt_optimizer_Muon = {
    .name = "Muon",
    .states = {[MOMENTUM] = {"moment1", "first moment"}, [MOMENT2] = {"moment2", "second moment"}},
    .form = form,
    .rule = {.kind = VT_OPTIMIZER_AdamW},
    .configure = configure,
    .update = vt_adam_update,
    .whole = &whole_matrices};
