#include "report/run_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "report/page.h"

enum { MOST_LEADS = 14, CURVES = 3, SPECTRA = 4 };

static double hours_at(const vt_table *table, int64_t row)
{
    const double hours = vt_table_value(table, row, "lead_hours");
    return isnan(hours) ? 24 * vt_table_value(table, row, "lead_days") : hours;
}

/* The rows of one channel, or of one lead, that begin with row `first`; `table` still owns them. */
static vt_table part_at(const vt_table *table, int64_t first, bool of_lead)
{
    vt_table part = *table;
    int64_t end = first + 1;
    while (end < table->rows && (of_lead ? hours_at(table, end) == hours_at(table, first)
                                         : strcmp(table->labels.names[end], table->labels.names[first]) == 0))
        end++;
    part.rows = end - first;
    part.values += first * table->names.count;
    part.labels.names += first;
    if (part.units.count > 0) part.units.names += first;
    return part;
}

static int64_t count_channels(const vt_table *table)
{
    int64_t count = 0;
    for (int64_t first = 0; first < table->rows; count++) first += part_at(table, first, false).rows;
    return count;
}

static bool has_numbers(const vt_table *table, const char *column)
{
    for (int64_t row = 0; row < table->rows; row++)
        if (isfinite(vt_table_value(table, row, column))) return true;
    return false;
}

/* ---- scorecards ---- */

/* The unit that leads are told in, and their column in it. */
typedef struct {
    const char *column, *name, *one, *more;
} lead_axis;

static const lead_axis *axis_of(const vt_table *table)
{
    static const lead_axis axes[] = {{"lead_months", "months", "month", "months"},
                                     {"lead_minutes", "minutes", "min", "min"},
                                     {"lead_days", "days", "d", "d"},
                                     {"lead_hours", "hours", "h", "h"}};
    int i = 0;
    while (i < 3 && vt_table_find(table, axes[i].column) < 0) i++;
    return &axes[i];
}

/* Where each lead is a number of days, and they have no column of their own unit, hours become days. */
static void count_days(vt_table *table)
{
    const lead_axis *axis = axis_of(table);
    const int64_t column = vt_table_find(table, "lead_hours");
    if (axis->name[0] != 'h' || column < 0 || table->rows == 0 || fmod(table->values[column], 24) != 0) return;
    for (int64_t row = 0; row < table->rows; row++) table->values[row * table->names.count + column] /= 24;
    free(table->names.names[column]);
    table->names.names[column] = vt_text_copy("lead_days");
}

/* Has this one of a channel's leads a column: all if they are few, else the first, the last, and some that are equally
 * far apart? */
static bool is_shown(int64_t lead, int64_t leads)
{
    const int64_t apart = leads <= MOST_LEADS ? 1 : (leads + MOST_LEADS - 3) / (MOST_LEADS - 2);
    return lead == 0 || (lead + 1) % apart == 0 || lead == leads - 1;
}

static void append_lead(vt_text *text, const vt_table *table, int64_t row)
{
    const lead_axis *axis = axis_of(table);
    const double lead = vt_table_value(table, row, axis->column);
    if (axis->name[0] == 'h' && lead >= 24 && fmod(lead, 24) == 0)
        vt_text_append(text, "%.0f d", lead / 24);
    else
        vt_text_append(text, "%g %s", lead, lead == 1 ? axis->one : axis->more);
}

static void append_cell(vt_text *html, double skill)
{
    if (isnan(skill)) {
        vt_text_append(html, "<td>–</td>");
        return;
    }
    const double strength = 0.08 + 0.47 * sqrt(fmin(1, fabs(skill)));
    vt_text_append(html, "<td%s style=\"background-color:rgba(%s,%.2f)\"><b>", skill < 0 ? " class=\"worse\"" : "",
                   skill < 0 ? "199,80,0" : "0,103,166", strength);
    if (skill < -9.99)
        vt_text_append(html, "&lt;−999");
    else
        vt_text_append(html, "%s%.0f", skill < 0 ? "−" : "+", fabs(100 * skill));
    vt_text_append(html, "</b></td>");
}

static void append_scorecard(vt_text *html, const vt_table *scores, const char *column, const char *title)
{
    if (!has_numbers(scores, column)) return;
    const int64_t leads = part_at(scores, 0, false).rows;
    vt_text_append(html,
                   "<figure><figcaption>%s</figcaption><div class=\"wide\"><table class=\"scores\"><thead><tr>"
                   "<th>channel</th>",
                   title);
    for (int64_t i = 0; i < leads; i++) {
        if (!is_shown(i, leads)) continue;
        vt_text_append(html, "<th>");
        append_lead(html, scores, i);
        vt_text_append(html, "</th>");
    }
    vt_text_append(html, "</tr></thead>");
    for (int64_t first = 0; first < scores->rows;) {
        const vt_table channel = part_at(scores, first, false);
        vt_page_append_text(html, "<tr><th>", channel.labels.names[0], "</th>");
        for (int64_t i = 0; i < leads; i++)
            if (is_shown(i, leads)) append_cell(html, vt_table_value(&channel, i, column));
        vt_text_append(html, "</tr>");
        first += channel.rows;
    }
    vt_text_append(html, "</table></div></figure>\n");
}

/* ---- curves ---- */

typedef struct {
    const char *column, *name;
    vt_line_style style;
    int colour;
} curve;

/* Curves over the lead times: of values in the channels' units, or beside a level of plain numbers. Or with `file` its
 * column `ratio` by x at some lead times. */
typedef struct {
    const char *title, *explanation, *file, *x;
    curve curves[CURVES]; /* the first says whether there is anything to draw */
    const char *level_name;
    double level;
    bool counts_members, has_verdict;
} section;

static const section sections[] = {
    {.title = "RMSE by lead time",
     .explanation = "Latitude-weighted. Climatology is the seasonal one.",
     .curves = {{"rmse", "forecast", VT_LINE_PLAIN, 0},
                {"rmse_persistence", "persistence", VT_LINE_DASHED, 1},
                {"rmse_seasonal", "climatology", VT_LINE_DASHED, 2}}},
    {.title = "Anomaly correlation by lead time",
     .explanation = "Against the seasonal climatology. Below 0.6 a forecast is said to be of no use.",
     .curves = {{"acc_seasonal", "forecast", VT_LINE_PLAIN, 0},
                {"acc_seasonal_persistence", "persistence", VT_LINE_DASHED, 1}},
     .level_name = "useful",
     .level = 0.6},
    {.title = "Ensemble",
     .explanation = "The RMSE of the ensemble's mean (here the root after the mean over initial times), the members' "
                    "spread around it, and their fair CRPS.",
     .curves = {{"crps", "CRPS", VT_LINE_PLAIN, 2},
                {"rmse_pooled", "RMSE of the mean", VT_LINE_PLAIN, 0},
                {"spread", "spread", VT_LINE_DASHED, 1}},
     .counts_members = true},
    {.title = "Spread over error",
     .explanation = "Times √((N + 1) / N): 1 is reliable; below 1, the members are too much alike.",
     .curves = {{"spread_error_ratio", "spread / error", VT_LINE_PLAIN, 0},
                {"spread_error_ratio_8", "means of 8 × 8 points", VT_LINE_PLAIN, 1},
                {"spread_error_ratio_24", "means of 24 × 24", VT_LINE_PLAIN, 2}},
     .level_name = "reliable",
     .level = 1},
    {.title = "Rank histogram",
     .explanation = "How often the truth is above so many members, over 1 / (N + 1): 1 is reliable; high at both ends, "
                    "the members are too much alike.",
     .file = "rank_histogram.csv",
     .x = "rank",
     .level_name = "reliable",
     .level = 1},
    {.title = "CRPS and its cheap rivals",
     .explanation = "Dressed: a normal distribution around each value, as wide as errors in the training set. ",
     .curves = {{"crps_dressed", "dressed forecast", VT_LINE_DASHED, 1},
                {"crps", "ensemble", VT_LINE_PLAIN, 0},
                {"crps_climatology", "dressed climatology", VT_LINE_DASHED, 2}},
     .has_verdict = true},
    {.title = "Power spectra",
     .explanation = "Power of the forecast over that of the truth, by zonal wavenumber: below 1 on the right, small "
                    "scales are blurred; above 1, there is noise.",
     .file = "spectra.csv",
     .x = "wavenumber",
     .level_name = "truth",
     .level = 1}};

/* Whether the ensemble is better than dressed forecasts; malloc'd. "": that isn't known. */
static char *judge(const vt_table *scores)
{
    static const char *const rivals[] = {"crps_dressed", "crps_climatology"};
    int64_t better[] = {0, 0};
    if (vt_table_find(scores, "crps") < 0 || vt_table_find(scores, rivals[0]) < 0) return vt_text_copy("");
    for (int64_t i = 0; i < 2 * scores->rows; i++)
        better[i % 2] += vt_table_value(scores, i / 2, "crps") < vt_table_value(scores, i / 2, rivals[i % 2]);
    return vt_text_format("By its CRPS the ensemble is better than the dressed forecast in %ld of %ld channels and "
                          "lead times, and than the dressed climatology in %ld%s.\n",
                          better[0], scores->rows, better[1],
                          better[0] < scores->rows ? "; elsewhere it is not worth its cost" : "");
}

/* Over the lead times of a channel; returns how many lines. */
static int add_curves(const vt_table *channel, const section *s, vt_line *lines)
{
    int count = 0;
    for (int i = 0; i < CURVES && s->curves[i].column != NULL; i++) {
        const curve *c = &s->curves[i];
        if (has_numbers(channel, c->column))
            lines[count++] = vt_line_of(channel, axis_of(channel)->column, c->column, c->name, c->style, c->colour);
    }
    return count;
}

/* Of a channel at the first lead, after 1 and 5 days, and at the last; the leads become the lines' names. */
static int add_ratios(const vt_table *channel, const section *s, vt_line *lines, vt_text names[SPECTRA])
{
    int count = 0;
    for (int64_t first = 0, next; first < channel->rows && count < SPECTRA; first = next) {
        const vt_table lead = part_at(channel, first, true);
        const double hours = hours_at(&lead, 0);
        next = first + lead.rows;
        if (first > 0 && next < channel->rows && hours != 24 && hours != 120) continue;
        append_lead(&names[count], &lead, 0);
        lines[count] = vt_line_of(&lead, s->x, "ratio", names[count].characters, VT_LINE_PLAIN, count);
        count++;
    }
    return count;
}

/* A chart for each channel. */
static void append_section(vt_text *html, const vt_table *table, const section *s, const char *verdict)
{
    const bool by_lead = s->file == NULL;
    const lead_axis *axis = axis_of(table);
    char lead_time[32];
    snprintf(lead_time, sizeof lead_time, "lead time, %s", axis->name);
    vt_text_append(html, "<section><h2>%s", s->title);
    if (s->counts_members) vt_text_append(html, " of %.0f", vt_table_value(table, 0, "members"));
    vt_text_append(html, "</h2><p class=\"sub\">");
    if (by_lead) vt_text_append(html, "Drawn over %s of lead time. ", axis->name);
    vt_text_append(html, "%s%s</p>", s->explanation, s->has_verdict ? verdict : "");
    const unsigned small = vt_charts_begin(html, count_channels(table));
    for (int64_t first = 0; first < table->rows;) {
        const vt_table channel = part_at(table, first, false);
        vt_line lines[SPECTRA + 1]; /* CURVES are fewer */
        vt_text names[SPECTRA] = {0};
        int count = by_lead ? add_curves(&channel, s, lines) : add_ratios(&channel, s, lines, names);
        if (s->level_name != NULL) lines[count++] = vt_line_level(s->level_name, &s->level);
        const char *units = s->level_name == NULL && channel.units.count > 0 ? channel.units.names[0] : NULL;
        vt_chart_append(html, &(vt_chart){channel.labels.names[0], units, by_lead ? lead_time : s->x, lines, count,
                                          small | (by_lead ? VT_CHART_FROM_ZERO : VT_CHART_MAY_BE_LOGARITHMIC)});
        for (int i = 0; i < SPECTRA; i++) vt_text_close(&names[i]);
        first += channel.rows;
    }
    vt_text_append(html, "</div></section>\n");
}

/* Of a file, which may be missing: the evaluation is of an older version, or of no ensemble. */
static vt_status append_file(vt_text *html, const char *directory, const section *s)
{
    vt_status status = VT_OK;
    vt_table table = {0};
    char *path = vt_text_format("%s/%s", directory, s->file);
    if (vt_table_open(path, true, &table) != VT_OK)
        vt_error_clear();
    else
        VT_TRY(vt_table_need(&table, path, (const char *const[]){"channel", "lead_hours", s->x, "ratio", NULL}));
    count_days(&table);
    if (table.rows > 0) append_section(html, &table, s, NULL);
done:
    vt_table_close(&table);
    free(path);
    return status;
}

/* ---- the page ---- */

/* The sections of an evaluation. */
static vt_status append_evaluation(vt_text *html, const char *directory, char **verdict)
{
    vt_status status = VT_OK;
    vt_table scores = {0};
    char *path = vt_text_format("%s/scores.csv", directory);
    *verdict = NULL;
    VT_TRY(vt_table_open(path, true, &scores));
    VT_TRY(vt_table_need(&scores, path, (const char *const[]){"channel", "lead_hours", NULL}));
    *verdict = judge(&scores);
    count_days(&scores);
    vt_text_append(html, "<p class=\"sub\">Skill in per cent: 100 × (1 − RMSE² / RMSE² of the other forecast). +100 "
                         "is perfect, 0 as good as the other, and hatched is worse.</p><div class=\"cards-of-skill\">");
    append_scorecard(html, &scores, "skill", "Skill against the seasonal climatology");
    append_scorecard(html, &scores, "skill_over_persistence", "Skill against persistence");
    vt_text_append(html, "</div>\n<div%s>", count_channels(&scores) == 1 ? " class=\"charts\"" : "");
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        if (sections[i].file != NULL)
            VT_TRY(append_file(html, directory, &sections[i]));
        else if (has_numbers(&scores, sections[i].curves[0].column))
            append_section(html, &scores, &sections[i], *verdict);
    vt_text_append(html, "</div>\n");
done:
    vt_table_close(&scores);
    free(path);
    return status;
}

vt_status vt_scorecard_write(const char *directory, const char *title, char **verdict)
{
    vt_status status = VT_OK;
    vt_text html = {0};
    char *path = vt_text_format("%s/scores.html", directory);
    vt_page_begin(&html, "how good the forecasts are", title);
    VT_TRY(append_evaluation(&html, directory, verdict));
    vt_text_append(&html, "<footer>Written by vitrain evaluate from scores.csv and spectra.csv beside it; "
                          "docs/evaluation.md says what the scores mean.</footer>");
    VT_TRY(vt_page_write(&html, path));
done:
    vt_text_close(&html);
    free(path);
    return status;
}

/* The directory of the newest evaluation of a run, malloc'd; NULL: it has none. */
static char *find_newest(const char *run_directory)
{
    char *directory = vt_text_format("%s/evaluation", run_directory), *newest = NULL;
    vt_names evaluations = vt_file_matching(directory, "*");
    int64_t newest_time = INT64_MIN;
    for (int64_t i = 0; i < evaluations.count; i++) {
        struct stat info;
        char *scores = vt_text_format("%s/scores.csv", evaluations.names[i]);
        if (stat(scores, &info) == 0 && vt_file_changed(&info) > newest_time) {
            newest_time = vt_file_changed(&info);
            free(newest);
            newest = vt_text_copy(evaluations.names[i]);
        }
        free(scores);
    }
    vt_names_close(&evaluations);
    free(directory);
    return newest;
}

vt_status vt_scorecard_append(vt_text *html, const char *run_directory)
{
    char *directory = find_newest(run_directory), *verdict = NULL;
    if (directory == NULL) return VT_OK;
    vt_page_append_text(html, "<h2>Forecasts</h2><p class=\"sub\">By vitrain evaluate: ", vt_file_name(directory),
                        "</p>");
    const vt_status status = append_evaluation(html, directory, &verdict);
    free(directory);
    free(verdict);
    return status;
}
