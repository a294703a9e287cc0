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

/* "demo/1CPU/00" of "runs/demo/1CPU/00": what tells runs apart. */
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

static void append_number(vt_text *html, double value)
{
    char number[VT_NUMBER_SIZE];
    append_cell(html, isfinite(value) ? vt_number_short(value, number) : "-");
}

static double sum_of(const vt_table *table, const char *name)
{
    double sum = 0;
    for (int64_t row = 0; row < table->rows; row++) sum += fmax(0, vt_table_value(table, row, name));
    return sum;
}

static void append_figures(vt_text *html, const vt_run_files *runs, int count)
{
    vt_text_append(html, "<h2>Figures</h2><div class=\"wide\"><table><tr><th>run</th><th>steps</th><th>epochs</th>"
                         "<th>training loss</th><th>validation loss</th><th>best</th><th>of persistence</th>"
                         "<th>samples/s</th><th>training, s</th><th>data wait</th><th>parameters</th>"
                         "<th>memory a rank</th><th>ranks</th></tr>");
    for (int i = 0; i < count; i++) {
        static const char *const categories[] = {"parameters",  "gradients", "optimizer",
                                                 "activations", "data",      "workspace"};
        const vt_run_files *run = &runs[i];
        char size[VT_NUMBER_SIZE], share[VT_NUMBER_SIZE];
        double memory = 0, seconds = sum_of(&run->epochs, "seconds");
        for (int c = 0; c < 6; c++) memory += sum_of(&run->plan, categories[c]);
        snprintf(share, sizeof share, "%.1f %%", 100 * sum_of(&run->epochs, "data_seconds") / seconds);
        vt_text_append(html, "<tr><th class=\"c%d\"><i></i>", i % 6);
        vt_page_append_escaped(html, short_name(run->directory));
        vt_text_append(html, "</th>");
        append_number(html, vt_table_value(&run->steps, -1, "step"));
        append_number(html, (double)run->epochs.rows);
        append_number(html, vt_run_recent_loss(run));
        append_number(html, vt_table_value(&run->epochs, -1, "valid_loss"));
        append_number(html, vt_run_best_loss(run));
        append_number(html, vt_table_value(&run->epochs, -1, "valid_loss") /
                                vt_table_value(&run->epochs, 0, "persistence_loss"));
        append_number(html, sum_of(&run->epochs, "samples") / seconds);
        append_number(html, seconds);
        append_cell(html, seconds > 0 ? share : "-");
        append_number(html, vt_table_value(&run->plan, 0, "model_parameters"));
        append_cell(html, memory > 0 ? vt_text_bytes(memory, size) : "-");
        append_number(html, vt_table_value(&run->plan, 0, "ranks"));
        vt_text_append(html, "</tr>");
    }
    vt_text_append(html, "</table></div>\n");
}

/* The keys of the first run that are not the same in all. */
static void append_differences(vt_text *html, const vt_run_files *runs, int count)
{
    vt_text_append(html, "<h2>What differs in the configurations</h2><div class=\"wide\"><table><tr><th>key</th>");
    for (int i = 0; i < count; i++) {
        vt_text_append(html, "<th class=\"c%d\"><i></i>", i % 6);
        vt_page_append_escaped(html, short_name(runs[i].directory));
        vt_text_append(html, "</th>");
    }
    vt_text_append(html, "</tr>");
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
