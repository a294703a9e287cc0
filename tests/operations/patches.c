/* Fields to tokens and back: the place of every element, both orders, channels that are not used. */
#include "operations/guarded.h"
#include "test.h"

enum { BATCH = 2, FIELD_CHANNELS = 4, CHANNELS = 3, HEIGHT = 6, WIDTH = 9, PATCH = 3 };

static void check_order(vt_backend *backend, vt_patch_order order)
{
    enum { TOKENS = (HEIGHT / PATCH) * (WIDTH / PATCH), SIZE = BATCH * FIELD_CHANNELS * HEIGHT * WIDTH };
    static const float mean[CHANNELS] = {1, -2, 300}, inverse_std[CHANNELS] = {0.5f, 4, 0.125f};
    vt_patch_grid grid = {BATCH, FIELD_CHANNELS, CHANNELS, HEIGHT, WIDTH, PATCH, order, 0, TOKENS};
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
    guarded_close(&patches);
}

TEST(patches_and_back)
{
    vt_backend *backend = NULL;
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_AUTO, 0, &backend));
    check_order(backend, VT_PATCH_CHANNEL_FIRST);
    check_order(backend, VT_PATCH_CHANNEL_LAST);
    vt_backend_close(&backend);
}
