/* Muon: its operations beside their formulas in float64, and what its iteration makes of singular values. */
#include "alone.h"
#include "operations/guarded.h"
#include "operations/paths.h"
#include "optimizer/optimizer.h"
#include "test.h"

GPU_TEST(muon_operations)
{
    static const int64_t counts[] = {1, 7, 97, 1013};
    const vt_step_state state = {.learning_rate = 0.1, .factor = 0.5f}, none = {.learning_rate = 0.1, .factor = NAN};
    FOR_EACH_BACKEND(isa, b)
    for (int i = 0; i < 8; i++) {
        const int64_t count = counts[i % 4];
        const vt_update update = {.momentum = 0.9, .nesterov = i < 4, .weight_decay = 0.2, .rounded = (vt_type)(i % 3)};
        const guarded_rounded rounded = guarded_rounded_open(update.rounded, count);
        guarded g = guarded_random(1, count, 1, 1), m = guarded_random(1, count, 2, 1),
                x = guarded_random(1, count, 3, 1);
        guarded w = guarded_random(1, count, 4, 1), m0 = guarded_copy(&m), w0 = guarded_copy(&w), x0 = guarded_copy(&x);
        guarded y = guarded_open(1, count), n = guarded_copy(&x);
        const double squares = 6.25;
        b->muon_momentum(b, &update, &none, g.matrix.data, m.matrix.data, x.matrix.data, count);
        b->muon_apply(b, &update, &none, 3, x.matrix.data, w.matrix.data, rounded.at, count);
        guarded_rounded_check(&rounded, NULL, "no update by Muon");
        guarded_compare(&m, &m0, 0, "a momentum without an update");
        guarded_compare(&w, &w0, 0, "values without an update");
        b->muon_momentum(b, &update, &state, g.matrix.data, m.matrix.data, x.matrix.data, count);
        b->muon_apply(b, &update, &state, 3, x0.matrix.data, w.matrix.data, rounded.at, count);
        guarded_rounded_check(&rounded, w.matrix.data, "an update by Muon");
        b->divide_by_norm(b, &squares, 1e-7f, n.matrix.data, count);
        b->combine(b, 2, x0.matrix.data, -0.5f, g.matrix.data, y.matrix.data, count);
        for (int64_t j = 0; j < count; j++) {
            const double gradient = 0.5 * (double)g.matrix.data[j], old = (double)m0.matrix.data[j];
            const double moment = old + (gradient - old) * (1 - 0.9), z = (double)x0.matrix.data[j];
            EXPECT_NEAR(m.matrix.data[j], moment, 1e-6);
            EXPECT_NEAR(x.matrix.data[j], update.nesterov ? gradient + (moment - gradient) * 0.9 : moment, 1e-6);
            EXPECT_NEAR(w.matrix.data[j], (double)w0.matrix.data[j] * (1 - 0.1 * 0.2) - 0.1 * 3 * z, 2e-6);
            EXPECT_NEAR(n.matrix.data[j], z / 2.5, 1e-6);
            EXPECT_NEAR(y.matrix.data[j], 2 * z - 0.5 * (double)g.matrix.data[j], 2e-6);
        }
        guarded *const written[] = {&m, &x, &w, &n, &y};
        for (int k = 0; k < 5; k++) guarded_check(written[k], "an operand of Muon");
    }
}

/* The step of a matrix [rows, columns] whose gradient has these singular values in its corner. */
static void step_of(vt_backend *backend, int64_t rows, int64_t columns, const float *singular, float *step)
{
    SCOPED(alone) a = open_alone(backend, 1);
    SCOPED(vt_parameters) *parameters = NULL;
    SCOPED(vt_optimizer) *optimizer = NULL;
    const int64_t shape[2] = {rows, columns};
    EXPECT_OK(vt_config_set(a.config, "optimizer", "Muon"));
    EXPECT_OK(vt_config_set(a.config, "muon_adjust", "original"));
    a.config->momentum = a.config->weight_decay = 0;
    a.config->nesterov = false;
    EXPECT_OK(vt_parameters_open(backend, a.parallel, &parameters));
    const vt_parameter *p = vt_parameters_add(parameters, "blocks.0", "weight", 2, shape, VT_START_VALUE, 0);
    EXPECT_OK(vt_parameters_allocate(parameters, VT_FLOAT32, &(vt_parameters_storage){1e6, 0, 1, 0, 1}));
    EXPECT_OK(vt_optimizer_open(a.config, backend, parameters, &optimizer));
    for (int i = 0; i < 2; i++) p->gradient[i * columns + i] = singular[i];
    vt_optimizer_begin(optimizer, 0, 1);
    vt_optimizer_step(optimizer);
    for (int i = 0; i < 2; i++) step[i] = -p->value[i * columns + i];
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < columns; i++)
            EXPECT(row == i || fabs((double)p->value[row * columns + i]) < 1e-6, "an element off the diagonal");
}

/* optimizers.md, section 4. */
TEST(singular_values_become_about_1)
{
    static const double before[] = {1, 0.5, 0.1, 0.01, 0.001},
                        after[] = {0.696436, 0.765439, 0.712120, 0.698917, 0.470544};
    static const int64_t shapes[][2] = {{8, 8}, {8, 20}, {20, 8}};
    FOR_EACH_CPU_PATH(isa)
    {
        SCOPED(vt_backend) *backend = open_path(isa);
        for (int i = 0; i < 5; i++)
            for (int s = 0; s < 3; s++) {
                const float singular[2] = {(float)before[i], (float)sqrt(1 - before[i] * before[i])};
                const double scale = s == 2 ? sqrt(20.0 / 8) : 1;
                float step[2];
                step_of(backend, shapes[s][0], shapes[s][1], singular, step);
                EXPECT(fabs((double)step[0] / scale - after[i]) < 2e-5, "isa %d: %g becomes %.6f, expected %.6f",
                       (int)isa, before[i], (double)step[0] / scale, after[i]);
            }
        for (double value = 0.002; value < 1; value *= 1.07) {
            const float singular[2] = {(float)value, (float)sqrt(1 - value * value)};
            float step[2];
            step_of(backend, 8, 8, singular, step);
            EXPECT(step[0] > 0.68f && step[0] < 1.21f, "%g becomes %g", value, (double)step[0]);
        }
    }
}
