/* The 3-D U-Net over ranks: data parallelism and ZeRO. */
#include "beside_one.h"

enum { SIDE = 32, POINTS = SIDE * SIDE * SIDE, IN = 4, OUT = 5 };

static float input[MOST][POINTS * IN], target[MOST][POINTS * OUT];

static const vt_test_samples samples = {"model=unet3d data_size=32 full_scale=false unet_width=2 lr=1e-3 "
                                        "num_iters=10 num_epochs=None bucket_cap_mb=0.01",
                                        {(const char *)input, (const char *)target},
                                        {sizeof input[0], sizeof target[0]},
                                        0};

static void open_side(side *s, const char *settings, const vt_launch *launch)
{
    open_samples(s, &samples, settings, launch);
}

/* Uniform in ±1. */
static void draw(uint32_t seed, float *numbers, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        numbers[i] = (float)((double)(seed >> 8) / (1 << 23) - 1);
    }
}

TEST(layouts_of_the_unet)
{
    const int ranks = vt_test_engine->size;
    const int batch = ranks < 3 ? 4 : ranks;
    draw(1, input[0], MOST * POINTS * IN);
    draw(2, target[0], MOST * POINTS * OUT);
    for (int stage = 0; stage <= 3; stage++)
        compare_with_one(SETTINGS("global_batch_size=%d lambda_rho=0.1", batch),
                         SETTINGS("zero_stage=%d recompute=%s", stage, stage % 2 == 0 ? "none" : "block"), open_side);
}
