/* Every model of the table: its gradients are those of finite differences; what a pass keeps belongs to its
 * micro-batch, so several may be in flight, and stages may share out the units; fields come back from the rows of a
 * prediction. */
#include "bare_model.h"
#include "operations/paths.h"
#include "settings.h"

enum { MICRO_BATCHES = 2, SAMPLES = 3, CHANNELS = 2, VALUES = SAMPLES * CHANNELS * 8 * 16, MOST_STAGES = 2 };
static const size_t arena_bytes = 4 << 20;

typedef struct {
    vt_config *config;
    bare_model m;
    vt_type type;
    bool offloads; /* its blocks' activations */
    float input[MICRO_BATCHES][VALUES], mean[CHANNELS], inverse_std[CHANNELS];
} fixture;

/* One micro-batch on one stage. */
typedef struct {
    vt_arena arena;
    vt_saved *saved;
    vt_pass pass;
    vt_model_tensor input;
    vt_matrix out;
} flight;

#define NAME(name, ...) #name,
static const char *const models[] = {VT_MODELS(NAME)};
enum { MODELS = sizeof models / sizeof models[0] };

/* The U-Net takes cubes, and its activations are kept in units of its own: golden/unet. Others take text:
 * golden/language. */
static bool takes_fields(const char *model)
{
    return strcmp(model, "unet3d") != 0 && strcmp(model, "transformer") != 0 && strcmp(model, "encoder") != 0;
}

/* settings: the vit's own. */
static void open_fixture(fixture *f, const char *model, vt_type type, const char *settings)
{
    *f = (fixture){.type = type, .mean = {0.5f, -0.5f}, .inverse_std = {1, 2}};
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_AUTO, 0, &f->m.backend));
    const bool is_vit = strcmp(model, "vit") == 0;
    f->config = config_with(1, SETTINGS("model=%s img_size=[8,16] n_in_channels=2 n_out_channels=2", model),
                            is_vit ? SETTINGS("patch_size=4 embed_dim=16 depth=3 num_heads=2 %s", settings) : "");
    f->m.rank = open_alone(f->m.backend, vt_model_kind_of(f->config)->tokens(f->config));
    open_bare_model(&f->m, f->config, type);
    vt_parameters_start(f->m.parameters, 333, "");
    vt_parameters_refresh(f->m.parameters);
    for (int m = 0; m < MICRO_BATCHES; m++)
        for (int i = 0; i < VALUES; i++) f->input[m][i] = (float)sin(0.1 * (i + 1) * (m + 1));
}

static void fixture_close(fixture *f)
{
    bare_model_close(&f->m);
    vt_config_close(&f->config);
}

static vt_span blocks_of(const fixture *f, vt_span units)
{
    const vt_span all = vt_model_blocks(f->m.model);
    const int64_t first = units.first > all.first ? units.first : all.first, last = units.first + units.count;
    return (vt_span){first, (last < all.first + all.count ? last : all.first + all.count) - first};
}

static flight open_flight(fixture *f, int micro_batch, vt_span units)
{
    static const uint32_t step = 7;
    flight a = {0};
    const vt_offload_sizes rooms = {1 << 20, 1 << 20, 1 << 22};
    EXPECT_OK(vt_arena_open(f->m.backend, arena_bytes, &a.arena));
    vt_saved_open(f->m.model, units, &a.saved);
    a.input = (vt_model_tensor){
        .values = f->input[micro_batch], .channels = CHANNELS, .mean = f->mean, .inverse_std = f->inverse_std};
    a.pass = (vt_pass){.backend = f->m.backend,
                       .parallel = f->m.rank.parallel,
                       .batch = SAMPLES,
                       .type = f->type,
                       .training = true,
                       .has_backward = true,
                       .seed = 5,
                       .step = &step,
                       .first_sample = (uint32_t)(micro_batch * SAMPLES)};
    if (f->offloads) EXPECT_OK(vt_offload_open(f->m.backend, units, blocks_of(f, units), rooms, &a.pass.offload));
    return a;
}

static void flight_close(flight *a)
{
    vt_offload_close(&a->pass.offload);
    vt_saved_close(&a->saved);
    vt_arena_close(&a->arena);
}

/* The loss is half the sum of the squares of the predictions: its gradient is the prediction. */
static vt_matrix loss_backward(flight *a)
{
    vt_matrix dprediction = vt_pass_push(&a->pass, a->out.rows, a->out.columns);
    a->pass.backend->convert(a->pass.backend, a->out, dprediction);
    return dprediction;
}

static void forward(fixture *f, flight *stages, int stage_count)
{
    vt_matrix stream = {0};
    for (int s = 0; s < stage_count; s++) {
        stages[s].pass.arena = &stages[s].arena;
        stream = stages[s].out =
            vt_model_forward(f->m.model, &stages[s].pass, &stages[s].input, stream, stages[s].saved);
    }
}

static void backward(fixture *f, flight *stages, int stage_count)
{
    vt_matrix dout = loss_backward(&stages[stage_count - 1]);
    for (int s = stage_count - 1; s >= 0; s--)
        dout = vt_model_backward(f->m.model, &stages[s].pass, &stages[s].input, dout, stages[s].saved);
    EXPECT(dout.data == NULL);
}

/* All gradients of both micro-batches, one parameter's behind the other's; malloc'd. first_stage: the units of the
 * first of two stages, or 0: there is one stage. */
static float *gradients(fixture *f, bool in_flight, int64_t first_stage)
{
    flight a[MICRO_BATCHES][MOST_STAGES];
    const vt_span all = f->m.parameters->units;
    const vt_span split[MOST_STAGES] = {{0, first_stage}, {first_stage, all.count - first_stage}};
    const int stages = first_stage > 0 ? 2 : 1;
    float *result = malloc((size_t)f->m.parameters->whole_count * sizeof *result), *end = result;
    VT_ASSERT(result != NULL);
    for (int64_t i = 0; i < f->m.parameters->count; i++) {
        const vt_parameter *p = f->m.parameters->list[i];
        memset(p->gradient, 0, (size_t)p->count * sizeof(float));
    }
    for (int m = 0; m < MICRO_BATCHES; m++)
        for (int s = 0; s < stages; s++) a[m][s] = open_flight(f, m, stages == 1 ? all : split[s]);
    for (int m = 0; m < MICRO_BATCHES; m++) {
        forward(f, a[m], stages);
        if (!in_flight) backward(f, a[m], stages);
    }
    for (int m = 0; in_flight && m < MICRO_BATCHES; m++) backward(f, a[m], stages);
    for (int m = 0; m < MICRO_BATCHES; m++)
        for (int s = 0; s < stages; s++) flight_close(&a[m][s]);
    for (int64_t i = 0; i < f->m.parameters->count; i++) {
        const vt_parameter *p = f->m.parameters->list[i];
        memcpy(end, p->gradient, (size_t)p->count * sizeof(float));
        end += p->count;
    }
    return result;
}

static void expect_same(const fixture *f, const float *expected, float *found, const char *what)
{
    const size_t count = (size_t)f->m.parameters->whole_count;
    double squares = 0;
    for (size_t i = 0; i < count; i++) squares += (double)found[i] * (double)found[i];
    EXPECT(isfinite(squares) && squares > 0, "%s: %g", what, squares);
    EXPECT(memcmp(expected, found, count * sizeof *found) == 0, "%s, type %d: other gradients", what, (int)f->type);
    free(found);
}

static void check_orders(const char *model, vt_type type, const char *settings)
{
    SCOPED(fixture) f;
    open_fixture(&f, model, type, settings);
    float *usual = vt_test_owned(gradients(&f, false, 0));
    expect_same(&f, usual, gradients(&f, true, 0), "two micro-batches in flight");
    for (int64_t first = 1; first < f.m.parameters->units.count; first++)
        expect_same(&f, usual, gradients(&f, true, first), "two micro-batches in flight on two stages");
}

TEST(micro_batches_in_flight_give_the_gradients_of_one_after_the_other)
{
    static const vt_type types[] = {VT_FLOAT32, VT_BFLOAT16};
    for (int m = 0; m < MODELS; m++) {
        for (int i = 0; i < 2 && takes_fields(models[m]); i++) {
            check_orders(models[m], types[i], "dropout=0");
            check_orders(models[m], types[i], "dropout=0.2");
            check_orders(models[m], types[i], "dropout=0.2 recompute=block");
            check_orders(models[m], types[i], "dropout=0.2 recompute=linear");
        }
    }
}

/* What a block kept comes back to where it was; of what a block of so many columns keeps nothing else is left. */
static void check_offload(const char *settings, int64_t first_stage)
{
    SCOPED(fixture) f;
    open_fixture(&f, "vit", VT_FLOAT32, SETTINGS("depth=7 dropout=0.2 %s", settings));
    float *usual = vt_test_owned(gradients(&f, false, first_stage));
    f.offloads = true;
    expect_same(&f, usual, gradients(&f, false, first_stage), "offloaded");
    expect_same(&f, usual, gradients(&f, true, first_stage), "offloaded, two micro-batches in flight");
}

TEST(offloaded_activations_give_the_same_gradients)
{
    for (int64_t first_stage = 0; first_stage <= 8; first_stage++) {
        check_offload("", first_stage);
        check_offload("recompute=block", first_stage);
        check_offload("recompute=linear", first_stage);
    }
}

/* All that is away after a forward is overwritten on the device meanwhile, and both its rooms and the host's memory are
 * as large as the sums of what is kept say: of 5 blocks the first 3 leave. */
TEST(offloaded_bytes_are_those_of_all_but_the_last_two_blocks)
{
    enum { DIM = 16, TOKENS = 8, HEADS = 2 };
    static const char *const settings[] = {"recompute=none", "recompute=block"};
    const size_t rows = SAMPLES * TOKENS, stream = (rows * DIM * sizeof(float) + 255) / 256 * 256;
    for (int i = 0; i < 2; i++) {
        SCOPED(fixture) f;
        open_fixture(&f, "vit", VT_FLOAT32, SETTINGS("depth=5 %s", settings[i]));
        f.offloads = true;
        SCOPED(flight) a = open_flight(&f, 0, f.m.parameters->units);
        forward(&f, &a, 1);
        const vt_offload_sizes sizes = vt_offload_needed(a.pass.offload);
        EXPECT(sizes.stream == stream);
        EXPECT(i == 1 ? sizes.kept == 0 : sizes.kept >= rows * (9 * DIM + 4 + HEADS) * sizeof(float));
        EXPECT(sizes.host == 3 * (sizes.kept + sizes.stream), "%zu", sizes.host);
        const size_t used = a.arena.used;
        EXPECT(vt_offload_needed(a.pass.offload).host > 0 && used < arena_bytes);
    }
}

TEST(offloading_is_for_models_with_blocks_on_a_device)
{
    SCOPED(vt_backend) *cpu = open_path(VT_ISA_AUTO);
    for (int m = 0; m < MODELS; m++) {
        const bool is_unet = strcmp(models[m], "unet3d") == 0;
        if (!takes_fields(models[m]) && !is_unet) continue;
        const char *more = is_unet ? "task=cosmology source=volumes loss=l1 num_iters=None" : "";
        SCOPED(vt_config) *config =
            config_with(1, SETTINGS("model=%s %s", models[m], more), "offload_activations=host");
        if (vt_model_kind_of(config)->blocks == NULL)
            EXPECT_ERROR(vt_model_check(config, NULL), "has no blocks, whose activations could be taken away");
    }
    SCOPED(vt_config) *config = config_with(1, "", "offload_activations=host");
    EXPECT_OK(vt_model_check(config, NULL));
    EXPECT_ERROR(vt_model_check(config, cpu), "use --offload_activations=none, or --device=cuda");
}

/* The loss of both micro-batches with `parameter` moved by `distance` along `direction`. */
static double loss_beside(fixture *f, vt_parameter *parameter, const float *direction, double distance)
{
    double loss = 0;
    float *before = vt_test_owned(malloc((size_t)parameter->count * sizeof *before));
    memcpy(before, parameter->value, (size_t)parameter->count * sizeof *before);
    for (int64_t i = 0; i < parameter->count; i++) parameter->value[i] += (float)(distance * (double)direction[i]);
    for (int m = 0; m < MICRO_BATCHES; m++) {
        SCOPED(flight) a = open_flight(f, m, f->m.parameters->units);
        forward(f, &a, 1);
        for (int64_t i = 0; i < a.out.rows * a.out.columns; i++)
            loss += (double)a.out.data[i] * (double)a.out.data[i] / 2;
    }
    memcpy(parameter->value, before, (size_t)parameter->count * sizeof *before);
    return loss;
}

/* Along a parameter's gradient the loss changes by the gradient's norm; the step changes it by a thousandth, of which
 * float32 leaves about three digits. */
static void check_gradients(const char *model)
{
    SCOPED(fixture) f;
    int64_t compared = 0;
    open_fixture(&f, model, VT_FLOAT32, "dropout=0.2");
    float *all = gradients(&f, false, 0), *gradient = all;
    for (int64_t i = 0; i < f.m.parameters->count; i++) {
        vt_parameter *p = f.m.parameters->list[i];
        double squares = 0, loss = loss_beside(&f, p, gradient, 0);
        for (int64_t j = 0; j < p->count; j++) squares += (double)gradient[j] * (double)gradient[j];
        const double distance = 1e-3 * loss / squares;
        if (sqrt(squares) > 1e-3 * loss) { /* k.bias's gradient is rounding alone */
            double slope =
                (loss_beside(&f, p, gradient, distance) - loss_beside(&f, p, gradient, -distance)) / (2 * distance);
            EXPECT(fabs(slope - squares) < 0.01 * squares, "%s, %s: %g instead of %g", model, p->name, slope, squares);
            compared++;
        }
        gradient += p->count;
    }
    EXPECT(2 * compared > f.m.parameters->count, "%s: only %ld", model, compared);
    free(all);
}

TEST(gradients_of_models_are_those_of_finite_differences)
{
    for (int m = 0; m < MODELS; m++)
        if (takes_fields(models[m])) check_gradients(models[m]);
}

TEST(fields_come_back_from_the_rows_of_a_prediction)
{
    enum { POINTS = 8 * 16 };
    for (int m = 0; m < MODELS; m++) {
        if (!takes_fields(models[m])) continue;
        SCOPED(fixture) f;
        double squares[SAMPLES * CHANNELS * 2] = {0};
        float weights[8] = {1, 1, 1, 1, 1, 1, 1, 1};
        open_fixture(&f, models[m], VT_FLOAT32, "");
        SCOPED(flight) a = open_flight(&f, 0, f.m.parameters->units);
        forward(&f, &a, 1);
        vt_matrix rows = vt_model_lay_out(f.m.model, &a.pass, &a.input);
        EXPECT(rows.rows == a.out.rows && rows.columns == a.out.columns);
        memset(a.out.data, 0, (size_t)(a.out.rows * a.out.columns) * sizeof(float));
        const vt_patch_grid grid = f.m.model->kind->prediction_grid(f.m.model, SAMPLES);
        f.m.backend->channel_squares(f.m.backend, &grid, rows, a.out, weights, squares);
        vt_matrix fields = vt_model_restore(f.m.model, &a.pass, rows, f.mean, f.inverse_std);
        EXPECT(fields.rows == SAMPLES * CHANNELS && fields.columns == POINTS);
        for (int field = 0; field < SAMPLES * CHANNELS; field++) {
            const float *values = f.input[0] + field * POINTS, *mean = &f.mean[field % CHANNELS];
            double sum = 0;
            for (int i = 0; i < POINTS; i++) {
                EXPECT_NEAR(fields.data[field * POINTS + i], values[i], 1e-6);
                sum += pow(((double)values[i] - (double)*mean) * (double)f.inverse_std[field % CHANNELS], 2);
            }
            EXPECT_NEAR(squares[2 * field], sum, 1e-5 * sum);
            EXPECT(squares[2 * field + 1] == 0);
        }
    }
}

TEST(sizes_that_models_refuse)
{
    const vt_backend gpu = {.most_head_columns = 128}, any = {.most_head_columns = 0};
    SCOPED(vt_config) *config = default_config();
    set_options(config, "embed_dim=1024 num_heads=8");
    EXPECT_OK(vt_model_check(config, &gpu));
    set_options(config, "embed_dim=648 num_heads=4");
    EXPECT_OK(vt_model_check(config, &any));
    EXPECT_ERROR(vt_model_check(config, &gpu),
                 "num_heads 4 cuts embed_dim 648 into heads of 162 columns; attention on a GPU takes heads of up to "
                 "128: use --num_heads=6, or --device=cpu");
}
