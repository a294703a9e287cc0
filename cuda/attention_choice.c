/* Whose attention runs: the engines that can compute a shape are timed once, and the choice is kept
 * (backend/choices.h). With `deterministic` nothing is timed: wgmma's kernels run where they can, then cuDNN where its
 * bits are the same every time. Dropout never uses cuDNN, whose random numbers are not the CPU's. */
#include "attention_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "fused_attention.h"
#include "state.h"
#include "wgmma_attention.h"

/* Raised when our kernels become faster: it is part of a choice's key, so that older choices are made again. */
enum { KERNELS_VERSION = 1 };

struct vt_attention_choices {
    vt_backend own; /* the table of operations before this file replaced its rows */
    vt_attention_engine preference;
    vt_attention_engine ran; /* last */
    size_t count;
    vt_attention_choice all[64];
};

static struct vt_attention_choices *choices_of(vt_backend *backend)
{
    return ((vt_cuda_state *)backend->state)->attention;
}

bool vt_attention_is_masked(const vt_attention_shape *shape)
{
    return vt_attention_seen(shape, 0) < shape->keys;
}

static bool is_hopper(const vt_backend *backend)
{
    return ((const vt_cuda_state *)backend->state)->capability == 9;
}

/* ---- the engines ---- */

static bool run_own(void *context)
{
    const vt_attention_call *c = context;
    const vt_backend *own = &choices_of(c->backend)->own;
    if (c->pass != VT_ATTENTION_FORWARD)
        own->attention_backward(c->backend, c->shape, c->q, c->k, c->v, c->out, c->log_sum, c->dout, c->dq, c->dk,
                                c->dv);
    else
        own->attention_forward(c->backend, c->shape, c->q, c->k, c->v, c->out, c->log_sum);
    return cudaPeekAtLastError() == cudaSuccess;
}

/* On Hopper the backward of cuDNN 9 can give NaN in dq where keys fill half of its last tile of 128 and a row's log_sum
 * is below -88.7 (pytorch#196678, cudnn-frontend#628). */
static bool cudnn_fits(const vt_attention_call *c)
{
    if (c->pass != VT_ATTENTION_FORWARD && c->shape->keys % 128 == 64 && is_hopper(c->backend)) return false;
    return vt_fused_attention_fits(c);
}

#ifdef VT_HAS_WGMMA
static bool wgmma_fits(const vt_attention_call *c)
{
    const vt_matrix operands[] = {c->q, c->k, c->v, c->out, c->dout, c->dq, c->dk, c->dv};
    return is_hopper(c->backend) && vt_wgmma_attention_fits(c->shape, operands, c->pass != VT_ATTENTION_FORWARD);
}

static bool run_wgmma(void *context)
{
    const vt_attention_call *c = context;
    const bool done = c->pass != VT_ATTENTION_FORWARD
                          ? vt_cuda_wgmma_attention_backward(c->backend, c->shape, c->q, c->k, c->v, c->out, c->log_sum,
                                                             c->dout, c->dq, c->dk, c->dv)
                          : vt_cuda_wgmma_attention_forward(c->backend, c->shape, c->q, c->k, c->v, c->out, c->log_sum);
    return done && cudaPeekAtLastError() == cudaSuccess;
}
#endif

static const struct {
    const char *name, *title;
    bool (*fits)(const vt_attention_call *call); /* whether it could run the call at all; NULL: always */
    bool (*run)(void *call);                     /* NULL: this build lacks the engine */
} engines[VT_ATTENTION_ENGINES] = {
    [VT_ATTENTION_OWN] = {"own", "vitrain's attention for every GPU", NULL, run_own},
    [VT_ATTENTION_CUDNN] = {"cuDNN", "cuDNN's attention", cudnn_fits, vt_fused_attention_run},
#ifdef VT_HAS_WGMMA
    [VT_ATTENTION_WGMMA] = {"wgmma", "vitrain's attention over wgmma", wgmma_fits, run_wgmma}
#endif
};

static bool fits(const vt_attention_call *call, vt_attention_engine engine)
{
    return engines[engine].run != NULL && (engines[engine].fits == NULL || engines[engine].fits(call));
}

/* ---- the choice ---- */

enum { KEY_NUMBERS = sizeof(vt_attention_key) / sizeof(int64_t) };
static const char kind[] = "attention_of";

static void keep(const vt_attention_call *c, vt_attention_engine engine)
{
    const uint64_t value = engine;
    vt_choices_add(c->backend->choices, kind, (const int64_t *)&c->choice->shape, KEY_NUMBERS, &value, 1);
}

/* Whether the engine can run it, for which cuDNN must have a plan. */
static bool can_serve(const vt_attention_call *c, vt_attention_engine engine)
{
    if (!fits(c, engine)) return false;
    if (engine != VT_ATTENTION_CUDNN) return true;
    if (c->choice->plan == NULL && !c->choice->cudnn_refuses)
        c->choice->plan = vt_fused_attention_plan_open(c->backend, &c->choice->shape);
    c->choice->cudnn_refuses = c->choice->plan == NULL;
    return c->choice->plan != NULL;
}

/* Can the workspace be allocated? Trying cuDNN in vain must not end a run that fits without it. */
static bool has_room(const vt_attention_call *c)
{
    const vt_cuda_state *state = c->backend->state;
    size_t bytes = vt_fused_attention_workspace(c), free_bytes = 0, total;
    if (bytes < state->workspace_bytes) return true;
    enum { SPARE = 64 << 20 }; /* memory comes in pieces of some MB */
    if (cudaMemGetInfo(&free_bytes, &total) == cudaSuccess && bytes + SPARE < free_bytes + state->workspace_bytes)
        return true;
    vt_fused_attention_note(c->backend, "no memory to try it");
    return false;
}

/* May the workspace be as large, by a rule that does not ask what is free? */
static bool is_moderate(const vt_attention_call *c)
{
    size_t free_bytes, total = 0;
    return cudaMemGetInfo(&free_bytes, &total) == cudaSuccess && vt_fused_attention_workspace(c) <= total / 16;
}

static vt_attention_engine choose_by_rule(const vt_attention_call *c)
{
    if (can_serve(c, VT_ATTENTION_WGMMA)) return VT_ATTENTION_WGMMA;
    /* NVIDIA's front end (cudnn-frontend, scaled_dot_product_flash_attention.h, set_deterministic_algorithm) describes
     * the graph of VT_ATTENTION_REPEATABLE for GPUs of compute capability 9, and chooses engines by their numbers for
     * newer ones. */
    if (!is_hopper(c->backend) || !can_serve(c, VT_ATTENTION_CUDNN)) return VT_ATTENTION_OWN;
    if (is_moderate(c) && !has_room(c)) {
        vt_log_warning("deterministic: the GPU has no memory left for the workspace of cuDNN's attention; vitrain's "
                       "own runs, which rounds in other places than a run with cuDNN's");
        return VT_ATTENTION_OWN;
    }
    const vt_attention_engine engine = is_moderate(c) ? VT_ATTENTION_CUDNN : VT_ATTENTION_OWN;
    keep(c, engine);
    return engine;
}

static vt_attention_engine choose_by_time(vt_attention_call *c)
{
    vt_cuda_trial trials[VT_ATTENTION_ENGINES];
    vt_attention_engine named[VT_ATTENTION_ENGINES];
    int count = 0, fastest = 0;
    bool all_tried = true;
    for (int i = 0; i < VT_ATTENTION_ENGINES; i++) {
        const vt_attention_engine engine = (vt_attention_engine)i;
        if (!can_serve(c, engine)) continue;
        if (engine == VT_ATTENTION_CUDNN && !has_room(c)) {
            all_tried = false;
            continue;
        }
        named[count] = engine;
        trials[count++] = (vt_cuda_trial){engines[engine].run, c, 0};
    }
    if (count == 1) return named[0]; /* our own, which always can */
    vt_cuda_time_all(c->backend, count, trials);
    for (int i = 1; i < count; i++)
        if (trials[i].milliseconds < trials[fastest].milliseconds) fastest = i;
    if (all_tried) keep(c, named[fastest]);
    return named[fastest];
}

static void choose(vt_attention_call *c)
{
    const vt_cuda_state *state = c->backend->state;
    const int64_t *key = (const int64_t *)&c->choice->shape;
    uint64_t kept;
    /* an engine that this build lacks may be the choice of another build */
    if (vt_choices_find(c->backend->choices, kind, key, KEY_NUMBERS, &kept, 1) && kept < VT_ATTENTION_ENGINES &&
        can_serve(c, (vt_attention_engine)kept))
        c->choice->chosen = (vt_attention_engine)kept;
    else
        c->choice->chosen = state->fixed_choices ? choose_by_rule(c) : choose_by_time(c);
    c->choice->is_chosen = true;
    if (c->choice->chosen != VT_ATTENTION_CUDNN) vt_fused_attention_plan_close(&c->choice->plan);
}

/* NULL: the shape is new while a step is recorded, when nothing can be timed; or there are too many shapes. */
static vt_attention_choice *find_shape(struct vt_attention_choices *choices, const vt_attention_call *c)
{
    const vt_attention_shape *s = c->shape;
    const vt_type result = c->pass == VT_ATTENTION_FORWARD ? c->out.type : c->dq.type;
    const vt_attention_key shape = {s->batch,       s->heads,
                                    s->head_dim,    s->queries,
                                    s->keys,        c->q.stride,
                                    c->k.stride,    c->v.stride,
                                    c->out.stride,  c->dout.stride,
                                    c->dq.stride,   c->dk.stride,
                                    c->dv.stride,   c->pass,
                                    c->q.type,      vt_attention_is_masked(s),
                                    result,         s->dropout.rate > 0,
                                    KERNELS_VERSION};
    for (size_t i = 0; i < choices->count; i++)
        if (memcmp(&choices->all[i].shape, &shape, sizeof shape) == 0) return &choices->all[i];
    if (vt_cuda_ends_recording(c->backend->state, VT_CUDA_WOULD_WAIT)) return NULL;
    if (choices->count == sizeof choices->all / sizeof *choices->all) return NULL;
    vt_attention_choice *of = &choices->all[choices->count++];
    of->shape = shape;
    return of;
}

static vt_attention_engine engine_of(vt_attention_call *c, vt_attention_engine preference)
{
    if (preference != VT_ATTENTION_BY_TIME) return can_serve(c, preference) ? preference : VT_ATTENTION_OWN;
    if (!c->choice->is_chosen) choose(c);
    return c->choice->chosen;
}

static void attend(vt_attention_call *c)
{
    struct vt_attention_choices *choices = choices_of(c->backend);
    /* A word that a language model writes is one query, which sees one more key than the word before: another shape,
     * whose choice, with cuDNN's compiler, would take far longer than the word. */
    const bool is_word = c->shape->queries == 1 && choices->preference == VT_ATTENTION_BY_TIME;
    if (!is_word && (fits(c, VT_ATTENTION_CUDNN) || fits(c, VT_ATTENTION_WGMMA))) c->choice = find_shape(choices, c);
    choices->ran = VT_ATTENTION_OWN;
    if (c->choice == NULL) {
        run_own(c);
        return;
    }
    const vt_attention_engine engine = choices->ran = c->choice->ran = engine_of(c, choices->preference);
    if (engines[engine].run(c) || engine == VT_ATTENTION_OWN) return;
    char sentence[400];
    snprintf(sentence, sizeof sentence, "%s, which had worked before, failed%s%s", engines[engine].title,
             engine == VT_ATTENTION_CUDNN ? ": " : "",
             engine == VT_ATTENTION_CUDNN ? vt_fused_attention_failure(c->backend) : "");
    ((vt_cuda_common *)c->backend->state)->fail(c->backend, sentence);
}

static void attention_forward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                              vt_matrix v, vt_matrix out, float *log_sum)
{
    vt_attention_call c = {.backend = backend,
                           .shape = shape,
                           .pass = VT_ATTENTION_FORWARD,
                           .q = q,
                           .k = k,
                           .v = v,
                           .out = out,
                           .log_sum = log_sum};
    attend(&c);
}

static void attention_backward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                               vt_matrix v, vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq,
                               vt_matrix dk, vt_matrix dv)
{
    const vt_attention_pass pass =
        ((vt_cuda_state *)backend->state)->fixed_choices ? VT_ATTENTION_REPEATABLE : VT_ATTENTION_BACKWARD;
    vt_attention_call c = {backend, shape, pass, q, k, v, out, dout, dq, dk, dv, .log_sum = (float *)log_sum};
    attend(&c);
}

static const char *prefer_by_number(vt_backend *backend, int number)
{
    vt_attention_prefer(backend, VT_ATTENTION_BY_TIME);
    for (int i = 0; i < VT_ATTENTION_ENGINES && number >= 0; i++) {
        if (!vt_attention_has(backend, (vt_attention_engine)i) || number-- > 0) continue;
        vt_attention_prefer(backend, (vt_attention_engine)i);
        return engines[i].name;
    }
    return NULL;
}

static const char *name_of_last(vt_backend *backend)
{
    return engines[choices_of(backend)->ran].name;
}

struct vt_attention_choices *vt_attention_open(vt_backend *backend)
{
    struct vt_attention_choices *choices = vt_allocate(1, sizeof *choices, "the choice of attention");
    choices->preference = VT_ATTENTION_BY_TIME;
    choices->own = *backend;
    backend->attention_forward = attention_forward;
    backend->attention_backward = attention_backward;
    backend->prefer_attention = prefer_by_number;
    backend->attention_ran = name_of_last;
    return choices;
}

void vt_attention_close(struct vt_attention_choices **result)
{
    struct vt_attention_choices *choices = *result;
    if (choices == NULL) return;
    for (size_t i = 0; i < choices->count; i++) vt_fused_attention_plan_close(&choices->all[i].plan);
    free(choices);
    *result = NULL;
}

void vt_attention_prefer(vt_backend *backend, vt_attention_engine engine)
{
    choices_of(backend)->preference = engine;
}

int vt_attention_served(vt_backend *backend, vt_attention_engine engine)
{
    const struct vt_attention_choices *choices = choices_of(backend);
    int served = 0;
    for (size_t i = 0; i < choices->count; i++) served += choices->all[i].ran == engine;
    return served;
}

bool vt_attention_has(vt_backend *backend, vt_attention_engine engine)
{
    const vt_cuda_state *state = backend->state;
    if (engine == VT_ATTENTION_CUDNN) return state->cudnn != NULL;
    if (engine == VT_ATTENTION_WGMMA) return engines[engine].run != NULL && is_hopper(backend);
    return engine == VT_ATTENTION_OWN;
}
