#include "planning/rules.h"

double vt_rules_parameters(const vt_rules_model *m)
{
    const double l = m->layers, h = m->hidden;
    return 12 * l * h * h * (1 + 13 / (12 * h) + (m->words + m->sequence) / (12 * l * h));
}

/* A product with 12 h² weights in each layer, the two products of attention, and the logits, which are not computed
 * again. Forward and the two products of backward make 3, forward once more makes 4. */
double vt_rules_flops(const vt_rules_model *m, double batch, bool recompute)
{
    const double l = m->layers, h = m->hidden, s = m->sequence, passes = recompute ? 4 : 3;
    return 24 * passes * batch * s * l * h * h * (1 + s / (6 * h) + m->words / (4 * passes * l * h));
}

double vt_rules_days(double parameters, double tokens, double gpus, double rate, bool recompute)
{
    return (recompute ? 8 : 6) * tokens * parameters / (gpus * rate) / 86400;
}

double vt_rules_memory(double parameters, int zero_stage, double shards)
{
    const double whole = zero_stage == 0 ? 16 : zero_stage == 1 ? 4 : zero_stage == 2 ? 2 : 0;
    return parameters * (whole + (16 - whole) / shards);
}

double vt_rules_sent(double parameters, int zero_stage)
{
    return (zero_stage == 3 ? 3 : 2) * parameters;
}

double vt_rules_product_intensity(double m, double k, double n, double size)
{
    return 2 * m * n * k / (size * (m * k + k * n + m * n));
}

double vt_rules_sum_intensity(double size)
{
    return 1 / (3 * size);
}

double vt_rules_peak(double processors, double multiply_adds, double hertz)
{
    return processors * multiply_adds * 2 * hertz;
}

const vt_rules_run vt_rules_megatron[VT_RULES_RUNS] = {
    {24, 2304, 32, 1, 512, 137, 4.4},          {30, 3072, 64, 2, 512, 138, 8.8},
    {36, 4096, 128, 4, 512, 142, 18.2},        {40, 6144, 256, 8, 1024, 135, 34.6},
    {48, 8192, 512, 16, 1536, 138, 70.8},      {60, 10240, 1024, 32, 1792, 140, 143.8},
    {80, 12288, 1536, 64, 2304, 148, 227.1},   {96, 16384, 1920, 128, 2160, 155, 297.4},
    {105, 20480, 2520, 280, 2520, 163, 410.2}, {128, 25600, 3072, 512, 3072, 163, 502.0}};

vt_rules_model vt_rules_megatron_model(const vt_rules_run *run)
{
    return (vt_rules_model){run->layers, run->hidden, 2048, 51200};
}
