/* 16-bit matrices on the CPU: operands are widened into scratch memory, the float32 operation of the path below works
 * on them, and results are rounded into place. That gives the numbers of 16-bit units with float32 accumulation on
 * every processor; what it saves is memory. Operations without a 16-bit operand go straight through, and so do those of
 * vector/, which widen and round by themselves, to the same bits. */
#include "backend/half.h"
#include "backend/cpu/cpu.h"

static void convert(vt_backend *backend, vt_matrix from, vt_matrix to)
{
    (void)backend;
    vt_half_convert(from, to);
}

/* Float32 stand-ins of up to this many operands. */
enum { MOST_OPERANDS = 8 };

typedef struct {
    const vt_backend *wide; /* the table of the float32 operations below */
    vt_matrix operand[MOST_OPERANDS];
    bool ready; /* false: no memory; the back end's check says so */
} stand_ins;

/* The operand may go to the operation as it is. */
static bool stands_for_itself(vt_backend *backend, bool vectors, const vt_matrix *operand)
{
    if (!vt_type_is_half(operand->type) || operand->half == NULL) return true;
    return vectors && ((vt_cpu_state *)backend->state)->vectors_take_half;
}

/* Makes a stand-in for every 16-bit operand; the first `inputs` of them get its values. Others stand for themselves.
 * vectors: the operation is one of vector/, where that is in the table. */
static stand_ins widen(vt_backend *backend, bool vectors, int inputs, int count, const vt_matrix *operands)
{
    stand_ins s = {.wide = &((vt_cpu_state *)backend->state)->wide};
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        if (!stands_for_itself(backend, vectors, &operands[i]))
            bytes += (size_t)(operands[i].rows * operands[i].columns + 16) * sizeof(float);
    float *memory = vt_cpu_stand_in_memory(backend, bytes);
    s.ready = bytes == 0 || memory != NULL;
    for (int i = 0; i < count && s.ready; i++) {
        s.operand[i] = operands[i];
        if (stands_for_itself(backend, vectors, &operands[i])) continue;
        s.operand[i] = vt_matrix_make(memory, operands[i].rows, operands[i].columns);
        memory += (operands[i].rows * operands[i].columns + 15) / 16 * 16;
        if (i < inputs) backend->convert(backend, operands[i], s.operand[i]);
    }
    return s;
}

/* Rounds operand `index` back into its place, where it had a stand-in. */
static void narrow(vt_backend *backend, const stand_ins *s, int index, vt_matrix to)
{
    if (s->operand[index].type != to.type) backend->convert(backend, s->operand[index], to);
}

static void linear_forward(vt_backend *backend, vt_matrix x, vt_matrix weight, const float *bias, vt_matrix y)
{
    stand_ins s = widen(backend, true, 2, 3, (const vt_matrix[]){x, weight, y});
    if (!s.ready) return;
    s.wide->linear_forward(backend, s.operand[0], s.operand[1], bias, s.operand[2]);
    narrow(backend, &s, 2, y);
}

static void linear_backward_input(vt_backend *backend, vt_matrix dy, vt_matrix weight, vt_matrix dx)
{
    stand_ins s = widen(backend, true, 2, 3, (const vt_matrix[]){dy, weight, dx});
    if (!s.ready) return;
    s.wide->linear_backward_input(backend, s.operand[0], s.operand[1], s.operand[2]);
    narrow(backend, &s, 2, dx);
}

static void linear_backward_weight(vt_backend *backend, vt_matrix x, vt_matrix dy, float *dweight, float *dbias)
{
    stand_ins s = widen(backend, true, 2, 2, (const vt_matrix[]){x, dy});
    if (!s.ready) return;
    s.wide->linear_backward_weight(backend, s.operand[0], s.operand[1], dweight, dbias);
}

static void layer_norm_forward(vt_backend *backend, vt_matrix x, const float *weight, const float *bias, float epsilon,
                               vt_matrix y, float *mean, float *rstd)
{
    stand_ins s = widen(backend, true, 0, 1, &y);
    if (!s.ready) return;
    s.wide->layer_norm_forward(backend, x, weight, bias, epsilon, s.operand[0], mean, rstd);
    narrow(backend, &s, 0, y);
}

static void gelu_forward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix y)
{
    stand_ins s = widen(backend, true, 1, 2, (const vt_matrix[]){x, y});
    if (!s.ready) return;
    s.wide->gelu_forward(backend, kind, s.operand[0], s.operand[1]);
    narrow(backend, &s, 1, y);
}

static void gelu_backward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix dy, vt_matrix dx, vt_matrix y)
{
    stand_ins s = widen(backend, true, 2, 4, (const vt_matrix[]){x, dy, dx, y});
    if (!s.ready) return;
    s.wide->gelu_backward(backend, kind, s.operand[0], s.operand[1], s.operand[2], s.operand[3]);
    narrow(backend, &s, 2, dx);
    narrow(backend, &s, 3, y);
}

/* Rounding comes between the two. */
static void linear_gelu_forward(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix weight, const float *bias,
                                vt_matrix hidden, vt_matrix active)
{
    const vt_backend *wide = &((vt_cpu_state *)backend->state)->wide;
    const vt_matrix all[] = {x, weight, hidden, active};
    bool direct = true;
    for (int i = 0; i < 4; i++) direct = direct && stands_for_itself(backend, true, &all[i]);
    if (direct) {
        wide->linear_gelu_forward(backend, kind, x, weight, bias, hidden, active);
        return;
    }
    linear_forward(backend, x, weight, bias, hidden);
    gelu_forward(backend, kind, hidden, active);
}

static void residual_layer_norm(vt_backend *backend, vt_matrix x, vt_matrix branch, const vt_mask *mask,
                                const float *weight, const float *bias, float epsilon, vt_matrix y, vt_matrix normed,
                                float *mean, float *rstd)
{
    stand_ins s = widen(backend, true, 0, 1, &normed);
    if (!s.ready) return;
    s.wide->residual_layer_norm(backend, x, branch, mask, weight, bias, epsilon, y, s.operand[0], mean, rstd);
    narrow(backend, &s, 0, normed);
}

static void attention_forward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                              vt_matrix v, vt_matrix out, float *log_sum)
{
    stand_ins s = widen(backend, true, 3, 4, (const vt_matrix[]){q, k, v, out});
    if (!s.ready) return;
    s.wide->attention_forward(backend, shape, s.operand[0], s.operand[1], s.operand[2], s.operand[3], log_sum);
    narrow(backend, &s, 3, out);
}

static void attention_backward(vt_backend *backend, const vt_attention_shape *shape, vt_matrix q, vt_matrix k,
                               vt_matrix v, vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq,
                               vt_matrix dk, vt_matrix dv)
{
    stand_ins s = widen(backend, true, 5, 8, (const vt_matrix[]){q, k, v, out, dout, dq, dk, dv});
    if (!s.ready) return;
    s.wide->attention_backward(backend, shape, s.operand[0], s.operand[1], s.operand[2], s.operand[3], log_sum,
                               s.operand[4], s.operand[5], s.operand[6], s.operand[7]);
    narrow(backend, &s, 5, dq);
    narrow(backend, &s, 6, dk);
    narrow(backend, &s, 7, dv);
}

static void mask_multiply(vt_backend *backend, vt_matrix x, const vt_mask *mask, vt_matrix y)
{
    stand_ins s = widen(backend, false, 1, 2, (const vt_matrix[]){x, y});
    if (!s.ready) return;
    s.wide->mask_multiply(backend, s.operand[0], mask, s.operand[1]);
    narrow(backend, &s, 1, y);
}

static void patches_load(vt_backend *backend, const vt_patch_grid *grid, const float *fields, const float *mean,
                         const float *inverse_std, vt_matrix patches)
{
    stand_ins s = widen(backend, true, 0, 1, &patches);
    if (!s.ready) return;
    s.wide->patches_load(backend, grid, fields, mean, inverse_std, s.operand[0]);
    narrow(backend, &s, 0, patches);
}

static void relative_l2_backward(vt_backend *backend, int64_t batch, vt_matrix prediction, vt_matrix target,
                                 const double *squares, float scale, const double *loss_scale, vt_matrix dprediction)
{
    stand_ins s = widen(backend, false, 0, 1, &dprediction);
    if (!s.ready) return;
    s.wide->relative_l2_backward(backend, batch, prediction, target, squares, scale, loss_scale, s.operand[0]);
    narrow(backend, &s, 0, dprediction);
}

void vt_cpu_half_fill(vt_backend *backend)
{
    vt_cpu_state *state = backend->state;
    if (backend->convert == NULL) backend->convert = convert; /* no vector kernels: the plain path */
    state->wide = *backend;
    backend->linear_forward = linear_forward;
    backend->linear_backward_input = linear_backward_input;
    backend->linear_backward_weight = linear_backward_weight;
    backend->layer_norm_forward = layer_norm_forward;
    backend->gelu_forward = gelu_forward;
    backend->gelu_backward = gelu_backward;
    backend->linear_gelu_forward = linear_gelu_forward;
    backend->residual_layer_norm = residual_layer_norm;
    if (!state->vectors_take_half) {
        backend->attention_forward = attention_forward;
        backend->attention_backward = attention_backward;
    }
    backend->mask_multiply = mask_multiply;
    backend->patches_load = patches_load;
    backend->relative_l2_backward = relative_l2_backward;
}
