/* A small ViT of ensemble.h5 against PyTorch, with noise of its own, trained on the CRPS over three steps of forecast:
 * the noise, losses, gradients, and ten updates; on every path of the CPU, the CUDA kernels on the host, and the GPU.
 * Tolerances are those of golden/vit.c. And PyTorch apart: gradients against finite differences. */
#include "backend/dropout.h"
#include "golden/forecasts.h"

static const struct {
    const char *name, *settings;
    bool gaps;
} kinds[] = {{"pair", "ensemble_size=2 crps_scales=1 missing=refuse", false},
             {"three", "ensemble_size=3 crps_alpha=0.95 crps_scales=1,2,8 missing=refuse", false},
             {"gaps", "ensemble_size=2 crps_alpha=0.9 crps_scales=1,4 missing=mask", true}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static fixture open_fixture(vt_cpu_isa isa, int kind, const char *settings)
{
    vt_config *config =
        config_with(1,
                    "img_size=[8,16] patch_size=4 n_history=1 n_in_channels=4 n_out_channels=2 embed_dim=16 depth=1 "
                    "num_heads=2 num_iters=10 global_batch_size=2 rollout=3 loss=crps noise_dim=5 predict=tendency "
                    "lr=1e-3",
                    SETTINGS("%s %s", kinds[kind].settings, settings));
    fixture f = open_trained("ensemble.h5", isa, config, NULL, kinds[kind].gaps);
    golden_load(f.file, f.r.backend, rig_parameters(&f.r));
    return f;
}

/* Float32's logarithm, root and cosine differ from float64's by a few units in the last place. */
GPU_TEST(noise_of_members_is_what_it_is_defined_to_be)
{
    enum { ROWS = 3, TOKENS = 8, NUMBERS = 5 };
    hid_t file = golden_open("ensemble.h5");
    int64_t count;
    const double *expected = golden_read(file, &count, "noise");
    const vt_noise how = {.seed = 333, .rollout_step = 2, .rows = ROWS, .tokens = TOKENS, .numbers = NUMBERS};
    const vt_noise last = {
        .seed = 333, .rollout_step = 2, .rows = 1, .first_row = 2, .first_token = 5, .tokens = 2, .numbers = NUMBERS};
    static const uint32_t keys[2] = {2, 7};
    const uint32_t step = 7, other = 9;
    EXPECT(count == ROWS * TOKENS * 2 * NUMBERS);
    FOR_EACH_BACKEND(isa, b)
    {
        float all[ROWS * TOKENS * 2 * NUMBERS], part[2][2 * 2 * NUMBERS];
        b->noise_draw(b, &how, &step, NULL, vt_matrix_make(all, ROWS * TOKENS, 2 * NUMBERS));
        for (int64_t i = 0; i < count; i++) EXPECT_NEAR(all[i], expected[i], 1e-5);
        b->noise_draw(b, &last, &step, NULL, vt_matrix_make(part[0], 2, 2 * NUMBERS));
        b->noise_draw(b, &last, &other, keys, vt_matrix_make(part[1], 2, 2 * NUMBERS));
        for (int i = 0; i < 2; i++)
            EXPECT(memcmp(part[i], all + (2 * TOKENS + 5) * 2 * NUMBERS, sizeof part[i]) == 0, "part %d", i);
    }
}

GPU_TEST(ten_steps_of_ensembles)
{
    FOR_EACH_PATH(isa)
    {
        for (int kind = 0; kind < KINDS; kind++) {
            SCOPED(fixture) f = open_fixture(isa, kind, "");
            check_losses(&f, kinds[kind].name, STEPS, true);
        }
    }
}

/* Micro-batches, recomputed blocks and fused operations: the same losses. */
GPU_TEST(ensembles_in_micro_batches)
{
    static const char *const settings[] = {"grad_accumulation=2", "recompute=block enable_jit=true"};
    FOR_EACH_PATH(isa)
    {
        for (int i = 0; i < 2; i++) {
            SCOPED(fixture) f = open_fixture(isa, 1, settings[i]);
            check_losses(&f, kinds[1].name, 3, false); /* the third may be replayed */
        }
    }
}

/* Also with what a sample's members have in common, noise on the input and its sign, and what each has of its own,
 * dropout. The score has a kink where members or truth are equal, so differences are taken over a small step. */
TEST(gradients_of_ensembles_are_finite_differences)
{
    for (int kind = 0; kind < KINDS; kind++) {
        SCOPED(fixture) f =
            open_fixture(VT_ISA_PLAIN, kind, "lr=0 normalise=climatology augment=sign input_noise=0.3 dropout=0.2");
        check_differences(f.r.trainer, &f.batch, 2e-3f, 1e-4, 1e-3, kinds[kind].name);
    }
}
