/* Pages for a browser: each one self-contained HTML file with style, light and dark mode, readable on a phone; no
 * script, nothing from a network. */
#ifndef VT_REPORT_PAGE_H
#define VT_REPORT_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "report/table.h"

/* Everything up to the page's heading; the subtitle ends with the present time. Then the end, into a file. */
void vt_page_begin(vt_text *html, const char *title, const char *subtitle);
vt_status vt_page_write(vt_text *html, const char *path);

/* The text with its <, >, & and " escaped, between two pieces of HTML. */
void vt_page_append_text(vt_text *html, const char *before, const char *text, const char *after);

/* The PNG file as an embedded picture. */
vt_status vt_page_append_picture(vt_text *html, const char *path, const char *caption);

/* ---- line charts as SVG (chart.c): they scale with the page and take their colours from its style ---- */

typedef enum { VT_LINE_PLAIN, VT_LINE_FAINT, VT_LINE_DOTS, VT_LINE_DASHED } vt_line_style;

typedef struct {
    const char *name;
    const double *x, *y;   /* [count]; NaN and infinity interrupt the line. x NULL: a level across the chart */
    int64_t count, stride; /* stride: elements from one value to the next, in both */
    vt_line_style style;
    int colour; /* 0, 1, …: from the page's palette; -1: grey */
} vt_line;

/* Column y of a table over its column x. */
vt_line vt_line_of(const vt_table *table, const char *x, const char *y, const char *name, vt_line_style style,
                   int colour);

/* A dashed grey line across the chart at *height, which must outlive the line. */
vt_line vt_line_level(const char *name, const double *height);

/* How a chart is drawn. */
enum {
    VT_CHART_LOGARITHMIC_X = 1,      /* x is above 0 */
    VT_CHART_MAY_BE_LOGARITHMIC = 2, /* y is logarithmic if its values, all above 0, span more than a factor of 4 */
    VT_CHART_FROM_ZERO = 4,          /* the y axis begins at 0 */
    VT_CHART_PERCENT = 8,            /* y is a fraction, 0 … 1 */
    VT_CHART_SMALL = 16              /* one of many side by side: the x axis has no name */
};

typedef struct {
    const char *title, *units, *x_name; /* units of y, behind the title; NULL or "": none */
    const vt_line *lines;
    int line_count;
    unsigned how; /* VT_CHART_… */
} vt_chart;

/* The <div> of `count` charts of one kind. Returns VT_CHART_SMALL if they are to be small, else 0: one or two
 * would leave most of the width empty. */
unsigned vt_charts_begin(vt_text *html, int64_t count);

/* A <figure>. In a line of more than a few hundred points, neighbours are averaged. */
void vt_chart_append(vt_text *html, const vt_chart *chart);

/* Horizontal bars: parts of a whole. */
typedef struct {
    const char *name;
    double value;
    int colour;
} vt_bar;

/* A <figure>; title and names are HTML. format(value) follows each name with its percentage. Bars of 0 are left out. */
void vt_bars_append(vt_text *html, const char *title, const vt_bar *bars, int count,
                    const char *(*format)(double value, char buffer[VT_NUMBER_SIZE]));

/* 4 significant digits; whole numbers from 10,000 on; 3 digits below 0.001 and from a million on. */
const char *vt_number_short(double value, char buffer[VT_NUMBER_SIZE]);

/* "92.5 min": in s, min, h or days. */
const char *vt_number_duration(double seconds, char buffer[VT_NUMBER_SIZE]);

#endif
