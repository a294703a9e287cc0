/* 16-bit matrices on the CPU: matrices that are read are widened into scratch memory, the float32 operation works on
 * them, and those that are written are rounded into place. That gives the numbers of 16-bit units with float32
 * accumulation on every processor; what it saves is memory. The operations of vector/ need none of this: they widen and
 * round by themselves, to the same bits. */
#include "backend/half.h"
#include "backend/cpu/cpu.h"

void vt_plain_convert(vt_backend *backend, vt_matrix from, vt_matrix to)
{
    vt_half_convert(from, to);
}

void vt_cpu_round_values(const vt_update *update, const float *values, uint16_t *rounded, int64_t count)
{
    enum { PIECE = 4096 };
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < (rounded != NULL ? count : 0); at += PIECE)
        vt_half_round_row(update->rounded, values + at, count - at < PIECE ? count - at : PIECE, rounded + at);
}

/* The 16-bit operands of a call, each of which has a float32 stand-in meanwhile. */
enum { MOST_OPERANDS = 12 };
typedef struct {
    int count;
    size_t bytes; /* of all stand-ins */
    struct {
        vt_matrix *operand; /* the parameter of the call: first the 16-bit matrix, then its stand-in */
        vt_matrix half;
        bool read, written;
    } all[MOST_OPERANDS];
} stand_ins;

/* Each begins at a multiple of 64 bytes. */
static size_t stand_in_bytes(const vt_matrix *matrix)
{
    return (size_t)(matrix->rows * matrix->columns + 15) / 16 * 16 * sizeof(float);
}

static void add(stand_ins *s, vt_matrix *operand, bool read, bool written)
{
    if (!vt_type_is_half(operand->type) || operand->half == NULL) return;
    s->bytes += stand_in_bytes(operand);
    s->all[s->count].operand = operand;
    s->all[s->count].half = *operand;
    s->all[s->count].read = read;
    s->all[s->count++].written = written;
}

/* False: there is no memory; the back end's check says so. */
static bool widen(vt_backend *backend, stand_ins *s)
{
    char *memory = s->count > 0 ? vt_cpu_stand_in_memory(backend, s->bytes) : NULL;
    if (s->count > 0 && memory == NULL) return false;
    for (int i = 0; i < s->count; i++) {
        const vt_matrix *half = &s->all[i].half;
        *s->all[i].operand = vt_matrix_make((float *)(void *)memory, half->rows, half->columns);
        memory += stand_in_bytes(half);
        if (s->all[i].read) backend->convert(backend, *half, *s->all[i].operand);
    }
    return true;
}

static void narrow(vt_backend *backend, const stand_ins *s)
{
    for (int i = 0; i < s->count; i++)
        if (s->all[i].written) backend->convert(backend, *s->all[i].operand, s->all[i].half);
}

#define ADD(operand) ADD_##operand
#define ADD_IN(matrix) add(&s, &matrix, true, false);
#define ADD_OUT(matrix) add(&s, &matrix, false, true);
#define ADD_IN_OUT(matrix) add(&s, &matrix, true, true);
#define ADD_IN_OUT_IF(matrix, condition) add(&s, &matrix, true, condition);
#define ADD_IN_ARRAY(type, array, count)
#define ADD_OUT_ARRAY(type, array, count)
#define ADD_IN_OUT_ARRAY(type, array, count)
#define ADD_MASK(mask)
#define ADD_ATTENTION(shape)
#define ADD_VALUE(type, value)

#define OPTIONAL_OPERATION(name, work, ...)
#define OPERATION(name, work, ...)                                                                                     \
    static void half_##name(vt_backend *backend VT_PARAMETERS(__VA_ARGS__))                                            \
    {                                                                                                                  \
        stand_ins s = {.count = 0};                                                                                    \
        VT_EACH(ADD, __VA_ARGS__)                                                                                      \
        if (!widen(backend, &s)) return;                                                                               \
        ((vt_cpu_state *)backend->state)->without_half.name(backend VT_ARGUMENTS(__VA_ARGS__));                        \
        narrow(backend, &s);                                                                                           \
    }
#include "backend/operations.def"

/* The masked branch is rounded before it is added. */
static void half_masked_residual(vt_backend *backend, vt_matrix x, vt_matrix branch, const vt_mask *mask, vt_matrix y)
{
    const vt_mask none = {.tokens = 1};
    if (vt_mask_is_active(mask)) half_mask_multiply(backend, branch, mask, branch);
    half_residual_add(backend, x, branch, &none, y);
}

void vt_cpu_half_fill(vt_backend *backend)
{
    const vt_backend before = *backend;
    ((vt_cpu_state *)backend->state)->without_half = before;
#define OPTIONAL_OPERATION(name, work, ...)
#define OPERATION(name, work, ...)                                                                                     \
    if (before.name == vt_plain_##name) backend->name = half_##name;
#include "backend/operations.def"
    backend->convert = before.convert;
    if (before.residual_add == vt_plain_residual_add) backend->residual_add = half_masked_residual;
    backend->residual_layer_norm = before.residual_layer_norm; /* the plain ones are made of two operations */
    backend->linear_gelu_forward = before.linear_gelu_forward;
}
