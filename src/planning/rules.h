/* Rules of thumb for transformers like GPT: parameters, FLOPs, days, memory and the roofline, from a few numbers and
 * nothing counted. Narayanan et al. 2021 (arXiv 2104.04473: parameters, FLOPs, days), Rajbhandari et al. 2020
 * (1910.02054: memory), Williams et al. 2009 (roofline), as collected by G. Fiameni, ELLIS school 2023. */
#ifndef VT_PLANNING_RULES_H
#define VT_PLANNING_RULES_H

#include <stdbool.h>

typedef struct {
    double layers, hidden;  /* of each token */
    double sequence, words; /* tokens of a sequence; the vocabulary */
} vt_rules_model;

static inline double vt_rules_parameters(const vt_rules_model *m)
{
    const double l = m->layers, h = m->hidden;
    return 12 * l * h * h * (1 + 13 / (12 * h) + (m->words + m->sequence) / (12 * l * h));
}

/* FLOPs of an iteration over `batch` sequences; recompute: activations are computed again in backward. A product with
 * 12 h² weights in each layer, the two products of attention, and the logits, which are not computed again. Forward and
 * the two products of backward make 3, forward once more makes 4. */
static inline double vt_rules_flops(const vt_rules_model *m, double batch, bool recompute)
{
    const double l = m->layers, h = m->hidden, s = m->sequence, passes = recompute ? 4 : 3;
    return 24 * passes * batch * s * l * h * h * (1 + s / (6 * h) + m->words / (4 * passes * l * h));
}

/* Days for `tokens` on `gpus` that each reach `rate` FLOP/s. */
static inline double vt_rules_days(double parameters, double tokens, double gpus, double rate, bool recompute)
{
    return (recompute ? 8 : 6) * tokens * parameters / (gpus * rate) / 86400;
}

/* Bytes a GPU of values and gradients in 16 bits, and of values and two moments in 32, with this ZeRO stage over
 * `shards` GPUs. */
static inline double vt_rules_memory(double parameters, int zero_stage, double shards)
{
    const double whole = zero_stage == 0 ? 16 : zero_stage == 1 ? 4 : zero_stage == 2 ? 2 : 0;
    return parameters * (whole + (16 - whole) / shards);
}

/* The elements that each of them sends in an iteration. */
static inline double vt_rules_sent(double parameters, int zero_stage)
{
    return (zero_stage == 3 ? 3 : 2) * parameters;
}

/* FLOPs a byte: of a product of [m, k] and [k, n], and of a sum of two arrays, with elements of `size` bytes. */
static inline double vt_rules_product_intensity(double m, double k, double n, double size)
{
    return 2 * m * n * k / (size * (m * k + k * n + m * n));
}

static inline double vt_rules_sum_intensity(double size)
{
    return 1 / (3 * size);
}

/* FLOP/s of a GPU with so many processors, each of which starts `multiply_adds` in a clock of `hertz`. */
static inline double vt_rules_peak(double processors, double multiply_adds, double hertz)
{
    return processors * multiply_adds * 2 * hertz;
}

/* Table 1 of arXiv 2104.04473: models with sequences of 2048 tokens and 51,200 words on A100 (312 TFLOP/s). */
typedef struct {
    int layers, hidden, gpus, model_parallel, batch;
    double tflops;           /* that each GPU reached */
    double published_pflops; /* of all GPUs, as published */
} vt_rules_run;

enum { VT_RULES_RUNS = 10 };
static const vt_rules_run vt_rules_megatron[VT_RULES_RUNS] = {
    {24, 2304, 32, 1, 512, 137, 4.4},          {30, 3072, 64, 2, 512, 138, 8.8},
    {36, 4096, 128, 4, 512, 142, 18.2},        {40, 6144, 256, 8, 1024, 135, 34.6},
    {48, 8192, 512, 16, 1536, 138, 70.8},      {60, 10240, 1024, 32, 1792, 140, 143.8},
    {80, 12288, 1536, 64, 2304, 148, 227.1},   {96, 16384, 1920, 128, 2160, 155, 297.4},
    {105, 20480, 2520, 280, 2520, 163, 410.2}, {128, 25600, 3072, 512, 3072, 163, 502.0}};

static inline vt_rules_model vt_rules_megatron_model(const vt_rules_run *run)
{
    return (vt_rules_model){run->layers, run->hidden, 2048, 51200};
}

#endif
