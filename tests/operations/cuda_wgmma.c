/* Attention over Hopper's wgmma: on the host, where copies and products happen early, late and at random
 * (cuda/host_wgmma.h), and on a GPU that has it. */
#include "cuda/cuda.h"
#include "cuda/host_wgmma.h"
#include "cuda/wgmma_attention.h"
#include "operations/guarded.h"
#include "operations/mirror.h"
#include "operations/paths.h"
#include "test.h"

#ifdef VT_HAS_HOST_CUDA

static void host_forward(vt_backend *b, const vt_attention_shape *shape, vt_matrix q, vt_matrix k, vt_matrix v,
                         vt_matrix out, float *log_sum)
{
    const vt_matrix operands[8] = {q, k, v, out};
    EXPECT(vt_wgmma_attention_fits(shape, operands, false));
    EXPECT(vt_host_cuda_wgmma_attention_forward(b, shape, q, k, v, out, log_sum));
}

static void host_backward(vt_backend *b, const vt_attention_shape *shape, vt_matrix q, vt_matrix k, vt_matrix v,
                          vt_matrix out, const float *log_sum, vt_matrix dout, vt_matrix dq, vt_matrix dk, vt_matrix dv)
{
    const vt_matrix operands[] = {q, k, v, out, dout, dq, dk, dv};
    EXPECT(vt_wgmma_attention_fits(shape, operands, true));
    EXPECT(vt_host_cuda_wgmma_attention_backward(b, shape, q, k, v, out, log_sum, dout, dq, dk, dv));
}

static void use_host_kernels(vt_backend *b)
{
    b->attention_forward = host_forward;
    b->attention_backward = host_backward;
}

#else

static void use_host_kernels(vt_backend *b)
{
    (void)b;
}

#endif

/* A test on every path that has these kernels. */
#define WGMMA_TEST(name)                                                                                               \
    static void name(const pair *p, bool is_card);                                                                     \
    GPU_TEST(name)                                                                                                     \
    {                                                                                                                  \
        bool runs = false;                                                                                             \
        FOR_EACH_CUDA_PATH(path)                                                                                       \
        for (pair p = open_pair(path); p.fast != NULL; close_pair(&p)) {                                               \
            if (path == PATH_HOST_CUDA) use_host_kernels(p.fast);                                                      \
            if (path == PATH_GPU && path_gpu_is_host())                                                                \
                use_host_kernels(mirror_inner(p.fast));                                                                \
            else if (path == PATH_GPU && !path_use_wgmma(p.fast))                                                      \
                continue;                                                                                              \
            name(&p, path == PATH_GPU && !path_gpu_is_host());                                                         \
            if (path == PATH_GPU && !path_gpu_is_host()) EXPECT(path_wgmma_served(p.fast));                            \
            runs = true;                                                                                               \
        }                                                                                                              \
        host_wgmma_choose(HOST_WGMMA_LATE, 0);                                                                         \
        if (!runs)                                                                                                     \
            vt_test_skip("no C++ compiler was found, nor a GPU of compute capability 9 that this build is for");       \
    }                                                                                                                  \
    static void name(const pair *p, __attribute__((unused)) bool is_card)

/* As the oracle, and with the same bits in every order of copies and products. */
static void check(const pair *p, bool is_card, const vt_attention_shape *s, float scale)
{
    char name[120];
    const bool backward = s->head_dim <= 96;
    twins_attention a[HOST_WGMMA_ORDERS];
    for (int i = 0; i < (is_card ? 2 : HOST_WGMMA_ORDERS); i++) {
        snprintf(name, sizeof name, "%ld queries, %ld keys, head size %ld, order %d", s->queries, s->keys, s->head_dim,
                 i);
        a[i] = twins_attention_open(VT_BFLOAT16, s, scale, TWINS_ALIGNED);
        host_wgmma_choose((host_wgmma_order)i, (uint32_t)(s->queries + s->keys));
        twins_attention_forward(p->fast, &a[i], false);
        if (backward) twins_attention_backward(p->fast, &a[i], false, a[i].out.own, &a[i].log_sum[1]);
        if (i == 0) {
            twins_attention_forward(p->plain, &a[i], true);
            if (backward) twins_attention_backward(p->plain, &a[i], true, a[i].out.wide, &a[i].log_sum[0]);
            twins_attention_compare(&a[i], backward, name);
            continue;
        }
        const twins *const results[][2] = {
            {&a[0].out, &a[i].out}, {&a[0].dq, &a[i].dq}, {&a[0].dk, &a[i].dk}, {&a[0].dv, &a[i].dv}};
        for (int k = 0; k < 4; k++)
            EXPECT(memcmp(results[k][0]->memory, results[k][1]->memory, results[k][0]->bytes) == 0,
                   "%s: result %d has other bits", name, k);
    }
}

/* Fewer rows than a warpgroup has, one more, more than a block has; more tiles than stages. */
WGMMA_TEST(wgmma_attention_of_48_columns)
{
    static const int64_t lengths[][2] = {{1, 1},   {7, 65},   {65, 7},  {64, 128},  {97, 97},
                                         {193, 1}, {130, 81}, {1, 200}, {200, 650}, {460, 129}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        vt_attention_shape shape = {.batch = 1 + (int64_t)i % 2,
                                    .heads = 1 + (int64_t)i % 3,
                                    .head_dim = 48,
                                    .queries = lengths[i][0],
                                    .keys = lengths[i][1],
                                    .unscaled = i == 4};
        check(p, is_card, &shape, i == 4 ? 0.1f : 1.0f);
    }
}

WGMMA_TEST(wgmma_attention_of_other_heads)
{
    static const int64_t dims[] = {32, 64, 96, 128};
    for (int i = 0; i < 4; i++) {
        vt_attention_shape shape = {.batch = 1, .heads = 2, .head_dim = dims[i], .queries = 70, .keys = 37};
        check(p, is_card, &shape, 1);
        shape.heads = 1, shape.queries = 33, shape.keys = 460;
        check(p, is_card, &shape, 1);
        shape.queries = 300, shape.keys = 65;
        check(p, is_card, &shape, 1);
    }
}

/* One head size of each number of warpgroups; blocks and tiles that are not whole, an odd number of queries. */
WGMMA_TEST(wgmma_attention_with_dropout)
{
    static const uint32_t step = 17;
    static const int64_t sizes[][3] = {{48, 131, 150}, {32, 70, 200}, {64, 200, 90}, {96, 65, 133}, {128, 67, 140}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        vt_attention_shape shape = {.batch = 2,
                                    .heads = 2,
                                    .head_dim = sizes[i][0],
                                    .queries = sizes[i][1],
                                    .keys = sizes[i][2],
                                    .first_head = 1,
                                    .first_key = (int64_t)i};
        shape.dropout = (vt_dropout){.rate = 0.3f, .seed = 5, .step = &step, .layer = 2, .first_sample = 9};
        check(p, is_card, &shape, 1);
    }
}

/* Scores far apart, growing from tile to tile: sums are scaled again and again, most weights are 0. */
WGMMA_TEST(wgmma_attention_with_large_scores)
{
    vt_attention_shape shape = {.batch = 1, .heads = 1, .head_dim = 48, .queries = 65, .keys = 520};
    check(p, is_card, &shape, 12);
    shape.head_dim = 64;
    check(p, is_card, &shape, 12);
}

/* What is not finite in one sample's head stays there, and is not hidden. */
WGMMA_TEST(wgmma_attention_passes_on_what_is_not_finite)
{
    enum { QUERIES = 70, KEYS = 150, DIM = 48, WIDTH = 2 * DIM };
    const vt_attention_shape shape = {.batch = 2, .heads = 2, .head_dim = DIM, .queries = QUERIES, .keys = KEYS};
    for (int kind = 0; kind < 6; kind++) {
        twins_attention a = twins_attention_open(VT_BFLOAT16, &shape, 1, TWINS_ALIGNED);
        const uint16_t bad = kind % 2 == 0 ? 0x7fc0 : 0x7f80; /* NaN, infinity */
        const vt_matrix where = kind / 2 == 0 ? a.q.own : kind / 2 == 1 ? a.k.own : a.v.own;
        const int64_t row = (kind / 2 == 0 ? QUERIES : KEYS) + 5;
        where.half[row * where.stride + DIM + 3] = bad; /* of the second sample's second head */
        twins_attention_forward(p->fast, &a, false);
        twins_attention_backward(p->fast, &a, false, a.out.own, &a.log_sum[1]);
        bool spoilt = false;
        for (int64_t i = 0; i < 2 * QUERIES * WIDTH; i++) {
            const bool own = i / WIDTH >= QUERIES && i % WIDTH >= DIM;
            const uint16_t *at = a.out.own.half + i / WIDTH * a.out.own.stride + i % WIDTH;
            const uint16_t *gradient = a.dq.own.half + i / WIDTH * a.dq.own.stride + i % WIDTH;
            const bool finite = (*at & 0x7f80) != 0x7f80 && (*gradient & 0x7f80) != 0x7f80;
            EXPECT(finite || own, "kind %d: row %ld", kind, i / WIDTH);
            spoilt = spoilt || !finite;
        }
        EXPECT(spoilt, "kind %d is hidden", kind);
    }
}

/* The reference model's number of tokens, where there are the cores for it. */
WGMMA_TEST(wgmma_attention_of_the_reference_model)
{
    const vt_attention_shape shape = {.batch = 1, .heads = 1, .head_dim = 48, .queries = 4050, .keys = 4050};
    if (is_card) check(p, is_card, &shape, 1);
}

/* Float32 results are those of 16 bits before they are rounded. */
WGMMA_TEST(wgmma_attention_for_a_ring)
{
    static const int64_t dims[] = {32, 48, 64, 96, 128};
    for (int i = 0; i < 5; i++) {
        const vt_attention_shape shape = {.batch = 2, .heads = 2, .head_dim = dims[i], .queries = 70, .keys = 133};
        twins_attention a = twins_attention_open(VT_BFLOAT16, &shape, 1, TWINS_ALIGNED);
        twins_attention_forward(p->fast, &a, false);
        p->fast->attention_forward(p->fast, &shape, a.q.own, a.k.own, a.v.own, a.out.wide, a.log_sum[0].matrix.data);
        twins_compare(&a.out, 0, "out");
        guarded_compare(&a.log_sum[1], &a.log_sum[0], 0, "log_sum");
        if (dims[i] == 128) continue;
        twins_attention_backward(p->fast, &a, false, a.out.own, &a.log_sum[1]);
        p->fast->attention_backward(p->fast, &shape, a.q.own, a.k.own, a.v.own, a.out.own, a.log_sum[1].matrix.data,
                                    a.dout.own, a.dq.wide, a.dk.wide, a.dv.wide);
        twins_compare(&a.dq, 0, "dq");
        twins_compare(&a.dk, 0, "dk");
        twins_compare(&a.dv, 0, "dv");
    }
}

TEST(wgmma_attention_is_refused_what_it_cannot_do)
{
    uint16_t memory[64] __attribute__((aligned(16))) = {0};
    const vt_attention_shape good = {.batch = 1, .heads = 1, .head_dim = 48, .queries = 1, .keys = 1};
    for (int i = 0; i < 9; i++) {
        vt_attention_shape s = good;
        vt_matrix all[8], *k = &all[1];
        for (int j = 0; j < 8; j++)
            all[j] = (vt_matrix){.half = memory, .rows = 1, .columns = 48, .stride = 48, .type = VT_BFLOAT16};
        EXPECT(vt_wgmma_attention_fits(&s, all, true));
        if (i == 0) s.head_dim = k->columns = 40;
        if (i == 1) s.keys = 0;
        if (i == 2) s.causal = true, s.keys = 2;
        if (i == 3) k->type = VT_FLOAT16;
        if (i == 4) k->half = memory + 4;
        if (i == 5) k->stride = 52;
        if (i == 6) k->type = VT_FLOAT32;
        if (i == 7) all[3].type = VT_FLOAT32; /* out, which backward reads */
        if (i == 8) {
            s.head_dim = 128;
            for (int j = 0; j < 8; j++) all[j].columns = all[j].stride = 128;
            EXPECT(vt_wgmma_attention_fits(&s, all, false));
        }
        EXPECT(!vt_wgmma_attention_fits(&s, all, true), "case %d", i);
    }
}
