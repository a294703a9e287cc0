/* 16-bit products of the CUDA back end against the plain loops on the same numbers in float32. On the GPU with the
 * algorithms that cuBLASLt's timing chooses there, including bias sums in a weight's gradient, and again with the kept
 * choices: then to the same bits. */
#include "operations/guarded.h"
#include "operations/halves.h"
#include "operations/paths.h"
#include "test.h"

typedef struct {
    int64_t rows, in, out, gap; /* gap: numbers between rows; 0: as in a step, aligned to 256 bytes */
} sizes;

enum { X, WEIGHT, DY, Y, DX, HIDDEN, ACTIVE, MATRICES };

/* Operands and results of one back end, all in one allocation: everything that is not written must stay unchanged. */
typedef struct {
    vt_matrix matrix[MATRICES];
    float *bias, *dweight, *dbias;
    void *memory;
    size_t bytes;
} operands;

/* Room for `count` numbers of four bytes, whatever their type. */
static char *take(operands *o, const sizes *s, int64_t count)
{
    const size_t ahead = s->gap > 0 ? 4 : 0; /* aligned to a number alone */
    char *at = (char *)o->memory + o->bytes + ahead;
    o->bytes += ((size_t)count * sizeof(float) + ahead + 255) / 256 * 256;
    return at;
}

static operands open_operands(vt_type type, const sizes *s)
{
    const int64_t shape[MATRICES][2] = {{s->rows, s->in}, {s->out, s->in},   {s->rows, s->out}, {s->rows, s->out},
                                        {s->rows, s->in}, {s->rows, s->out}, {s->rows, s->out}};
    int64_t all = s->out * (s->in + 2) + 10 * 256;
    for (int i = 0; i < MATRICES; i++) all += shape[i][0] * (shape[i][1] + s->gap);
    const size_t room = ((size_t)all * sizeof(float) + 255) / 256 * 256;
    operands o = {.memory = vt_test_owned(aligned_alloc(256, room))};
    memset(o.memory, 0xff, room); /* NaN of every type */
    for (int i = 0; i < MATRICES; i++) {
        const int64_t rows = shape[i][0], columns = shape[i][1], stride = columns + s->gap;
        vt_matrix *m = &o.matrix[i];
        *m = (vt_matrix){.rows = rows, .columns = columns, .stride = stride, .type = type};
        m->data = (float *)take(&o, s, rows * stride);
    }
    o.bias = (float *)take(&o, s, s->out);
    o.dweight = (float *)take(&o, s, s->out * s->in);
    o.dbias = (float *)take(&o, s, s->out);
    VT_ASSERT(o.bytes <= room);
    fill_random(o.bias, s->out, 1, 1);
    fill_random(o.dweight, s->out * s->in, 2, 1); /* gradients are added to */
    fill_random(o.dbias, s->out, 3, 1);
    return o;
}

static double element(const vt_matrix *m, int64_t row, int64_t column)
{
    const int64_t at = row * m->stride + column;
    return m->type == VT_FLOAT32 ? (double)m->data[at] : (double)vt_half_widen(m->type, m->half[at]);
}

/* The same numbers for both, in 16 bits and as the float32 numbers that those are. */
static void fill_inputs(operands *half, operands *wide)
{
    for (int i = X; i <= DY; i++) {
        vt_matrix *h = &half->matrix[i], *w = &wide->matrix[i];
        for (int64_t r = 0; r < h->rows; r++) {
            float *row = w->data + r * w->stride;
            fill_random(row, w->columns, 100 * (uint64_t)i + 1000003 * (uint64_t)r, 1);
            for (int64_t c = 0; c < h->columns; c++) {
                h->half[r * h->stride + c] = vt_half_round(h->type, row[c]);
                row[c] = vt_half_widen(h->type, h->half[r * h->stride + c]);
            }
        }
    }
}

static void multiply(vt_backend *b, operands *o)
{
    vt_matrix *m = o->matrix;
    b->linear_forward(b, m[X], m[WEIGHT], o->bias, m[Y]);
    b->linear_backward_input(b, m[DY], m[WEIGHT], m[DX]);
    b->linear_backward_weight(b, m[X], m[DY], o->dweight, o->dbias);
}

static void multiply_with_gelu(vt_backend *b, operands *o)
{
    vt_matrix *m = o->matrix;
    b->linear_gelu_forward(b, VT_GELU_ERF, m[X], m[WEIGHT], o->bias, m[HIDDEN], m[ACTIVE]);
}

/* How far the results are off, as a multiple of `allowed`. */
typedef struct {
    double worst;
    int64_t row, column;
} excess;

static void weigh(excess *e, double actual, double expected, double allowed, int64_t row, int64_t column)
{
    const double times = fabs(actual - expected) / allowed;
    if (times <= e->worst) return; /* a NaN is the worst */
    *e = (excess){times == times ? times : INFINITY, row, column};
}

static void judge(const excess *e, vt_type type, const sizes *s, const char *name)
{
    EXPECT(e->worst <= 1, "%s in %s, %lld x %lld x %lld: off by %.3g times what is allowed at %lld, %lld", name,
           half_name(type), (long long)s->rows, (long long)s->in, (long long)s->out, e->worst, (long long)e->row,
           (long long)e->column);
}

/* The error of a sum of n products in float32, the largest being `largest`: rounded, as in against_plain.c, or
 * truncated after every 8 products, as tensor cores do. */
static double sum_error(int64_t terms, double largest)
{
    return (4 * sqrt((double)terms) + 4 + (double)terms / 4) * 0x1p-24 * largest;
}

static double largest_of(const vt_matrix *m)
{
    double largest = 0;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < m->columns; c++) largest = fmax(largest, fabs(element(m, r, c)));
    return largest;
}

/* How far rounding moves a number; at worst a step of the smallest ones. */
static double rounding(vt_type type, double value)
{
    return 1.01 * half_unit(type) * fabs(value) + (type == VT_FLOAT16 ? 0x1p-25 : 0);
}

/* `bias` (NULL: none) may be rounded, added to a rounded product, and the sum is rounded. */
static void compare_rounded(const vt_matrix *h, const vt_matrix *w, const sizes *s, int64_t terms, const float *bias,
                            const char *name)
{
    const double sum = sum_error(terms, largest_of(w));
    excess e = {0};
    for (int64_t r = 0; r < h->rows; r++) {
        for (int64_t c = 0; c < h->columns; c++) {
            const double expected = element(w, r, c), added = bias != NULL ? (double)bias[c] : 0;
            double allowed = sum + rounding(h->type, expected);
            if (bias != NULL) allowed += rounding(h->type, added) + rounding(h->type, expected - added);
            weigh(&e, element(h, r, c), expected, allowed, r, c);
        }
        for (int64_t c = h->columns; c < h->stride; c++)
            EXPECT(h->half[r * h->stride + c] == 0xffff, "%s: wrote between rows", name);
    }
    judge(&e, h->type, s, name);
}

/* GELU of what was kept as `hidden`. */
static void compare_active(const operands *half, const sizes *s)
{
    const vt_matrix *hidden = &half->matrix[HIDDEN], *active = &half->matrix[ACTIVE];
    excess e = {0};
    for (int64_t r = 0; r < hidden->rows; r++) {
        for (int64_t c = 0; c < hidden->columns; c++) {
            const double x = element(hidden, r, c), expected = 0.5 * x * (1 + erf(x * M_SQRT1_2));
            weigh(&e, element(active, r, c), expected, rounding(active->type, expected) + 0x1p-20, r, c);
        }
    }
    judge(&e, active->type, s, "active");
}

static void compare_sums(const float *actual, const float *expected, int64_t rows, int64_t columns, vt_type type,
                         const sizes *s, const char *name)
{
    const vt_matrix all = vt_matrix_make((float *)expected, rows, columns);
    const double allowed = sum_error(s->rows, largest_of(&all));
    excess e = {0};
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            weigh(&e, (double)actual[r * columns + c], (double)expected[r * columns + c], allowed, r, c);
    judge(&e, type, s, name);
}

static vt_status open_timed_path(vt_cpu_isa isa, vt_backend **backend)
{
    return isa == PATH_GPU ? path_open_timed_gpu(backend) : path_open(isa, backend);
}

static void check_products(vt_cpu_isa isa, vt_type type, const sizes *s)
{
    const int times = isa == PATH_GPU ? 2 : 1;
    vt_backend *plain = NULL, *b = NULL;
    operands wide = open_operands(VT_FLOAT32, s), half[2];
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_PLAIN, 0, &plain));
    for (int i = 0; i < times; i++) {
        half[i] = open_operands(type, s);
        fill_inputs(&half[i], &wide);
        EXPECT_OK(open_timed_path(isa, &b));
        multiply(b, &half[i]);
        multiply_with_gelu(b, &half[i]);
        EXPECT_OK(b->check(b));
        vt_backend_close(&b);
    }
    multiply(plain, &wide);
    vt_backend_close(&plain);
    compare_rounded(&half->matrix[Y], &wide.matrix[Y], s, s->in, wide.bias, "y");
    compare_rounded(&half->matrix[HIDDEN], &wide.matrix[Y], s, s->in, wide.bias, "hidden");
    compare_active(half, s);
    compare_rounded(&half->matrix[DX], &wide.matrix[DX], s, s->out, NULL, "dx");
    compare_sums(half->dweight, wide.dweight, s->out, s->in, type, s, "dweight");
    compare_sums(half->dbias, wide.dbias, 1, s->out, type, s, "dbias");
    if (times > 1)
        EXPECT(memcmp(half[0].memory, half[1].memory, half[0].bytes) == 0, "%s, %lld x %lld x %lld: kept choices",
               half_name(type), (long long)s->rows, (long long)s->in, (long long)s->out);
}

/* With 8 numbers and fewer, odd sizes, and those of a model: with and without alignment. */
GPU_TEST(products_in_16_bits)
{
    static const sizes all[] = {{1, 7, 5, 1},    {13, 8, 16, 0},  {97, 33, 65, 1},  {97, 40, 56, 0},
                                {97, 40, 56, 8}, {97, 40, 56, 1}, {1013, 64, 48, 0}};
    setenv("XDG_CACHE_HOME", vt_test_directory(), 1);
    FOR_EACH_CUDA_PATH(isa)
    FOR_EACH_HALF(type)
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) check_products(isa, type, &all[i]);
}

/* One sample's rows of the reference model's MLP, as in a step. */
GPU_TEST(products_in_16_bits_of_a_models_size)
{
    static const sizes mlp = {4050, 384, 1536, 0};
    if (!path_is_available(PATH_GPU)) {
        vt_test_skip("this machine has no GPU");
        return;
    }
    setenv("XDG_CACHE_HOME", vt_test_directory(), 1);
    FOR_EACH_HALF(type) check_products(PATH_GPU, type, &mlp);
}
