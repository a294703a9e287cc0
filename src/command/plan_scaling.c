#include "command/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "planning/layouts.h"
#include "report/page.h"
#include "report/progress.h"
#include "storage/output_file.h"

enum { MOST_RANKS = 16384 };

/* Figures of a number of ranks. The last one is drawn only: the rate at an efficiency of 1. */
enum { RANKS, BATCH, GIB, MILLISECONDS, RATE, EFFICIENCY, RANK_HOURS, KWH, SHOWN, IDEAL = SHOWN, COLUMNS };

static const char *const heads[SHOWN] = {"ranks",     "batch",      "GiB a rank", "ms a step",
                                         "samples/s", "efficiency", "rank-hours", "kWh"};

/* The fastest layout for each number of ranks, with strong or with weak scaling. */
typedef struct {
    const char *name, *explanation;
    int count;
    double (*rows)[COLUMNS]; /* [count]; NAN where no layout fits */
    char **layouts;          /* [count]: in words, or why there is none */
} scaling;

/* ---- the numbers of ranks ---- */

static void add(int64_t **ranks, int *count, int64_t value)
{
    *ranks = vt_grow(*ranks, (size_t)*count, sizeof **ranks, "the plan");
    (*ranks)[(*count)++] = value;
}

vt_status vt_plan_scaling_ranks(const char *text, int64_t **ranks, int *count)
{
    vt_status status = VT_OK;
    int64_t before = 0;
    int used = 0;
    *ranks = NULL;
    *count = 0;
    for (const char *next = text;; next += used + 1) {
        int64_t first = 0, last = 0;
        const bool one = sscanf(next, "%ld%n..%ld%n", &first, &used, &last, &used) < 2;
        if (one) last = first;
        VT_CHECK(first > before && last <= MOST_RANKS && (one || last > first) && strchr(",", next[used]) != NULL,
                 "plan: --scaling=%s: expected rising numbers of ranks up to %d, such as 1,2,4,8 or 1..512", text,
                 MOST_RANKS);
        add(ranks, count, first);
        for (int64_t power = 1; power < last; power *= 2)
            if (power > first) add(ranks, count, power);
        if (!one) add(ranks, count, last);
        before = last;
        if (next[used] == '\0') break;
    }
done:
    return status;
}

/* ---- planning ---- */

/* "tp 2 dp 4 zero 1 block": what is not 1, 0 or none. malloc'd. */
static char *layout_text(const vt_option_cost *o)
{
    const struct {
        const char *name;
        int64_t value, usual;
    } parts[] = {
        {"tp", o->tensor, 1}, {"cp", o->context, 1}, {"pp", o->pipeline, 1}, {"dp", o->data, 1}, {"zero", o->zero, 0}};
    vt_text text = {0};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].value != parts[i].usual) vt_text_append(&text, "%s %ld ", parts[i].name, parts[i].value);
    if (o->recompute != VT_RECOMPUTE_NONE) vt_text_append(&text, "%s ", vt_recompute_words[o->recompute]);
    if (text.length == 0) return vt_text_copy("one rank");
    text.characters[text.length - 1] = '\0';
    return text.characters;
}

/* Samples that the run trains on; 1e6 where only the data could tell. */
static double samples_of(const vt_config *config)
{
    const int64_t steps = vt_layouts_steps(config);
    return steps > 0 ? (double)(steps * config->global_batch_size) : 1e6;
}

/* Number i of the kind, by the ranks and the batch of `config`. */
static void plan_one(scaling *kind, int i, const vt_config *config, const vt_hardware *hardware, double samples)
{
    vt_layouts layouts = {NULL, 0};
    double *row = kind->rows[i];
    const bool divides = vt_layouts_plan(config, hardware, &layouts) == VT_OK;
    const vt_option_cost *best = divides ? vt_layouts_fastest(&layouts, NULL) : NULL;
    if (!divides) vt_error_clear();
    for (int c = 0; c < COLUMNS; c++) row[c] = NAN;
    row[RANKS] = (double)config->ranks;
    row[BATCH] = (double)config->global_batch_size;
    if (best != NULL && best->fits) {
        row[GIB] = best->total / 1073741824;
        row[MILLISECONDS] = 1e3 * best->cost.step;
        row[RATE] = row[BATCH] / best->cost.step;
        row[RANK_HOURS] = samples / row[RATE] / 3600 * row[RANKS];
        if (hardware->power_w > 0) row[KWH] = row[RANK_HOURS] * hardware->power_w / 1000;
        kind->layouts[i] = layout_text(best);
    } else {
        kind->layouts[i] = vt_text_copy(divides ? "no layout fits" : "no layout divides");
    }
    vt_layouts_close(&layouts);
}

/* The first number of ranks that has a layout; NULL if none has. */
static const double *first_of(const scaling *kind)
{
    for (int i = 0; i < kind->count; i++)
        if (!isnan(kind->rows[i][RATE])) return kind->rows[i];
    return NULL;
}

static void plan_kind(scaling *kind, vt_config *config, const vt_hardware *hardware, const int64_t *ranks, bool weak)
{
    const int64_t batch = config->global_batch_size;
    const double samples = samples_of(config);
    const bool shows = vt_progress_is_seen(STDERR_FILENO);
    kind->rows = vt_allocate((size_t)kind->count, sizeof *kind->rows, "the plan");
    kind->layouts = vt_allocate((size_t)kind->count, sizeof *kind->layouts, "the plan");
    for (int i = 0; i < kind->count; i++) {
        config->ranks = ranks[i];
        config->global_batch_size = weak ? batch * ranks[i] / ranks[0] : batch;
        if (shows) fprintf(stderr, "\r%s scaling: %ld ranks ", kind->name, ranks[i]);
        plan_one(kind, i, config, hardware, samples);
    }
    if (shows) fprintf(stderr, "\r\033[K");
    const double *first = first_of(kind);
    for (int i = 0; first != NULL && i < kind->count; i++) {
        double *row = kind->rows[i];
        row[IDEAL] = first[RATE] / first[RANKS] * row[RANKS];
        row[EFFICIENCY] = row[RATE] / row[IDEAL];
    }
    config->global_batch_size = batch;
}

/* ---- the table and the page ---- */

static const char *cell(const scaling *kind, int c, int i, char text[VT_NUMBER_SIZE])
{
    const double value = kind->rows[i][c];
    if (isnan(value)) return "-";
    if (c == EFFICIENCY)
        snprintf(text, VT_NUMBER_SIZE, "%.0f %%", 100 * value);
    else
        vt_number_short(value, text);
    return text;
}

static void print_kind(const scaling *kind)
{
    static const int widths[SHOWN] = {5, 6, 10, 9, 9, 10, 10, 7};
    char text[VT_NUMBER_SIZE];
    vt_print_wrapped("\n%s scaling: %s\n", kind->name, kind->explanation);
    for (int i = -1; i < kind->count; i++) {
        for (int c = 0; c < SHOWN; c++)
            vt_print("%*s%s", widths[c], i < 0 ? heads[c] : cell(kind, c, i, text), c < KWH ? " " : "");
        vt_print("\n");
        if (i >= 0) vt_print("      %s\n", kind->layouts[i]);
    }
}

static void append_chart(vt_text *html, const scaling kinds[2], const char *title, int y)
{
    const int count = kinds[0].count;
    const double *ranks = kinds[0].rows[0];
    const vt_line lines[] = {{kinds[0].name, ranks, &kinds[0].rows[0][y], count, COLUMNS, VT_LINE_DOTS, 0},
                             {kinds[1].name, ranks, &kinds[1].rows[0][y], count, COLUMNS, VT_LINE_DOTS, 1},
                             {"ideal", ranks, &kinds[0].rows[0][IDEAL], count, COLUMNS, VT_LINE_DASHED, -1}};
    const unsigned how = VT_CHART_LOGARITHMIC_X | VT_CHART_FROM_ZERO |
                         (y == RATE         ? VT_CHART_MAY_BE_LOGARITHMIC
                          : y == EFFICIENCY ? VT_CHART_PERCENT
                                            : 0);
    vt_chart_append(html, &(vt_chart){title, NULL, heads[RANKS], lines, y == RATE ? 3 : 2, how});
}

static void append_table(vt_text *html, const scaling *kind)
{
    char text[VT_NUMBER_SIZE];
    vt_page_append_text(html, "<h2>", kind->name, " scaling</h2>");
    vt_page_append_text(html, "<p class=\"sub\">", kind->explanation, "</p><div class=\"wide\"><table><tr>");
    for (int c = 0; c < SHOWN; c++) vt_text_append(html, "<th>%s</th>", heads[c]);
    vt_text_append(html, "<th>layout</th></tr>");
    for (int i = 0; i < kind->count; i++) {
        vt_text_append(html, "<tr>");
        for (int c = 0; c < SHOWN; c++) vt_text_append(html, "<td>%s</td>", cell(kind, c, i, text));
        vt_text_append(html, "<td>%s</td></tr>", kind->layouts[i]);
    }
    vt_text_append(html, "</table></div>\n");
}

static vt_status write_page(const scaling kinds[2], const char *title, const char *subtitle, const char *path)
{
    vt_text html = {0};
    vt_page_begin(&html, title, subtitle);
    vt_text_append(&html, "<div class=\"charts\">");
    append_chart(&html, kinds, "Samples a second", RATE);
    append_chart(&html, kinds, "Efficiency", EFFICIENCY);
    append_chart(&html, kinds, "Memory of a rank, GiB", GIB);
    append_chart(&html, kinds, "Rank-hours of the run", RANK_HOURS);
    vt_text_append(&html, "</div>");
    for (int k = 0; k < 2; k++) append_table(&html, &kinds[k]);
    const vt_status status = vt_page_write(&html, path);
    vt_text_close(&html);
    return status;
}

vt_status vt_plan_scaling(vt_config *config, const vt_hardware *hardware, const int64_t *ranks, int count,
                          const char *path)
{
    vt_status status = VT_OK;
    const int64_t batch = config->global_batch_size;
    scaling kinds[2] = {{.name = "Strong", .explanation = "the same batch on any number of ranks", .count = count},
                        {.name = "Weak", .explanation = "the batch grows with the number of ranks", .count = count}};
    char *title = vt_text_format("scaling of %s on %s", config->config, hardware->name);
    char *subtitle = vt_text_format("the fastest layout that fits, planned and not measured; hours and energy are of "
                                    "%.4g samples",
                                    samples_of(config));
    VT_TRY(vt_output_check_file("--output", path));
    for (int i = 0; i < count; i++)
        VT_CHECK(batch * ranks[i] % ranks[0] == 0,
                 "plan: --scaling: weak scaling needs a whole batch, but %ld samples on %ld ranks are %g on %ld; "
                 "give another --global_batch_size",
                 batch, ranks[0], (double)(batch * ranks[i]) / (double)ranks[0], ranks[i]);
    for (int k = 0; k < 2; k++) plan_kind(&kinds[k], config, hardware, ranks, k == 1);
    VT_CHECK(first_of(&kinds[0]) != NULL || first_of(&kinds[1]) != NULL,
             "plan: --scaling: on none of these numbers of ranks has '%s' a layout that fits into %.3g GiB of %s",
             config->config, vt_cost_available(hardware) / 1073741824, hardware->name);
    vt_print_wrapped("%s: %s\n", title, subtitle);
    for (int k = 0; k < 2; k++) print_kind(&kinds[k]);
    VT_TRY(write_page(kinds, title, subtitle, path));
    vt_print_wrapped("\ndrawn: %s\n", path);
done:
    for (int k = 0; k < 2; k++) {
        free(kinds[k].rows);
        vt_text_free_list(kinds[k].layouts, count);
    }
    free(title);
    free(subtitle);
    return status;
}
