/* Attention in bfloat16 on tiles (backend/cpu/amx), on a processor that has them and over a model of them everywhere:
 * against the oracle on the same numbers in float32, with guards around everything and NaN in all outputs; and what the
 * model itself refuses and computes. */
#define VT_TILES_MODEL
#include "backend/cpu/amx/tiles.h"
#include "backend/cpu/cpu.h"
#include "operations/guarded.h"
#include "operations/halves.h"
#include "operations/paths.h"
#include "test.h"

static const uint32_t dropout_step = 17;

/* ---- matrices of 16 bits with guards ---- */

enum { GUARD = 67 };
static const uint16_t guard_bits = 0x4afe, nan_bits = 0x7fc1;

typedef struct {
    guarded wide; /* the same numbers in float32, for the oracle */
    vt_matrix half;
    uint16_t *memory;
    int64_t size;
} twins;

static twins open_twins(int64_t rows, int64_t columns)
{
    twins t = {.wide = guarded_open(rows, columns)};
    t.half = t.wide.matrix;
    t.half.type = VT_BFLOAT16;
    t.half.stride = columns + 3;
    t.size = 2 * GUARD + rows * t.half.stride;
    t.memory = vt_test_owned(malloc((size_t)t.size * sizeof *t.memory));
    for (int64_t i = 0; i < t.size; i++) t.memory[i] = guard_bits;
    t.half.half = t.memory + GUARD;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) t.half.half[r * t.half.stride + c] = nan_bits;
    return t;
}

static twins random_twins(int64_t rows, int64_t columns, uint64_t seed, float scale)
{
    twins t = open_twins(rows, columns);
    float *values = vt_test_owned(malloc((size_t)(rows * columns) * sizeof *values));
    fill_random(values, rows * columns, seed, scale);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            uint16_t half = vt_bfloat16_round(values[r * columns + c]);
            t.half.half[r * t.half.stride + c] = half;
            t.wide.matrix.data[r * t.wide.matrix.stride + c] = vt_bfloat16_widen(half);
        }
    }
    return t;
}

static float half_at(const twins *t, int64_t row, int64_t column)
{
    return vt_bfloat16_widen(t->half.half[row * t->half.stride + column]);
}

/* The 16-bit side must equal the other one except for the rounding of its sums' terms and of its results. Each is off
 * by at most u = half_unit of the number, and in the root mean square by 0.42 u (golden/vit.c says why), independently
 * of the others: this fraction of the terms' root mean square remains in the sum, and that is the size of the results.
 * Two of them are √2 · 0.42 u; twice that is allowed on the whole, and 5 u of the largest for each element. The guards
 * must be unchanged. */
static void compare(const twins *t, const char *name)
{
    const double tolerance = 5 * half_unit(VT_BFLOAT16), on_the_whole = 2 * sqrt(2) * 0.42 * half_unit(VT_BFLOAT16);
    double largest = 0, worst = 0, squares = 0, errors = 0;
    const vt_matrix *wide = &t->wide.matrix;
    for (int64_t r = 0; r < wide->rows; r++) {
        for (int64_t c = 0; c < wide->columns; c++) {
            double expected = (double)wide->data[r * wide->stride + c];
            double error = fabs((double)half_at(t, r, c) - expected);
            largest = fmax(largest, fabs(expected));
            squares += expected * expected;
            errors += error * error;
            worst = error <= worst ? worst : error; /* a NaN counts as worst */
        }
    }
    EXPECT(worst <= tolerance * largest, "%s on tiles: off by %g of %g, allowed %g of it", name, worst, largest,
           tolerance);
    EXPECT(sqrt(errors) <= on_the_whole * sqrt(squares), "%s on tiles: off by %g of it, allowed %g", name,
           sqrt(errors / squares), on_the_whole);
    for (int64_t i = 0; i < t->size; i++) {
        int64_t at = i - GUARD, column = at % t->half.stride;
        bool inside = at >= 0 && at < t->half.rows * t->half.stride && column < t->half.columns;
        if (!inside) EXPECT(t->memory[i] == guard_bits, "%s on tiles: written outside", name);
    }
}

/* ---- against the oracle ---- */

typedef struct {
    twins q, k, v, dout, out, dq, dk, dv;
    guarded log_sum[2];
} attention;

static attention open_attention(const vt_attention_shape *s, float scale)
{
    int64_t width = s->heads * s->head_dim, queries = s->batch * s->queries, keys = s->batch * s->keys;
    return (attention){.q = random_twins(queries, width, 1, scale),
                       .k = random_twins(keys, width, 2, 1),
                       .v = random_twins(keys, width, 3, 1),
                       .dout = random_twins(queries, width, 4, 1),
                       .out = open_twins(queries, width),
                       .dq = open_twins(queries, width),
                       .dk = open_twins(keys, width),
                       .dv = open_twins(keys, width),
                       .log_sum = {guarded_open(1, queries * s->heads), guarded_open(1, queries * s->heads)}};
}

static void forward_on_tiles(vt_backend *b, const vt_attention_shape *s, attention *a)
{
    b->attention_forward(b, s, a->q.half, a->k.half, a->v.half, a->out.half, a->log_sum[1].matrix.data);
}

static void backward_on_tiles(vt_backend *b, const vt_attention_shape *s, attention *a, vt_matrix out,
                              const float *log_sum)
{
    b->attention_backward(b, s, a->q.half, a->k.half, a->v.half, out, log_sum, a->dout.half, a->dq.half, a->dk.half,
                          a->dv.half);
}

static void check_attention(vt_backend *plain, vt_backend *b, const vt_attention_shape *s, float scale)
{
    const double unit = 0x1p-24;
    attention a = open_attention(s, scale);
    plain->attention_forward(plain, s, a.q.wide.matrix, a.k.wide.matrix, a.v.wide.matrix, a.out.wide.matrix,
                             a.log_sum[0].matrix.data);
    forward_on_tiles(b, s, &a);
    compare(&a.out, "attention out");
    double sums = 4 * sqrt((double)(s->keys + s->head_dim)) * unit * (1 + (double)scale * sqrt((double)s->head_dim));
    guarded_compare(&a.log_sum[1], &a.log_sum[0], sums + 8 * unit, "attention log_sum on tiles");
    /* one out and log_sum for both, so that backward is compared by itself */
    plain->attention_backward(plain, s, a.q.wide.matrix, a.k.wide.matrix, a.v.wide.matrix, a.out.wide.matrix,
                              a.log_sum[0].matrix.data, a.dout.wide.matrix, a.dq.wide.matrix, a.dk.wide.matrix,
                              a.dv.wide.matrix);
    backward_on_tiles(b, s, &a, a.out.wide.matrix, a.log_sum[0].matrix.data);
    compare(&a.dv, "attention dv");
    if (s->keys > 1) { /* with a single key the weights are 1 and these gradients rounding noise */
        compare(&a.dq, "attention dq");
        compare(&a.dk, "attention dk");
    }
    EXPECT_OK(b->check(b));
}

TEST(attention_on_tiles)
{
    static const int64_t head_dims[] = {1, 5, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 104, 128};
    static const int64_t lengths[] = {1, 2, 7, 31, 33, 97, 127, 129, 193, 300};
    FOR_EACH_TILES_PATH(isa)
    {
        vt_backend *plain = NULL, *b = NULL;
        EXPECT_OK(vt_backend_open_cpu(VT_ISA_PLAIN, 0, &plain));
        EXPECT_OK(path_open(isa, &b));
        for (size_t i = 0; i < sizeof head_dims / sizeof *head_dims; i++)
            check_attention(
                plain, b,
                &(vt_attention_shape){.batch = 2, .heads = 2, .head_dim = head_dims[i], .queries = 61, .keys = 61}, 1);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            vt_attention_shape shape = {
                .batch = 1, .heads = 3, .head_dim = 16, .queries = lengths[i], .keys = lengths[i]};
            check_attention(plain, b, &shape, 1);
            shape.queries = 131; /* a rank of context parallelism has fewer keys than queries, or more */
            check_attention(plain, b, &shape, 1);
        }
        check_attention(plain, b,
                        &(vt_attention_shape){.batch = 1, .heads = 1, .head_dim = 48, .queries = 97, .keys = 1013}, 1);
        check_attention(plain, b,
                        &(vt_attention_shape){.batch = 1, .heads = 2, .head_dim = 24, .queries = 50, .keys = 150}, 10);
        vt_attention_shape shape = {.batch = 2, .heads = 3, .head_dim = 16, .queries = 61, .keys = 203};
        shape.dropout = (vt_dropout){.rate = 0.3f, .seed = 5, .step = &dropout_step, .layer = 2, .first_sample = 9};
        check_attention(plain, b, &shape, 1);
        vt_backend_close(&plain);
        vt_backend_close(&b);
    }
}

/* With q = 0 all weights are 1, which bfloat16 holds, and unit vectors as values make each weight visible in out: 1 /
 * keys, or its value after dropout; two heads, several blocks. Exact except for the division. */
static void check_every_weight(vt_backend *plain, vt_backend *b, float rate, int64_t first_key, int64_t keys)
{
    enum { QUERIES = 140, MOST_KEYS = 150, DIM = 80 };
    vt_attention_shape s = {.batch = 1, .heads = 2, .head_dim = DIM, .queries = QUERIES, .keys = keys};
    s.dropout = (vt_dropout){.rate = rate, .seed = 5, .step = &dropout_step, .layer = 2};
    s.first_key = first_key;
    attention a = open_attention(&s, 0);
    for (int64_t key = 0; key < keys; key++) {
        for (int64_t c = 0; c < 2 * DIM; c++) {
            float one = c % DIM == key % DIM && c / DIM == key / DIM ? 1 : 0; /* head 0: the first keys; 1: the rest */
            a.v.wide.matrix.data[key * a.v.wide.matrix.stride + c] = one;
            a.v.half.half[key * a.v.half.stride + c] = vt_bfloat16_round(one);
        }
    }
    guarded out = guarded_open(QUERIES, 2 * DIM);
    plain->attention_forward(plain, &s, a.q.wide.matrix, a.k.wide.matrix, a.v.wide.matrix, a.out.wide.matrix,
                             a.log_sum[0].matrix.data);
    b->attention_forward(b, &s, a.q.half, a.k.half, a.v.half, out.matrix, a.log_sum[1].matrix.data);
    guarded_compare(&out, &a.out.wide, 32 * 0x1p-24, "each weight on tiles");
    EXPECT_OK(b->check(b));
}

TEST(every_weight_on_tiles)
{
    static const int64_t firsts[] = {0, 1, 2, 3, 7, 22}, counts[] = {150, 1, 17, 128, 129, 33};
    FOR_EACH_TILES_PATH(isa)
    {
        vt_backend *plain = NULL, *b = NULL;
        EXPECT_OK(vt_backend_open_cpu(VT_ISA_PLAIN, 0, &plain));
        EXPECT_OK(path_open(isa, &b));
        for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++) {
            check_every_weight(plain, b, 0, firsts[i], counts[i]);
            check_every_weight(plain, b, 0.5f, firsts[i], counts[i]);
        }
        vt_backend_close(&plain);
        vt_backend_close(&b);
    }
}

TEST(attention_on_tiles_passes_nan_on)
{
    FOR_EACH_TILES_PATH(isa)
    {
        vt_backend *b = NULL;
        EXPECT_OK(path_open(isa, &b));
        vt_attention_shape shape = {.batch = 1, .heads = 1, .head_dim = 16, .queries = 20, .keys = 20};
        attention a = open_attention(&shape, 1);
        a.q.half.half[3 * a.q.half.stride + 5] = nan_bits;
        a.v.half.half[7 * a.v.half.stride + 2] = nan_bits;
        forward_on_tiles(b, &shape, &a);
        EXPECT(isnan(half_at(&a.out, 3, 0)), "isa %d hides a NaN in q", (int)isa);
        EXPECT(!isnan(half_at(&a.out, 4, 0)), "isa %d spreads a NaN in q", (int)isa);
        EXPECT(isnan(half_at(&a.out, 4, 2)), "isa %d hides a NaN in v", (int)isa);
        vt_backend_close(&b);
    }
}

static bool same_bits(const twins *a, const twins *b)
{
    return memcmp(a->memory, b->memory, (size_t)a->size * sizeof *a->memory) == 0;
}

/* Fills all memory of the back end itself with NaN. */
static void poison(vt_backend *b)
{
    vt_cpu_state *state = b->state;
    memset(state->scratch, 0xff, (size_t)state->threads * state->scratch_bytes);
    memset(state->shared, 0xff, state->shared_bytes);
}

/* Several blocks of queries and of keys, more threads than heads, the second time in memory full of NaN. bfloat16
 * gradients are the float32 ones, rounded. */
TEST(bits_on_tiles_do_not_depend_on_threads)
{
    enum { TOKENS = 401, DIM = 24, HEADS = 2, COUNT = 4 };
    static const int threads[COUNT] = {1, 2, 3, 16};
    vt_attention_shape shape = {.batch = 1, .heads = HEADS, .head_dim = DIM, .queries = TOKENS, .keys = TOKENS};
    shape.dropout = (vt_dropout){.rate = 0.2f, .seed = 5, .step = &dropout_step, .layer = 2};
    FOR_EACH_TILES_PATH(isa)
    {
        attention a[COUNT];
        for (int i = 0; i < COUNT; i++) {
            vt_backend *b = NULL, *enough = NULL;
            EXPECT_OK(vt_backend_open_cpu(VT_ISA_BASELINE, threads[i], &enough)); /* which sets them */
            EXPECT_OK(path_open(isa, &b));
            a[i] = open_attention(&shape, 1);
            for (int round = 0; round < 2; round++) {
                if (round == 1) poison(b);
                forward_on_tiles(b, &shape, &a[i]);
                backward_on_tiles(b, &shape, &a[i], a[i].out.half, a[i].log_sum[1].matrix.data);
            }
            EXPECT_OK(b->check(b));
            vt_backend_close(&b);
            vt_backend_close(&enough);
            EXPECT(same_bits(&a[i].out, &a[0].out), "out of %d threads", threads[i]);
            EXPECT(same_bits(&a[i].dq, &a[0].dq), "dq of %d threads", threads[i]);
            EXPECT(same_bits(&a[i].dk, &a[0].dk), "dk of %d threads", threads[i]);
            EXPECT(same_bits(&a[i].dv, &a[0].dv), "dv of %d threads", threads[i]);
        }
        vt_backend *b = NULL;
        guarded dq = guarded_open(TOKENS, HEADS * DIM), dk = guarded_open(TOKENS, HEADS * DIM);
        guarded dv = guarded_open(TOKENS, HEADS * DIM);
        EXPECT_OK(path_open(isa, &b));
        b->attention_backward(b, &shape, a[0].q.half, a[0].k.half, a[0].v.half, a[0].out.half,
                              a[0].log_sum[1].matrix.data, a[0].dout.half, dq.matrix, dk.matrix, dv.matrix);
        for (int64_t r = 0; r < TOKENS; r++) {
            for (int64_t c = 0; c < HEADS * DIM; c++) {
                int64_t at = r * dq.matrix.stride + c, half = r * a[0].dq.half.stride + c;
                EXPECT(vt_bfloat16_round(dq.matrix.data[at]) == a[0].dq.half.half[half]);
                EXPECT(vt_bfloat16_round(dk.matrix.data[at]) == a[0].dk.half.half[half]);
                EXPECT(vt_bfloat16_round(dv.matrix.data[at]) == a[0].dv.half.half[half]);
            }
        }
        guarded_check(&dq, "dq on tiles");
        guarded_check(&dk, "dk on tiles");
        guarded_check(&dv, "dv on tiles");
        vt_backend_close(&b);
    }
    vt_backend *again = NULL; /* gives later tests their threads back */
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_AUTO, 2, &again));
    vt_backend_close(&again);
}

/* ---- the model ---- */

static void expect_refused(const char *what)
{
    const char *refused = tiles_model_refused();
    EXPECT(refused != NULL && strstr(refused, what) != NULL, "'%s' was expected to be refused, was: %s", what,
           refused == NULL ? "nothing" : refused);
}

TEST(the_model_of_tiles_refuses_like_processors)
{
    tile_configuration good = tiles_all_full(), bad = good;
    float memory[256] = {0};
    tiles_model_refused();
    tile_zero(0);
    expect_refused("not configured");
    bad.palette = 2;
    tiles_load_configuration(&bad);
    expect_refused("palette");
    bad = good;
    bad.reserved[3] = 1;
    tiles_load_configuration(&bad);
    expect_refused("reserved");
    bad = good;
    bad.rows[2] = 17;
    tiles_load_configuration(&bad);
    expect_refused("too large");
    bad = good;
    bad.row_bytes[8] = 64;
    bad.rows[8] = 16;
    tiles_load_configuration(&bad);
    expect_refused("more than 8");
    good.rows[7] = good.rows[6] = 8; /* a left tile of 8 rows, and one that fits no right one of 16 */
    tiles_load_configuration(&good);
    tile_load(3, memory, 64);
    EXPECT(tiles_model_refused() == NULL);
    tile_multiply(0, 7, 1);
    expect_refused("shapes");
    tile_multiply(0, 1, 1);
    expect_refused("twice");
    tile_multiply(6, 7, 1);
    EXPECT(tiles_model_refused() == NULL);
    tiles_release();
    tile_load(3, memory, 64);
    expect_refused("not configured");
}

/* sum [8 × 5] += a [8 × 6] b [6 × 5], and what is denormal counts as 0. */
TEST(the_model_of_tiles_multiplies)
{
    enum { ROWS = 8, DEPTH = 6, COLUMNS = 5 };
    tile_configuration shapes = {
        .palette = 1, .row_bytes = {COLUMNS * 4, DEPTH * 2, COLUMNS * 4}, .rows = {ROWS, ROWS, DEPTH / 2}};
    uint16_t a[ROWS][DEPTH], b[DEPTH / 2][2 * COLUMNS];
    float sum[ROWS][COLUMNS], result[ROWS][COLUMNS + 2];
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < DEPTH; k++) a[r][k] = vt_bfloat16_round((float)(r - 3 * k));
    for (int k = 0; k < DEPTH; k++)
        for (int c = 0; c < COLUMNS; c++) b[k / 2][2 * c + k % 2] = vt_bfloat16_round((float)(7 * k + c * c));
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) sum[r][c] = (float)(r * c);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS + 2; c++) result[r][c] = -1;
    a[1][0] = 0x0001; /* denormal, beside b's largest numbers */
    b[0][0] = 0x7f00;
    for (int r = 0; r < ROWS; r++)
        if (r != 1) a[r][0] = 0;
    tiles_model_refused();
    tiles_load_configuration(&shapes);
    tile_load(0, sum, sizeof sum[0]);
    tile_load(1, a, sizeof a[0]);
    tile_load(2, b, sizeof b[0]);
    tile_multiply(0, 1, 2);
    tile_store(0, result, sizeof result[0]);
    tiles_release();
    EXPECT(tiles_model_refused() == NULL);
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLUMNS; c++) {
            double expected = (double)sum[r][c];
            for (int k = 1; k < DEPTH; k++) /* column 0 of a counts as 0 */
                expected += (double)vt_bfloat16_widen(a[r][k]) * (double)vt_bfloat16_widen(b[k / 2][2 * c + k % 2]);
            EXPECT((double)result[r][c] == expected, "[%d, %d] is %g, expected %g", r, c, (double)result[r][c],
                   expected);
        }
        EXPECT(result[r][COLUMNS] == -1 && result[r][COLUMNS + 1] == -1);
    }
}
