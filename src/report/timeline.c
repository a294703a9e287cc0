#include "report/run_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/median.h"
#include "base/memory.h"
#include "parallel/layout.h"

/* In the picture's own units; the page scales them. */
enum { WIDTH = 940, LEFT = 64, RIGHT = 8, BAR = 26, GAP = 6, FOOT = 20, ROOM_FOR_NAME = 20 };

/* Colours as in "Where the time goes". */
enum { FORWARD, BACKWARD, WAITING = 3 };

/* A rank's trace as it is read, row by row. */
typedef struct {
    FILE *file; /* NULL: there is none, or all is read */
    char *line, what[16];
    size_t size;
    int64_t step, index;
    double begin, end; /* seconds since the step's start on this rank */
} trace;

/* What all ranks' traces say about a step. */
typedef struct {
    double length;       /* seconds until the last rank's last pass; first, for vt_by_value */
    double busy;         /* seconds of passes, added up over the ranks */
    int64_t step, ranks; /* those that have finished it */
} step_sum;

typedef struct {
    vt_layout layout;
    int64_t micro_batches;
    step_sum *steps; /* [count], from step `first` on */
    int64_t first, count;
} timeline;

/* ---- the traces ---- */

static trace open_trace(const vt_run_files *run, int rank)
{
    char *path = vt_text_format("%s/logs/comm-%d.csv", run->directory, rank);
    trace opened = {0};
    if (vt_file_open(path, &opened.file, NULL) != VT_OK) vt_error_clear();
    free(path);
    return opened;
}

/* The next row; other lines (the names, an unfinished last one) are left out. False: that was the last, and the trace
 * is closed. */
static bool next_row(trace *t)
{
    while (t->file != NULL && vt_file_line(t->file, &t->line, &t->size) > 0)
        if (sscanf(t->line, "%ld,%15[a-z],%ld,%*d,%lf,%lf", &t->step, t->what, &t->index, &t->begin, &t->end) == 5)
            return true;
    free(t->line);
    if (t->file != NULL) fclose(t->file);
    *t = (trace){0};
    return false;
}

static bool is(const trace *row, const char *what)
{
    return strcmp(row->what, what) == 0;
}

/* False: the rank has no trace. */
static bool add_rank(const vt_run_files *run, int rank, timeline *all)
{
    trace t = open_trace(run, rank);
    const bool is_there = t.file != NULL;
    while (next_row(&t)) {
        if (t.step < all->first || t.step >= all->first + all->count) continue;
        step_sum *sum = &all->steps[t.step - all->first];
        sum->step = t.step;
        sum->ranks += is(&t, "finished");
        if (!is(&t, "forward") && !is(&t, "backward")) continue;
        sum->busy += t.end - t.begin;
        sum->length = fmax(sum->length, t.end);
    }
    return is_there;
}

/* Leaves the steps that all ranks have finished, but not the first one (it warms up), from the shortest to the longest.
 */
static void keep_whole_steps(timeline *all)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < all->count; i++)
        if (all->steps[i].ranks == all->layout.ranks && all->steps[i].length > 0) all->steps[kept++] = all->steps[i];
    const int64_t first = kept > 1 ? 1 : 0;
    memmove(all->steps, all->steps + first, (size_t)(kept - first) * sizeof *all->steps);
    all->count = kept - first;
    qsort(all->steps, (size_t)all->count, sizeof *all->steps, vt_by_value);
}

/* Error: the files describe no layout. */
static vt_status read_layout(const vt_run_files *run, timeline *all)
{
    vt_status status = VT_OK;
    size_t length = 0;
    const char *quoted = vt_run_files_key(run, "parallel_order"), *order = vt_text_next_word(&quoted, &length);
    vt_config config = {.parallel_order = vt_text_format("%.*s", (int)length, order != NULL ? order : "")};
    const double ranks = vt_table_value(&run->plan, 0, "ranks");
    const bool known = vt_text_to_integer(vt_run_files_key(run, "tensor_parallel"), &config.tensor_parallel) &&
                       vt_text_to_integer(vt_run_files_key(run, "context_parallel"), &config.context_parallel) &&
                       vt_text_to_integer(vt_run_files_key(run, "pipeline_parallel"), &config.pipeline_parallel) &&
                       vt_text_to_integer(vt_run_files_key(run, "grad_accumulation"), &all->micro_batches);
    VT_CHECK(known && ranks >= 1, "%s: its files describe no layout", run->directory);
    VT_TRY(vt_layout_make(&config, (int)ranks, &all->layout));
done:
    free(config.parallel_order);
    return status;
}

/* ---- the picture ---- */

static void append_rectangle(vt_text *html, double x, double y, double width, int colour, const char *style)
{
    vt_text_append(html,
                   "<rect class=\"c%d\" x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\" fill=\"currentColor\"%s",
                   colour, x, y, width, BAR, style);
}

static void append_pass(vt_text *html, const trace *row, double y, double scale)
{
    const double x = LEFT + scale * row->begin, width = scale * (row->end - row->begin);
    const bool forward = is(row, "forward");
    append_rectangle(html, x, y, width, forward ? FORWARD : BACKWARD, " stroke=\"var(--box)\">");
    vt_text_append(html, "<title>%s of micro-batch %ld: %.3f to %.3f ms</title></rect>", row->what, row->index,
                   1e3 * row->begin, 1e3 * row->end);
    if (width > ROOM_FOR_NAME)
        vt_text_append(html,
                       "<text x=\"%.2f\" y=\"%.0f\" text-anchor=\"middle\" style=\"fill:var(--box)\">%c%ld</text>",
                       x + width / 2, y + 17, forward ? 'F' : 'B', row->index);
}

/* The bar of a stage, of its lowest rank. */
static void append_stage(vt_text *html, const vt_run_files *run, const timeline *all, const step_sum *drawn, int stage)
{
    const double y = stage * (BAR + GAP), scale = (WIDTH - LEFT - RIGHT) / drawn->length;
    const int rank = vt_layout_first(&all->layout, stage);
    trace row = open_trace(run, rank);
    vt_text_append(html, "<g><text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">stage %d</text>", LEFT - 8, y + 17, stage);
    append_rectangle(html, LEFT, y, WIDTH - LEFT - RIGHT, WAITING, " opacity=\".35\">");
    vt_text_append(html, "<title>waiting (rank %d)</title></rect>", rank);
    while (next_row(&row))
        if (row.step == drawn->step && (is(&row, "forward") || is(&row, "backward"))) append_pass(html, &row, y, scale);
    vt_text_append(html, "</g>");
}

static void append_picture(vt_text *html, const vt_run_files *run, const timeline *all)
{
    const step_sum *drawn = &all->steps[all->count / 2];
    const int stages = all->layout.size[VT_AXIS_PIPELINE], height = stages * (BAR + GAP) + FOOT;
    const char *rollout = vt_run_files_key(run, "rollout"); /* quoted, as a text that may hold stages */
    const bool rolls = rollout[0] != '\0' && strcmp(rollout, "\"1\"") != 0;
    double busy = 0, length = 0;
    for (int64_t i = 0; i < all->count; i++) {
        busy += all->steps[i].busy;
        length += all->steps[i].length * all->layout.ranks;
    }
    vt_text_append(html,
                   "<h2>Stages</h2><p class=\"sub\">Stages waited for %.1f %% of the time in the %ld steps of the "
                   "trace; %.1f %% by (p - 1)/(m + p - 1), with %d stages and %ld micro-batches%s.</p>",
                   100 * (1 - busy / length), all->count,
                   100.0 * (stages - 1) / (double)(all->micro_batches + stages - 1), stages, all->micro_batches,
                   rolls ? ", in steps without a rollout" : "");
    vt_text_append(html,
                   "<figure><figcaption>Step %ld <small>(of median length; each bar from when its rank began "
                   "the step)</small></figcaption>",
                   drawn->step + 1);
    vt_text_append(html,
                   "<p class=\"legend\"><span class=\"c%d\"><i></i>forward</span> <span class=\"c%d\"><i></i>backward"
                   "</span> <span class=\"c%d\"><i class=\"pale\"></i>waiting</span></p>",
                   FORWARD, BACKWARD, WAITING);
    vt_text_append(html, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Stages in a step\">", WIDTH, height);
    for (int stage = 0; stage < stages; stage++) append_stage(html, run, all, drawn, stage);
    for (int i = 0; i <= 4; i++)
        vt_text_append(html, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">%.3g ms</text>",
                       LEFT + (WIDTH - LEFT - RIGHT) * i / 4, height - 4,
                       i == 0   ? "start"
                       : i == 4 ? "end"
                                : "middle",
                       1e3 * drawn->length * i / 4);
    vt_text_append(html, "</svg></figure>\n");
}

void vt_timeline_append(vt_text *html, const vt_run_files *run)
{
    timeline all = {0};
    if (read_layout(run, &all) != VT_OK) {
        vt_error_clear();
        return;
    }
    if (all.layout.size[VT_AXIS_PIPELINE] > 1) {
        int rank = 0;
        all.count = run->steps.rows;
        all.first = all.count > 0 ? (int64_t)vt_table_value(&run->steps, 0, "step") - 1 : 0; /* traces count from 0 */
        all.steps = vt_allocate((size_t)all.count, sizeof *all.steps, "a report's timeline");
        while (rank < all.layout.ranks && add_rank(run, rank, &all)) rank++;
        keep_whole_steps(&all);
        if (all.count > 0) append_picture(html, run, &all);
    }
    free(all.steps);
}
