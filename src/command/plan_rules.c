#include "command/plan.h"

#include "base/text.h"
#include "model/model.h"
#include "planning/rules.h"
#include "training/plan.h"

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

static void print_megatron(void)
{
    const double peak = 312;
    vt_print("                             TFLOP/s      P       F      s %% of    PFLOP/s\n"
             "layers hidden GPUs tp*pp batch   a GPU    1e9    1e18 a step  312 (published)\n");
    for (int i = 0; i < VT_RULES_RUNS; i++) {
        const vt_rules_run *run = &vt_rules_megatron[i];
        const vt_rules_model model = vt_rules_megatron_model(run);
        const double flops = vt_rules_flops(&model, run->batch, true), rate = run->gpus * run->tflops;
        vt_print("%6d %6d %4d %5d %5d %7.0f %6.4g %7.4g %6.2f %4.0f %6.1f (%.1f)\n", run->layers, run->hidden,
                 run->gpus, run->model_parallel, run->batch, run->tflops, 1e-9 * vt_rules_parameters(&model),
                 1e-18 * flops, 1e-12 * flops / rate, 100 * run->tflops / peak, 1e-3 * rate, run->published_pflops);
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
        const double bytes = vt_rules_memory(parameters, stage, shards);
        vt_print_wrapped("    zero_stage %d: %.4g GB = %.2f GiB, and %.4g elements sent an iteration\n", stage,
                         1e-9 * bytes, bytes / 1073741824, shards > 1 ? vt_rules_sent(parameters, stage) : 0);
    }
}

static void print_roofline(const vt_hardware *hardware, const vt_rules_model *model)
{
    const double peak = 1e12 * hardware->matrix_tflops[VT_BFLOAT16], bandwidth = 1e9 * hardware->memory_gb_s;
    const double balance = peak / bandwidth, s = model->sequence, h = model->hidden;
    vt_print_wrapped(
        "\nroofline of %s: %.4g FLOP/s over %.4g bytes/s\n  = %.1f FLOPs a byte; what has fewer waits for memory\n"
        "  a sum of two arrays of 16 bits %.3g, a product of 1024 x 1024 matrices %.1f\n",
        hardware->name, peak, bandwidth, balance, vt_rules_sum_intensity(2),
        vt_rules_product_intensity(1024, 1024, 1024, 2));
    if (h > 0)
        vt_print_wrapped("  fc1 of this model for one sequence, [%.0f, %.0f] x [%.0f, %.0f], %.1f\n", s, h, h, 4 * h,
                         vt_rules_product_intensity(s, h, 4 * h, 2));
    vt_print_wrapped(
        "  peak = processors * multiply-adds a clock * 2 * clock; TF32 of an A100: 108 * 512 * 2 * 1.41e9 = %.1f "
        "TFLOP/s\n",
        1e-12 * vt_rules_peak(108, 512, 1.41e9));
}

/* The run's model as a GPT: a patch's numbers, in and out, take the place of words, and a decoder's layers count
 * like an encoder's. */
static vt_rules_model model_of(const vt_config *config)
{
    const int64_t patch = config->patch_size * config->patch_size;
    const int64_t words =
        config->vocab_size > 0 ? config->vocab_size : patch * (config->n_in_channels + config->n_out_channels);
    const int64_t layers = config->model == VT_MODEL_transformer ? 2 * config->depth : config->depth;
    return (vt_rules_model){(double)layers, (double)config->embed_dim, (double)vt_model_kind_of(config)->tokens(config),
                            (double)words};
}

/* Beside what the real step of one rank counts over the dry back end. */
static vt_status print_run(vt_config *config, const vt_rules_model *model, double speed)
{
    vt_status status = VT_OK;
    vt_plan plan;
    const vt_plan_options options = {0};
    VT_CHECK(
        config->model != VT_MODEL_unet3d,
        "plan: --rules are those of transformers, and model unet3d is none; leave --rules out, or give --parameters");
    config->ranks = config->tensor_parallel = config->context_parallel = config->data_parallel = 1;
    config->grad_accumulation = 1;
    config->zero_stage = 0;
    config->sequence_parallel = false;
    VT_TRY(vt_plan_make(config, &options, &plan));
    const bool recompute = config->recompute != VT_RECOMPUTE_NONE;
    const double batch = (double)config->global_batch_size, flops = vt_rules_flops(model, batch, recompute);
    const double counted = (double)plan.bytes[VT_MEMORY_GRADIENTS] / sizeof(float);
    vt_print_wrapped("configuration %s: %.0f layers, hidden size %.0f, %.0f tokens a sample, %.0f %s\n"
                     "  parameters: %.4g, counted %.4g\n"
                     "  FLOPs a step, batch %.0f, %s recomputation: %.4g, counted %.4g; in %.4g s\n",
                     config->config, model->layers, model->hidden, model->sequence, model->words,
                     config->vocab_size > 0 ? "words" : "numbers of a token in and out", vt_rules_parameters(model),
                     counted, batch, recompute ? "with" : "without", flops, plan.step.flops, plan.step.flops / speed);
done:
    return status;
}

vt_status vt_plan_rules_print(const vt_plan_flags *flags, vt_config *config, const vt_hardware *hardware)
{
    vt_status status = VT_OK;
    const double gpus = (double)flags->gpus;
    const double rate = 1e12 * (flags->tflops > 0 ? flags->tflops : hardware->matrix_tflops[VT_BFLOAT16]);
    vt_rules_model model = {0};
    double parameters = flags->parameters;
    VT_TRY(check(flags));
    if (flags->rules == VT_RULES_MEGATRON) {
        print_megatron();
        goto done;
    }
    if (flags->layers > 0) {
        model = (vt_rules_model){(double)flags->layers, (double)flags->hidden, (double)flags->sequence,
                                 (double)flags->words};
        vt_print_wrapped("GPT: %.0f layers, hidden size %.0f, sequences of %.0f, %.0f words\n  parameters: %.4g\n",
                         model.layers, model.hidden, model.sequence, model.words, vt_rules_parameters(&model));
        for (int recompute = 1; recompute >= 0; recompute--) {
            const double flops = vt_rules_flops(&model, (double)flags->batch, recompute);
            vt_print_wrapped("  FLOPs an iteration, batch %lld, %s recomputation: %.4g, in %.4g s\n",
                             (long long)flags->batch, recompute ? "with" : "without", flops, flops / (gpus * rate));
        }
    } else if (config != NULL) {
        model = model_of(config);
        VT_TRY(print_run(config, &model, gpus * rate));
    } else {
        vt_print_wrapped("a model of %.4g parameters\n", parameters);
    }
    if (isnan(parameters)) parameters = vt_rules_parameters(&model);
    vt_print_wrapped("  times are those of %.0f GPU%s at %.4g TFLOP/s\n", gpus, gpus > 1 ? "s" : "", 1e-12 * rate);
    if (flags->tokens > 0)
        vt_print_wrapped("  %.4g tokens: %.1f days with recomputation, %.1f without\n", flags->tokens,
                         vt_rules_days(parameters, flags->tokens, gpus, rate, true),
                         vt_rules_days(parameters, flags->tokens, gpus, rate, false));
    print_memory(parameters, gpus);
    print_roofline(hardware, &model);
done:
    return status;
}
