/* How far runs of a language model drift apart that differ in rounding alone: 16 runs, all but the first with weights
 * that differ in their last bits, and how far their losses are from the first one's:
 *
 *     build/bench/drift [--optimizer=Adam --eps=1e-3 ...]
 *
 * A transformer, causal, of 2 layers of 32 columns, on one batch of 8 windows of 14 words. */
#include "../tests/bounds.h"
#include "../tests/word_windows.h"

enum { RUNS = 16, STEPS = 76, SHOWN = 5, WORDS = 101, WINDOW = 14, WINDOWS = 8 };

static int32_t words[WINDOWS][WINDOW], targets[WINDOWS][WINDOW];

static void check(vt_status status)
{
    if (status == VT_OK) return;
    fprintf(stderr, "bench/drift: %s\n", vt_error_text());
    exit(1);
}

/* losses [STEPS] of the run whose weights are moved by draw `run`; 0: not at all. */
static void train(const vt_config *config, uint32_t run, double *losses)
{
    vt_backend *backend = NULL;
    vt_trainer *trainer = NULL;
    const vt_batch batch = {.sample_count = WINDOWS, .global_count = WINDOWS, .tensors = {words, targets}};
    check(vt_backend_open_cpu(VT_ISA_AUTO, 0, &backend));
    check(vt_trainer_open(config, &(vt_trainer_options){.steps = STEPS}, backend, &trainer));
    vt_parameters *parameters = vt_trainer_parameters(trainer);
    const int64_t elements = vt_parameters_block_elements(parameters, VT_BLOCK_VALUES);
    if (run > 0) change_last_bits(parameters->values, elements, run);
    vt_parameters_refresh(parameters);
    for (int step = 0; step < STEPS; step++) {
        vt_step_figures figures;
        check(vt_step_train(trainer, &batch, &figures));
        losses[step] = figures.loss;
    }
    vt_trainer_close(&trainer);
    vt_backend_close(&backend);
}

static int compare(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

int main(int count, char **arguments)
{
    static double losses[RUNS][STEPS];
    vt_config *config = NULL;
    check(vt_config_open_text("drift: {model: transformer, causal: true, vocab_size: 101, seq_len: 14, embed_dim: 32, "
                              "num_heads: 4, depth: 2, ffn_dim: 50, dropout: 0, lr: 1e-3, global_batch_size: 8, "
                              "num_iters: 76, num_epochs: None}",
                              "drift", count - 1, arguments + 1, 1, &config));
    draw_windows(7, WORDS, WINDOWS, WINDOW, words[0], targets[0]);
    for (uint32_t run = 0; run < RUNS; run++) train(config, run, losses[run]);
    printf("step  loss      of %d runs, relative difference to the first: median, 80 %%, largest\n", RUNS - 1);
    for (int step = 0; step < STEPS; step += SHOWN) {
        double apart[RUNS - 1];
        for (int run = 1; run < RUNS; run++)
            apart[run - 1] = fabs(losses[run][step] - losses[0][step]) / losses[0][step];
        qsort(apart, RUNS - 1, sizeof apart[0], compare);
        printf("%4d  %.6f  %.1e  %.1e  %.1e\n", step, losses[0][step], apart[RUNS / 2 - 1], apart[(RUNS - 1) * 4 / 5],
               apart[RUNS - 2]);
    }
    vt_config_close(&config);
    return 0;
}
