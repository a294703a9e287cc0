/* What the layers need to know of one forward and backward pass over a micro-batch. */
#ifndef VT_MODEL_PASS_H
#define VT_MODEL_PASS_H

#include "backend/arena.h"
#include "backend/dropout.h"
#include "model/offload.h"
#include "model/parameters.h"

struct vt_linear;

/* Loss crps: which means it compares, and units [scale_count, channels], what each score is multiplied by, in the back
 * end's memory. */
typedef struct {
    vt_crps how;
    const float *units;
} vt_crps_terms;

typedef struct {
    vt_backend *backend;
    vt_arena *arena;     /* of this micro-batch */
    vt_offload *offload; /* where blocks keep what backward needs, and the streams between units are; NULL: the arena */
    const vt_parallel *parallel;
    int64_t batch;     /* samples, or the members of each, one behind another */
    int64_t members;   /* of each sample: forecasts of it that differ by their noise; 0: 1 */
    vt_type type;      /* of what enters matrix products and attention; the residual stream is always float32 */
    bool fused;        /* use operations that do two things in one pass over memory (enable_jit) */
    bool training;     /* dropout and drop path are on */
    bool has_backward; /* one follows: forward keeps what it needs */
    bool keeps;        /* and what it could also compute again at little cost (keep_outputs) */
    uint64_t seed;     /* seed, step and first_sample key the dropout streams; the step is in the back end's memory */
    const uint32_t *step;
    uint32_t first_sample;        /* the first row's place among the samples, or members, of the global batch */
    const struct vt_linear *head; /* of the model: vt_model_kind.head; for the loss */
    /* Of passes without a backward that go on where others ended (continuation.h), [units, 2]: keys and values of the
     * tokens before these, as vt_attention_saved has them. NULL: there are none. */
    const vt_matrix *caches;
    double density_weight; /* of the densities in the loss (lambda_rho) */
    uint32_t rollout_step; /* of the steps of forecast that a sample is trained over: each draws numbers of its own */
    const uint32_t *noise_keys; /* [batch, 2]: what the noise of each row depends on; NULL: its place, and the step */
    const vt_crps_terms *crps;  /* what loss crps compares; NULL: it is another loss, and forecasts get no noise */
} vt_pass;

static inline int64_t vt_pass_members(const vt_pass *pass)
{
    return pass->members > 0 ? pass->members : 1;
}

static inline int64_t vt_pass_samples(const vt_pass *pass)
{
    return pass->batch / vt_pass_members(pass);
}

/* The same pass, for what each sample has once. */
static inline vt_pass vt_pass_of_samples(const vt_pass *pass)
{
    vt_pass of_samples = *pass;
    of_samples.batch = vt_pass_samples(pass);
    of_samples.members = 1;
    return of_samples;
}

/* Rows of the residual stream, and of matrices between vt_region_enter and vt_region_leave. */
static inline int64_t vt_pass_rows(const vt_pass *pass)
{
    return pass->batch * pass->parallel->own.count;
}

static inline int64_t vt_pass_inner_rows(const vt_pass *pass)
{
    return pass->batch * pass->parallel->inner.count;
}

/* Pushes a matrix on the arena: in the pass's type, or in float32. */
static inline vt_matrix vt_pass_push(const vt_pass *pass, int64_t rows, int64_t columns)
{
    return vt_arena_push_matrix(pass->arena, pass->type, rows, columns);
}

static inline vt_matrix vt_pass_push_float32(const vt_pass *pass, int64_t rows, int64_t columns)
{
    return vt_arena_push_matrix(pass->arena, VT_FLOAT32, rows, columns);
}

/* A float32 matrix in the pass's type: itself, or rounded on the arena. */
static inline vt_matrix vt_pass_typed(const vt_pass *pass, vt_matrix matrix)
{
    if (matrix.type == pass->type) return matrix;
    vt_matrix typed = vt_pass_push(pass, matrix.rows, matrix.columns);
    pass->backend->convert(pass->backend, matrix, typed);
    return typed;
}

/* Pushes the stream behind a unit, float32: it stays unchanged until the backward of the unit behind it. */
static inline vt_matrix vt_pass_push_stream(const vt_pass *pass, int64_t unit, int64_t rows, int64_t columns)
{
    vt_arena *arena = pass->offload != NULL ? vt_offload_stream(pass->offload, unit) : pass->arena;
    return vt_arena_push_matrix(arena, VT_FLOAT32, rows, columns);
}

/* The same pass, for the pushes of what a block keeps until its backward. */
static inline vt_pass vt_pass_keeping(const vt_pass *pass, int64_t unit)
{
    vt_pass keeping = *pass;
    if (pass->offload != NULL) keeping.arena = vt_offload_kept(pass->offload, unit);
    return keeping;
}

/* Where a layer's backward adds a gradient: the parameter's own, or, if it is frozen, memory on the arena that nothing
 * reads. */
static inline float *vt_pass_gradient(const vt_pass *pass, const vt_parameter *parameter)
{
    if (!parameter->frozen) return parameter->gradient;
    return vt_arena_push(pass->arena, (size_t)parameter->count * sizeof(float));
}

static inline vt_dropout vt_pass_dropout(const vt_pass *pass, double rate, int64_t layer, uint32_t site)
{
    enum { MOST_LAYERS = 1 << 16 };
    return (vt_dropout){.rate = pass->training ? (float)rate : 0.0f,
                        .seed = pass->seed,
                        .step = pass->step,
                        .layer = (uint32_t)layer + pass->rollout_step * MOST_LAYERS,
                        .site = site,
                        .first_sample = pass->first_sample};
}

/* The dropout of elements of the residual stream. */
static inline vt_mask vt_pass_mask(const vt_pass *pass, double rate, int64_t layer, uint32_t site)
{
    return (vt_mask){.elements = vt_pass_dropout(pass, rate, layer, site),
                     .tokens = pass->parallel->own.count,
                     .first_token = pass->parallel->own.first};
}

#endif
