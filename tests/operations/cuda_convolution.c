/* cuda/convolution.c without a GPU, over a stand-in for cuDNN that computes what it was described (one more path of the
 * operations' tests), and which of its proposals are chosen, kept and refused. */
#include "operations/halves.h"
#include "operations/paths.h"
#include "test.h"

#if defined(VT_HAS_CUDA) && defined(VT_HAS_CUDNN) && defined(VT_HAS_HOST_CUDA)

#define FAKE_PLANS convolutions
#include "operations/fake_plans.h"

#include "cuda/graph_plans.h"

/* ---- what it computes ---- */

typedef struct {
    vt_type type;
    const int64_t *dims, *strides;
    char *memory;
} volume;

/* A tensor: whatever it is, it must lie in 16-byte pieces. */
static volume volume_of(const fake_descriptor *tensor, const fake_descriptor *pack)
{
    const int64_t id = find(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID)->numbers[0];
    const attribute *strides = find(tensor, CUDNN_ATTR_TENSOR_STRIDES),
                    *ids = find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const int32_t type = find(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE)->word;
    volume v = {.type = type == CUDNN_DATA_FLOAT  ? VT_FLOAT32
                        : type == CUDNN_DATA_HALF ? VT_FLOAT16
                                                  : VT_BFLOAT16,
                .dims = find(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS)->numbers,
                .strides = strides->numbers};
    for (int64_t i = 0; i < ids->count; i++)
        if (ids->numbers[i] == id) v.memory = find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->pointers[i];
    const int64_t size = (int64_t)vt_type_size(v.type);
    const bool is_aligned = (uintptr_t)v.memory % 16 == 0 && (v.strides[4] == 1 || v.strides[4] * size % 16 == 0);
    EXPECT(v.memory != NULL && is_aligned, "stride %ld", v.strides[4]);
    return v;
}

static int64_t place(const volume *v, int64_t a, int64_t b, const int64_t at[3])
{
    return a * v->strides[0] + b * v->strides[1] + at[0] * v->strides[2] + at[1] * v->strides[3] +
           at[2] * v->strides[4];
}

static double value_at(const volume *v, int64_t at)
{
    return (double)(v->type == VT_FLOAT32 ? ((float *)v->memory)[at]
                                          : vt_half_widen(v->type, ((uint16_t *)v->memory)[at]));
}

static void set_value(const volume *v, int64_t at, double value)
{
    if (v->type == VT_FLOAT32)
        ((float *)v->memory)[at] = (float)value;
    else
        ((uint16_t *)v->memory)[at] = vt_half_round(v->type, (float)value);
}

static void spread(int64_t index, int64_t side, int64_t at[3])
{
    for (int axis = 2; axis >= 0; axis--, index /= side) at[axis] = index % side;
}

/* Calls `add` for every product of the sum that an element of the result is, and stores it. kind: 0 y, 1 dx, 2 dw. */
static void compute(int kind, const volume *x, const volume *w, const volume *y)
{
    const int64_t batch = y->dims[0], out = y->dims[1], in = x->dims[1], side = y->dims[2], points = side * side * side;
    const volume *result = kind == 0 ? y : kind == 1 ? x : w;
    const int64_t count = result->dims[0] * result->dims[1] * result->dims[2] * result->dims[3] * result->dims[4];
    double *sums = vt_test_owned(vt_allocate((size_t)count, sizeof *sums, "a test"));
    EXPECT(x->dims[0] == batch && w->dims[0] == out && w->dims[1] == in && x->dims[2] == 2 * side && w->dims[2] == 4);
    for (int64_t n = 0; n < batch; n++) {
        for (int64_t point = 0; point < points; point++) {
            for (int64_t tap = 0; tap < 64; tap++) {
                int64_t at[3], of[3], from[3];
                bool is_inside = true;
                spread(point, side, at);
                spread(tap, 4, of);
                for (int axis = 0; axis < 3; axis++) {
                    from[axis] = 2 * at[axis] - 1 + of[axis];
                    is_inside = is_inside && from[axis] >= 0 && from[axis] < 2 * side;
                }
                if (!is_inside) continue;
                const int64_t x_point = (from[0] * 2 * side + from[1]) * 2 * side + from[2];
                for (int64_t o = 0; o < out; o++) {
                    for (int64_t i = 0; i < in; i++) {
                        const double xs = kind == 1 ? 0 : value_at(x, place(x, n, i, from));
                        const double ws = kind == 2 ? 0 : value_at(w, place(w, o, i, of));
                        const double ys = kind == 0 ? 0 : value_at(y, place(y, n, o, at));
                        if (kind == 0) sums[(n * out + o) * points + point] += xs * ws;
                        if (kind == 1) sums[(n * in + i) * 8 * points + x_point] += ws * ys;
                        if (kind == 2) sums[(o * in + i) * 64 + tap] += xs * ys;
                    }
                }
            }
        }
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t inner = result->dims[2] * result->dims[3] * result->dims[4];
        int64_t at[3];
        spread(i % inner, result->dims[2], at);
        set_value(result, place(result, i / inner / result->dims[1], i / inner % result->dims[1], at), sums[i]);
    }
}

static void check_convolution(const fake_descriptor *d)
{
    for (int axis = 0; axis < 3; axis++) {
        EXPECT(find(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)->numbers[axis] == 2);
        EXPECT(find(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)->numbers[axis] == 1);
        EXPECT(find(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)->numbers[axis] == 1);
        EXPECT(find(d, CUDNN_ATTR_CONVOLUTION_DILATIONS)->numbers[axis] == 1);
    }
    EXPECT(find(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE)->word == CUDNN_CROSS_CORRELATION);
    EXPECT(find(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE)->word == CUDNN_DATA_FLOAT);
    EXPECT(find(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS)->numbers[0] == 3);
}

#define OF(what, name) CUDNN_ATTR_OPERATION_CONVOLUTION_##what##_##name
#define COMPUTE(kind, what, x, w, y)                                                                                   \
    {                                                                                                                  \
        check_convolution(find_descriptor(operation, OF(what, CONV_DESC)));                                            \
        EXPECT(find(operation, OF(what, ALPHA))->value == 1 && find(operation, OF(what, BETA))->value == 0);           \
        const volume volumes[] = {volume_of(find_descriptor(operation, OF(what, x)), pack),                            \
                                  volume_of(find_descriptor(operation, OF(what, w)), pack),                            \
                                  volume_of(find_descriptor(operation, OF(what, y)), pack)};                           \
        compute(kind, &volumes[0], &volumes[1], &volumes[2]);                                                          \
    }

static void fake_compute_graph(const fake_descriptor *graph, const fake_descriptor *pack)
{
    const fake_descriptor *operation = find_descriptor(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    if (operation->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) COMPUTE(0, FORWARD, X, W, Y)
    if (operation->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) COMPUTE(1, BWD_DATA, DX, W, DY)
    if (operation->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)
        COMPUTE(2, BWD_FILTER, X, DW, DY)
}

#define vt_convolutions_fill fill_convolutions
#define vt_convolution_describe describe_convolution
void fill_convolutions(vt_backend *backend);
#include "cuda/convolution.c"

bool has_cudnn_path(void)
{
    return true;
}

vt_status open_cudnn_path(vt_backend **result)
{
    *result = open_path_of_cudnn();
    fill_convolutions(*result);
    return VT_OK;
}

/* ---- choices ---- */

static const vt_convolution shape = {1, 2, 4, 8};

/* A forward pass over ones. */
static void run_forward(vt_backend *b)
{
    static _Alignas(16) float x[64 * 4], weight[8 * 64 * 4], y[8 * 8];
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = 1;
    for (size_t i = 0; i < sizeof weight / sizeof *weight; i++) weight[i] = 1;
    b->convolution_forward(b, &shape, vt_matrix_make(x, 64, 4), vt_matrix_make(weight, 8, 256),
                           vt_matrix_make(y, 8, 8));
    EXPECT(fake.refuses_plans || fake.refuses_runs || y[0] == 27 * 4, "%g", (double)y[0]);
}

static own_state *open_choices(vt_backend **b, bool deterministic)
{
    EXPECT_OK(open_cudnn_path(b));
    own_state *own = (*b)->state;
    own->state.fixed_choices = deterministic;
    own->state.common.exact_float32 = true;
    static const double of_proposals[PROPOSALS] = {4, 1, 2, 3};
    memcpy(times, of_proposals, sizeof times);
    return own;
}

TEST(the_fastest_convolution_that_computes_as_it_should_runs)
{
    SCOPED(vt_backend) *b;
    static const cudnnBackendNumericalNote_t bad[] = {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
                                                      CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
                                                      CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
    for (int i = 0; i < 4; i++) {
        open_choices(&b, false);
        if (i < 3) fake.notes[1] = bad[i]; /* its time is the best */
        run_forward(b);
        EXPECT(fake.last == (i < 3 ? 2 : 1) && fake.timings == 1, "proposal %d", fake.last);
        run_forward(b);
        EXPECT(fake.timings == 1, "it is timed once");
        EXPECT_OK(b->check(b));
        vt_backend_close(&b);
    }
    own_state *own = open_choices(&b, false); /* TF32 is allowed */
    own->state.common.exact_float32 = false;
    fake.notes[1] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    run_forward(b);
    EXPECT(fake.last == 1);
}

TEST(deterministic_convolutions_are_the_first_and_always_add_in_one_order)
{
    SCOPED(vt_backend) *b;
    open_choices(&b, true);
    fake.notes[0] = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    run_forward(b);
    EXPECT(fake.last == 1 && fake.timings == 0);
    vt_backend_close(&b);
    open_choices(&b, false);
    run_forward(b);
    char *kept = vt_test_owned(vt_choices_text(b->choices));
    vt_backend_close(&b);
    open_choices(&b, true); /* a checkpoint's choice, which is not the first one */
    EXPECT(vt_choices_take(b->choices, kept) == 1);
    run_forward(b);
    EXPECT(fake.last == 1 && fake.timings == 0 && fake.runs == 1);
    vt_backend_close(&b);
    open_choices(&b, true);
    EXPECT(vt_choices_take(b->choices, kept) == 1);
    fake.notes[1] = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    run_forward(b);
    EXPECT(fake.last == 0);
}

TEST(a_new_convolution_ends_a_recording)
{
    SCOPED(vt_backend) *b;
    own_state *own = open_choices(&b, false);
    own->state.recording = true;
    b->convolution_forward(b, &shape, vt_matrix_make(NULL, 64, 4), vt_matrix_make(NULL, 8, 256),
                           vt_matrix_make(NULL, 8, 8));
    EXPECT(own->state.recording_fault != NULL && fake.runs == 0);
    own->state.recording = false;
    own->state.recording_fault = NULL;
    run_forward(b);
    own->state.recording = true;
    run_forward(b);
    EXPECT(own->state.recording_fault == NULL);
}

TEST(convolutions_that_cudnn_lacks_are_named)
{
    for (int i = 0; i < 3; i++) {
        SCOPED(vt_backend) *b = NULL;
        open_choices(&b, false);
        fake.refuses_plans = i == 0;
        fake.refuses_runs = i == 1;
        gpu_is_full = i == 2; /* no memory to time: the first one */
        run_forward(b);
        if (i == 2) {
            char *kept = vt_test_owned(vt_choices_text(b->choices));
            EXPECT(fake.last == 0 && fake.timings == 0);
            EXPECT(vt_choices_take(b->choices, kept) == 0, "kept without being timed: %s", kept);
            EXPECT_OK(b->check(b));
        } else {
            EXPECT_ERROR(b->check(b), i == 0 ? "cuDNN has no convolution for 1 cubes of 4³ points, 4 channels"
                                             : "cuDNN did not run its convolution");
        }
    }
}

#else

bool has_cudnn_path(void)
{
    return false;
}

vt_status open_cudnn_path(vt_backend **backend)
{
    *backend = NULL;
    return vt_error_note(__FILE__, __LINE__, "built without cuDNN");
}

#endif
