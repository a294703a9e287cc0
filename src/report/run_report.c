#include "report/run_report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "report/page.h"

/* ---- figures: of one run in cards, of several in a table ---- */

enum { RECENT = 50, MEMORIES = 6 }; /* RECENT: steps over which a loss is smoothed */

/* The categories of memory in plan.csv. */
static const char *const memories[MEMORIES] = {"parameters",  "gradients", "optimizer",
                                               "activations", "data",      "workspace"};

/* "86.12 M"; below a million as vt_number_short. */
static const char *millions(double value, char buffer[VT_NUMBER_SIZE])
{
    if (!(value >= 1e6)) return vt_number_short(value, buffer);
    snprintf(buffer, VT_NUMBER_SIZE, "%.2f M", 1e-6 * value);
    return buffer;
}

/* The rest is printed into its detail, if there is a value. */
static void set(vt_run_figure *figure, const char *name, double value,
                const char *(*value_text)(double value, char buffer[VT_NUMBER_SIZE]), const char *detail, ...)
{
    va_list arguments;
    *figure = (vt_run_figure){.name = name};
    if (!isfinite(value)) return;
    value_text(value, figure->value);
    va_start(arguments, detail);
    vsnprintf(figure->detail, sizeof figure->detail, detail, arguments);
    va_end(arguments);
}

void vt_run_figures_of(const vt_run_files *run, vt_run_figure figures[VT_RUN_FIGURES])
{
    char number[VT_NUMBER_SIZE], second[VT_NUMBER_SIZE];
    const double valid = vt_table_value(&run->epochs, -1, "valid_loss");
    const double other = vt_run_baseline(run, "loss");
    const double seconds = vt_table_sum(&run->epochs, "seconds"), ranks = vt_table_value(&run->plan, 0, "ranks");
    const double samples = vt_table_sum(&run->epochs, "samples"), waited = vt_table_sum(&run->epochs, "data_seconds");
    const double flops = vt_table_value(&run->plan, 0, "step_flops") * ranks * (double)run->steps.rows;
    double memory = 0, best = NAN; /* best: of the losses that have measured the same */
    for (int64_t row = run->baseline_row; row < run->epochs.rows; row++)
        best = fmin(best, vt_table_value(&run->epochs, row, "valid_loss"));
    for (int i = 0; i < MEMORIES; i++) memory += vt_table_value(&run->plan, 0, memories[i]);
    set(&figures[0], "validation loss", valid, vt_number_short, "best %s", vt_number_short(best, number));
    set(&figures[1], "of the baseline's loss", valid / other, vt_number_short, "%s %s", run->baseline,
        vt_number_short(other, number));
    set(&figures[2], "validation perplexity",
        vt_table_column(&run->steps, "perplexity") != NULL ? exp(valid) : (double)NAN, vt_number_short,
        "best %s, %s %s", vt_number_short(exp(best), number), run->baseline, vt_number_short(exp(other), second));
    set(&figures[3], "training loss, recent", vt_run_recent_mean(run, "loss", RECENT), vt_number_short, "last step %s",
        vt_number_short(vt_table_value(&run->steps, -1, "loss"), number));
    set(&figures[4], "steps", vt_table_value(&run->steps, -1, "step"), vt_number_short, "%ld of %.0f epochs done",
        run->epochs.rows, vt_table_value(&run->plan, 0, "epochs"));
    set(&figures[5], "samples a second", samples / seconds, vt_number_short, "%s GFLOP/s",
        vt_number_short(1e-9 * flops / seconds, number));
    set(&figures[6], "training took", seconds > 0 ? seconds : (double)NAN, vt_number_duration, "data wait %.1f %%",
        100 * waited / seconds);
    set(&figures[7], "parameters", vt_table_value(&run->plan, 0, "model_parameters"), millions,
        ranks > 1 ? "%.0f ranks, each %s" : "%.0f rank, %s", ranks, vt_text_bytes(memory, number));
}

/* Boxes with a large value and a small name. */
static void append_cards(vt_text *html, const vt_run_files *run)
{
    vt_run_figure figures[VT_RUN_FIGURES];
    vt_run_figures_of(run, figures);
    vt_text_append(html, "<div class=\"cards\">");
    for (const vt_run_figure *figure = figures; figure < figures + VT_RUN_FIGURES; figure++) {
        if (figure->value[0] == '\0') continue;
        vt_text_append(html, "<div class=\"card\"><span>%s</span><b>%s</b>", figure->name, figure->value);
        vt_page_append_text(html, "<span>", figure->detail, "</span></div>");
    }
    vt_text_append(html, "</div>\n");
}

/* "demo/1CPU/00" of "runs/demo/1CPU/00": the part that tells runs apart. */
static const char *short_name(const char *directory)
{
    int slashes = 0;
    size_t at = strlen(directory);
    while (at > 0 && directory[at - 1] == '/') at--;
    while (at > 0 && !(directory[at - 1] == '/' && ++slashes == 3)) at--;
    return directory + at;
}

/* "<table>" with a row of the runs' names after `corner`. */
static void begin_table(vt_text *html, const char *corner, const vt_run_files *runs, int count)
{
    vt_text_append(html, "<div class=\"wide\"><table><tr><th>%s</th>", corner);
    for (int i = 0; i < count; i++) {
        vt_text_append(html, "<th class=\"c%d\">", i % 6);
        vt_page_append_text(html, "<i></i>", short_name(runs[i].directory), "</th>");
    }
    vt_text_append(html, "</tr>");
}

static void append_figures(vt_text *html, const vt_run_files *runs, int count)
{
    vt_run_figure(*figures)[VT_RUN_FIGURES] = vt_allocate((size_t)count, sizeof *figures, "a comparison of runs");
    for (int i = 0; i < count; i++) vt_run_figures_of(&runs[i], figures[i]);
    vt_text_append(html, "<h2>Figures</h2>");
    begin_table(html, "", runs, count);
    for (int row = 0; row < VT_RUN_FIGURES; row++) {
        bool is_known = false;
        for (int i = 0; i < count; i++) is_known = is_known || figures[i][row].value[0] != '\0';
        if (!is_known) continue;
        vt_text_append(html, "<tr><th>%s</th>", figures[0][row].name);
        for (int i = 0; i < count; i++) {
            const vt_run_figure *figure = &figures[i][row];
            vt_text_append(html, "<td>%s", figure->value[0] != '\0' ? figure->value : "-");
            vt_page_append_text(html, " <small>", figure->detail, "</small></td>");
        }
        vt_text_append(html, "</tr>");
    }
    vt_text_append(html, "</table></div>\n");
    free(figures);
}

/* ---- curves ---- */

typedef struct {
    const char *column, *title;
    unsigned how; /* it is drawn, as in vt_chart */
} run_curve;

enum { OF_LOSSES = VT_CHART_FROM_ZERO | VT_CHART_MAY_BE_LOGARITHMIC, LOSSES = 2 };

/* Of several runs all are drawn; of one run the losses, which come first, have a chart of their own. */
static const run_curve curves[] = {
    {"valid_loss", "Validation loss", OF_LOSSES},
    {"loss", "Training loss, each step", OF_LOSSES},
    {"learning_rate", "Learning rate", VT_CHART_FROM_ZERO},
    {"samples_per_sec", "Samples a second", VT_CHART_FROM_ZERO},
    {"data_wait_fraction", "Share of the time waiting for data", VT_CHART_FROM_ZERO | VT_CHART_PERCENT},
    {"grad_norm", "Norm of the gradients", OF_LOSSES}};

enum { CURVES = sizeof curves / sizeof curves[0] };

static bool differs(const vt_run_files *runs, int count, const char *key)
{
    bool differs = false;
    for (int i = 1; i < count; i++)
        differs = differs || strcmp(vt_run_files_key(&runs[i], key), vt_run_files_key(&runs[0], key)) != 0;
    return differs;
}

/* Curves from number `first` on, up to `end`: a line for each run that has one. */
static void append_curves(vt_text *html, const vt_run_files *runs, int count, int first, int end, const char *x_name)
{
    vt_line *lines = vt_allocate((size_t)count, sizeof *lines, "a report");
    const char *loss = differs(runs, count, "loss") ? NULL : vt_run_files_key(runs, "loss");
    for (const run_curve *curve = curves + first; curve < curves + end; curve++) {
        const bool by_epoch = curve == curves;
        int used = 0;
        for (int i = 0; i < count; i++) {
            const vt_table *table = by_epoch ? &runs[i].epochs : &runs[i].steps;
            const vt_line line =
                vt_line_of(table, "step", curve->column, count > 1 ? short_name(runs[i].directory) : "each step",
                           by_epoch ? VT_LINE_DOTS : VT_LINE_PLAIN, count > 1 ? i : (int)(curve - curves));
            if (line.y != NULL && !isnan(line.x[0])) lines[used++] = line;
        }
        const char *units = curve < curves + LOSSES ? loss : NULL;
        if (used > 0) vt_chart_append(html, &(vt_chart){curve->title, units, x_name, lines, used, curve->how});
    }
    free(lines);
}

static void append_loss(vt_text *html, const vt_run_files *run)
{
    const double baseline = vt_run_baseline(run, "loss");
    const vt_line lines[] = {vt_line_of(&run->steps, "step", "loss", "training, each step", VT_LINE_FAINT, 0),
                             vt_line_of(&run->epochs, "step", "train_loss", "training, epoch's mean", VT_LINE_PLAIN, 0),
                             vt_line_of(&run->epochs, "step", "valid_loss", "validation", VT_LINE_DOTS, 1),
                             vt_line_level(run->baseline, &baseline)};
    const int count = run->epochs.rows == 0 ? 1 : isfinite(baseline) ? 4 : 3;
    vt_chart_append(html, &(vt_chart){"Loss", vt_run_files_key(run, "loss"), "step", lines, count, OF_LOSSES});
}

/* A chart for each score: of the validation over the epochs, beside the baseline's. A single one goes on with the grid
 * of the curves, which is open. */
static void append_scores(vt_text *html, const vt_run_files *run)
{
    static const struct {
        const char *prefix, *title, *units, *explanation;
    } kinds[] = {{"rmse_", "Validation RMSE", "standard deviations",
                  "Latitude-weighted; dashed: persistence, a forecast without change."},
                 {"l1_", "Validation L1", NULL,
                  "The mean absolute error of the files' numbers; dashed: that of copying the input's fields."}};
    for (size_t k = 0; run->epochs.rows > 0 && k < sizeof kinds / sizeof kinds[0]; k++) {
        const size_t length = strlen(kinds[k].prefix);
        int64_t count = 0;
        for (int64_t c = 0; c < run->epochs.names.count; c++)
            count += strncmp(run->epochs.names.names[c], kinds[k].prefix, length) == 0;
        if (count > 1)
            vt_text_append(html, "</div><h2>%s by channel</h2><p class=\"sub\">%s</p>", kinds[k].title,
                           kinds[k].explanation);
        const unsigned small = count > 1 ? vt_charts_begin(html, count) : 0;
        for (int64_t c = 0; c < run->epochs.names.count; c++) {
            const char *name = run->epochs.names.names[c];
            if (strncmp(name, kinds[k].prefix, length) != 0) continue;
            const double other = vt_run_baseline(run, name);
            const vt_line lines[2] = {vt_line_of(&run->epochs, "step", name, "validation", VT_LINE_DOTS, 1),
                                      vt_line_level(run->baseline, &other)};
            char *title =
                count > 1 ? vt_text_copy(name + length) : vt_text_format("%s of %s", kinds[k].title, name + length);
            vt_chart_append(html, &(vt_chart){title, kinds[k].units, "step", lines, isfinite(other) ? 2 : 1,
                                              VT_CHART_FROM_ZERO | small});
            free(title);
        }
    }
}

/* ---- time and memory ---- */

static void append_time(vt_text *html, const vt_run_files *run)
{
    double all = vt_table_sum(&run->epochs, "seconds"), named = 0;
    vt_bar bars[] = {{"forward", vt_table_sum(&run->epochs, "forward_seconds"), 0},
                     {"backward", vt_table_sum(&run->epochs, "backward_seconds"), 1},
                     {"optimizer", vt_table_sum(&run->epochs, "optimizer_seconds"), 2},
                     {"communication", vt_table_sum(&run->epochs, "communication_seconds"), 3},
                     {"waiting for data", vt_table_sum(&run->epochs, "data_seconds"), 4},
                     {"other (checkpoints, log)", 0, -1},
                     {"validation", vt_table_sum(&run->epochs, "valid_seconds"), 5}};
    for (int i = 0; i < 5; i++) named += bars[i].value;
    bars[5].value = fmax(0, all - named);
    vt_bars_append(html, "Where the time goes", bars, 7, vt_number_duration);
}

static void append_memory(vt_text *html, const vt_run_files *run)
{
    vt_bar bars[MEMORIES];
    for (int i = 0; i < MEMORIES; i++) bars[i] = (vt_bar){memories[i], vt_table_value(&run->plan, 0, memories[i]), i};
    vt_bars_append(html, "Memory of a rank, by what it is for", bars, MEMORIES, vt_text_bytes);
}

/* ---- the rest ---- */

/* The last of the pictures that the run made after its epochs. */
static vt_status append_picture(vt_text *html, const vt_run_files *run)
{
    vt_status status = VT_OK;
    char *directory = vt_text_format("%s/images", run->directory);
    vt_names pictures = vt_file_matching(directory, "epoch-*.png");
    if (pictures.count > 0) {
        vt_text_append(html, "<h2>Last maps</h2>");
        status = vt_page_append_picture(html, pictures.names[pictures.count - 1],
                                        "Target and prediction, a sample of the last training batch");
    }
    vt_names_close(&pictures);
    free(directory);
    return status;
}

static void append_configuration(vt_text *html, const vt_run_files *run)
{
    vt_page_append_text(html, "<h2>Configuration</h2><details open><summary>", run->configuration,
                        "</summary><div class=\"many\"><table>");
    for (int64_t i = 0; i < run->keys.count; i++) {
        if (i > 0 && i % ((run->keys.count + 3) / 4) == 0) vt_text_append(html, "</table><table>");
        vt_page_append_text(html, "<tr><th>", run->keys.names[i], "</th>");
        vt_page_append_text(html, "<td>", run->values.names[i], "</td></tr>");
    }
    vt_text_append(html, "</table></div></details>\n");
}

/* Makes samples of the steps of both tables. */
static void count_samples(vt_run_files *run)
{
    const double batch = vt_table_value(&run->plan, 0, "global_batch_size");
    vt_table *const tables[] = {&run->steps, &run->epochs};
    for (int i = 0; i < 2; i++)
        for (int64_t row = 0; row < tables[i]->rows; row++)
            tables[i]->values[row * tables[i]->names.count + vt_table_find(tables[i], "step")] *= batch;
}

/* The keys of the first run whose values are not the same in all runs. */
static void append_differences(vt_text *html, const vt_run_files *runs, int count)
{
    vt_text_append(html, "<h2>What differs in the configurations</h2>");
    begin_table(html, "key", runs, count);
    int64_t shown = 0;
    for (int64_t k = 0; k < runs[0].keys.count; k++) {
        const char *key = runs[0].keys.names[k];
        if (!differs(runs, count, key)) continue;
        shown++;
        vt_page_append_text(html, "<tr><th>", key, "</th>");
        for (int i = 0; i < count; i++) vt_page_append_text(html, "<td>", vt_run_files_key(&runs[i], key), "</td>");
        vt_text_append(html, "</tr>");
    }
    vt_text_append(html, "</table></div>\n%s", shown == 0 ? "<p>Nothing.</p>" : "");
}

/* ---- the pages ---- */

static vt_status append_run(vt_text *html, const vt_run_files *run)
{
    vt_status status = VT_OK;
    append_cards(html, run);
    vt_text_append(html, "<h2>Curves</h2><div class=\"charts\">");
    append_loss(html, run);
    append_curves(html, run, 1, LOSSES, CURVES, "step");
    append_scores(html, run);
    vt_text_append(html, "</div>\n<h2>Time and memory</h2><div class=\"charts\">");
    append_time(html, run);
    append_memory(html, run);
    vt_text_append(html, "</div>");
    vt_timeline_append(html, run);
    VT_TRY(vt_scorecard_append(html, run->directory));
    VT_TRY(append_picture(html, run));
    append_configuration(html, run);
    vt_text_append(html, "<footer>Written by vitrain from metrics.csv, epochs.csv, plan.csv and config.yaml beside it; "
                         "it needs no network and no script.</footer>");
done:
    return status;
}

static void append_comparison(vt_text *html, vt_run_files *runs, int count)
{
    append_figures(html, runs, count);
    vt_text_append(html, "<h2>Curves</h2><div class=\"charts\">");
    append_curves(html, runs, count, 0, CURVES, "step");
    vt_text_append(html, "</div><h2>Losses over samples</h2><p class=\"sub\">Steps times the batch: what each run has "
                         "made of the same data.</p><div class=\"charts\">");
    for (int i = 0; i < count; i++) count_samples(&runs[i]);
    append_curves(html, runs, count, 0, LOSSES, "samples");
    vt_text_append(html, "</div>");
    append_differences(html, runs, count);
}

vt_status vt_run_report_write(const char *const *directories, int count, const char *path)
{
    vt_status status = VT_OK;
    vt_text html = {0};
    char *several = vt_text_format("%d runs", count);
    vt_run_files *runs = vt_allocate((size_t)count, sizeof *runs, "a report");
    for (int i = 0; i < count; i++) VT_TRY(vt_run_files_open(directories[i], &runs[i]));
    VT_CHECK(count > 1 || runs[0].steps.rows > 0,
             "%s/metrics.csv has no rows: its run has not finished a step; %s/out.log says how far it is",
             directories[0], directories[0]);
    if (count == 1) {
        vt_page_begin(&html, runs[0].configuration, directories[0]);
        VT_TRY(append_run(&html, runs));
    } else {
        vt_page_begin(&html, several, "from the files of their directories");
        append_comparison(&html, runs, count);
    }
    VT_TRY(vt_page_write(&html, path));
done:
    for (int i = 0; i < count; i++) vt_run_files_close(&runs[i]);
    free(runs);
    free(several);
    vt_text_close(&html);
    return status;
}
