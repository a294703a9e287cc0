#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "report/chart.h"
#include "report/page.h"
#include "report/run_files.h"
#include "report/run_report.h"

/* "demo/1CPU/00" of "runs/demo/1CPU/00": the part that tells runs apart. */
static const char *short_name(const char *directory)
{
    int slashes = 0;
    size_t at = strlen(directory);
    while (at > 0 && directory[at - 1] == '/') at--;
    while (at > 0 && !(directory[at - 1] == '/' && ++slashes == 3)) at--;
    return directory + at;
}

static void append_chart(vt_text *html, const vt_run_files *runs, int count, bool by_epoch, const char *column,
                         const char *title, bool percent)
{
    vt_line *lines = vt_allocate((size_t)count, sizeof *lines, "a comparison of runs");
    int used = 0;
    for (int i = 0; i < count; i++) {
        const vt_table *table = by_epoch ? &runs[i].epochs : &runs[i].steps;
        const double *y = vt_run_column(table, column);
        if (y == NULL) continue;
        lines[used++] = (vt_line){short_name(runs[i].directory),
                                  vt_run_column(table, "step"),
                                  y,
                                  table->rows,
                                  table->columns,
                                  by_epoch ? VT_LINE_DOTS : VT_LINE_PLAIN,
                                  i};
    }
    const vt_chart chart = {.title = title,
                            .x_name = "step",
                            .lines = lines,
                            .line_count = used,
                            .may_be_logarithmic = strstr(column, "loss") != NULL,
                            .from_zero = true,
                            .percent = percent};
    if (used > 0) vt_chart_append(html, &chart);
    free(lines);
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

static const char *percent_text(double value, char buffer[VT_NUMBER_SIZE])
{
    snprintf(buffer, VT_NUMBER_SIZE, "%.1f %%", 100 * value);
    return buffer;
}

static const struct {
    const char *name;
    const char *(*format)(double value, char buffer[VT_NUMBER_SIZE]);
} figures[] = {{"steps", vt_number_short},
               {"epochs", vt_number_short},
               {"training loss", vt_number_short},
               {"validation loss", vt_number_short},
               {"best validation loss", vt_number_short},
               {"of the baseline's", vt_number_short},
               {"samples a second", vt_number_short},
               {"training, s", vt_number_short},
               {"data wait", percent_text},
               {"parameters", vt_number_millions},
               {"memory a rank", vt_text_bytes},
               {"ranks", vt_number_short}};
enum { FIGURES = sizeof figures / sizeof figures[0] };

/* In the order of `figures`; NAN: the run's files don't say. */
static void figures_of(const vt_run_files *run, double values[FIGURES])
{
    const double seconds = vt_table_sum(&run->epochs, "seconds");
    const double validation_loss = vt_table_value(&run->epochs, -1, "valid_loss");
    double memory = 0;
    for (int i = 0; i < VT_RUN_MEMORIES; i++) memory += vt_table_value(&run->plan, 0, vt_run_memories[i]);
    const double found[FIGURES] = {vt_table_value(&run->steps, -1, "step"),
                                   (double)run->epochs.rows,
                                   vt_run_recent_mean(run, "loss", VT_RUN_RECENT),
                                   validation_loss,
                                   vt_run_best_loss(run),
                                   validation_loss / vt_epochs_baseline_value(&run->epochs, "loss"),
                                   vt_table_sum(&run->epochs, "samples") / seconds,
                                   seconds,
                                   vt_table_sum(&run->epochs, "data_seconds") / seconds,
                                   vt_table_value(&run->plan, 0, "model_parameters"),
                                   memory,
                                   vt_table_value(&run->plan, 0, "ranks")};
    memcpy(values, found, sizeof found);
}

static void append_figures(vt_text *html, const vt_run_files *runs, int count)
{
    double(*values)[FIGURES] = vt_allocate((size_t)count, sizeof *values, "a comparison of runs");
    for (int i = 0; i < count; i++) figures_of(&runs[i], values[i]);
    vt_text_append(html, "<h2>Figures</h2>");
    begin_table(html, "", runs, count);
    for (size_t row = 0; row < FIGURES; row++) {
        char buffer[VT_NUMBER_SIZE];
        vt_text_append(html, "<tr><th>%s</th>", figures[row].name);
        for (int i = 0; i < count; i++)
            vt_text_append(html, "<td>%s</td>",
                           isfinite(values[i][row]) ? figures[row].format(values[i][row], buffer) : "-");
        vt_text_append(html, "</tr>");
    }
    vt_text_append(html, "</table></div>\n");
    free(values);
}

/* The keys of the first run whose values are not the same in all runs. */
static void append_differences(vt_text *html, const vt_run_files *runs, int count)
{
    vt_text_append(html, "<h2>What differs in the configurations</h2>");
    begin_table(html, "key", runs, count);
    int64_t shown = 0;
    for (int64_t k = 0; k < runs[0].key_count; k++) {
        const vt_run_key *key = &runs[0].keys[k];
        bool differs = false;
        for (int i = 1; i < count; i++)
            differs = differs || strcmp(vt_run_files_key(&runs[i], key->name), key->value) != 0;
        if (!differs) continue;
        shown++;
        vt_page_append_text(html, "<tr><th>", key->name, "</th>");
        for (int i = 0; i < count; i++)
            vt_page_append_text(html, "<td>", vt_run_files_key(&runs[i], key->name), "</td>");
        vt_text_append(html, "</tr>");
    }
    vt_text_append(html, "</table></div>\n%s", shown == 0 ? "<p>Nothing.</p>" : "");
}

vt_status vt_run_report_compare(const char *const *directories, int count, const char *path)
{
    vt_status status = VT_OK;
    vt_text html = {0};
    char stamp[32];
    vt_clock_stamp(stamp);
    char *title = vt_text_format("vitrain: %d runs", count), *subtitle = vt_text_format("as of %.19s", stamp);
    vt_run_files *runs = vt_allocate((size_t)count, sizeof *runs, "a comparison of runs");
    for (int i = 0; i < count; i++) VT_TRY(vt_run_files_open(directories[i], &runs[i]));
    vt_page_begin(&html, title, subtitle);
    append_figures(&html, runs, count);
    vt_text_append(&html, "<h2>Curves</h2><div class=\"charts\">");
    append_chart(&html, runs, count, true, "valid_loss", "Validation loss", false);
    append_chart(&html, runs, count, false, "loss", "Training loss", false);
    append_chart(&html, runs, count, false, "samples_per_sec", "Samples a second", false);
    append_chart(&html, runs, count, false, "data_wait_fraction", "Share of the time waiting for data", true);
    append_chart(&html, runs, count, false, "learning_rate", "Learning rate", false);
    append_chart(&html, runs, count, false, "grad_norm", "Norm of the gradients", false);
    vt_text_append(&html, "</div>");
    append_differences(&html, runs, count);
    vt_page_end(&html);
    VT_TRY(vt_file_write(path, html.characters, html.length));
done:
    for (int i = 0; i < count; i++) vt_run_files_close(&runs[i]);
    free(runs);
    free(title);
    free(subtitle);
    vt_text_close(&html);
    return status;
}
