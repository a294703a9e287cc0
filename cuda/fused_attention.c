/* Attention by cuDNN: one engine of attention_choice.c. */
#include "fused_attention.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "state.h"

#ifdef VT_HAS_CUDNN

enum { FIRST_RIGHT_VERSION = 91501 }; /* earlier versions are wrong where the tokens are no multiple of 128 */

static struct vt_cudnn_state *cudnn_of(vt_backend *backend)
{
    return ((vt_cuda_state *)backend->state)->cudnn;
}

/* Where the parts of the workspace end, in bytes. */
typedef struct {
    size_t own, delta, all; /* cuDNN's own; backward's, else empty */
} fused_room;

static fused_room room_of(const vt_attention_call *c)
{
    const vt_attention_shape *s = c->shape;
    const int64_t rows = c->pass == VT_ATTENTION_FORWARD ? 0 : s->batch * s->heads * s->queries;
    const int64_t sums = c->pass == VT_ATTENTION_BACKWARD ? rows * s->head_dim : 0;
    const size_t own = vt_fused_rounded((size_t)c->choice->plan->workspace_bytes);
    const size_t delta = own + vt_fused_rounded((size_t)rows * sizeof(float));
    return (fused_room){own, delta, delta + vt_fused_rounded((size_t)sums * sizeof(float))};
}

size_t vt_fused_attention_workspace(const vt_attention_call *c)
{
    return room_of(c).all;
}

bool vt_fused_attention_run(void *call)
{
    const vt_attention_call *c = call;
    struct vt_cudnn_state *cudnn = cudnn_of(c->backend);
    vt_cuda_common *common = c->backend->state;
    const fused_room room = room_of(c);
    float scale = vt_attention_scale(c->shape), one = 1, unseen = -FLT_MAX;
    char *workspace = common->workspace(c->backend, room.all + 1);
    if (workspace == NULL) return false;
    const bool backward = c->pass != VT_ATTENTION_FORWARD;
    void *const memory[VT_FUSED_TENSORS + 1] = {
        [VT_FUSED_Q] = c->q.data,
        [VT_FUSED_K] = c->k.data,
        [VT_FUSED_V] = c->v.data,
        [VT_FUSED_OUT] = c->out.data,
        [VT_FUSED_LOG_SUM] = c->log_sum,
        [VT_FUSED_SCALE] = &scale,
        [VT_FUSED_DOUT] = c->dout.data, /* forward has neither these nor what follows */
        [VT_FUSED_DQ] = c->dq.data,
        [VT_FUSED_DK] = c->dk.data,
        [VT_FUSED_DV] = c->dv.data,
        [VT_FUSED_DELTA] = backward ? workspace + room.own : NULL,
        [VT_FUSED_ONE] = backward ? &one : NULL,
        [VT_FUSED_DQ_SUM] = c->pass == VT_ATTENTION_BACKWARD ? workspace + room.delta : NULL,
        [VT_FUSED_UNSEEN] = vt_attention_is_masked(c->shape) ? &unseen : NULL};
    if (vt_fused_plan_run(cudnn->library, cudnn->handle, c->choice->plan->plan, VT_FUSED_TENSORS, memory + VT_FUSED_Q,
                          workspace))
        return true;
    snprintf(cudnn->failure, sizeof cudnn->failure, "running a plan: ");
    cudnn->library->cudnnGetLastErrorString(cudnn->failure + strlen(cudnn->failure),
                                            sizeof cudnn->failure - strlen(cudnn->failure));
    return false;
}

static bool is_fit(vt_matrix m, vt_type type)
{
    return m.data == NULL || (m.type == type && m.stride % 8 == 0 && (uintptr_t)m.data % 16 == 0);
}

bool vt_fused_attention_fits(const vt_attention_call *c)
{
    const vt_attention_shape *s = c->shape;
    const vt_matrix *const all[] = {&c->q, &c->k, &c->v, &c->out, &c->dout, &c->dq, &c->dk, &c->dv};
    bool fit = cudnn_of(c->backend) != NULL && s->dropout.rate <= 0 &&
               (!vt_attention_is_masked(s) || s->first_query == s->first_key);
    fit = fit && s->head_dim % 8 == 0 && s->head_dim <= 128 && vt_type_is_half(c->q.type);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) fit = fit && is_fit(*all[i], c->q.type);
    return fit && (uintptr_t)c->log_sum % 16 == 0;
}

vt_fused_graph *vt_fused_attention_plan_open(vt_backend *backend, const vt_attention_key *shape)
{
    const struct vt_cudnn_state *cudnn = cudnn_of(backend);
    vt_fused_graph *plan = vt_allocate(1, sizeof *plan, "a plan of cuDNN's");
    if (vt_attention_graph_open(cudnn->library, cudnn->handle, NULL, shape, plan)) return plan;
    vt_fused_attention_note(backend, plan->failure[0] != '\0' ? plan->failure : "no proposals");
    vt_fused_attention_plan_close(&plan);
    return NULL;
}

void vt_fused_attention_plan_close(vt_fused_graph **plan)
{
    if (*plan == NULL) return;
    vt_fused_graph_close(*plan);
    free(*plan);
    *plan = NULL;
}

/* Once in a process. */
static void tell_of_own_attention(const char *why)
{
    static bool told;
    if (!told) vt_log_info("cuDNN's attention is not used, only vitrain's own: %s", why);
    told = true;
}

/* False, with the reason noted: our own kernels are used. */
static bool open_library(struct vt_cudnn_state *cudnn, vt_backend *backend)
{
    char text[300];
    if (vt_library_cudnn(&cudnn->library) != VT_OK) {
        tell_of_own_attention(vt_error_text());
        vt_error_clear();
        return false;
    }
    const vt_cudnn *library = cudnn->library;
    const size_t version = library->cudnnGetVersion();
    if (version < FIRST_RIGHT_VERSION) {
        snprintf(text, sizeof text, "version %zu is older than %d, the first that computes correctly", version,
                 FIRST_RIGHT_VERSION);
        tell_of_own_attention(text);
        return false;
    }
    if (library->cudnnCreate(&cudnn->handle) == CUDNN_STATUS_SUCCESS &&
        library->cudnnSetStream(cudnn->handle, (cudaStream_t)backend->stream) == CUDNN_STATUS_SUCCESS)
        return true;
    snprintf(text, sizeof text, "it does not start: ");
    library->cudnnGetLastErrorString(text + strlen(text), sizeof text - strlen(text));
    tell_of_own_attention(text);
    return false;
}

struct vt_cudnn_state *vt_cudnn_open(vt_backend *backend)
{
    struct vt_cudnn_state *cudnn = vt_allocate(1, sizeof *cudnn, "cuDNN");
    if (!open_library(cudnn, backend)) vt_cudnn_close(&cudnn);
    return cudnn;
}

void vt_cudnn_close(struct vt_cudnn_state **result)
{
    struct vt_cudnn_state *cudnn = *result;
    if (cudnn == NULL) return;
    if (cudnn->handle != NULL) cudnn->library->cudnnDestroy(cudnn->handle);
    free(cudnn);
    *result = NULL;
}

size_t vt_cudnn_version(const struct vt_cudnn_state *cudnn)
{
    return cudnn != NULL ? cudnn->library->cudnnGetVersion() : 0;
}

const char *vt_fused_attention_failure(vt_backend *backend)
{
    const struct vt_cudnn_state *cudnn = cudnn_of(backend);
    return cudnn != NULL ? cudnn->failure : "cuDNN can't be used, as the log says";
}

void vt_fused_attention_note(vt_backend *backend, const char *failure)
{
    struct vt_cudnn_state *cudnn = cudnn_of(backend);
    snprintf(cudnn->failure, sizeof cudnn->failure, "%s", failure);
}

#endif
