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

double vt_rules_parameters(const vt_rules_model *model);

/* FLOPs of an iteration over `batch` sequences; recompute: activations are computed again in backward. */
double vt_rules_flops(const vt_rules_model *model, double batch, bool recompute);

/* Days for `tokens` on `gpus` that each reach `rate` FLOP/s. */
double vt_rules_days(double parameters, double tokens, double gpus, double rate, bool recompute);

/* Bytes a GPU of values and gradients in 16 bits, and of values and two moments in 32, with this ZeRO stage over
 * `shards` GPUs; and the elements that each sends in an iteration. */
double vt_rules_memory(double parameters, int zero_stage, double shards);
double vt_rules_sent(double parameters, int zero_stage);

/* FLOPs a byte: of a product of [m, k] and [k, n], and of a sum of two arrays, with elements of `size` bytes. */
double vt_rules_product_intensity(double m, double k, double n, double size);
double vt_rules_sum_intensity(double size);

/* FLOP/s of a GPU with so many processors, each of which starts `multiply_adds` in a clock of `hertz`. */
double vt_rules_peak(double processors, double multiply_adds, double hertz);

/* Table 1 of arXiv 2104.04473: models with sequences of 2048 tokens and 51,200 words on A100 (312 TFLOP/s). */
typedef struct {
    int layers, hidden, gpus, model_parallel, batch;
    double tflops;           /* that each GPU reached */
    double published_pflops; /* of all GPUs, as published */
} vt_rules_run;

enum { VT_RULES_RUNS = 10 };
extern const vt_rules_run vt_rules_megatron[VT_RULES_RUNS];
vt_rules_model vt_rules_megatron_model(const vt_rules_run *run);

#endif
