/* Numbers in 8 bits: the maps, what rounding to them loses, and the update of Adam's moments in them, beside a model of
 * its own in float64. */
#include "backend/codes.h"

#include "base/crc32c.h"
#include "operations/guarded.h"
#include "operations/paths.h"
#include "rig.h"
#include "test.h"

/* As optimizers.md, section 2, writes them; ascending. */
static void make_map(bool is_signed, double map[VT_CODES])
{
    static const double tenths[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
    int zero = is_signed ? 127 : 0, place = zero;
    map[zero] = 0;
    for (int i = 0; i < 7; i++)
        for (int j = 0, n = 1 << (i + !is_signed); j < n; j++) {
            map[++place] = tenths[i] * (0.1 + 0.9 * (j + 0.5) / n);
            if (is_signed) map[2 * zero - place] = -map[place];
        }
    map[++place] = 1;
    EXPECT(place == VT_CODES - 1);
}

TEST(maps_of_codes)
{
    const vt_code_map *maps[2] = {vt_code_map_unsigned(), vt_code_map_signed()};
    EXPECT(vt_crc32c(maps[1]->value, sizeof maps[1]->value) == 0x7d884962);
    EXPECT(vt_crc32c(maps[0]->value, sizeof maps[0]->value) == 0x26dc553d);
    EXPECT(maps[1]->value[0] == -0.99296875f && maps[1]->value[128] == 5.5e-7f && maps[0]->value[1] == 3.25e-7f);
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        double map[VT_CODES];
        make_map(is_signed, map);
        for (int i = 0; i < VT_CODES; i++) EXPECT(maps[is_signed]->value[i] == (float)map[i]);
    }
}

/* The nearest code, by trying all; of two equally near ones the lower. */
static int nearest(const vt_code_map *map, double ratio)
{
    int best = 0;
    for (int i = 1; i < VT_CODES; i++)
        if (fabs((double)map->value[i] - ratio) < fabs((double)map->value[best] - ratio)) best = i;
    return map->zero == 0 && best == 0 && ratio > 0 ? 1 : best;
}

/* Is a ratio as near to code b as to code a, but for rounding in float32? */
static bool is_tie(const vt_code_map *map, double ratio, int a, int b)
{
    const double middle = ((double)map->value[a] + (double)map->value[b]) / 2;
    return abs(a - b) == 1 && fabs(ratio - middle) <= 0x1p-21 * fabs(middle);
}

/* The search and the lines both find the nearest code. */
TEST(codes_are_the_nearest)
{
    const vt_code_map *maps[2] = {vt_code_map_unsigned(), vt_code_map_signed()};
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        const vt_code_map *map = maps[is_signed];
        for (int i = 0; i < 40000; i++) {
            const float size = powf(10, -8 * (float)(i / 2) / 20000), ratio = is_signed && i % 2 == 1 ? -size : size;
            float both[2] = {1, ratio}, scale = 0;
            uint8_t codes[2];
            const int expected = nearest(map, (double)ratio);
            const int by_lines = is_signed ? vt_code_signed(&map->lines, ratio) : vt_code_unsigned(&map->lines, ratio);
            vt_codes_encode(map, both, 2, 64, codes, &scale);
            EXPECT(scale == 1 && codes[0] == 255 && codes[1] == expected, "%g: %d, not %d", (double)ratio, codes[1],
                   expected);
            EXPECT(by_lines == expected || is_tie(map, (double)ratio, by_lines, expected), "%g: %d, not %d",
                   (double)ratio, by_lines, expected);
        }
        for (int i = 0; i < VT_CODES; i++) {
            const float value = map->value[i];
            EXPECT((is_signed ? vt_code_signed(&map->lines, value) : vt_code_unsigned(&map->lines, value)) == i);
        }
    }
}

/* Errors by decades below the scale, and of normal numbers; and once more gives the same bits. */
TEST(what_codes_lose)
{
    enum { COUNT = 256 * 400 };
    static const double most[2][7] = {{0.033, 0.062, 0.11, 0.18, 0.28, 0.47, 1},
                                      {0.062, 0.11, 0.18, 0.28, 0.47, 0.71, 1}};
    const vt_code_map *maps[2] = {vt_code_map_unsigned(), vt_code_map_signed()};
    float *x = vt_test_owned(malloc(COUNT * sizeof *x)), *y = vt_test_owned(malloc(COUNT * sizeof *y));
    float scales[2][COUNT / 256];
    uint8_t *codes = vt_test_owned(malloc(COUNT)), *again = vt_test_owned(malloc(COUNT));
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        double errors = 0, sizes = 0;
        fill_random(x, COUNT, 7, 1e-3f);
        for (int i = 0; i < COUNT; i++) {
            if (!is_signed) x[i] *= x[i];
            if (i >= COUNT / 2) x[i] *= powf(10, -6 * (float)(i % 97) / 97);
            if (i >= 256 && i < 512) x[i] *= 1e-30f; /* too small for a scale */
        }
        vt_codes_encode(maps[is_signed], x, COUNT, 256, codes, scales[0]);
        vt_codes_decode(maps[is_signed], codes, scales[0], COUNT, 256, y);
        for (int i = 0; i < COUNT; i++) {
            const double scale = fabs((double)scales[0][i / 256]), size = fabs((double)x[i]);
            const double error = fabs((double)x[i] - (double)y[i]);
            if (scale == 0) {
                EXPECT(size < 1e-30 && y[i] == 0);
                continue;
            }
            EXPECT(error <= (is_signed ? 0.00704 : 0.00352) * scale, "%g of %g: %g", (double)x[i], scale, error);
            int decade = 0;
            while (decade < 6 && size < scale * pow(10, -decade - 1)) decade++;
            if (decade < 6) EXPECT(error <= most[is_signed][decade] * 1.005 * size, "%g of %g", (double)x[i], scale);
            if (!is_signed && x[i] > 0) EXPECT(codes[i] > 0);
            if (i >= 512 && i < COUNT / 2) {
                errors += error / size;
                sizes += 1;
            }
        }
        if (is_signed) EXPECT_NEAR(errors / sizes, 0.0154, 0.0015);
        vt_codes_encode(maps[is_signed], y, COUNT, 256, again, scales[1]);
        EXPECT(memcmp(codes, again, COUNT) == 0 && memcmp(scales[0], scales[1], sizeof scales[0]) == 0);
    }
}

/* ---- the update ---- */

typedef struct {
    float *parameters;
    uint8_t *codes[2];
    float *scales[2];
} state_of;

enum { GUARD = 16 };

static state_of open_state(const vt_update *update, int64_t count)
{
    state_of s = {.parameters = vt_test_owned(malloc((size_t)(count + GUARD) * sizeof(float)))};
    fill_random(s.parameters, count + GUARD, 5, 1);
    for (int i = 0; i < 2; i++) {
        const int64_t blocks = vt_update_blocks(update, count);
        s.codes[i] = vt_test_owned(malloc((size_t)(count + GUARD)));
        s.scales[i] = vt_test_owned(malloc((size_t)(blocks + GUARD) * sizeof(float)));
        memset(s.codes[i], 0xa5, (size_t)(count + GUARD));
        for (int64_t j = 0; j < blocks + GUARD; j++) s.scales[i][j] = j < blocks ? 0.0f : 7.0f;
    }
    return s;
}

static void check_guards(const state_of *s, const vt_update *update, int64_t count)
{
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < GUARD; j++)
            EXPECT(s->codes[i][count + j] == 0xa5 && s->scales[i][vt_update_blocks(update, count) + j] == 7.0f,
                   "state %d is written beyond its end", i);
}

static void run_update(vt_backend *b, const vt_update *update, const vt_step_state *state, const float *gradients,
                       state_of *s, int64_t count)
{
    const guarded_rounded rounded = guarded_rounded_open(update->rounded, count);
    b->update_in_codes(b, update, state, gradients, s->parameters, rounded.at, s->codes[0], s->scales[0], s->codes[1],
                       s->scales[1], count);
    EXPECT_OK(b->check(b));
    guarded_rounded_check(&rounded, isnan(state->factor) ? NULL : s->parameters, "update_in_codes");
}

/* From the state before, in float64: the parameters, scales and codes after it. */
static void check_step(const vt_update *update, const vt_step_state *state, const float *gradients,
                       const state_of *before, const state_of *after, int64_t count, vt_cpu_isa isa)
{
    const vt_code_map *maps[2] = {vt_code_map_signed(), vt_code_map_unsigned()};
    for (int64_t begin = 0; begin < count; begin += update->block) {
        const int64_t length = count - begin < update->block ? count - begin : update->block, b = begin / update->block;
        double *moments[2], extreme[2] = {0, 0};
        for (int k = 0; k < 2; k++) moments[k] = vt_test_owned(malloc((size_t)length * sizeof(double)));
        for (int64_t i = 0; i < length; i++) {
            double w = (double)before->parameters[begin + i], g = (double)state->factor * (double)gradients[begin + i];
            if (update->kind == VT_OPTIMIZER_AdamW)
                w -= state->learning_rate * update->weight_decay * w;
            else
                g += update->weight_decay * w;
            for (int k = 0; k < 2; k++) {
                const double beta = k == 0 ? update->beta1 : update->beta2;
                const double old = (double)maps[k]->value[before->codes[k][begin + i]] * (double)before->scales[k][b];
                moments[k][i] = beta * old + (1 - beta) * (k == 0 ? g : g * g);
                if (fabs(moments[k][i]) > fabs(extreme[k])) extreme[k] = moments[k][i];
            }
            w -= state->learning_rate * moments[0][i] / state->correction1 /
                 (sqrt(moments[1][i] / state->correction2) + update->epsilon);
            EXPECT(fabs((double)after->parameters[begin + i] - w) <= 2e-6 * (1 + fabs(w)),
                   "isa %d: parameter %ld is %.9g, expected %.9g", (int)isa, begin + i,
                   (double)after->parameters[begin + i], w);
        }
        for (int k = 0; k < 2; k++) {
            const double scale = (double)after->scales[k][b];
            EXPECT(fabs(scale - extreme[k]) <= 1e-5 * fabs(extreme[k]), "isa %d: scale %d is %g, expected %g", (int)isa,
                   k, scale, extreme[k]);
            for (int64_t i = 0; i < length; i++) {
                const int code = after->codes[k][begin + i], expected = nearest(maps[k], moments[k][i] / extreme[k]);
                const double middle = ((double)maps[k]->value[code] + (double)maps[k]->value[expected]) / 2,
                             cancels = 1e-6;
                EXPECT(code == expected ||
                           (abs(code - expected) == 1 && fabs(moments[k][i] / extreme[k] - middle) <= cancels),
                       "isa %d: code %d of %g is %d, expected %d", (int)isa, k, moments[k][i] / extreme[k], code,
                       expected);
            }
        }
    }
}

static void check_updates(vt_cpu_isa isa, vt_backend *b, vt_update update, int64_t count, int steps)
{
    const int64_t blocks = vt_update_blocks(&update, count);
    state_of s = open_state(&update, count);
    float *gradients = vt_test_owned(malloc((size_t)count * sizeof(float)));
    vt_step_state state = {.learning_rate = 1e-2};
    for (int step = 1; step <= steps; step++) {
        state_of before = open_state(&update, count);
        memcpy(before.parameters, s.parameters, (size_t)count * sizeof(float));
        for (int k = 0; k < 2; k++) {
            memcpy(before.codes[k], s.codes[k], (size_t)count);
            memcpy(before.scales[k], s.scales[k], (size_t)blocks * sizeof(float));
        }
        fill_random(gradients, count, (uint64_t)step, 1);
        for (int64_t i = 0; i < count; i += 5) gradients[i] *= 1e-4f;
        state.updates = step;
        state.correction1 = 1 - pow(update.beta1, step);
        state.correction2 = 1 - pow(update.beta2, step);
        update.rounded = (vt_type)(step % 3);
        state.factor = NAN; /* no update */
        run_update(b, &update, &state, gradients, &s, count);
        EXPECT(memcmp(before.parameters, s.parameters, (size_t)count * sizeof(float)) == 0 &&
               memcmp(before.codes[0], s.codes[0], (size_t)count) == 0);
        state.factor = 0.7f;
        run_update(b, &update, &state, gradients, &s, count);
        check_step(&update, &state, gradients, &before, &s, count, isa);
        check_guards(&s, &update, count);
    }
}

GPU_TEST(updates_in_codes)
{
    static const vt_update adam = {
        .kind = VT_OPTIMIZER_Adam, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .block = 256};
    static const int64_t counts[] = {1, 7, 97, 1013};
    vt_update adamw = adam;
    adamw.kind = VT_OPTIMIZER_AdamW;
    FOR_EACH_BACKEND(isa, b)
    {
        for (int i = 0; i < 4; i++) check_updates(isa, b, adam, counts[i], 3);
        for (adamw.block = 64; adamw.block <= 4096; adamw.block *= 8) check_updates(isa, b, adamw, 5001, 4);
        check_updates(isa, b, adam, 700, isa == PATH_HOST_CUDA ? 5 : 50);
    }
}

/* Three hundred steps of a small model whose large tensors are in 8 bits end where those in 32 bits do. */
TEST(training_in_codes)
{
    enum { SAMPLES = 4, VALUES = SAMPLES * 2 * 16 * 32 };
    static const char model[] = "img_size=[16,32] patch_size=4 n_in_channels=2 n_out_channels=2 embed_dim=32 depth=2 "
                                "num_heads=4 global_batch_size=4 lr=1e-3 num_iters=300";
    float *input = vt_test_owned(malloc(VALUES * sizeof *input)),
          *target = vt_test_owned(malloc(VALUES * sizeof *target));
    for (int seed = 1; seed <= 3; seed++) {
        double losses[2];
        for (int i = 0; i < 2; i++) {
            SCOPED(rig) r = {
                .config = config_with(1, model, SETTINGS("seed=%d optimizer=%s", seed, i == 0 ? "Adam" : "Adam8bit"))};
            EXPECT_OK(vt_backend_open_cpu(VT_ISA_AUTO, 0, &r.backend));
            EXPECT_OK(rig_open(&r, NULL, NULL, false));
            losses[i] = 0;
            for (int step = 0; step < 300; step++) {
                vt_batch batch = {.sample_count = SAMPLES, .global_count = SAMPLES, .tensors = {input, target}};
                fill_random(input, VALUES, (uint64_t)(1000 * seed + step), 1);
                for (int j = 0; j < VALUES; j++) /* what can be learnt: a shift by a point, smoothed */
                    target[j] = 0.6f * input[(j + 1) % VALUES] + 0.4f * input[(j + 33) % VALUES];
                const double loss = rig_train(&r, &batch, 1);
                if (step >= 290) losses[i] += loss / 10;
            }
        }
        EXPECT(losses[0] < 0.9 && fabs(losses[1] - losses[0]) < 0.01 * losses[0], "seed %d: %g in 32 bits, %g in 8",
               seed, losses[0], losses[1]);
    }
}
