#include "report/run_figures.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "report/chart.h"

const vt_run_curve vt_run_curves[VT_RUN_CURVES] = {
    {"learning_rate", "Learning rate", false, false},
    {"samples_per_sec", "Samples a second", false, false},
    {"data_wait_fraction", "Share of the time waiting for data", true, false},
    {"grad_norm", "Norm of the gradients", false, true}};

/* The rest is printed into its detail. */
static void set(vt_run_figure *figure, const char *name, double value,
                const char *(*value_text)(double value, char buffer[VT_NUMBER_SIZE]), const char *detail, ...)
{
    va_list arguments;
    va_start(arguments, detail);
    *figure = (vt_run_figure){.name = name};
    if (isfinite(value)) value_text(value, figure->value);
    vsnprintf(figure->detail, sizeof figure->detail, detail, arguments);
    va_end(arguments);
}

void vt_run_figures_of(const vt_run_files *run, vt_run_figure figures[VT_RUN_FIGURES])
{
    char number[VT_NUMBER_SIZE], second[VT_NUMBER_SIZE], baseline[VT_BASELINE_NAME];
    const double valid = vt_table_value(&run->epochs, -1, "valid_loss"), best = vt_run_best_loss(run);
    const double other = vt_epochs_baseline_value(&run->epochs, "loss");
    const double seconds = vt_table_sum(&run->epochs, "seconds"), ranks = vt_table_value(&run->plan, 0, "ranks");
    const double samples = vt_table_sum(&run->epochs, "samples"), waited = vt_table_sum(&run->epochs, "data_seconds");
    const double flops = vt_table_value(&run->plan, 0, "step_flops") * ranks * (double)run->steps.rows;
    double memory = 0;
    for (int i = 0; i < VT_RUN_MEMORIES; i++) memory += vt_table_value(&run->plan, 0, vt_run_memories[i]);
    set(&figures[0], "validation loss", valid, vt_number_short, "best %s", vt_number_short(best, number));
    set(&figures[1], "of the baseline's loss", valid / other, vt_number_short, "%s %s",
        vt_epochs_baseline(&run->epochs, baseline), vt_number_short(other, number));
    set(&figures[2], "validation perplexity",
        vt_run_column(&run->steps, "perplexity") != NULL ? exp(valid) : (double)NAN, vt_number_short, "best %s, %s %s",
        vt_number_short(exp(best), number), baseline, vt_number_short(exp(other), second));
    set(&figures[3], "training loss, recent", vt_run_recent_mean(run, "loss", VT_RUN_RECENT), vt_number_short,
        "last step %s", vt_number_short(vt_table_value(&run->steps, -1, "loss"), number));
    set(&figures[4], "steps", vt_table_value(&run->steps, -1, "step"), vt_number_short, "%lld of %.0f epochs done",
        (long long)run->epochs.rows, vt_table_value(&run->plan, 0, "epochs"));
    set(&figures[5], "samples a second", samples / seconds, vt_number_short, "%s GFLOP/s",
        vt_number_short(1e-9 * flops / seconds, number));
    set(&figures[6], "training took", seconds > 0 ? seconds : (double)NAN, vt_number_duration, "data wait %.1f %%",
        100 * waited / seconds);
    set(&figures[7], "parameters", vt_table_value(&run->plan, 0, "model_parameters"), vt_number_millions,
        ranks > 1 ? "%.0f ranks, each %s" : "%.0f rank, %s", ranks, vt_text_bytes(memory, number));
}
