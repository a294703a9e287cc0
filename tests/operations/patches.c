/* Fields to tokens and back: the place of every element, both orders, channels that are not used. */
#include "backend/half.h"
#include "operations/guarded.h"
#include "operations/paths.h"
#include "test.h"

enum { BATCH = 2, FIELD_CHANNELS = 4, CHANNELS = 3, HEIGHT = 6, WIDTH = 9, PATCH = 3 };

static void check_order(vt_backend *backend, vt_patch_order order)
{
    enum { TOKENS = (HEIGHT / PATCH) * (WIDTH / PATCH), SIZE = BATCH * FIELD_CHANNELS * HEIGHT * WIDTH };
    static const float mean[CHANNELS] = {1, -2, 300}, inverse_std[CHANNELS] = {0.5f, 4, 0.125f};
    vt_patch_grid grid = {BATCH,  FIELD_CHANNELS,   CHANNELS,          HEIGHT, WIDTH, PATCH, order, 0,
                          TOKENS, VT_MISSING_STAYS, VT_BEYOND_LEFT_OUT};
    guarded patches = guarded_open(BATCH * TOKENS, CHANNELS * PATCH * PATCH);
    float fields[SIZE], back[SIZE];
    for (int i = 0; i < SIZE; i++) fields[i] = (float)i; /* powers of two above: every operation is exact */
    for (int i = 0; i < SIZE; i++) back[i] = NAN;
    backend->patches_load(backend, &grid, fields, mean, inverse_std, patches.matrix);
    guarded_check(&patches, "patches_load");
    /* sample 1, token (1, 2), channel 2, point (2, 1) of its patch */
    int column = order == VT_PATCH_CHANNEL_FIRST ? (2 * PATCH + 2) * PATCH + 1 : (2 * PATCH + 1) * CHANNELS + 2;
    float expected = (float)(((FIELD_CHANNELS + 2) * HEIGHT + PATCH + 2) * WIDTH + 2 * PATCH + 1);
    EXPECT_NEAR(patches.matrix.data[(TOKENS + 5) * patches.matrix.stride + column], (expected - 300) * 0.125, 0);

    backend->patches_store(backend, &grid, patches.matrix, mean, inverse_std, back);
    guarded_check(&patches, "patches_store");
    for (int i = 0; i < SIZE; i++) {
        bool used = i / (HEIGHT * WIDTH) % FIELD_CHANNELS < CHANNELS;
        EXPECT(used ? back[i] == fields[i] : isnan(back[i]), "at %d: %g", i, (double)back[i]);
    }
}

TEST(patches_and_back)
{
    FOR_EACH_CPU_PATH(isa)
    {
        vt_backend *backend = NULL;
        EXPECT_OK(path_open(isa, &backend));
        check_order(backend, VT_PATCH_CHANNEL_FIRST);
        check_order(backend, VT_PATCH_CHANNEL_LAST);
        EXPECT_OK(backend->check(backend));
        vt_backend_close(&backend);
    }
}

/* Patches of other sizes and a span of tokens, to the bit as the oracle computes them; 16-bit ones are those,
 * rounded. */
static void check_against_plain(vt_backend *plain, vt_backend *fast, int64_t patch, vt_patch_order order)
{
    enum { ALL_CHANNELS = 5, USED = 4, ROWS = 3, ACROSS = 4 };
    vt_patch_grid grid = {2,
                          ALL_CHANNELS,
                          USED,
                          ROWS * patch,
                          ACROSS * patch,
                          patch,
                          order,
                          2,
                          ROWS * ACROSS - 3,
                          VT_MISSING_STAYS,
                          VT_BEYOND_LEFT_OUT};
    int64_t size = 2 * ALL_CHANNELS * grid.height * grid.width, columns = USED * patch * patch, rows = 2 * grid.tokens;
    float *fields = vt_test_owned(malloc((size_t)size * sizeof *fields)), mean[USED], inverse_std[USED];
    fill_random(fields, size, 1, 10);
    fill_random(mean, USED, 2, 1);
    fill_random(inverse_std, USED, 3, 1);
    guarded expected = guarded_open(rows, columns), actual = guarded_open(rows, columns);
    plain->patches_load(plain, &grid, fields, mean, inverse_std, expected.matrix);
    fast->patches_load(fast, &grid, fields, mean, inverse_std, actual.matrix);
    guarded_compare(&actual, &expected, 0, "patches_load");
    for (vt_type type = VT_BFLOAT16; type < VT_TYPE_COUNT; type++) {
        vt_matrix half = {.rows = rows, .columns = columns, .stride = columns, .type = type};
        half.half = vt_test_owned(malloc((size_t)(rows * columns) * sizeof *half.half));
        fast->patches_load(fast, &grid, fields, mean, inverse_std, half);
        int64_t wrong = 0;
        for (int64_t i = 0; i < rows * columns; i++) {
            float value = expected.matrix.data[i / columns * expected.matrix.stride + i % columns];
            wrong += half.half[i] != vt_half_round(type, value);
        }
        EXPECT(wrong == 0, "%lld elements of 16 bits are not the rounded ones", (long long)wrong);
    }
}

TEST(patches_against_plain)
{
    static const int64_t sizes[] = {1, 3, 4, 6, 8, 16};
    if (vt_test_gpu_alone()) return;
    FOR_EACH_CPU_PATH(isa)
    {
        vt_backend *plain = NULL, *fast = NULL;
        EXPECT_OK(path_open(VT_ISA_PLAIN, &plain));
        EXPECT_OK(path_open(isa, &fast));
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            check_against_plain(plain, fast, sizes[i], VT_PATCH_CHANNEL_FIRST);
            check_against_plain(plain, fast, sizes[i], VT_PATCH_CHANNEL_LAST);
        }
        EXPECT_OK(fast->check(fast));
        vt_backend_close(&plain);
        vt_backend_close(&fast);
    }
}
