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
static const uint16_t nan_bits = 0x7fc1;

static float half_at(const twins *t, int64_t row, int64_t column)
{
    return vt_bfloat16_widen(t->own.half[row * t->own.stride + column]);
}

/* The 16-bit side must equal the other one except for the rounding of its sums' terms and of its results. Each is off
 * by at most u = half_unit of the number, and in the root mean square by 0.42 u (golden/vit.c says why), independently
 * of the others: this fraction of the terms' root mean square remains in the sum, and that is the size of the results.
 * Two of them are √2 · 0.42 u; twice that is allowed on the whole, and 5 u of the largest for each element. The guards
 * must be unchanged. */
static void compare(const twins *t, const char *name)
{
    const double on_the_whole = 2 * sqrt(2) * 0.42 * half_unit(VT_BFLOAT16);
    double squares = 0, errors = 0;
    twins_compare(t, 5, name);
    for (int64_t r = 0; r < t->wide.rows; r++)
        for (int64_t c = 0; c < t->wide.columns; c++) {
            const double expected = (double)t->wide.data[r * t->wide.stride + c];
            squares += expected * expected;
            errors += pow((double)half_at(t, r, c) - expected, 2);
        }
    EXPECT(sqrt(errors) <= on_the_whole * sqrt(squares), "%s on tiles: off by %g of it, allowed %g", name,
           sqrt(errors / squares), on_the_whole);
}

/* ---- against the oracle ---- */

static void check_attention(const pair *p, const vt_attention_shape *s, float scale)
{
    twins_attention a = twins_attention_open(VT_BFLOAT16, s, scale, TWINS_APART);
    twins_attention_forward(p->plain, &a, true);
    twins_attention_forward(p->fast, &a, false);
    compare(&a.out, "attention out");
    double sums = 4 * sqrt((double)(s->keys + s->head_dim)) * (1 + (double)scale * sqrt((double)s->head_dim));
    guarded_compare(&a.log_sum[1], &a.log_sum[0], (sums + 8) * 0x1p-24, "attention log_sum on tiles");
    /* one out and log_sum for both, so that backward is compared by itself */
    twins_attention_backward(p->plain, &a, true, a.out.wide, &a.log_sum[0]);
    twins_attention_backward(p->fast, &a, false, a.out.wide, &a.log_sum[0]);
    compare(&a.dv, "attention dv");
    if (s->keys > 1) { /* with a single key the weights are 1 and these gradients rounding noise */
        compare(&a.dq, "attention dq");
        compare(&a.dk, "attention dk");
    }
    EXPECT_OK(p->fast->check(p->fast));
}

#define FOR_EACH_TILES_PAIR(p)                                                                                         \
    FOR_EACH_TILES_PATH(isa)                                                                                           \
    for (pair p = open_pair(isa); p.fast != NULL; close_pair(&p))

TEST(attention_on_tiles)
{
    static const int64_t head_dims[] = {1, 5, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 104, 128};
    static const int64_t lengths[] = {1, 2, 7, 31, 33, 97, 127, 129, 193, 300};
    static const vt_attention_shape others[] = {{.batch = 1, .heads = 1, .head_dim = 48, .queries = 97, .keys = 1013},
                                                {.batch = 1, .heads = 2, .head_dim = 24, .queries = 50, .keys = 150}};
    FOR_EACH_TILES_PAIR(p)
    {
        vt_attention_shape shape = {.batch = 2, .heads = 2, .queries = 61, .keys = 61};
        for (size_t i = 0; i < sizeof head_dims / sizeof *head_dims; i++) {
            shape.head_dim = head_dims[i];
            check_attention(&p, &shape, 1);
        }
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            shape =
                (vt_attention_shape){.batch = 1, .heads = 3, .head_dim = 16, .queries = lengths[i], .keys = lengths[i]};
            check_attention(&p, &shape, 1);
            shape.queries = 131; /* a rank of context parallelism has fewer keys than queries, or more */
            check_attention(&p, &shape, 1);
        }
        check_attention(&p, &others[0], 1);
        check_attention(&p, &others[1], 10);
        shape = (vt_attention_shape){.batch = 2, .heads = 3, .head_dim = 16, .queries = 61, .keys = 203};
        shape.dropout = (vt_dropout){.rate = 0.3f, .seed = 5, .step = &dropout_step, .layer = 2, .first_sample = 9};
        check_attention(&p, &shape, 1);
    }
}

/* With q = 0 all weights are 1, which bfloat16 holds, and unit vectors as values make each weight visible in out: 1 /
 * keys, or its value after dropout; two heads, several blocks. Exact except for the division. */
static void check_every_weight(const pair *p, float rate, int64_t first_key, int64_t keys)
{
    enum { QUERIES = 140, DIM = 80 };
    vt_attention_shape s = {.batch = 1, .heads = 2, .head_dim = DIM, .queries = QUERIES, .keys = keys};
    s.dropout = (vt_dropout){.rate = rate, .seed = 5, .step = &dropout_step, .layer = 2};
    s.first_key = first_key;
    twins_attention a = twins_attention_open(VT_BFLOAT16, &s, 0, TWINS_APART);
    for (int64_t key = 0; key < keys; key++) {
        for (int64_t c = 0; c < 2 * DIM; c++) {
            float one = c % DIM == key % DIM && c / DIM == key / DIM ? 1 : 0; /* head 0: the first keys; 1: the rest */
            a.v.wide.data[key * a.v.wide.stride + c] = one;
            a.v.own.half[key * a.v.own.stride + c] = vt_bfloat16_round(one);
        }
    }
    guarded out = guarded_open(QUERIES, 2 * DIM);
    twins_attention_forward(p->plain, &a, true);
    p->fast->attention_forward(p->fast, &s, a.q.own, a.k.own, a.v.own, out.matrix, a.log_sum[1].matrix.data);
    guarded_compare(&out, &(guarded){.matrix = a.out.wide}, 32 * 0x1p-24, "each weight on tiles");
    EXPECT_OK(p->fast->check(p->fast));
}

TEST(every_weight_on_tiles)
{
    static const int64_t firsts[] = {0, 1, 2, 3, 7, 22}, counts[] = {150, 1, 17, 128, 129, 33};
    FOR_EACH_TILES_PAIR(p)
    for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++) {
        check_every_weight(&p, 0, firsts[i], counts[i]);
        check_every_weight(&p, 0.5f, firsts[i], counts[i]);
    }
}

TEST(attention_on_tiles_passes_nan_on)
{
    FOR_EACH_TILES_PATH(isa)
    {
        SCOPED(vt_backend) *b = open_path(isa);
        vt_attention_shape shape = {.batch = 1, .heads = 1, .head_dim = 16, .queries = 20, .keys = 20};
        twins_attention a = twins_attention_open(VT_BFLOAT16, &shape, 1, TWINS_APART);
        a.q.own.half[3 * a.q.own.stride + 5] = nan_bits;
        a.v.own.half[7 * a.v.own.stride + 2] = nan_bits;
        twins_attention_forward(b, &a, false);
        EXPECT(isnan(half_at(&a.out, 3, 0)), "isa %d hides a NaN in q", (int)isa);
        EXPECT(!isnan(half_at(&a.out, 4, 0)), "isa %d spreads a NaN in q", (int)isa);
        EXPECT(isnan(half_at(&a.out, 4, 2)), "isa %d hides a NaN in v", (int)isa);
    }
}

static bool same_bits(const twins *a, const twins *b)
{
    return memcmp(a->memory, b->memory, a->bytes) == 0;
}

/* Fills all memory of the back end itself with NaN. */
static void poison(vt_backend *b)
{
    vt_cpu_state *state = b->state;
    memset(state->scratch.memory, 0xff, state->scratch.bytes);
    memset(state->shared.memory, 0xff, state->shared.bytes);
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
        twins_attention a[COUNT];
        for (int i = 0; i < COUNT; i++) {
            vt_backend *enough = open_with_threads(threads[i]), *b = open_path(isa);
            a[i] = twins_attention_open(VT_BFLOAT16, &shape, 1, TWINS_APART);
            for (int round = 0; round < 2; round++) {
                if (round == 1) poison(b);
                twins_attention_forward(b, &a[i], false);
                twins_attention_backward(b, &a[i], false, a[i].out.own, &a[i].log_sum[1]);
            }
            close_path(&b);
            vt_backend_close(&enough);
            const twins *const of[] = {&a[i].out, &a[i].dq, &a[i].dk, &a[i].dv};
            const twins *const of_one[] = {&a[0].out, &a[0].dq, &a[0].dk, &a[0].dv};
            for (int j = 0; j < 4; j++) EXPECT(same_bits(of[j], of_one[j]), "result %d of %d threads", j, threads[i]);
        }
        SCOPED(vt_backend) *b = open_path(isa);
        const twins *const halves[] = {&a[0].dq, &a[0].dk, &a[0].dv};
        guarded wide[3];
        for (int j = 0; j < 3; j++) wide[j] = guarded_open(TOKENS, HEADS * DIM);
        b->attention_backward(b, &shape, a[0].q.own, a[0].k.own, a[0].v.own, a[0].out.own, a[0].log_sum[1].matrix.data,
                              a[0].dout.own, wide[0].matrix, wide[1].matrix, wide[2].matrix);
        for (int j = 0; j < 3; j++) {
            twins gradient = *halves[j];
            gradient.wide = wide[j].matrix;
            twins_compare(&gradient, 0, "a gradient in float32 on tiles");
            guarded_check(&wide[j], "a gradient in float32 on tiles");
        }
    }
    restore_threads();
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
