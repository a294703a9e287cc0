/* Schedule, length of a run, parameters' start, dropout inside of a model, finite check, metrics and run directory. */
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alone.h"
#include "backend/half.h"
#include "base/file.h"
#include "base/log.h"
#include "journal/run_directory.h"
#include "operations/paths.h"
#include "optimizer/optimizer.h"
#include "settings.h"
#include "small_model.h"
#include "test.h"
#include "training/plan.h"
#include "training/run_inside.h"

/* Of a run of 100 steps, with epochs of 10. */
static void check_rate(const char *settings, int64_t step, double expected)
{
    SCOPED(vt_config) *config = config_with(1, "lr=0.5", settings);
    EXPECT_NEAR(vt_learning_rate_at(config, (vt_run_length){.run = 100, .epoch = 10}, step), expected, 1e-15);
}

TEST(schedule_of_the_learning_rate)
{
    static const char cosine[] = "lr_schedule=cosine", warm[] = "lr_schedule=cosine warmup=10";
    check_rate(cosine, 0, 0.5);
    check_rate(cosine, 50, 0.25);
    check_rate(cosine, 25, 0.25 * (1 + sqrt(0.5)));
    check_rate(cosine, 100, 0);
    check_rate(cosine, 1000, 0);
    check_rate(warm, 0, 0.05);
    check_rate(warm, 50, 0.25);
    check_rate(warm, 9, 0.25 * (1 + cos(M_PI * 0.09)));
    check_rate("lr_schedule=none", 99, 0.5);
    check_rate("lr_schedule=none warmup=4", 1, 0.25);
    check_rate("lr_schedule=none warmup=4", 7, 0.5);
}

/* In epochs of ten steps. */
TEST(restarts_of_the_learning_rate)
{
    static const char more[] = "num_epochs=10 lr_restarts=0.125@6,0.0625@8 restart_warmup=4 warmup=10";
    const vt_run_length length = {.run = 100, .epoch = 10};
    SCOPED(vt_config) *config = config_with(1, "lr=0.5", more);
    check_rate(more, 4, 0.25);
    check_rate(more, 30, 0.25); /* the middle of the first 60 */
    check_rate(more, 59, 0.25 * (1 + cos(M_PI * 59 / 60)));
    check_rate(more, 60, 0.125 / 4);
    check_rate(more, 70, 0.0625);
    check_rate(more, 81, 0.0625 / 2);
    check_rate(more, 90, 0.03125);
    check_rate(more, 100, 0);
    for (int64_t step = 0; step <= 100; step++)
        EXPECT(vt_learning_rate_restarts(config, length, step) == (step == 60 || step == 80), "step %ld", step);
}

/* After four epochs of 10 steps epochs have 20 (or 5): restarts stay in their epochs, and cosines go on from where they
 * were. begun: the step of the last restart before. */
TEST(schedule_after_epochs_of_another_length)
{
    static const struct {
        const char *settings;
        int64_t run, epoch, begun, step;
        double expected; /* share of the highest rate */
    } known[] = {{"num_epochs=10", 160, 20, 0, 40, 0.4},
                 {"num_epochs=10", 160, 20, 0, 100, 0.7},
                 {"num_epochs=10", 160, 20, 0, 159, 1 - 0.1 / 20},
                 {"num_epochs=10", 70, 5, 0, 40, 0.4},
                 {"num_epochs=10", 70, 5, 0, 50, 0.6},
                 {"num_iters=100", 100, 20, 0, 40, 0.4},
                 {"num_epochs=10 lr_restarts=0.5@6 restart_warmup=0", 160, 20, 0, 40, 4. / 6},
                 {"num_epochs=10 lr_restarts=0.5@6 restart_warmup=0", 160, 20, 0, 79, 4. / 6 + 39. / 120},
                 {"num_epochs=10 lr_restarts=0.5@6 restart_warmup=0", 160, 20, 0, 80, 0},
                 {"num_epochs=10 lr_restarts=0.5@6 restart_warmup=0", 160, 20, 0, 100, 0.25},
                 {"num_epochs=10 lr_restarts=0.5@2 restart_warmup=0", 160, 20, 20, 40, 0.25}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        SCOPED(vt_config) *config = config_with(1, "lr=0.5", known[i].settings);
        const vt_run_length length = {known[i].run, known[i].epoch, 4, 40, known[i].begun};
        const double rate = vt_learning_rate_at(config, length, known[i].step);
        EXPECT_NEAR(rate, 0.25 * (1 + cos(M_PI * known[i].expected)), 1e-15);
        const vt_stages restarts = vt_config_restarts(config);
        for (int64_t step = 40; step < known[i].run; step++)
            EXPECT(vt_learning_rate_restarts(config, length, step) ==
                       (restarts.count > 0 && restarts.stages[0].epoch == 6 && step == 80),
                   "%zu: step %ld", i, step);
    }
    /* steps of warm-up count as they are */
    SCOPED(vt_config) *config = config_with(1, "lr=0.5", "num_epochs=10 lr_restarts=0.5@2 restart_warmup=30");
    const vt_run_length length = {160, 20, 4, 40, 20};
    EXPECT_NEAR(vt_learning_rate_at(config, length, 40), 0.5 * 21 / 30, 1e-15);
}

static vt_loop_length length_from(const vt_run_progress *progress, const char *settings, int64_t samples)
{
    SCOPED(vt_config) *config = config_with(1, settings, "");
    vt_loop_length length = vt_loop_length_of(config, samples / config->global_batch_size, progress);
    return length;
}

static vt_loop_length length_of(const char *settings, int64_t samples)
{
    return length_from(&vt_run_progress_start, settings, samples);
}

TEST(length_of_a_run)
{
    vt_loop_length length =
        length_of("global_batch_size=16 num_iters=128", 520); /* 32 steps, the rest of 8 samples is dropped */
    EXPECT(length.epochs == 4 && length.steps_per_epoch == 32 && length.steps == 128);
    length = length_of("global_batch_size=16 num_iters=130", 512); /* whole epochs only */
    EXPECT(length.epochs == 4 && length.steps_per_epoch == 32 && length.steps == 128);
    length = length_of("global_batch_size=16 num_iters=10", 512); /* never zero epochs */
    EXPECT(length.epochs == 1 && length.steps_per_epoch == 10 && length.steps == 10);
    length = length_of("global_batch_size=4 num_epochs=3", 9);
    EXPECT(length.epochs == 3 && length.steps_per_epoch == 2 && length.steps == 6);
}

TEST(length_of_a_resumed_run)
{
    vt_run_progress progress = {.step = 28, .epoch = 2}; /* two epochs of 14 steps, with another batch */
    vt_loop_length length = length_from(&progress, "global_batch_size=16 num_iters=56", 118);
    EXPECT(length.epochs == 6 && length.steps_per_epoch == 7 && length.steps == 56);
    length = length_from(&progress, "global_batch_size=16 num_epochs=4", 118);
    EXPECT(length.epochs == 4 && length.steps == 42);
    for (int i = 0; i < 2; i++) { /* nothing is left, or less than an epoch */
        length = length_from(&progress, SETTINGS("global_batch_size=8 num_iters=%d", i == 0 ? 20 : 41), 118);
        EXPECT(length.epochs == 2 && length.steps == 28);
    }
    progress = (vt_run_progress){.step = 5, .epoch_steps = 5};
    length = length_from(&progress, "global_batch_size=8 num_iters=10", 118);
    EXPECT(length.epochs == 1 && length.steps_per_epoch == 10 && length.steps == 10);
    length = length_from(&progress, "global_batch_size=8 num_iters=28", 118);
    EXPECT(length.epochs == 2 && length.steps_per_epoch == 14 && length.steps == 28);
}

/* ---- parameters ---- */

static int64_t count_parameters(int64_t dim)
{
    SCOPED(vt_backend) *dry = NULL;
    EXPECT_OK(vt_backend_open_dry(&dry));
    SCOPED(alone) one = open_alone(dry, 45 * 90);
    SCOPED(vt_parameters) *parameters = NULL;
    SCOPED(vt_model) *vit = NULL;
    one.config->embed_dim = dim; /* the rest of the tutorials' model is the default */
    EXPECT_OK(vt_parameters_open(dry, one.parallel, &parameters));
    EXPECT_OK(vt_model_open(one.config, parameters, &vit));
    int64_t count = parameters->whole_count;
    EXPECT(parameters->count == 3 + 12 * 16 + 3);
    EXPECT(find_parameter(parameters, "blocks.11.attn.k.weight") != NULL);
    EXPECT(find_parameter(parameters, "head.bias") == NULL);
    return count;
}

TEST(parameter_counts_are_the_published_ones)
{
    EXPECT(count_parameters(384) == 23832960);
    EXPECT(count_parameters(1024) == 157926400);
}

typedef struct {
    double mean, deviation, largest;
} moments;

static moments moments_of(const vt_parameter *parameter)
{
    moments m = {0};
    for (int64_t i = 0; i < parameter->count; i++) {
        double value = (double)parameter->value[i];
        m.mean += value;
        m.deviation += value * value;
        m.largest = fmax(m.largest, fabs(value));
    }
    m.mean /= (double)parameter->count;
    m.deviation = sqrt(m.deviation / (double)parameter->count - m.mean * m.mean);
    return m;
}

TEST(parameters_start_as_pytorchs)
{
    vt_parameters *parameters[2] = {NULL, NULL};
    const int64_t shape[2] = {300, 200};
    SCOPED(vt_backend) *backend = open_path(VT_ISA_AUTO);
    SCOPED(alone) one_rank = open_alone(backend, 4);
    for (int i = 0; i < 2; i++) {
        EXPECT_OK(vt_parameters_open(backend, one_rank.parallel, &parameters[i]));
        /* the second registry has another order: values depend on the name alone */
        if (i == 1) vt_parameters_add(parameters[i], "", "other", 2, shape, VT_START_NORMAL, 0.02);
        vt_parameters_add(parameters[i], "a", "normal", 2, shape, VT_START_NORMAL, 0.02);
        vt_parameters_add(parameters[i], "a", "wide", 2, shape, VT_START_NORMAL, 2);
        vt_parameters_add(parameters[i], "a", "uniform", 2, shape, VT_START_UNIFORM, 0.25);
        vt_parameters_add(parameters[i], "a", "one", 1, shape, VT_START_VALUE, 1);
        EXPECT_OK(vt_parameters_allocate(parameters[i], VT_FLOAT32,
                                         &(vt_parameters_storage){.bucket_bytes = 1e6, .shards = 1}));
        vt_parameters_start(parameters[i], 333, "");
    }
    moments normal = moments_of(find_parameter(parameters[0], "a.normal"));
    moments wide = moments_of(find_parameter(parameters[0], "a.wide"));
    moments uniform = moments_of(find_parameter(parameters[0], "a.uniform"));
    moments one = moments_of(find_parameter(parameters[0], "a.one"));
    /* means of 60,000 are off by at most 5 / √60000 of the deviation */
    EXPECT_NEAR(normal.mean, 0, 0.02 * 5 / sqrt(60000));
    EXPECT_NEAR(normal.deviation, 0.02, 0.02 * 0.02);
    EXPECT(normal.largest < 0.02 * 6 && normal.largest > 0.02 * 3);
    EXPECT(wide.largest <= 2); /* cut at ±2, which is one standard deviation here */
    EXPECT_NEAR(wide.deviation, 2 * 0.5396, 0.02);
    EXPECT_NEAR(uniform.deviation, 0.25 / sqrt(3), 0.002);
    EXPECT(uniform.largest <= 0.25 && uniform.largest > 0.249);
    EXPECT(one.mean == 1 && one.deviation == 0);
    const vt_parameter *a = find_parameter(parameters[0], "a.normal"), *b = find_parameter(parameters[1], "a.normal");
    EXPECT(memcmp(a->value, b->value, (size_t)a->count * sizeof(float)) == 0);
    EXPECT(memcmp(b->value, find_parameter(parameters[1], "other")->value, 64) != 0);
    for (int i = 0; i < 2; i++) vt_parameters_close(&parameters[i]);
}

/* A convolution's weight in 3-D, of which this rank has two of three input channels: its numbers are the whole's. */
TEST(a_part_of_five_dimensions)
{
    enum { OUT = 4, IN_PARTS = 3, KERNEL = 2 * 3 * 5 };
    const int64_t shape[VT_PARAMETER_DIMENSIONS] = {OUT, IN_PARTS, 2, 3, 5};
    SCOPED(vt_backend) *backend = open_path(VT_ISA_AUTO);
    SCOPED(alone) one_rank = open_alone(backend, 4);
    SCOPED(vt_parameters) *whole = NULL, *own = NULL;
    EXPECT_OK(vt_parameters_open(backend, one_rank.parallel, &whole));
    EXPECT_OK(vt_parameters_open(backend, one_rank.parallel, &own));
    const vt_parameter *a = vt_parameters_add(whole, "", "conv.weight", 5, shape, VT_START_UNIFORM, 0.25);
    vt_parameter *b = vt_parameters_add(own, "", "conv.weight", 5, shape, VT_START_UNIFORM, 0.25);
    vt_parameter_split(b, 1, VT_AXES(VT_AXIS_TENSOR), (vt_span){1, 2});
    EXPECT_OK(vt_parameters_allocate(whole, VT_FLOAT32, &(vt_parameters_storage){.shards = 1}));
    EXPECT_OK(vt_parameters_allocate(own, VT_FLOAT32, &(vt_parameters_storage){.shards = 1}));
    vt_parameters_start(whole, 333, "");
    vt_parameters_start(own, 333, "");
    EXPECT(a->count == OUT * IN_PARTS * KERNEL && b->count == OUT * 2 * KERNEL);
    for (int64_t i = 0; i < OUT; i++)
        EXPECT(memcmp(b->value + i * 2 * KERNEL, a->value + (i * IN_PARTS + 1) * KERNEL, 2 * KERNEL * sizeof(float)) ==
               0);
}

TEST(slices_keep_an_optimizers_grain)
{
    SCOPED(vt_backend) *dry = NULL;
    const int64_t shape[1] = {1000};
    EXPECT_OK(vt_backend_open_dry(&dry));
    SCOPED(alone) one_rank = open_alone(dry, 4);
    for (int shard = 0; shard < 3; shard++) {
        SCOPED(vt_parameters) *parameters = NULL;
        EXPECT_OK(vt_parameters_open(dry, one_rank.parallel, &parameters));
        const vt_parameter *a = vt_parameters_add(parameters, "", "a", 1, shape, VT_START_VALUE, 0);
        const vt_parameter *b = vt_parameters_add(parameters, "", "b", 1, shape, VT_START_VALUE, 0);
        EXPECT_OK(vt_parameters_allocate(parameters, VT_FLOAT32, &(vt_parameters_storage){1e6, 1, 3, shard, 256}));
        const vt_bucket *bucket = &parameters->buckets[0];
        EXPECT(a->offset == 0 && b->offset == 1024 && bucket->count == 3 * 768);
        EXPECT(vt_parameters_block_elements(parameters, VT_BLOCK_MOMENTS) == 768);
        EXPECT(vt_parameters_block_elements(parameters, VT_BLOCK_GRADIENTS) == 3 * 768);
        EXPECT(vt_parameters_slice_offset(parameters, bucket, VT_BLOCK_MOMENTS) == 0);
        EXPECT(vt_parameters_slice_offset(parameters, bucket, VT_BLOCK_VALUES) == 768 * shard);
        const int64_t kept_of_a[] = {768, 1000 - 768, 0};
        EXPECT(vt_parameters_piece(parameters, a, VT_BLOCK_MOMENTS).count == kept_of_a[shard]);
    }
}

/* Each word of the option `optimizer` is the name of its row. */
TEST(the_table_of_optimizers)
{
    SCOPED(vt_config) *config = default_config();
    for (int i = VT_OPTIMIZER_Adam; i <= VT_OPTIMIZER_SGD; i++) { /* the last */
        EXPECT_OK(vt_config_set(config, "optimizer", vt_optimizer_kinds[i]->name));
        EXPECT(config->optimizer == i);
    }
    EXPECT_OK(vt_config_set(config, "momentum", "0"));
    EXPECT(vt_optimizer_form(config, 0, &(vt_parameter){.frozen = false}) == VT_KEPT_NOTHING, "it needs no memory");
}

/* ---- a small model ---- */

static double evaluate(model *m)
{
    SCOPED(vt_evaluation) sums;
    rig_evaluate(&m->rig, &m->batch, false, &sums);
    EXPECT(isnan(sums.baseline_loss) && isnan(sums.baseline.values[sums.count]));
    const double loss = sums.loss;
    return loss;
}

TEST(the_same_seed_gives_the_same_bits)
{
    SCOPED(model) a, b, other;
    open_small(&a, "dropout=0.2");
    open_small(&b, "dropout=0.2");
    open_small(&other, "dropout=0.2 seed=7");
    double loss = train_steps(&a, 5);
    EXPECT(loss == train_steps(&b, 5));
    EXPECT(loss != train_steps(&other, 5));
    EXPECT(rig_same_values(&a.rig, &b.rig));
}

/* Dropout is keyed by the sample's place in the global batch, so cutting the batch in pieces changes nothing but the
 * order of sums. */
TEST(dropout_does_not_depend_on_micro_batches)
{
    SCOPED(model) whole, pieces;
    open_small(&whole, "dropout=0.3");
    open_small(&pieces, "dropout=0.3 grad_accumulation=4");
    for (int i = 0; i < 5; i++) {
        double loss = train_steps(&whole, 1);
        EXPECT_NEAR(train_steps(&pieces, 1), loss, 1e-5 * loss);
    }
}

TEST(validation_has_no_dropout)
{
    SCOPED(model) with, without;
    open_small(&with, "dropout=0.5");
    open_small(&without, "dropout=0");
    EXPECT(evaluate(&with) == evaluate(&without));
    EXPECT(train_steps(&with, 1) != train_steps(&without, 1));
}

/* In the units of the data and laid back to fields: its RMSE, by hand, is the evaluation's. */
TEST(forecast_is_what_is_evaluated)
{
    enum { HEIGHT = 8, WIDTH = 12, CHANNEL = 1 };
    SCOPED(model) m;
    SCOPED(vt_evaluation) sums;
    float field[HEIGHT * WIDTH], target[HEIGHT * WIDTH];
    double sum = 0, weights = 0, std = 4; /* of channel 1 in open_small */
    open_small(&m, "dropout=0.3");
    train_steps(&m, 3);
    vt_batch one = {
        .sample_count = 1, .global_count = 1, .tensors = {m.input + FRAME, m.target + FRAME}}; /* sample 1 */
    rig_evaluate(&m.rig, &one, false, &sums);
    const vt_picture_part pictured = {.field = CHANNEL, .height = HEIGHT, .width = WIDTH};
    EXPECT_OK(vt_step_forecast(m.rig.trainer, &one, pictured, field, target));
    for (int i = 0; i < HEIGHT * WIDTH; i++) {
        EXPECT_NEAR(target[i], m.target[FRAME + CHANNEL * HEIGHT * WIDTH + i], 1e-5);
        double difference = ((double)field[i] - (double)target[i]) / std;
        const double weight = cos((90 - 180.0 * (i / WIDTH) / (HEIGHT - 1)) * M_PI / 180);
        sum += weight * difference * difference;
        weights += weight;
    }
    EXPECT_NEAR(sqrt(sum / weights), sums.model.values[1 + CHANNEL], 1e-5 * sums.model.values[1 + CHANNEL]);
}

TEST(training_learns_one_batch)
{
    SCOPED(model) m;
    open_small(&m, "lr_schedule=none lr=1e-2");
    double before = evaluate(&m);
    train_steps(&m, 150);
    double after = evaluate(&m);
    EXPECT(after < 0.5 * before, "loss %g, was %g", after, before);
}

static void check_rounded(const model *m, const char *settings)
{
    const vt_parameters *parameters = rig_parameters(&m->rig);
    for (int64_t i = 0; i < parameters->count; i++) {
        const vt_parameter *p = parameters->list[i];
        const vt_matrix weight = vt_parameter_matrix(p);
        int64_t wrong = 0;
        for (int64_t j = 0; j < p->count; j++) wrong += weight.half[j] != vt_half_round(weight.type, p->value[j]);
        EXPECT(vt_type_is_half(weight.type) && wrong == 0, "%s: %ld of %s are not its values, rounded", settings, wrong,
               p->name);
    }
}

/* What products take is what the values are after an update, and after they changed places with their average. The
 * norm of the gradients is the same by whatever pass it is found. */
TEST(every_optimizer_rounds_what_it_updates)
{
    for (int half = 0; half < 2; half++) {
        double norm = 0;
        for (int i = VT_OPTIMIZER_Adam; i <= VT_OPTIMIZER_SGD; i++) { /* the last */
            const char *settings = SETTINGS("optimizer=%s amp_mode=%s lr=1e-3 ema_decay=0.5",
                                            vt_optimizer_kinds[i]->name, half == 0 ? "bf16" : "fp16");
            SCOPED(model) m;
            vt_step_figures figures;
            open_small(&m, settings);
            check_rounded(&m, settings);
            EXPECT_OK(vt_step_train(m.rig.trainer, &m.batch, &figures));
            if (i == VT_OPTIMIZER_Adam) norm = figures.gradient_norm;
            EXPECT_NEAR(figures.gradient_norm, norm, 1e-6 * norm);
            train_steps(&m, 1);
            check_rounded(&m, settings);
            vt_trainer_exchange_average(m.rig.trainer);
            check_rounded(&m, settings);
        }
    }
}

TEST(recompute_gives_the_same_bits_in_less_memory)
{
    static const char *const settings[] = {"dropout=0.2", "dropout=0.2 recompute=linear",
                                           "dropout=0.2 recompute=block"};
    /* kept: three blocks' 10 matrices each; with block three inputs, with linear also what attention made, and with
     * both one block at a time; the rest is the same */
    static const double most[] = {1, 0.85, 0.7};
    SCOPED(model) kept;
    open_small(&kept, settings[0]);
    const double loss = train_steps(&kept, 5), bytes = (double)activation_bytes(kept.rig.trainer);
    for (int i = 1; i < 3; i++) {
        SCOPED(model) again;
        open_small(&again, settings[i]);
        EXPECT(train_steps(&again, 5) == loss, "%s", settings[i]);
        EXPECT(rig_same_values(&kept.rig, &again.rig), "%s", settings[i]);
        const double share = (double)activation_bytes(again.rig.trainer) / bytes;
        EXPECT(share < most[i], "%s: %g", settings[i], share);
    }
}

TEST(outputs_that_are_kept_give_the_same_bits)
{
    static const char *const variants[] = {"", "dropout=0.2", "enable_jit=true amp_mode=bf16",
                                           "enable_jit=true amp_mode=fp16 dropout=0.2",
                                           "recompute=block amp_mode=bf16"};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        SCOPED(model) kept, again;
        open_small(&again, variants[i]);
        open_small(&kept, SETTINGS("keep_outputs=true %s", variants[i]));
        EXPECT(train_steps(&kept, 5) == train_steps(&again, 5), "%s", variants[i]);
        EXPECT(rig_same_values(&kept.rig, &again.rig), "%s", variants[i]);
        EXPECT(activation_bytes(kept.rig.trainer) > activation_bytes(again.rig.trainer));
    }
}

TEST(micro_batches_in_flight_give_the_same_bits)
{
    static const char *const variants[] = {"amp_mode=none recompute=none", "amp_mode=bf16 recompute=block"};
    for (int i = 0; i < 2; i++) {
        const char *settings = SETTINGS("dropout=0.2 grad_accumulation=2 %s", variants[i]);
        SCOPED(model) in_turn, together;
        vt_plan plans[2];
        open_small(&in_turn, settings);
        open_small_of(&together, small_config(settings), true);
        EXPECT(train_steps(&in_turn, 5) == train_steps(&together, 5));
        EXPECT(rig_same_values(&in_turn.rig, &together.rig));
        EXPECT(evaluate(&in_turn) == evaluate(&together));
        EXPECT_OK(vt_plan_make(in_turn.rig.config, &(vt_plan_options){0}, &plans[0]));
        EXPECT_OK(vt_plan_make(in_turn.rig.config, &(vt_plan_options){.gpipe = true}, &plans[1]));
        EXPECT(plans[1].arena_bytes == plans[0].arena_bytes);
        EXPECT(plans[1].bytes[VT_MEMORY_ACTIVATIONS] == 2 * plans[0].bytes[VT_MEMORY_ACTIVATIONS]);
        EXPECT(activation_bytes(together.rig.trainer) <= plans[1].arena_bytes);
        EXPECT(plans[1].step.flops == plans[0].step.flops);
    }
}

TEST(gradients_that_are_not_finite_change_nothing)
{
    SCOPED(model) m;
    vt_step_figures figures;
    open_small(&m, "");
    const size_t bytes = rig_value_bytes(&m.rig);
    float *before = vt_test_owned(malloc(bytes));
    train_steps(&m, 2);
    memcpy(before, rig_parameters(&m.rig)->values, bytes);
    m.input[17] = NAN;
    EXPECT_ERROR(vt_step_train(m.rig.trainer, &m.batch, &figures), "the gradients are not finite");
    EXPECT(memcmp(before, rig_parameters(&m.rig)->values, bytes) == 0);
    EXPECT(m.rig.trainer->steps_started == 3 && m.rig.trainer->pending == 0);
}

TEST(the_plan_matches_the_run)
{
    SCOPED(model) m;
    vt_plan plan;
    open_small(&m, "");
    EXPECT_OK(vt_plan_make(m.rig.config, &(vt_plan_options){0}, &plan));
    const size_t block = rig_value_bytes(&m.rig);
    EXPECT(plan.bytes[VT_MEMORY_PARAMETERS] == block && plan.bytes[VT_MEMORY_GRADIENTS] == block);
    EXPECT(plan.bytes[VT_MEMORY_OPTIMIZER] == 2 * block);
    train_steps(&m, 1);
    evaluate(&m);
    EXPECT(activation_bytes(m.rig.trainer) <= plan.arena_bytes &&
           activation_bytes(m.rig.trainer) > plan.arena_bytes / 2);
    /* FLOPs by hand: 24 tokens of batch 4 × 6; products of 2·rows·in·out, three times (forward, two gradients), but the
     * patch embedding's input has no gradient; attention 6 products of 2·batch·heads·tokens²·dim */
    double rows = 24, block_flops = 2 * rows * (4 * 16 * 16 + 2 * 16 * 64), ends = 2 * rows * 32 * 16;
    double attention = 2.0 * 4 * 6 * 6 * 16;
    EXPECT_NEAR(plan.step.flops, 3 * (3 * block_flops + ends) + 2 * ends + 3 * 6 * attention, 1);
}

/* ---- files ---- */

/* Writes this file, opens it as a run does that goes on behind `last`, adds a row, and returns what is there then. */
static const char *reopened(vt_rows_kind kind, const char *before, int64_t last, const char *row)
{
    static const char *const names[] = {"step,loss\n", "step,epoch,loss\n", "step,sample,place\n"};
    vt_rows *rows = NULL;
    char *text = NULL;
    const char *whole = SETTINGS("%s%s", names[kind], before), *path = test_write("rows.csv", whole, strlen(whole));
    EXPECT_OK(vt_rows_open(vt_test_directory(), "rows.csv", names[kind], kind, last, &rows));
    const vt_status added = vt_rows_add(rows, "%s", row);
    EXPECT_OK(added);
    EXPECT_OK(vt_rows_synchronise(rows));
    vt_rows_close(&rows);
    EXPECT_OK(vt_file_read(path, 1 << 20, &text, NULL));
    EXPECT(strncmp(text, names[kind], strlen(names[kind])) == 0, "%s", text);
    return (char *)vt_test_owned(text) + strlen(names[kind]);
}

/* Files beside rows.csv that hold what it was. */
static int64_t copies(void)
{
    int64_t count = 0;
    DIR *directory = opendir(vt_test_directory());
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        count += strncmp(entry->d_name, "rows.csv.old-", 13) == 0;
    closedir(directory);
    return count;
}

TEST(rows_of_a_resumed_run)
{
    static const struct {
        vt_rows_kind kind;
        const char *before;
        int64_t last;
        const char *row, *after;
        int64_t copies;
    } cases[] = {
        {VT_ROWS_STEPS, "1,1\n2,nan\n", 2, "3,inf\n", "1,1\n2,nan\n3,inf\n", 0},
        {VT_ROWS_STEPS, "1,1\n2,1\n3,0.3", 1, "2,9\n", "1,1\n2,9\n", 0}, /* rows behind go, torn ones too */
        {VT_ROWS_STEPS, "1,1\n#\n3,1e-05\n4,1\n", 3, "4,9\n", "1,1\n3,1e-05\n4,9\n", 1},
        {VT_ROWS_STEPS, "1,1\n2,3,-1\n4\n5,1\n6,1\n", 5, "6,9\n", "1,1\n5,1\n6,9\n", 1}, /* joined; without a comma */
        {VT_ROWS_STEPS, "7,1\n9,1\n8,1\n10,1\n", 10, "11,9\n", "7,1\n9,1\n10,1\n11,9\n", 1}, /* not in order */
        {VT_ROWS_STEPS, "1,1\n92,1\n3,1\n", 3, "4,9\n", "1,1\n3,1\n4,9\n", 1},
        {VT_ROWS_STEPS, "1,1\n2,0.", 3, "4,9\n", "1,1\n4,9\n", 1},     /* lost with what followed */
        {VT_ROWS_STEPS, "1,1\n4,1\n", 3, "4,9\n", "1,1\n4,9\n", 0},    /* likewise */
        {VT_ROWS_STEPS, "1,1\n#\n2,1\n", 1, "2,9\n", "1,1\n2,9\n", 0}, /* what is damaged would go all the same */
        {VT_ROWS_EPOCHS, "7,1,\n14,2,1\n", 1, "13,2,9\n", "7,1,\n13,2,9\n", 0},
        {VT_ROWS_EPOCHS, "7,1\n14,2,1\n", 2, "21,3,9\n", "14,2,1\n21,3,9\n", 1},
        {VT_ROWS_SAMPLES, "1,4,\"a, b\"\n1,5,\"#\"\n1,6,x\n1,7,\"\"\"\"\n3,8,\"\"\n", 2, "3,9,\"\"\n",
         "1,4,\"a, b\"\n1,5,\"#\"\n1,7,\"\"\"\"\n3,9,\"\"\n", 1}};
    int64_t before = copies();
    vt_log_filter.muted = true; /* commands/checkpoint looks at the warnings */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *after = reopened(cases[i].kind, cases[i].before, cases[i].last, cases[i].row);
        EXPECT(strcmp(after, cases[i].after) == 0, "case %zu: %s", i, after);
        EXPECT(copies() - before == cases[i].copies, "case %zu: %ld copies", i, copies() - before);
        before = copies();
    }
    vt_rows *rows = NULL;
    EXPECT_ERROR(vt_rows_open("/nowhere", "rows.csv", "step,loss\n", VT_ROWS_STEPS, 0, &rows),
                 "can't write /nowhere/rows.csv");
    if (access("/dev/full", W_OK) == 0)
        EXPECT_ERROR(vt_rows_open("/dev", "full", "step,loss\n", VT_ROWS_STEPS, 0, &rows), "No space left on device");
}

TEST(run_directory_names_what_it_ran_on)
{
    static const struct {
        int64_t ranks, tensor;
        bool on_gpu;
        const char *path;
    } cases[] = {
        {1, 1, false, "runs/base/1CPU/00"}, {4, 1, true, "runs/base/4GPU/00"}, {4, 2, true, "runs/base/2MP/00"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SCOPED(vt_config) *config = default_config();
        EXPECT_OK(vt_config_set(config, "expdir", "runs"));
        config->ranks = cases[i].ranks;
        config->tensor_parallel = cases[i].tensor;
        char *path = vt_test_owned(vt_run_directory_path(config, cases[i].on_gpu));
        EXPECT_TEXT(path, cases[i].path);
    }
}

TEST(run_directory_is_never_overwritten)
{
    char *renamed = NULL, kept[512];
    struct stat info;
    SCOPED(vt_config) *config = default_config();
    EXPECT_OK(vt_config_set(config, "expdir", vt_test_directory()));
    EXPECT_OK(vt_config_set(config, "run_num", "tag"));
    char *path = vt_test_owned(vt_run_directory_path(config, false));
    snprintf(kept, sizeof kept, "%s/base/1CPU/tag", vt_test_directory());
    EXPECT_TEXT(path, kept);
    EXPECT_OK(vt_run_directory_make(path, &renamed));
    EXPECT(renamed == NULL);
    snprintf(kept, sizeof kept, "%s/precious", path);
    fclose(fopen(kept, "w"));
    EXPECT_OK(vt_run_directory_make(path, &renamed));
    EXPECT(renamed != NULL && strstr(renamed, "/tag.old-") != NULL);
    snprintf(kept, sizeof kept, "%s/precious", renamed != NULL ? renamed : "");
    EXPECT(stat(kept, &info) == 0);
    free(renamed);
    EXPECT_OK(vt_run_directory_make(path, &renamed)); /* within the same second: another name */
    EXPECT(renamed != NULL && stat(kept, &info) == 0);
    free(renamed);
    EXPECT_OK(vt_config_set(config, "expdir", kept)); /* a file where a directory should be */
    path = vt_run_directory_path(config, false);
    EXPECT_ERROR(vt_run_directory_make(path, &renamed), "can't make the directory");
    free(path);
}
