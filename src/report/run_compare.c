#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
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

static void append_cell(vt_text *html, const char *text)
{
    vt_text_append(html, "<td>");
    vt_page_append_escaped(html, text);
    vt_text_append(html, "</td>");
}

static double sum_of(const vt_table *table, const char *name)
{
    double sum = 0;
    for (int64_t row = 0; row < table->rows; row++) sum += fmax(0, vt_table_value(table, row, name));
    return sum;
}

/* "<table>" with a row of the runs' names after `corner`. */
static void begin_table(vt_text *html, const char *corner, const vt_run_files *runs, int count)
{
    vt_text_append(html, "<div class=\"wide\"><table><tr><th>%s</th>", corner);
    for (int i = 0; i < count; i++) {
        vt_text_append(html, "<th class=\"c%d\"><i></i>", i % 6);
        vt_page_append_escaped(html, short_name(runs[i].directory));
        vt_text_append(html, "</th>");
    }
    vt_text_append(html, "</tr>");
}

/* One figure of a run as text, or "-". */
typedef const char *figure(const vt_run_files *run, char buffer[VT_NUMBER_SIZE]);

static const char *number_text(double value, char buffer[VT_NUMBER_SIZE])
{
    return isfinite(value) ? vt_number_short(value, buffer) : "-";
}

static const char *steps_of(const vt_run_files *run, char buffer[VT_NUMBER_SIZE])
{
    return number_text(vt_table_value(&run->steps, -1, "step"), buffer);
}

static const char *epochs_of(const vt_run_files *run, char buffer[VT_NUMBER_SIZE])
{
    return number_text((double)run->epochs.rows, buffer);
}

static const char *training_loss_of(const vt_run_files *run, char buffer[VT_NUMBER_SIZE])
{
    return number_text(vt_run_recent_loss(run), buffer);
}

static const char *validation_loss_of(const vt_run_files *run, char buffer[VT_NUMBER_SIZE])
{
    return number_text(vt_table_value(&run->epochs, -1, "valid_loss"), buffer);
}

static const char *best_loss_of(const vt_run_files *run, char buffer[VT_NUMBER_SIZE])
{
    return number_text(vt_run_best_loss(run), buffer);
}

static const char *of_persistence(const vt_run_files *run, char buffer[VT_NUMBER_SIZE])
{
    return number_text(
        vt_table_value(&run->epochs, -1, "valid_loss") / vt_table_value(&run->epochs, 0, "persistence_loss"), buffer);
}

static const char *samples_a_second_of(const vt_run_files *run, char buffer[VT_NUMBER_SIZE])
{
    return number_text(sum_of(&run->epochs, "samples") / sum_of(&run->epochs, "seconds"), buffer);
}

static const char *seconds_of(const vt_run_files *run, char buffer[VT_NUMBER_SIZE])
{
    return number_text(sum_of(&run->epochs, "seconds"), buffer);
}

static const char *data_wait_of(const vt_run_files *run, char buffer[VT_NUMBER_SIZE])
{
    double share = sum_of(&run->epochs, "data_seconds") / sum_of(&run->epochs, "seconds");
    snprintf(buffer, VT_NUMBER_SIZE, "%.1f %%", 100 * share);
    return isfinite(share) ? buffer : "-";
}

static const char *parameters_of(const vt_run_files *run, char buffer[VT_NUMBER_SIZE])
{
    double parameters = vt_table_value(&run->plan, 0, "model_parameters");
    if (!(parameters >= 1e6)) return number_text(parameters, buffer);
    snprintf(buffer, VT_NUMBER_SIZE, "%.2f M", 1e-6 * parameters); /* as on a run's own page */
    return buffer;
}

static const char *memory_of(const vt_run_files *run, char buffer[VT_NUMBER_SIZE])
{
    static const char *const categories[] = {"parameters",  "gradients", "optimizer",
                                             "activations", "data",      "workspace"};
    double memory = 0;
    for (int c = 0; c < 6; c++) memory += sum_of(&run->plan, categories[c]);
    return memory > 0 ? vt_text_bytes(memory, buffer) : "-";
}

static const char *ranks_of(const vt_run_files *run, char buffer[VT_NUMBER_SIZE])
{
    return number_text(vt_table_value(&run->plan, 0, "ranks"), buffer);
}

static void append_figures(vt_text *html, const vt_run_files *runs, int count)
{
    static const struct {
        const char *name;
        figure *of;
    } rows[] = {{"steps", steps_of},
                {"epochs", epochs_of},
                {"training loss", training_loss_of},
                {"validation loss", validation_loss_of},
                {"best validation loss", best_loss_of},
                {"of persistence's", of_persistence},
                {"samples a second", samples_a_second_of},
                {"training, s", seconds_of},
                {"data wait", data_wait_of},
                {"parameters", parameters_of},
                {"memory a rank", memory_of},
                {"ranks", ranks_of}};
    vt_text_append(html, "<h2>Figures</h2>");
    begin_table(html, "", runs, count);
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        char buffer[VT_NUMBER_SIZE];
        vt_text_append(html, "<tr><th>%s</th>", rows[row].name);
        for (int i = 0; i < count; i++) append_cell(html, rows[row].of(&runs[i], buffer));
        vt_text_append(html, "</tr>");
    }
    vt_text_append(html, "</table></div>\n");
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
        vt_text_append(html, "<tr><th>");
        vt_page_append_escaped(html, key->name);
        vt_text_append(html, "</th>");
        for (int i = 0; i < count; i++) append_cell(html, vt_run_files_key(&runs[i], key->name));
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
    vt_page_begin(&html, title, subtitle, 0);
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
    VT_TRY(vt_page_write(&html, path));
done:
    for (int i = 0; i < count; i++) vt_run_files_close(&runs[i]);
    free(runs);
    free(title);
    free(subtitle);
    vt_text_close(&html);
    return status;
}
