/* The 3-D U-Net over ranks: data parallelism and ZeRO. It is trained by SGD, because with Adam a single rank never
 * stores some of its gradients (vt_parameter.factors), and so there would be nothing to compare. */
#include "beside_one.h"

enum { SIDE = 32, POINTS = SIDE * SIDE * SIDE, IN = 4, OUT = 5 };

static float input[MOST][POINTS * IN], target[MOST][POINTS * OUT];

static const vt_test_samples samples = {"model=unet3d data_size=32 full_scale=false unet_width=2 optimizer=SGD lr=1e-3 "
                                        "num_iters=10 num_epochs=None bucket_cap_mb=0.01",
                                        {(const char *)input, (const char *)target},
                                        {sizeof input[0], sizeof target[0]},
                                        0};

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
    static const char *const models[] = {"lambda_rho=0.1", "recompute=block"};
    const int ranks = vt_test_engine->size;
    const int64_t batch = ranks < 3 ? 4 : ranks;
    draw(1, input[0], MOST * POINTS * IN);
    draw(2, target[0], MOST * POINTS * OUT);
    for (int i = 0; i < 2; i++)
        for (int stage = 0; stage <= 3; stage += i == 0 ? 1 : 3)
            compare_with_one(&samples, models[i], SETTINGS("zero_stage=%d", stage), batch);
}
