/* Rules of thumb for transformers like GPT: parameters, FLOPs, days, memory and the roofline, from a few numbers and
 * nothing counted. Narayanan et al. 2021 (arXiv 2104.04473: parameters, FLOPs, days), Rajbhandari et al. 2020
 * (1910.02054: memory), Williams et al. 2009 (roofline), as collected by G. Fiameni, ELLIS school 2023. */
#include "command/plan.h"

#include "base/text.h"
#include "model/model.h"
#include "planning/practice.h"

/* ---- the rules ---- */

typedef struct {
    double layers, hidden;  /* of each token */
    double sequence, words; /* tokens of a sequence; the vocabulary */
} gpt;

static double parameters_of(const gpt *m)
{
    const double l = m->layers, h = m->hidden;
    return 12 * l * h * h * (1 + 13 / (12 * h) + (m->words + m->sequence) / (12 * l * h));
}

/* FLOPs of an iteration over `batch` sequences; recompute: activations are computed again in backward. A product with
 * 12 h² weights in each layer, the two products of attention, and the logits, which are not computed again. Forward and
 * the two products of backward make 3, forward once more makes 4. */
static double flops_of(const gpt *m, double batch, bool recompute)
{
    const double l = m->layers, h = m->hidden, s = m->sequence, passes = recompute ? 4 : 3;
    return 24 * passes * batch * s * l * h * h * (1 + s / (6 * h) + m->words / (4 * passes * l * h));
}

/* Days for `tokens` on `gpus` that each reach `rate` FLOP/s. */
static double days_of(double parameters, double tokens, double gpus, double rate, bool recompute)
{
    return (recompute ? 8 : 6) * tokens * parameters / (gpus * rate) / 86400;
}

/* Bytes a GPU of values and gradients in 16 bits, and of values and two moments in 32, with this ZeRO stage over
 * `shards` GPUs. */
static double memory_of(double parameters, int zero_stage, double shards)
{
    const double whole = zero_stage == 0 ? 16 : zero_stage == 1 ? 4 : zero_stage == 2 ? 2 : 0;
    return parameters * (whole + (16 - whole) / shards);
}

/* FLOPs a byte of a product of [m, k] and [k, n] in 16 bits. */
static double product_intensity(double m, double k, double n)
{
    return m * n * k / (m * k + k * n + m * n);
}

/* ---- printing ---- */

static vt_status check(const vt_plan_flags *flags)
{
    vt_status status = VT_OK;
    const bool is_gpt = flags->layers > 0;
    VT_CHECK(is_gpt == (flags->hidden > 0), "plan: --rules needs both --layers and --hidden, or neither of them");
    VT_CHECK(
        !is_gpt || isnan(flags->parameters),
        "plan: --layers and --hidden give the number of parameters, and so does --parameters; give one of the two");
    VT_CHECK(is_gpt || (flags->sequence_origin == VT_FROM_DEFAULT && flags->batch_origin == VT_FROM_DEFAULT &&
                        flags->words_origin == VT_FROM_DEFAULT),
             "plan: --sequence, --batch and --words describe a GPT: add --layers and --hidden");
done:
    return status;
}

/* Table 1 of arXiv 2104.04473: models with sequences of 2048 tokens and 51,200 words on A100 (312 TFLOP/s). */
static void print_megatron(void)
{
    static const struct {
        int layers, hidden, gpus, model_parallel, batch;
        double tflops;           /* that each GPU reached */
        double published_pflops; /* of all GPUs, as published */
    } runs[] = {{24, 2304, 32, 1, 512, 137, 4.4},          {30, 3072, 64, 2, 512, 138, 8.8},
                {36, 4096, 128, 4, 512, 142, 18.2},        {40, 6144, 256, 8, 1024, 135, 34.6},
                {48, 8192, 512, 16, 1536, 138, 70.8},      {60, 10240, 1024, 32, 1792, 140, 143.8},
                {80, 12288, 1536, 64, 2304, 148, 227.1},   {96, 16384, 1920, 128, 2160, 155, 297.4},
                {105, 20480, 2520, 280, 2520, 163, 410.2}, {128, 25600, 3072, 512, 3072, 163, 502.0}};
    vt_print("                             TFLOP/s      P       F      s %% of    PFLOP/s\n"
             "layers hidden GPUs tp*pp batch   a GPU    1e9    1e18 a step  312 (published)\n");
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        const gpt model = {runs[i].layers, runs[i].hidden, 2048, 51200};
        const double flops = flops_of(&model, runs[i].batch, true), rate = runs[i].gpus * runs[i].tflops;
        vt_print("%6d %6d %4d %5d %5d %7.0f %6.4g %7.4g %6.2f %4.0f %6.1f (%.1f)\n", runs[i].layers, runs[i].hidden,
                 runs[i].gpus, runs[i].model_parallel, runs[i].batch, runs[i].tflops, 1e-9 * parameters_of(&model),
                 1e-18 * flops, 1e-12 * flops / rate, 100 * runs[i].tflops / 312, 1e-3 * rate,
                 runs[i].published_pflops);
    }
}

static void print_memory(double parameters, double shards)
{
    vt_print_wrapped(
        "\nmemory, 1 GB = 1e9 bytes\n"
        "  values: %.2f GiB in 32 bits; an optimizer's state: AdamW %.4g GB, Adafactor with a first moment %.4g GB, "
        "Adam in 8 bits %.4g GB\n"
        "  mixed precision, 16 bytes a parameter, on each of %.0f GPU%s:\n",
        4 * parameters / 1073741824, 8e-9 * parameters, 4e-9 * parameters, 2e-9 * parameters, shards,
        shards > 1 ? "s" : "");
    for (int stage = 0; stage <= (shards > 1 ? 3 : 0); stage++) {
        const double bytes = memory_of(parameters, stage, shards), sent = (stage == 3 ? 3 : 2) * parameters;
        vt_print_wrapped("    zero_stage %d: %.4g GB = %.2f GiB, and %.4g elements sent an iteration\n", stage,
                         1e-9 * bytes, bytes / 1073741824, shards > 1 ? sent : 0);
    }
}

static void print_roofline(const vt_hardware *hardware, const gpt *model)
{
    const double peak = 1e12 * hardware->matrix_tflops[VT_BFLOAT16], bandwidth = 1e9 * hardware->memory_gb_s;
    const double balance = peak / bandwidth, s = model->sequence, h = model->hidden;
    const double sum = 1.0 / (3 * 2); /* of three elements of 16 bits */
    vt_print_wrapped(
        "\nroofline of %s: %.4g FLOP/s over %.4g bytes/s\n  = %.1f FLOPs a byte; what has fewer waits for memory\n"
        "  a sum of two arrays of 16 bits %.3g, a product of 1024 x 1024 matrices %.1f\n",
        hardware->name, peak, bandwidth, balance, sum, product_intensity(1024, 1024, 1024));
    if (h > 0)
        vt_print_wrapped("  fc1 of this model for one sequence, [%.0f, %.0f] x [%.0f, %.0f], %.1f\n", s, h, h, 4 * h,
                         product_intensity(s, h, 4 * h));
    vt_print_wrapped(
        "  peak = processors * multiply-adds a clock * 2 * clock; TF32 of an A100: 108 * 512 * 2 * 1.41e9 = %.1f "
        "TFLOP/s\n",
        1e-12 * 108 * 512 * 2 * 1.41e9);
}

/* The run's model as a GPT: a patch's numbers, in and out, take the place of words, and a decoder's layers count
 * like an encoder's. */
static gpt model_of(const vt_config *config)
{
    const int64_t patch = config->patch_size * config->patch_size;
    const int64_t words =
        config->vocab_size > 0 ? config->vocab_size : patch * (config->n_in_channels + config->n_out_channels);
    const int64_t layers = config->model == VT_MODEL_transformer ? 2 * config->depth : config->depth;
    return (gpt){(double)layers, (double)config->embed_dim, (double)vt_model_kind_of(config)->tokens(config),
                 (double)words};
}

/* Beside what the real step of one rank counts over the dry back end. */
static vt_status print_run(const vt_config *config, const gpt *model, double speed)
{
    vt_status status = VT_OK;
    vt_plan plan;
    VT_CHECK(
        config->model != VT_MODEL_unet3d,
        "plan: --rules are those of transformers, and model unet3d is none; leave --rules out, or give --parameters");
    VT_TRY(vt_practice_plan(config, config->global_batch_size, &plan));
    const bool recompute = config->recompute != VT_RECOMPUTE_NONE;
    const double batch = (double)config->global_batch_size, flops = flops_of(model, batch, recompute);
    const double counted = (double)plan.bytes[VT_MEMORY_GRADIENTS] / sizeof(float);
    vt_print_wrapped("configuration %s: %.0f layers, hidden size %.0f, %.0f tokens a sample, %.0f %s\n"
                     "  parameters: %.4g, counted %.4g\n"
                     "  FLOPs a step, batch %.0f, %s recomputation: %.4g, counted %.4g; in %.4g s\n",
                     config->config, model->layers, model->hidden, model->sequence, model->words,
                     config->vocab_size > 0 ? "words" : "numbers of a token in and out", parameters_of(model), counted,
                     batch, recompute ? "with" : "without", flops, plan.step.flops, plan.step.flops / speed);
done:
    return status;
}

vt_status vt_plan_rules_print(const vt_plan_flags *flags, const vt_config *config, const vt_hardware *hardware)
{
    vt_status status = VT_OK;
    const double gpus = (double)flags->gpus;
    const double rate = 1e12 * (flags->tflops > 0 ? flags->tflops : hardware->matrix_tflops[VT_BFLOAT16]);
    gpt model = {0};
    double parameters = flags->parameters;
    VT_TRY(check(flags));
    if (flags->rules == VT_RULES_MEGATRON) {
        print_megatron();
        goto done;
    }
    if (flags->layers > 0) {
        model = (gpt){(double)flags->layers, (double)flags->hidden, (double)flags->sequence, (double)flags->words};
        vt_print_wrapped("GPT: %.0f layers, hidden size %.0f, sequences of %.0f, %.0f words\n  parameters: %.4g\n",
                         model.layers, model.hidden, model.sequence, model.words, parameters_of(&model));
        for (int recompute = 1; recompute >= 0; recompute--) {
            const double flops = flops_of(&model, (double)flags->batch, recompute);
            vt_print_wrapped("  FLOPs an iteration, batch %ld, %s recomputation: %.4g, in %.4g s\n", flags->batch,
                             recompute ? "with" : "without", flops, flops / (gpus * rate));
        }
    } else if (config != NULL) {
        model = model_of(config);
        VT_TRY(print_run(config, &model, gpus * rate));
    } else {
        vt_print_wrapped("a model of %.4g parameters\n", parameters);
    }
    if (isnan(parameters)) parameters = parameters_of(&model);
    vt_print_wrapped("  times are those of %.0f GPU%s at %.4g TFLOP/s\n", gpus, gpus > 1 ? "s" : "", 1e-12 * rate);
    if (flags->tokens > 0)
        vt_print_wrapped("  %.4g tokens: %.1f days with recomputation, %.1f without\n", flags->tokens,
                         days_of(parameters, flags->tokens, gpus, rate, true),
                         days_of(parameters, flags->tokens, gpus, rate, false));
    print_memory(parameters, gpus);
    print_roofline(hardware, &model);
done:
    return status;
}
