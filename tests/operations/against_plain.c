/* Every operation of every fast path against the plain loops: odd sizes, unaligned views, strides, NaN-poisoned
 * outputs, guards around everything. A sum of n products in float32 is off by at most about √n · 2^-24 of its terms'
 * size, so 4 √n 2^-24 of the largest result is allowed, and four units in the last place for results that are not
 * sums. */
#include <fenv.h>

#include "backend/cpu/cpu.h"
#include "operations/guarded.h"
#include "operations/paths.h"
#include "test.h"

static const uint32_t dropout_step = 17; /* of dropout */

static const double unit = 0x1p-24;
static const int64_t odd_sizes[] = {1, 7, 97, 1013};

static double sum_tolerance(int64_t terms)
{
    return 4 * sqrt((double)terms) * unit + 4 * unit;
}

static void check_linear(const path_list *paths, int64_t rows, int64_t in, int64_t out)
{
    guarded x = guarded_random(rows, in, 1, 1), dy = guarded_random(rows, out, 2, 1);
    guarded bias = guarded_random(1, out, 3, 1), y[2], without[2], dx[2], dweight[2], dbias[2];
    float *weight = vt_test_owned(malloc((size_t)(in * out) * sizeof *weight));
    fill_random(weight, in * out, 4, 1);
    vt_matrix weights = vt_matrix_make(weight, out, in);
    for (int i = -1; i < paths->count; i++) {
        vt_backend *b = i < 0 ? paths->plain : paths->at[i];
        const int of = i >= 0;
        y[of] = guarded_open(rows, out);
        without[of] = guarded_open(rows, out);
        dx[of] = guarded_open(rows, in);
        dweight[of] = guarded_random(1, in * out, 5, 1);
        dbias[of] = guarded_random(1, out, 6, 1);
        b->linear_forward(b, x.matrix, weights, bias.matrix.data, NULL, y[of].matrix);
        b->linear_forward(b, x.matrix, weights, NULL, NULL, without[of].matrix);
        b->linear_backward_input(b, dy.matrix, weights, dx[of].matrix);
        b->linear_backward_weight(b, x.matrix, dy.matrix, dweight[of].matrix.data, dbias[of].matrix.data);
        if (i < 0) continue;
        guarded_compare(&y[1], &y[0], sum_tolerance(in), "linear y");
        guarded_compare(&without[1], &without[0], sum_tolerance(in), "linear y without bias");
        guarded_compare(&dx[1], &dx[0], sum_tolerance(out), "linear dx");
        guarded_compare(&dweight[1], &dweight[0], sum_tolerance(rows), "linear dweight");
        guarded_compare(&dbias[1], &dbias[0], sum_tolerance(rows), "linear dbias");
    }
}

static bool has_products(vt_cpu_isa isa)
{
    return isa <= PATH_GPU || isa == PATH_TILES_MODEL;
}

GPU_TEST(linear)
{
    path_list paths = open_paths(has_products);
    for (int r = 0; r < 4; r++) check_linear(&paths, odd_sizes[r], 33, 65);
    check_linear(&paths, 97, 1, 7);
    check_linear(&paths, 97, 1013, 70); /* sums in several runs */
    check_linear(&paths, 1013, 400, 129);
    check_linear(&paths, 7, 97, 1);
    check_linear(&paths, 8, 2100, 9);   /* few rows, more than a chunk of columns */
    check_linear(&paths, 70, 40, 5600); /* so deep that no block of rows fits the cache with them */
    check_linear(&paths, 41, 5500, 97);
    check_linear(&paths, 61, 1030, 1101); /* the weight is packed by each thread for itself */
    close_paths(&paths);
}

/* Whatever the bits of the NaN; an infinity may become NaN, but not a number. */
static void check_nan_in_products(vt_cpu_isa isa, uint32_t bits)
{
    enum { ROWS = 40, IN = 70, OUT = 33, ROW = 17, COLUMN = 41 };
    pair p = open_pair(isa);
    guarded x = guarded_random(ROWS, IN, 1, 1), dy = guarded_random(ROWS, OUT, 2, 1), y = guarded_open(ROWS, OUT);
    guarded weight = guarded_random(OUT, IN, 3, 1);
    float *dweight = vt_test_owned(calloc((size_t)OUT * IN, sizeof *dweight));
    memcpy(x.matrix.data + ROW * x.matrix.stride + COLUMN, &bits, sizeof bits);
    p.fast->linear_forward(p.fast, x.matrix, weight.matrix, NULL, NULL, y.matrix);
    p.fast->linear_backward_weight(p.fast, x.matrix, dy.matrix, dweight, NULL);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < OUT; c++)
            EXPECT(!!isfinite(y.matrix.data[r * y.matrix.stride + c]) == (r != ROW), "isa %d, %x: y %ld, %ld", (int)isa,
                   bits, r, c);
    for (int64_t r = 0; r < OUT; r++)
        for (int64_t c = 0; c < IN; c++)
            EXPECT(!!isfinite(dweight[r * IN + c]) == (c != COLUMN), "isa %d, %x: dweight %ld, %ld", (int)isa, bits, r,
                   c);
    close_pair(&p);
}

GPU_TEST(products_propagate_non_finite_values)
{
    static const uint32_t bits[] = {0x7fc00000, 0x7fffffff, 0xff812345, 0x7f800000, 0xff800000};
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        FOR_EACH_FAST_PATH(isa) check_nan_in_products(isa, bits[i]);
        check_nan_in_products(PATH_TILES_MODEL, bits[i]);
    }
}

static void check_layer_norm(pair *p, int64_t rows, int64_t columns, float offset)
{
    guarded x = guarded_random(rows, columns, 1, 1), dy = guarded_random(rows, columns, 2, 1);
    guarded weight = guarded_random(1, columns, 3, 1), bias = guarded_random(1, columns, 4, 1);
    guarded y[2], dx[2], mean[2], rstd[2], dweight[2], dbias[2];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) x.matrix.data[r * x.matrix.stride + c] += offset;
    for (int i = 0; i < 2; i++) {
        vt_backend *b = i == 0 ? p->plain : p->fast;
        y[i] = guarded_open(rows, columns);
        dx[i] = guarded_random(rows, columns, 5, 1);
        mean[i] = guarded_open(1, rows);
        rstd[i] = guarded_open(1, rows);
        dweight[i] = guarded_random(1, columns, 6, 1);
        dbias[i] = guarded_random(1, columns, 7, 1);
        b->layer_norm_forward(b, x.matrix, weight.matrix.data, bias.matrix.data, 1e-6f, y[i].matrix,
                              mean[i].matrix.data, rstd[i].matrix.data);
        /* one mean and rstd for both, so that backward is compared by itself */
        b->layer_norm_backward(b, x.matrix, weight.matrix.data, mean[0].matrix.data, rstd[0].matrix.data, dy.matrix,
                               dx[i].matrix, (vt_matrix){0}, dweight[i].matrix.data, dbias[i].matrix.data);
    }
    /* what an error of half a unit in x and its mean does to a value of size 1 */
    double conditioning = 8 * unit * (1 + (double)fabsf(offset));
    if (columns > 1) { /* a single column has variance 0: 1 / √eps of rounding noise */
        guarded_compare(&y[1], &y[0], sum_tolerance(columns) + conditioning, "layer_norm y");
        guarded_compare(&rstd[1], &rstd[0], sum_tolerance(columns) + conditioning, "layer_norm rstd");
        guarded_compare(&dx[1], &dx[0], sum_tolerance(columns) + conditioning, "layer_norm dx");
    }
    guarded_compare(&mean[1], &mean[0], sum_tolerance(columns) + 8 * unit, "layer_norm mean");
    guarded_compare(&dweight[1], &dweight[0], sum_tolerance(rows) + conditioning, "layer_norm dweight");
    guarded_compare(&dbias[1], &dbias[0], sum_tolerance(rows), "layer_norm dbias");
}

GPU_TEST(layer_norm)
{
    FOR_EACH_PAIR(p)
    {
        for (int r = 0; r < 4; r++)
            for (int c = 0; c < 4; c++) check_layer_norm(&p, odd_sizes[r] % 200 + 1, odd_sizes[c], 0);
    }
}

GPU_TEST(layer_norm_of_other_sizes)
{
    FOR_EACH_PAIR(p)
    {
        check_layer_norm(&p, 13, 97, 100);
        check_layer_norm(&p, 65, 32, 0);
        check_layer_norm(&p, 21, 2504, 0); /* too long for a GPU's registers */
    }
}

static void check_gelu(pair *p, vt_gelu kind, int64_t rows, int64_t columns, float scale)
{
    guarded x = guarded_random(rows, columns, 1, scale), dy = guarded_random(rows, columns, 2, 1);
    guarded y[2], dx[2], again = guarded_open(rows, columns);
    for (int i = 0; i < 2; i++) {
        vt_backend *b = i == 0 ? p->plain : p->fast;
        y[i] = guarded_open(rows, columns);
        dx[i] = guarded_copy(&dy);
        b->gelu_forward(b, kind, x.matrix, y[i].matrix);
        b->gelu_backward(b, kind, x.matrix, dx[i].matrix, dx[i].matrix, again.matrix);
        guarded_compare(&again, &y[i], 0, "gelu once more in backward");
    }
    /* x and Φ(x) are each off by a few units; the slope is at most 1.13 and meets dy of up to about 4 */
    guarded_compare(&y[1], &y[0], 8 * unit, "gelu y");
    guarded_compare(&dx[1], &dx[0], 16 * unit, "gelu dx");
    p->fast->gelu_backward(p->fast, kind, x.matrix, dy.matrix, dx[1].matrix, (vt_matrix){0});
    guarded_compare(&dx[1], &dx[0], 16 * unit, "gelu dx alone");
}

GPU_TEST(gelu)
{
    FOR_EACH_PAIR(p)
    {
        for (int kind = VT_GELU_ERF; kind <= VT_GELU_TANH; kind++) {
            for (int c = 0; c < 4; c++) check_gelu(&p, (vt_gelu)kind, 29, odd_sizes[c], 1);
            check_gelu(&p, (vt_gelu)kind, 5, 1013, 10);
            check_gelu(&p, (vt_gelu)kind, 5, 97, 1e-3f);
        }
    }
}

/* Whether this thread computed numbers too small for float32 since the exceptions were cleared: each costs the
 * processor a hundred cycles and more. */
static bool has_underflown(void)
{
    return fetestexcept(FE_UNDERFLOW) != 0;
}

/* Activations and scores of any size take no longer: nearly zero numbers do not become denormal. */
TEST(large_numbers_make_no_denormal_ones)
{
    enum { ROWS = 70, DIM = 24 };
    FOR_EACH_CPU_PATH(isa)
    {
        if (isa == VT_ISA_PLAIN) continue; /* the oracle */
        SCOPED(vt_backend) *b = NULL;
        EXPECT_OK(vt_backend_open_cpu(isa, 1, &b));
        guarded x = guarded_random(ROWS, DIM, 1, 30), dy = guarded_random(ROWS, DIM, 2, 1);
        guarded y = guarded_open(ROWS, DIM), dx = guarded_open(ROWS, DIM), again = guarded_open(ROWS, DIM);
        for (int kind = VT_GELU_ERF; kind <= VT_GELU_TANH; kind++) {
            feclearexcept(FE_ALL_EXCEPT);
            b->gelu_forward(b, (vt_gelu)kind, x.matrix, y.matrix);
            b->gelu_backward(b, (vt_gelu)kind, x.matrix, dy.matrix, dx.matrix, again.matrix);
            EXPECT(!has_underflown(), "gelu %d", kind);
        }
        const vt_attention_shape shape = {.batch = 1, .heads = 1, .head_dim = DIM, .queries = ROWS, .keys = ROWS};
        guarded_attention a = guarded_attention_open(&shape, 30);
        for (int64_t d = 0; d < DIM; d++) { /* all maxima are the first key's: earlier sums are never scaled down */
            a.k.matrix.data[d] = 6;
            for (int64_t i = 0; i < ROWS; i++)
                a.q.matrix.data[i * a.q.matrix.stride + d] = fabsf(a.q.matrix.data[i * a.q.matrix.stride + d]);
        }
        feclearexcept(FE_ALL_EXCEPT);
        guarded_attention_forward(b, &a);
        EXPECT(!has_underflown(), "attention forward");
        guarded_attention_backward(b, &a, &a);
        EXPECT(!has_underflown(), "attention backward");
    }
}

static void check_fused(pair *p, int64_t rows, int64_t columns, float rate)
{
    guarded x = guarded_random(rows, columns, 1, 1), bias = guarded_random(1, 2 * columns, 2, 1);
    guarded y[2], normed[2], hidden[2], active[2], mean[2], rstd[2];
    float *weight = vt_test_owned(malloc((size_t)(2 * columns * columns) * sizeof *weight));
    vt_mask mask = {.elements = {.rate = rate, .seed = 3, .step = &dropout_step}, .tokens = rows};
    fill_random(weight, 2 * columns * columns, 4, 1);
    vt_matrix weights = vt_matrix_make(weight, 2 * columns, columns);
    for (int i = 0; i < 2; i++) {
        vt_backend *b = i == 0 ? p->plain : p->fast;
        y[i] = guarded_open(rows, columns);
        normed[i] = guarded_random(rows, columns, 5, 1); /* the branch, too */
        hidden[i] = guarded_open(rows, 2 * columns);
        active[i] = guarded_open(rows, 2 * columns);
        mean[i] = guarded_open(1, rows);
        rstd[i] = guarded_open(1, rows);
        b->residual_layer_norm(b, x.matrix, normed[i].matrix, &mask, bias.matrix.data, bias.matrix.data, 1e-6f,
                               y[i].matrix, normed[i].matrix, mean[i].matrix.data, rstd[i].matrix.data);
        b->linear_gelu_forward(b, VT_GELU_ERF, x.matrix, weights, bias.matrix.data, NULL, hidden[i].matrix,
                               active[i].matrix);
    }
    guarded_compare(&y[1], &y[0], 4 * unit, "residual_layer_norm y");
    if (columns > 1) guarded_compare(&normed[1], &normed[0], sum_tolerance(columns) + 8 * unit, "residual_layer_norm");
    guarded_compare(&hidden[1], &hidden[0], sum_tolerance(columns), "linear_gelu hidden");
    guarded_compare(&active[1], &active[0], sum_tolerance(columns) + 8 * unit, "linear_gelu active");
}

GPU_TEST(fused_operations)
{
    FOR_EACH_PAIR(p)
    {
        for (int c = 0; c < 3; c++) check_fused(&p, 29, odd_sizes[c], 0);
        check_fused(&p, 97, 64, 0.3f);
    }
}

/* Both sides of a pair on the same operands; backward continues from the oracle's forward. */
static void attend(const pair *p, guarded_attention a[2])
{
    a[1] = a[0];
    guarded_attention_renew(&a[1]);
    for (int i = 0; i < 2; i++) {
        guarded_attention_forward(i == 0 ? p->plain : p->fast, &a[i]);
        guarded_attention_backward(i == 0 ? p->plain : p->fast, &a[i], &a[0]);
    }
}

static void check_attention(pair *p, const vt_attention_shape *s, float scale)
{
    guarded_attention a[2] = {guarded_attention_open(s, scale)};
    attend(p, a);
    /* an error e in a score changes its weight by the factor 1 + e: scores of size scale · √dim are off by
     * sum_tolerance(dim) of that */
    double score_error = (double)scale * sqrt((double)s->head_dim) * sum_tolerance(s->head_dim);
    double out = sum_tolerance(s->keys) + 4 * score_error, sums = sum_tolerance(s->queries);
    const bool one = s->keys == 1; /* then the weights are 1 and gradients of scores rounding noise */
    guarded_attention_compare(&a[1], &a[0],
                              (const double[]){out, out, one ? -1 : 4 * out, one ? -1 : 4 * out + sums, out + sums});
}

GPU_TEST(attention)
{
    static const int64_t head_dims[] = {1, 5, 8, 16, 24, 40, 48, 64, 72, 80, 128};
    static const int64_t lengths[] = {1, 7, 48, 49, 97, 193, 300};
    /* several panels in each of several units, none of them full; a long row; large scores */
    static const vt_attention_shape others[] = {{.batch = 8, .heads = 2, .head_dim = 8, .queries = 70, .keys = 530},
                                                {.batch = 8, .heads = 2, .head_dim = 8, .queries = 530, .keys = 70},
                                                {.batch = 1, .heads = 1, .head_dim = 48, .queries = 97, .keys = 1013},
                                                {.batch = 1, .heads = 2, .head_dim = 24, .queries = 50, .keys = 50}};
    static const vt_attention_shape of_model[] = {{.batch = 1, .heads = 2, .head_dim = 40, .queries = 61, .keys = 61},
                                                  {.batch = 1, .heads = 1, .head_dim = 16, .queries = 70, .keys = 530},
                                                  {.batch = 1, .heads = 1, .head_dim = 24, .queries = 530, .keys = 50}};
    FOR_EACH_PAIR(p)
    {
        for (size_t i = 0; i < sizeof head_dims / sizeof *head_dims; i++) {
            vt_attention_shape shape = {.batch = 2, .heads = 2, .head_dim = head_dims[i], .queries = 61, .keys = 61};
            check_attention(&p, &shape, 1);
        }
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            vt_attention_shape shape = {
                .batch = 1, .heads = 3, .head_dim = 16, .queries = lengths[i], .keys = lengths[i]};
            check_attention(&p, &shape, 1);
            shape.queries = 31; /* fewer queries than keys, or more: a rank of context parallelism has that */
            check_attention(&p, &shape, 1);
        }
        for (int i = 0; i < 4; i++) check_attention(&p, &others[i], i < 3 ? 1 : 30);
    }
    pair model = open_pair(PATH_TILES_MODEL);
    for (int i = 0; i < 3; i++) check_attention(&model, &of_model[i], i < 2 ? 1 : 30);
    close_pair(&model);
}

GPU_TEST(attention_with_dropout)
{
    FOR_EACH_PAIR(p)
    {
        vt_attention_shape shape = {.batch = 2, .heads = 3, .head_dim = 16, .queries = 61, .keys = 203};
        shape.dropout = (vt_dropout){.rate = 0.3f, .seed = 5, .step = &dropout_step, .layer = 2, .first_sample = 9};
        check_attention(&p, &shape, 1);
    }
}

/* Also of a block of a larger attention, whose first key is no multiple of 4. */
GPU_TEST(weights_that_dropout_keeps)
{
    FOR_EACH_PAIR(p)
    {
        vt_attention_shape shape = {.batch = 2, .heads = 3, .head_dim = 8, .queries = 13, .keys = 37};
        shape.dropout = (vt_dropout){.rate = 0.3f, .seed = 5, .step = &dropout_step, .layer = 2, .first_sample = 9};
        for (int first = 0; first < 3; first++) {
            shape.first_head = first, shape.first_query = 5 * first, shape.first_key = 7 * first;
            const int64_t count = vt_attention_drawn_count(&shape), stride = vt_attention_drawn_stride(shape.queries);
            const guarded room[2] = {guarded_open(1, (count + 1) / 2), guarded_open(1, (count + 1) / 2)};
            const uint16_t *drawn[2];
            for (int i = 0; i < 2; i++) {
                vt_backend *b = i == 0 ? p.plain : p.fast;
                b->attention_draw(b, &shape, (uint16_t *)room[i].matrix.data);
                guarded_check(&room[i], "attention_draw");
                drawn[i] = (const uint16_t *)room[i].matrix.data;
            }
            for (int64_t chunk = 0; chunk < shape.batch * shape.heads * 3; chunk++)
                for (int64_t query = 0; query < shape.queries; query++) {
                    const int64_t at = chunk * stride + query;
                    const int there = chunk % 3 < 2 ? 0xffff : 0x1f; /* of the last 16 keys five exist */
                    EXPECT((drawn[1][at] & there) == (drawn[0][at] & there), "chunk %ld, query %ld: %x, expected %x",
                           chunk, query, drawn[1][at], drawn[0][at]);
                }
        }
    }
}

/* The running maximum is raised where it has to be: a first key far below or above all others, larger ones later on. */
GPU_TEST(attention_of_scores_far_apart)
{
    enum { QUERIES = 90, KEYS = 130, DIM = 16 };
    static const float sizes[] = {1, -1, 0.05f, -0.05f, 0.3f};
    const vt_attention_shape shape = {.batch = 1, .heads = 1, .head_dim = DIM, .queries = QUERIES, .keys = KEYS};
    FOR_EACH_PAIR(p)
    {
        guarded_attention a[2] = {guarded_attention_open(&shape, 0.01f)};
        for (int64_t i = 0; i < QUERIES; i++)
            for (int64_t d = 0; d < DIM; d++) a->q.matrix.data[i * a->q.matrix.stride + d] += sizes[i % 5];
        for (int64_t i = 0; i < KEYS; i++)
            for (int64_t d = 0; d < DIM; d++) { /* a score is 4 times that, times the query's size */
                float *k = &a->k.matrix.data[i * a->k.matrix.stride + d];
                *k = 0.3f * *k + (i == 0 ? -100 : i == 61 ? 5 : i == 100 ? 40 : i == KEYS - 1 ? -200 : 0);
            }
        attend(&p, a);
        /* of 800, with 7 digits */
        guarded_attention_compare(&a[1], &a[0], (const double[]){1e-4, 1e-6, -1, -1, -1});
    }
}

/* Numbers of one sign: sums that are truncated rather than rounded, as in tensor cores, would drift. */
static void check_drift(pair *p, int64_t queries, int64_t keys)
{
    enum { DIM = 16 };
    const double tolerance = 5e-6; /* rounded sums: 3e-6; truncated after every 8 terms: 1e-5 */
    const vt_attention_shape shape = {.batch = 1, .heads = 1, .head_dim = DIM, .queries = queries, .keys = keys};
    guarded_attention a[2] = {guarded_attention_open(&shape, 0.3f)};
    for (int64_t d = 0; d < DIM; d++) {
        for (int64_t i = 0; i < keys; i++) {
            a->k.matrix.data[i * a->k.matrix.stride + d] *= 0.3f;
            a->v.matrix.data[i * a->v.matrix.stride + d] = 1 + 0.2f * a->v.matrix.data[i * a->v.matrix.stride + d];
        }
        for (int64_t i = 0; i < queries; i++) {
            float *dout = &a->dout.matrix.data[i * a->dout.matrix.stride + d];
            *dout = 1 + 0.2f * *dout;
        }
    }
    attend(p, a);
    guarded_attention_compare(&a[1], &a[0], (const double[]){tolerance, -1, -1, -1, tolerance});
}

GPU_TEST(attention_of_long_rows_does_not_drift)
{
    FOR_EACH_PAIR(p)
    {
        check_drift(&p, 20, 1500);
        check_drift(&p, 1500, 20);
    }
}

GPU_TEST(attention_passes_nan_on)
{
    FOR_EACH_BACKEND(isa, b)
    {
        vt_attention_shape shape = {.batch = 1, .heads = 1, .head_dim = 16, .queries = 20, .keys = 20};
        guarded q = guarded_random(20, 16, 1, 1), k = guarded_random(20, 16, 2, 1), out = guarded_open(20, 16);
        float log_sum[20];
        q.matrix.data[3 * q.matrix.stride + 5] = NAN;
        b->attention_forward(b, &shape, q.matrix, k.matrix, k.matrix, out.matrix, log_sum);
        EXPECT(isnan(out.matrix.data[3 * out.matrix.stride]), "isa %d hides a NaN in q", (int)isa);
        EXPECT(!isnan(out.matrix.data[4 * out.matrix.stride]), "isa %d spreads a NaN in q", (int)isa);
    }
}

static void check_update(pair *p, vt_update update, vt_type type, int64_t count)
{
    update.rounded = type;
    guarded gradients = guarded_random(1, count, 1, 1), parameters[2], moment1[2], moment2[2];
    vt_step_state state = {.learning_rate = 1e-2, .factor = 0.7f, .updates = 3};
    state.correction1 = 1 - pow(update.beta1, 3);
    state.correction2 = 1 - pow(update.beta2, 3);
    double squares[2];
    for (int i = 0; i < 2; i++) {
        vt_backend *b = i == 0 ? p->plain : p->fast;
        parameters[i] = guarded_random(1, count, 2, 1);
        moment1[i] = guarded_random(1, count, 3, 0.1f);
        moment2[i] = guarded_random(1, count, 4, 0.1f);
        for (int64_t j = 0; j < count; j++) { /* of one sign, so that nothing cancels and rounding stays relative */
            gradients.matrix.data[j] = fabsf(gradients.matrix.data[j]);
            moment1[i].matrix.data[j] = fabsf(moment1[i].matrix.data[j]);
            moment2[i].matrix.data[j] = fabsf(moment2[i].matrix.data[j]);
        }
        const guarded_rounded rounded = guarded_rounded_open(type, count),
                              untouched = guarded_rounded_open(type, count);
        b->update(b, &update, &state, gradients.matrix.data, parameters[i].matrix.data, rounded.at,
                  moment1[i].matrix.data, moment2[i].matrix.data, count);
        guarded_rounded_check(&rounded, parameters[i].matrix.data, "update");
        squares[i] = 0;
        b->sum_of_squares(b, gradients.matrix.data, count, 1, &squares[i]);
        vt_step_state not_finite = state;
        not_finite.factor = NAN;
        guarded before = guarded_copy(&parameters[i]);
        b->update(b, &update, &not_finite, gradients.matrix.data, parameters[i].matrix.data, untouched.at,
                  moment1[i].matrix.data, moment2[i].matrix.data, count);
        guarded_rounded_check(&untouched, NULL, "an update that is not finite");
        guarded_compare(&parameters[i], &before, 0, "parameters after an update that is not finite");
    }
    guarded_compare(&parameters[1], &parameters[0], 16 * unit, "update parameters");
    guarded_compare(&moment1[1], &moment1[0], 8 * unit, "update moment1");
    guarded_compare(&moment2[1], &moment2[0], 8 * unit, "update moment2");
    EXPECT_NEAR(squares[1], squares[0], 1e-12 * squares[0]);
}

GPU_TEST(update)
{
    static const vt_update updates[] = {
        {.kind = VT_OPTIMIZER_Adam, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
        {.kind = VT_OPTIMIZER_AdamW, .beta1 = 0.8, .beta2 = 0.999, .epsilon = 1e-4, .weight_decay = 0.1},
        {.kind = VT_OPTIMIZER_SGD, .beta1 = 0.9, .weight_decay = 0.1},
        {.kind = VT_OPTIMIZER_SGD, .beta1 = 0.95, .nesterov = true, .weight_decay = 0.1},
        {.kind = VT_OPTIMIZER_SGD, .weight_decay = 0.1}};
    FOR_EACH_PAIR(p)
    {
        for (size_t kind = 0; kind < sizeof updates / sizeof *updates; kind++)
            for (int type = VT_FLOAT32; type <= VT_FLOAT16; type++)
                for (int i = 0; i < 4; i++) check_update(&p, updates[kind], (vt_type)type, odd_sizes[i]);
        check_update(&p, updates[0], VT_BFLOAT16, 300001);
    }
}

/* The same bits from one thread and from several; attention and products have tests of their own below. */
TEST(bits_do_not_depend_on_threads)
{
    enum { ROWS = 193, COLUMNS = 48 };
    guarded x = guarded_random(ROWS, COLUMNS, 1, 1), dy = guarded_random(ROWS, COLUMNS, 2, 1), dx[2], y[2];
    float weight[COLUMNS], mean[ROWS], rstd[ROWS], sums[2][2][COLUMNS] = {{{0}}}; /* of dweight and dbias */
    double squares[2] = {0}, norms[2][2];
    fill_random(weight, COLUMNS, 3, 1);
    for (int i = 0; i < 2; i++) {
        SCOPED(vt_backend) *b = open_with_threads(i == 0 ? 1 : 3);
        dx[i] = guarded_random(ROWS, COLUMNS, 4, 1);
        y[i] = guarded_open(ROWS, COLUMNS);
        b->layer_norm_forward(b, x.matrix, weight, weight, 1e-6f, y[i].matrix, mean, rstd);
        b->layer_norm_backward(b, x.matrix, weight, mean, rstd, dy.matrix, dx[i].matrix, (vt_matrix){0}, sums[i][0],
                               sums[i][1]);
        b->sum_of_squares(b, x.matrix.data, ROWS * COLUMNS, 1, &squares[i]);
        b->loss_sums(b, VT_MEASURE_RELATIVE, 1, x.matrix, dy.matrix, dy.matrix, norms[i]);
    }
    EXPECT(norms[0][0] == norms[1][0] && norms[0][1] == norms[1][1] && squares[0] == squares[1]);
    EXPECT(memcmp(sums[0], sums[1], sizeof sums[0]) == 0);
    guarded_compare(&y[1], &y[0], 0, "layer_norm y");
    guarded_compare(&dx[1], &dx[0], 0, "layer_norm dx");
    restore_threads();
}

/* Every measure, with weights and without. */
static void check_loss(const pair *p, int64_t tokens, int64_t columns)
{
    guarded x = guarded_random(3 * tokens, columns, 1, 1), y = guarded_random(3 * tokens, columns, 2, 1);
    guarded weights = guarded_random(tokens, columns, 3, 1);
    for (int64_t i = 0; i < tokens * columns; i++) {
        float *weight = weights.matrix.data + i / columns * weights.matrix.stride + i % columns;
        *weight = fabsf(*weight);
    }
    for (int kind = 0; kind < 6; kind++) {
        const vt_loss_measure measure = (vt_loss_measure)(kind / 2);
        const vt_matrix w = kind % 2 == 0 ? weights.matrix : (vt_matrix){0};
        guarded gradient[2];
        double sums[2][6];
        for (int i = 0; i < 2; i++) {
            vt_backend *b = i == 0 ? p->plain : p->fast;
            gradient[i] = guarded_open(3 * tokens, columns);
            b->loss_sums(b, measure, 3, x.matrix, y.matrix, w, sums[i]);
            b->loss_backward(b, measure, 3, x.matrix, y.matrix, w, sums[0], 0.25f, NULL, gradient[i].matrix);
        }
        for (int i = 0; i < 6; i++) EXPECT_NEAR(sums[1][i], sums[0][i], 1e-12 * sums[0][i]); /* none below 0 */
        guarded_compare(&gradient[1], &gradient[0], 8 * unit, "gradient of the loss");
    }
}

GPU_TEST(losses)
{
    FOR_EACH_PAIR(p)
    {
        for (int64_t tokens = 1; tokens < 60; tokens += 19) check_loss(&p, tokens, 37);
        check_loss(&p, 6, 1200);
    }
}

/* Rows without gaps (`dense`) and with. */
static void check_densities(const pair *p, double lambda, int64_t columns, bool dense)
{
    enum { BATCH = 2, POINTS = 1013, ROWS = BATCH * POINTS };
    const int64_t rows = dense ? 1 : ROWS, width = dense ? ROWS * columns : columns;
    guarded from[2] = {guarded_random(rows, width, 1, 1), guarded_random(rows, width, 2, 1)}, gradient[2];
    vt_matrix fields[2], slopes[2];
    double sums[2][2 * BATCH];
    const double loss_scale = 8;
    from[1].matrix.data[0] = from[0].matrix.data[0]; /* no gradient */
    for (int i = 0; i < 2; i++) {
        fields[i] = dense ? vt_matrix_make(from[i].matrix.data, ROWS, columns) : from[i].matrix;
        gradient[i] = guarded_open(rows, width);
        slopes[i] = dense ? vt_matrix_make(gradient[i].matrix.data, ROWS, columns) : gradient[i].matrix;
    }
    for (int i = 0; i < 2; i++) {
        vt_backend *b = i == 0 ? p->plain : p->fast;
        b->density_loss_sums(b, lambda, BATCH, fields[0], fields[1], sums[i]);
        b->density_loss_backward(b, lambda, BATCH, fields[0], fields[1], 0.25f, &loss_scale, slopes[i]);
    }
    for (int i = 0; i < 2 * BATCH; i++) EXPECT_NEAR(sums[1][i], sums[0][i], 1e-12 * sums[0][i]);
    for (int64_t i = 0; i < ROWS * columns; i++) { /* one by one: densities differ by powers of ten */
        const int64_t r = i / columns, c = i % columns;
        const double expected = (double)slopes[0].data[r * slopes[0].stride + c];
        EXPECT_NEAR((double)slopes[1].data[r * slopes[1].stride + c], expected, 3e-7 * fabs(expected));
    }
    guarded_compare(&gradient[1], &gradient[0], 0x1p-22, "gradient of the densities' loss");
    EXPECT(gradient[1].matrix.data[0] == 0);
    fields[0].data[0] = NAN;
    p->fast->density_loss_sums(p->fast, lambda, BATCH, fields[0], fields[1], sums[1]);
    p->fast->density_loss_backward(p->fast, lambda, BATCH, fields[0], fields[1], 0.25f, &loss_scale, fields[0]);
    EXPECT(isnan(sums[1][0]) && !isnan(sums[1][2]) && isnan(fields[0].data[0]));
}

/* Of one channel and of several, with and without the densities' part. */
GPU_TEST(losses_of_densities)
{
    FOR_EACH_PAIR(p)
    {
        for (int kind = 0; kind < 8; kind++) check_densities(&p, kind & 1 ? 0.01 : 0, kind & 2 ? 5 : 1, kind & 4);
    }
}

/* Several blocks of keys add to each dq; some threads have a head, some help with another's and some are idle, the
 * second time in memory full of NaN. */
TEST(attention_does_not_depend_on_threads)
{
    enum { COUNT = 5 };
    static const int threads[COUNT] = {1, 2, 3, 8, 32};
    if (vt_test_gpu_alone()) return;
    const vt_attention_shape shape = {.batch = 1, .heads = 3, .head_dim = 20, .queries = 130, .keys = 1100};
    guarded_attention a[COUNT];
    for (int i = 0; i < COUNT; i++) {
        vt_backend *b = open_with_threads(threads[i]);
        a[i] = guarded_attention_open(&shape, 1);
        for (int again = 0; again < 2; again++) {
            guarded_attention_forward(b, &a[i]);
            guarded_attention_backward(b, &a[i], &a[i]);
            vt_cpu_state *state = b->state;
            const vt_cpu_room rooms[] = {state->scratch, state->shared};
            for (int room = 0; room < 2; room++)
                if (rooms[room].memory != NULL) memset(rooms[room].memory, 0xff, rooms[room].bytes);
        }
        close_path(&b);
        guarded_attention_compare(&a[i], &a[0], (const double[]){0, 0, 0, 0, 0});
    }
    restore_threads();
}

/* Enough rows, sums and columns for several strips, runs and panels, and for idle threads. */
static void check_threads(int64_t rows, int64_t in, int64_t out)
{
    enum { COUNT = 5 };
    static const int threads[COUNT] = {1, 2, 3, 8, 32};
    guarded x = guarded_random(rows, in, 1, 1), dy = guarded_random(rows, out, 2, 1);
    guarded y[COUNT], hidden[COUNT], active[COUNT], dx[COUNT], dweight[COUNT], dbias[COUNT];
    const guarded weight = guarded_random(1, out * in, 3, 1), biases = guarded_random(1, out, 4, 1);
    const float *bias = biases.matrix.data;
    vt_matrix weights = vt_matrix_make(weight.matrix.data, out, in);
    for (int i = 0; i < COUNT; i++) {
        vt_backend *b = open_with_threads(threads[i]);
        guarded *const results[] = {&y[i], &hidden[i], &active[i]};
        for (int j = 0; j < 3; j++) *results[j] = guarded_open(rows, out);
        dx[i] = guarded_open(rows, in);
        dweight[i] = guarded_random(1, out * in, 5, 1);
        dbias[i] = guarded_random(1, out, 6, 1);
        b->linear_forward(b, x.matrix, weights, bias, NULL, y[i].matrix);
        b->linear_gelu_forward(b, VT_GELU_ERF, x.matrix, weights, bias, NULL, hidden[i].matrix, active[i].matrix);
        b->linear_backward_input(b, dy.matrix, weights, dx[i].matrix);
        b->linear_backward_weight(b, x.matrix, dy.matrix, dweight[i].matrix.data, dbias[i].matrix.data);
        close_path(&b);
        guarded_compare(&y[i], &y[0], 0, "linear y");
        guarded_compare(&hidden[i], &y[0], 0, "linear_gelu hidden");
        guarded_compare(&active[i], &active[0], 0, "linear_gelu active");
        guarded_compare(&dx[i], &dx[0], 0, "linear dx");
        guarded_compare(&dweight[i], &dweight[0], 0, "linear dweight");
        guarded_compare(&dbias[i], &dbias[0], 0, "linear dbias");
    }
    restore_threads();
}

TEST(products_do_not_depend_on_threads)
{
    if (vt_test_gpu_alone()) return;
    check_threads(801, 411, 75);
    check_threads(61, 1030, 1101);
}

TEST(an_instruction_set_that_is_missing_is_an_error)
{
    if (vt_test_gpu_alone()) return;
    vt_backend *backend = NULL;
    bool missing = false;
    for (vt_cpu_isa isa = VT_ISA_AVX2; isa <= VT_ISA_AMX; isa++) {
        if (path_is_available(isa)) continue;
        missing = true;
        EXPECT_ERROR(vt_backend_open_cpu(isa, 0, &backend), "this processor has no such instructions");
    }
    if (!missing) vt_test_skip("this processor has them all");
}
