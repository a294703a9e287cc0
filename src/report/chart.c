#include "report/page.h"

#include <math.h>
#include <stdio.h>

#include "report/drawing.h"

enum { MOST_POINTS = 400, MOST_TICKS = 12, PALETTE = 6 };

/* By vt_line_style. */
static const char *const path_classes[] = {"plain", "faint", "plain", "dashed"};
static const char *const legend_classes[] = {"", " class=\"pale\"", "", " class=\"dash\""};

typedef struct {
    double low, high; /* of the values */
    double from, to;  /* where these are drawn, in the chart's own units; the page scales them */
    bool logarithmic;
} axis;

const char *vt_number_short(double value, char buffer[VT_NUMBER_SIZE])
{
    double size = fabs(value);
    snprintf(buffer, VT_NUMBER_SIZE, size == 0 || (size >= 1e-3 && size < 1e6) ? "%.4g" : "%.3g", value);
    if (size >= 1e4 && size < 1e6) snprintf(buffer, VT_NUMBER_SIZE, "%.0f", value);
    return buffer;
}

const char *vt_number_duration(double seconds, char buffer[VT_NUMBER_SIZE])
{
    if (seconds < 120)
        snprintf(buffer, VT_NUMBER_SIZE, "%.3g s", seconds);
    else if (seconds < 7200)
        snprintf(buffer, VT_NUMBER_SIZE, "%.3g min", seconds / 60);
    else if (seconds < 48 * 3600)
        snprintf(buffer, VT_NUMBER_SIZE, "%.3g h", seconds / 3600);
    else
        snprintf(buffer, VT_NUMBER_SIZE, "%.3g days", seconds / 86400);
    return buffer;
}

static bool is(const vt_chart *chart, unsigned how)
{
    return (chart->how & how) != 0;
}

/* ---- axes ---- */

static axis axis_of(const vt_chart *chart, bool vertical, double from, double to)
{
    axis range = {INFINITY, -INFINITY, from, to, false};
    for (int i = 0; i < chart->line_count; i++) {
        const vt_line *line = &chart->lines[i];
        for (int64_t k = 0; k < line->count; k++) {
            const double *values = vertical ? line->y : line->x,
                         value = values != NULL ? values[k * line->stride] : NAN;
            if (!isfinite(value)) continue;
            range.low = fmin(range.low, value);
            range.high = fmax(range.high, value);
        }
    }
    if (!(range.low <= range.high)) range.low = range.high = 0;
    if (!vertical) {
        if (range.high <= range.low) range.high = range.low + 1;
        range.logarithmic = is(chart, VT_CHART_LOGARITHMIC_X);
        return range;
    }
    range.logarithmic = is(chart, VT_CHART_MAY_BE_LOGARITHMIC) && range.low > 0 && range.high > 4 * range.low;
    if (range.logarithmic) {
        const double margin = pow(range.high / range.low, 0.05);
        range.low /= margin;
        range.high *= margin;
        return range;
    }
    if (is(chart, VT_CHART_FROM_ZERO)) range.low = fmin(0, range.low);
    double margin = range.high > range.low ? 0.05 * (range.high - range.low) : fmax(0.5 * fabs(range.high), 1e-9);
    range.high += margin;
    if (!is(chart, VT_CHART_FROM_ZERO) || range.low < 0) range.low -= margin;
    return range;
}

/* Where a value is drawn. */
static double place_of(const axis *range, double value)
{
    const double share = range->logarithmic ? log(value / range->low) / log(range->high / range->low)
                                            : (value - range->low) / (range->high - range->low);
    return range->from + share * (range->to - range->from);
}

/* Steps of 1, 2 or 5 times a power of ten; on a logarithmic axis 1, 2 and 5 of each decade. Returns how many. */
static int place_ticks(const axis *range, int wanted, double ticks[MOST_TICKS])
{
    int count = 0;
    if (range->logarithmic) {
        static const double parts[] = {1, 2, 5};
        bool only_decades = range->high > 3e3 * range->low;
        int last = (int)floor(log10(range->high));
        for (int power = (int)floor(log10(range->low)); power <= last; power++)
            for (int i = 0; i < (only_decades ? 1 : 3); i++) {
                double tick = parts[i] * pow(10, power);
                if (tick >= range->low && tick <= range->high && count < MOST_TICKS) ticks[count++] = tick;
            }
        return count;
    }
    double step = vt_tick_step((range->high - range->low) / wanted);
    for (double i = ceil(range->low / step); i * step <= range->high * (1 + 1e-12) && count < MOST_TICKS; i++)
        ticks[count++] = i == 0 ? 0 : i * step;
    return count;
}

static void append_axes(vt_text *html, const vt_chart *chart, const axis *x, const axis *y)
{
    double ticks[MOST_TICKS];
    char number[VT_NUMBER_SIZE];
    int count = place_ticks(y, is(chart, VT_CHART_SMALL) ? 3 : 5, ticks);
    for (int i = 0; i < count; i++) {
        const double at = place_of(y, ticks[i]);
        vt_number_short(is(chart, VT_CHART_PERCENT) ? 100 * ticks[i] : ticks[i], number);
        vt_text_append(html,
                       "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                       "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s%s</text>",
                       x->from, x->to, at, at, x->from - 6, at + 4, number, is(chart, VT_CHART_PERCENT) ? " %" : "");
    }
    count = place_ticks(x, is(chart, VT_CHART_SMALL) ? 4 : 6, ticks);
    for (int i = 0; i < count; i++)
        vt_text_append(html, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>", place_of(x, ticks[i]),
                       y->from + 17, vt_number_short(ticks[i], number));
    vt_text_append(html, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", x->from, x->to,
                   y->from, y->from);
    if (is(chart, VT_CHART_SMALL)) return;
    vt_text_append(html, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" class=\"name\">", x->to, y->from + 34);
    vt_page_append_text(html, "", chart->x_name, "</text>");
}

/* ---- lines ---- */

vt_line vt_line_of(const vt_table *table, const char *x, const char *y, const char *name, vt_line_style style,
                   int colour)
{
    return (vt_line){
        name, vt_table_column(table, x), vt_table_column(table, y), table->rows, table->names.count, style, colour};
}

vt_line vt_line_level(const char *name, const double *height)
{
    return (vt_line){name, NULL, height, 1, 0, VT_LINE_DASHED, -1};
}

/* At most MOST_POINTS points: each the mean of neighbouring numbers. */
static void append_points(vt_text *html, const vt_line *line, const axis *x, const axis *y)
{
    const int64_t stride = line->stride;
    const int64_t run = (line->count + MOST_POINTS - 1) / MOST_POINTS;
    bool drawing = false;
    vt_text dots = {0};
    vt_text_append(html, "<path class=\"%s\" d=\"", path_classes[line->style]);
    if (line->x == NULL) vt_text_append(html, "M%.1f %.1fH%.1f", x->from, place_of(y, line->y[0]), x->to);
    for (int64_t first = 0; line->x != NULL && first < line->count; first += run) {
        double sum_x = 0, sum_y = 0, number = 0;
        for (int64_t i = first; i < line->count && i < first + run; i++) {
            if (!isfinite(line->x[i * stride]) || !isfinite(line->y[i * stride])) continue;
            sum_x += line->x[i * stride];
            sum_y += line->y[i * stride];
            number++;
        }
        if (number == 0) {
            drawing = false;
            continue;
        }
        const double at_x = place_of(x, sum_x / number), at_y = place_of(y, sum_y / number);
        vt_text_append(html, "%c%.1f %.1f", drawing ? 'L' : 'M', at_x, at_y);
        if (line->style == VT_LINE_DOTS) vt_text_append(&dots, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>", at_x, at_y);
        drawing = true;
    }
    vt_text_append(html, "\"/>%s", dots.length > 0 ? dots.characters : "");
    vt_text_close(&dots);
}

static int colour_class(int colour)
{
    return colour < 0 ? PALETTE : colour % PALETTE;
}

static double last_value(const vt_line *line)
{
    for (int64_t i = line->count - 1; i >= 0; i--)
        if (isfinite(line->y[i * line->stride])) return line->y[i * line->stride];
    return NAN;
}

/* Names with their last values. */
static void append_legend(vt_text *html, const vt_chart *chart)
{
    char number[VT_NUMBER_SIZE];
    vt_text_append(html, "<p class=\"legend\">");
    for (int i = 0; i < chart->line_count; i++) {
        const vt_line *line = &chart->lines[i];
        double last = last_value(line);
        if (isnan(last)) continue;
        vt_text_append(html, "<span class=\"c%d\"><i%s></i>", colour_class(line->colour), legend_classes[line->style]);
        if (is(chart, VT_CHART_PERCENT))
            snprintf(number, sizeof number, "%.1f %%", 100 * last);
        else
            vt_number_short(last, number);
        vt_page_append_text(html, "", line->name, " <b>");
        vt_text_append(html, "%s</b></span> ", number);
    }
    vt_text_append(html, "</p>");
}

unsigned vt_charts_begin(vt_text *html, int64_t count)
{
    const bool small = count > 2;
    vt_text_append(html, "<div class=\"%s\">", small ? "many" : "charts");
    return small ? VT_CHART_SMALL : 0;
}

void vt_chart_append(vt_text *html, const vt_chart *chart)
{
    const bool small = is(chart, VT_CHART_SMALL);
    const double width = small ? 300 : 460, height = small ? 170 : 240;
    const axis x = axis_of(chart, false, small ? 52 : 64, width - 18);
    const axis y = axis_of(chart, true, height - (small ? 24 : 42), small ? 10 : 12);
    const char *units = chart->units != NULL ? chart->units : "", *comma = units[0] != '\0' ? ", " : "";
    vt_text_append(html, "<figure%s>", small ? " class=\"small\"" : "");
    vt_page_append_text(html, "<figcaption>", chart->title, "<small>");
    vt_page_append_text(html, comma, units, y.logarithmic ? " (logarithmic)" : "");
    vt_text_append(html, "</small></figcaption>");
    append_legend(html, chart);
    vt_text_append(html, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" ", width, height);
    vt_page_append_text(html, "aria-label=\"", chart->title, comma);
    vt_page_append_text(html, "", units, "\">");
    append_axes(html, chart, &x, &y);
    for (int i = 0; i < chart->line_count; i++) {
        const vt_line *line = &chart->lines[i];
        vt_text_append(html, "<g class=\"c%d\">", colour_class(line->colour));
        vt_page_append_text(html, "<title>", line->name, "</title>");
        append_points(html, line, &x, &y);
        vt_text_append(html, "</g>");
    }
    vt_text_append(html, "</svg></figure>\n");
}

/* ---- bars ---- */

void vt_bars_append(vt_text *html, const char *title, const vt_bar *bars, int count,
                    const char *(*format)(double value, char buffer[VT_NUMBER_SIZE]))
{
    double total = 0;
    vt_text rows = {0};
    char number[VT_NUMBER_SIZE];
    for (int i = 0; i < count; i++) total += isfinite(bars[i].value) ? fmax(0, bars[i].value) : 0;
    if (!(total > 0)) return;
    vt_text_append(html, "<figure><figcaption>%s <small>%s</small></figcaption><div class=\"whole\">", title,
                   format(total, number));
    for (const vt_bar *bar = bars; bar < bars + count; bar++) {
        if (!(bar->value > 0)) continue;
        const double percent = 100 * bar->value / total;
        const int colour = colour_class(bar->colour);
        vt_text_append(html, "<span class=\"c%d\" style=\"width:%.2f%%\"></span>", colour, percent);
        vt_text_append(&rows, "<tr><th><i class=\"c%d\"></i>%s</th><td>%s</td><td>%.1f %%</td></tr>", colour, bar->name,
                       format(bar->value, number), percent);
    }
    vt_text_append(html, "</div><table class=\"bars\">%s</table></figure>\n", rows.characters);
    vt_text_close(&rows);
}
