/* The average of the weights: its operations on every path, and steps whose average is what their definition says. */
#include "backend/step_state.h"
#include "operations/guarded.h"
#include "operations/paths.h"
#include "rig.h"

static const int64_t sizes[] = {1, 7, 97, 1013, 70000};

/* The first update's values are the average; of a step without an update nothing changes. One that warms up follows the
 * values faster at first: update 2 counts 9/10, update 40 as every other. */
GPU_TEST(average_follows_the_updates)
{
    static const int32_t all_updates[] = {1, 2, 3, 40};
    FOR_EACH_BACKEND(isa, b)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int k = 0; k < 8; k++) {
            const bool warms_up = k >= 4;
            const int32_t updates = all_updates[k % 4];
            const float share = !warms_up || updates == 40 ? 0.25f : (float)(9.0 / (updates + 8));
            const int64_t count = sizes[i];
            const vt_step_state made = {.averaged = updates, .factor = 1}, left_out = {.averaged = 1, .factor = NAN};
            guarded values = guarded_random(1, count, 1, 1), average = guarded_random(1, count, 2, 1);
            guarded expected = guarded_copy(&average);
            b->average(b, 0.75, warms_up, &left_out, values.matrix.data, average.matrix.data, count);
            guarded_compare(&average, &expected, 0, "average without an update");
            for (int64_t j = 0; j < count; j++) {
                float *e = expected.matrix.data + j;
                const float w = values.matrix.data[j];
                *e = updates == 1 ? w : *e + share * (w - *e);
            }
            b->average(b, 0.75, warms_up, &made, values.matrix.data, average.matrix.data, count);
            guarded_compare(&average, &expected, updates == 1 ? 0 : 0x1p-23, "average");
            guarded_check(&values, "average's values");
        }
}

GPU_TEST(exchange_is_its_own_inverse)
{
    FOR_EACH_BACKEND(isa, b)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        guarded x = guarded_random(1, sizes[i], 1, 1), y = guarded_random(1, sizes[i], 2, 1);
        guarded a = guarded_copy(&x), c = guarded_copy(&y);
        b->exchange(b, a.matrix.data, c.matrix.data, sizes[i]);
        guarded_compare(&a, &y, 0, "exchange");
        guarded_compare(&c, &x, 0, "exchange");
        b->exchange(b, a.matrix.data, c.matrix.data, sizes[i]);
        guarded_compare(&a, &x, 0, "exchange twice");
        guarded_compare(&c, &y, 0, "exchange twice");
    }
}

enum { STEPS = 6, SAMPLES = 4, VALUES = SAMPLES * 2 * 8 * 16 };

static float input[VALUES], target[VALUES];

static float *kept(const rig *r, const float *from)
{
    float *host = vt_test_owned(malloc(rig_value_bytes(r)));
    r->backend->copy_to_host(r->backend, host, from, rig_value_bytes(r));
    return host;
}

static const float *average_of(const rig *r)
{
    vt_optimizer *optimizer = vt_trainer_subject(r->trainer).optimizer;
    return kept(r, optimizer->kept->places[VT_KEPT_AVERAGE].memory.numbers);
}

/* Each step, also a recorded one (enable_jit) and one that is left out, against the definition in float64; and at the
 * end average and values change places and back. */
GPU_TEST(steps_average_their_weights)
{
    const double decay = 0.6;
    FOR_EACH_STEP_PATH(isa)
    {
        SCOPED(rig) r = {
            .config = config_with(1,
                                  "img_size=[8,16] patch_size=4 embed_dim=16 depth=1 num_heads=2 n_in_channels=2 "
                                  "n_out_channels=2 global_batch_size=4 lr=1e-2 num_iters=10 enable_jit=true",
                                  "ema_decay=0.6 on_nonfinite=skip")};
        vt_batch batch = {.sample_count = SAMPLES, .global_count = SAMPLES, .tensors = {input, target}};
        EXPECT_OK(path_open_trainers(isa, &r.backend));
        EXPECT_OK(rig_open(&r, NULL, NULL, false));
        fill_random(input, VALUES, 1, 1);
        fill_random(target, VALUES, 2, 1);
        const int64_t count = (int64_t)(rig_value_bytes(&r) / sizeof(float));
        double *expected = vt_test_owned(calloc((size_t)count, sizeof *expected));
        for (int step = 0; step < STEPS; step++) {
            const float kept_target = target[5];
            if (step == 3) target[5] = INFINITY;
            rig_train(&r, &batch, 1);
            target[5] = kept_target;
            const float *values = kept(&r, rig_parameters(&r)->values), *average = average_of(&r);
            double worst = 0, largest = 0;
            for (int64_t i = 0; i < count; i++) {
                if (step == 0) expected[i] = (double)values[i];
                if (step != 3) expected[i] += (1 - decay) * ((double)values[i] - expected[i]);
                worst = fmax(worst, fabs((double)average[i] - expected[i]));
                largest = fmax(largest, fabs((double)values[i]));
            }
            /* Each update rounds a difference, a product and a sum, and keeps `decay` of the errors before it. */
            EXPECT(worst <= 3 * 0x1p-24 / (1 - decay) * largest, "path %d, step %d: off by %g", (int)isa, step, worst);
        }
        const float *values = kept(&r, rig_parameters(&r)->values), *average = average_of(&r);
        EXPECT(memcmp(values, average, rig_value_bytes(&r)) != 0);
        vt_trainer_exchange_average(r.trainer);
        EXPECT(memcmp(kept(&r, rig_parameters(&r)->values), average, rig_value_bytes(&r)) == 0);
        vt_trainer_exchange_average(r.trainer);
        EXPECT(memcmp(kept(&r, rig_parameters(&r)->values), values, rig_value_bytes(&r)) == 0);
        EXPECT(memcmp(average_of(&r), average, rig_value_bytes(&r)) == 0);
    }
}
