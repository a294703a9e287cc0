#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "report/page.h"
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

static bool differs(const vt_run_files *runs, int count, const char *key)
{
    bool differs = false;
    for (int i = 1; i < count; i++)
        differs = differs || strcmp(vt_run_files_key(&runs[i], key), vt_run_files_key(&runs[0], key)) != 0;
    return differs;
}

static void append_chart(vt_text *html, const vt_run_files *runs, int count, const vt_run_curve *curve,
                         const char *x_name)
{
    const bool by_epoch = strcmp(curve->column, "valid_loss") == 0, of_loss = strstr(curve->column, "loss") != NULL;
    vt_line *lines = vt_allocate((size_t)count, sizeof *lines, "a comparison of runs");
    int used = 0;
    for (int i = 0; i < count; i++) {
        const vt_table *table = by_epoch ? &runs[i].epochs : &runs[i].steps;
        const vt_line line = vt_line_of(table, "step", curve->column, short_name(runs[i].directory),
                                        by_epoch ? VT_LINE_DOTS : VT_LINE_PLAIN, i);
        if (line.y != NULL && !isnan(line.x[0])) lines[used++] = line;
    }
    const char *units = of_loss && !differs(runs, count, "loss") ? vt_run_files_key(runs, "loss") : NULL;
    if (used > 0) vt_chart_append(html, &(vt_chart){curve->title, units, x_name, lines, used, curve->how});
    free(lines);
}

static void append_losses(vt_text *html, const vt_run_files *runs, int count, const char *x_name)
{
    enum { HOW = VT_CHART_FROM_ZERO | VT_CHART_MAY_BE_LOGARITHMIC };
    static const vt_run_curve losses[] = {{"valid_loss", "Validation loss", HOW},
                                          {"loss", "Training loss, each step", HOW}};
    for (int i = 0; i < 2; i++) append_chart(html, runs, count, &losses[i], x_name);
}

/* Makes samples of the steps of both tables. */
static void count_samples(vt_run_files *run)
{
    const double batch = vt_table_value(&run->plan, 0, "global_batch_size");
    vt_table *const tables[] = {&run->steps, &run->epochs};
    for (int i = 0; i < 2; i++)
        for (int64_t row = 0; row < tables[i]->rows; row++)
            tables[i]->values[row * tables[i]->columns + vt_table_find(tables[i], "step")] *= batch;
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

vt_status vt_run_report_compare(const char *const *directories, int count, const char *path)
{
    vt_status status = VT_OK;
    vt_text html = {0};
    char *title = vt_text_format("%d runs", count);
    vt_run_files *runs = vt_allocate((size_t)count, sizeof *runs, "a comparison of runs");
    for (int i = 0; i < count; i++) VT_TRY(vt_run_files_open(directories[i], &runs[i]));
    vt_page_begin(&html, title, "from the files of their directories");
    append_figures(&html, runs, count);
    vt_text_append(&html, "<h2>Curves</h2><div class=\"charts\">");
    append_losses(&html, runs, count, "step");
    for (int i = 0; i < VT_RUN_CURVES; i++) append_chart(&html, runs, count, &vt_run_curves[i], "step");
    vt_text_append(&html, "</div><h2>Losses over samples</h2><p class=\"sub\">Steps times the batch: what each run has "
                          "made of the same data.</p><div class=\"charts\">");
    for (int i = 0; i < count; i++) count_samples(&runs[i]);
    append_losses(&html, runs, count, "samples");
    vt_text_append(&html, "</div>");
    append_differences(&html, runs, count);
    VT_TRY(vt_page_write(&html, path));
done:
    for (int i = 0; i < count; i++) vt_run_files_close(&runs[i]);
    free(runs);
    free(title);
    vt_text_close(&html);
    return status;
}
