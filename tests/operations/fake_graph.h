/* Runs a graph of the operations that attention and products with GELU are described with (cuda/attention_graph.c,
 * gelu_products.c), as cuDNN documents them, in float64: what stays inside the kernel is rounded where its type has 16
 * bits. */
#ifndef VT_TESTS_OPERATIONS_FAKE_GRAPH_H
#define VT_TESTS_OPERATIONS_FAKE_GRAPH_H

#include "operations/fake_cudnn.h"
#include "operations/halves.h"

/* Where the numbers of tensor `id` are: in memory, as its type says, or inside the kernel, as float64. */
typedef struct {
    int64_t id;
    int32_t type;
    char *memory;
    double *inside;
    bool is_alias; /* another tensor's numbers */
} fake_place;

typedef struct {
    int count;
    fake_place places[FAKE_MOST];
} fake_places;

/* Of 3 dimensions: the first is 1. */
typedef struct {
    int64_t dims[4], strides[4];
    const fake_place *place;
} fake_tensor;

static int64_t fake_elements(const fake_descriptor *tensor)
{
    const attribute *dims = find(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS);
    int64_t elements = 1;
    for (int64_t i = 0; i < dims->count; i++) elements *= dims->numbers[i];
    return elements;
}

static fake_place *fake_place_of(fake_places *all, const fake_descriptor *tensor, const fake_descriptor *pack)
{
    const int64_t id = find(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID)->numbers[0];
    for (int i = 0; i < all->count; i++)
        if (all->places[i].id == id) return &all->places[i];
    VT_ASSERT(all->count < FAKE_MOST);
    fake_place *made = &all->places[all->count++];
    *made = (fake_place){.id = id, .type = find(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE)->word};
    if (find(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL)->numbers[0] != 0) {
        made->inside = vt_allocate((size_t)fake_elements(tensor), sizeof *made->inside, "a test");
        return made;
    }
    const attribute *ids = find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    for (int64_t i = 0; i < ids->count; i++)
        if (ids->numbers[i] == id) made->memory = find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->pointers[i];
    EXPECT(made->memory != NULL, "the pack lacks tensor %ld", id);
    return made;
}

static fake_tensor fake_tensor_of(fake_places *all, const fake_descriptor *operation, cudnnBackendAttributeName_t name,
                                  const fake_descriptor *pack)
{
    const fake_descriptor *tensor = find_descriptor(operation, name);
    const attribute *dims = find(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS);
    fake_tensor t = {.dims = {1, 1, 1, 1}, .place = fake_place_of(all, tensor, pack)};
    for (int64_t i = 0; i < dims->count; i++) {
        t.dims[4 - dims->count + i] = dims->numbers[i];
        t.strides[4 - dims->count + i] = find(tensor, CUDNN_ATTR_TENSOR_STRIDES)->numbers[i];
    }
    return t;
}

/* Where element `at` lies; of dimensions of size 1 there is but one. */
static int64_t fake_offset(const fake_tensor *t, const int64_t at[4])
{
    int64_t offset = 0;
    for (int i = 0; i < 4; i++) offset += (t->dims[i] == 1 ? 0 : at[i]) * t->strides[i];
    return offset;
}

static vt_type fake_half_type(int32_t type)
{
    return type == CUDNN_DATA_HALF ? VT_FLOAT16 : VT_BFLOAT16;
}

static bool fake_is_half(int32_t type)
{
    return type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16;
}

static double fake_load(const fake_tensor *t, const int64_t at[4])
{
    const int64_t offset = fake_offset(t, at);
    const fake_place *p = t->place;
    if (p->inside != NULL) return p->inside[offset];
    if (fake_is_half(p->type)) return (double)vt_half_widen(fake_half_type(p->type), ((uint16_t *)p->memory)[offset]);
    return (double)((float *)p->memory)[offset];
}

static void fake_store(const fake_tensor *t, const int64_t at[4], double value)
{
    const int64_t offset = fake_offset(t, at);
    const fake_place *p = t->place;
    const uint16_t half = fake_is_half(p->type) ? vt_half_round(fake_half_type(p->type), (float)value) : 0;
    if (p->inside != NULL)
        p->inside[offset] = fake_is_half(p->type) ? (double)vt_half_widen(fake_half_type(p->type), half) : value;
    else if (fake_is_half(p->type))
        ((uint16_t *)p->memory)[offset] = half;
    else
        ((float *)p->memory)[offset] = (float)value;
}

#define FAKE_FOR_EACH(dims, at)                                                                                        \
    for (int64_t at[4] = {0}; at[0] < (dims)[0]; at[0]++)                                                              \
        for (at[1] = 0; at[1] < (dims)[1]; at[1]++)                                                                    \
            for (at[2] = 0; at[2] < (dims)[2]; at[2]++)                                                                \
                for (at[3] = 0; at[3] < (dims)[3]; at[3]++)

/* What GELU's tanh is of. */
static double fake_inner(double x)
{
    return sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
}

static double fake_compute(int32_t mode, double x, double b)
{
    switch (mode) {
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_EXP:
        return exp(x);
    case CUDNN_POINTWISE_LOG:
        return log(x);
    case CUDNN_POINTWISE_IDENTITY:
        return x;
    case CUDNN_POINTWISE_GELU_FWD:
        return x * (1 + erf(x * M_SQRT1_2)) / 2;
    case CUDNN_POINTWISE_GELU_APPROX_TANH_FWD:
        return x * (1 + tanh(fake_inner(x))) / 2;
    case CUDNN_POINTWISE_GELU_BWD:
        return b * ((1 + erf(x * M_SQRT1_2)) / 2 + x * exp(-x * x / 2) / sqrt(2 * M_PI));
    case CUDNN_POINTWISE_GELU_APPROX_TANH_BWD:
        return b * ((1 + tanh(fake_inner(x))) / 2 +
                    x / 2 * (1 - pow(tanh(fake_inner(x)), 2)) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x));
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    default:
        EXPECT(false, "pointwise mode %d", (int)mode);
        return NAN;
    }
}

static void fake_pointwise(fake_places *all, const fake_descriptor *operation, const fake_descriptor *pack)
{
    const fake_descriptor *what = find_descriptor(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const int32_t mode = find(what, CUDNN_ATTR_POINTWISE_MODE)->word;
    const bool is_place = mode == CUDNN_POINTWISE_GEN_INDEX, selects = mode == CUDNN_POINTWISE_BINARY_SELECT;
    const bool has_one = is_place || mode == CUDNN_POINTWISE_EXP || mode == CUDNN_POINTWISE_LOG ||
                         mode == CUDNN_POINTWISE_IDENTITY || mode == CUDNN_POINTWISE_GELU_FWD ||
                         mode == CUDNN_POINTWISE_GELU_APPROX_TANH_FWD;
    const bool is_backward = mode == CUDNN_POINTWISE_GELU_BWD || mode == CUDNN_POINTWISE_GELU_APPROX_TANH_BWD;
    const fake_tensor x = fake_tensor_of(all, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, pack);
    const fake_tensor y = fake_tensor_of(
        all, operation, is_backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
        pack);
    fake_tensor b = x, which = x;
    if (is_backward)
        b = fake_tensor_of(all, operation, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, pack);
    else if (!has_one)
        b = fake_tensor_of(all, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, pack);
    if (selects) which = fake_tensor_of(all, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, pack);
    FAKE_FOR_EACH(y.dims, at)
    {
        double value;
        if (is_place)
            value = (double)at[find(what, CUDNN_ATTR_POINTWISE_AXIS)->numbers[0]];
        else if (selects)
            value = fake_load(&which, at) != 0 ? fake_load(&x, at) : fake_load(&b, at);
        else
            value = fake_compute(mode, fake_load(&x, at), fake_load(&b, at));
        fake_store(&y, at, value);
    }
}

static void fake_multiply(fake_places *all, const fake_descriptor *operation, const fake_descriptor *pack)
{
    const fake_tensor a = fake_tensor_of(all, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, pack);
    const fake_tensor b = fake_tensor_of(all, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, pack);
    const fake_tensor c = fake_tensor_of(all, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, pack);
    EXPECT(a.dims[2] == c.dims[2] && b.dims[3] == c.dims[3] && a.dims[3] == b.dims[2]);
    FAKE_FOR_EACH(c.dims, at)
    {
        double sum = 0;
        for (int64_t k = 0; k < a.dims[3]; k++)
            sum += fake_load(&a, (const int64_t[]){at[0], at[1], at[2], k}) *
                   fake_load(&b, (const int64_t[]){at[0], at[1], k, at[3]});
        fake_store(&c, at, sum);
    }
}

/* Over the last dimension. */
static void fake_reduce(fake_places *all, const fake_descriptor *operation, const fake_descriptor *pack)
{
    const fake_descriptor *what = find_descriptor(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    const bool adds = find(what, CUDNN_ATTR_REDUCTION_OPERATOR)->word == CUDNN_REDUCE_TENSOR_ADD;
    const fake_tensor x = fake_tensor_of(all, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, pack);
    const fake_tensor y = fake_tensor_of(all, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, pack);
    EXPECT(y.dims[3] == 1 && y.dims[2] == x.dims[2]);
    FAKE_FOR_EACH(y.dims, at)
    {
        double result = adds ? 0 : (double)-INFINITY;
        for (int64_t k = 0; k < x.dims[3]; k++) {
            const double value = fake_load(&x, (const int64_t[]){at[0], at[1], at[2], k});
            result = adds ? result + value : fmax(result, value);
        }
        fake_store(&y, at, result);
    }
}

static void fake_reshape(fake_places *all, const fake_descriptor *operation, const fake_descriptor *pack)
{
    const fake_tensor x = fake_tensor_of(all, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, pack);
    fake_place *y = fake_place_of(all, find_descriptor(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC), pack);
    const int64_t id = y->id;
    free(y->inside);
    *y = *x.place;
    y->id = id;
    y->is_alias = true;
}

static void fake_graph_run(const fake_descriptor *graph, const fake_descriptor *pack)
{
    fake_places all = {0};
    const attribute *operations = find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    for (int64_t i = 0; i < operations->count; i++) {
        const fake_descriptor *operation = operations->pointers[i];
        switch ((int)operation->type) {
        case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
            fake_pointwise(&all, operation, pack);
            break;
        case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
            fake_multiply(&all, operation, pack);
            break;
        case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
            fake_reduce(&all, operation, pack);
            break;
        case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
            fake_reshape(&all, operation, pack);
            break;
        default:
            EXPECT(false, "operation %d", (int)operation->type);
        }
    }
    for (int i = 0; i < all.count; i++)
        if (!all.places[i].is_alias) free(all.places[i].inside);
}

#endif
