#include "report/image.h"

#include <math.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "report/drawing.h"

enum { WHITE = 0xffffff, INK = 0x202020, NOT_A_NUMBER = 0x808080 };

/* In pixels. */
enum { MARGIN = 16, GAP = 10, PANEL_SIDE = 480, BAR_WIDTH = 18, TICK = 5, MOST_TICKS = 16 };

typedef struct {
    double low, high;
    bool diverging; /* blue, white, red; else turbo */
    int count;
    double ticks[MOST_TICKS];
    char labels[MOST_TICKS][24];
} colour_scale;

/* Round a box that is drawn afterwards. */
static void frame(vt_image *image, int left, int top, int width, int height)
{
    vt_draw_box(image, left - 1, top - 1, width + 2, height + 2, INK);
}

/* ---- colours and numbers ---- */

static void label_tick(double value, double step, char label[24])
{
    bool plain = fabs(value) < 1e7 && step >= 1e-4;
    int decimals = (int)fmax(0, -floor(log10(step) + 1e-9));
    if (fabs(value) < step / 2) value = 0; /* not -0 */
    snprintf(label, 24, plain ? "%.*f" : "%.*e", plain ? decimals : 2, value);
}

/* At most nine ticks. */
static void place_ticks(colour_scale *scale)
{
    double step = vt_tick_step((scale->high - scale->low) / 8), first = ceil(scale->low / step);
    for (; scale->count < MOST_TICKS && (first + scale->count) * step <= scale->high; scale->count++) {
        scale->ticks[scale->count] = (first + scale->count) * step;
        label_tick(scale->ticks[scale->count], step, scale->labels[scale->count]);
    }
}

static colour_scale scale_of(const float *field, int64_t count, bool diverging)
{
    colour_scale scale = {INFINITY, -INFINITY, diverging, 0, {0}, {{0}}};
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(field[i])) continue;
        scale.low = fmin(scale.low, (double)field[i]);
        scale.high = fmax(scale.high, (double)field[i]);
    }
    if (!(scale.low <= scale.high)) scale.low = scale.high = 0;
    if (diverging) {
        scale.high = fmax(fabs(scale.low), fabs(scale.high));
        scale.low = -scale.high;
    }
    double least = 1e-6 * fmax(fabs(scale.low), fabs(scale.high)); /* a constant field still has a scale */
    if (scale.high - scale.low <= least) {
        scale.low -= fmax(least, 0.5);
        scale.high += fmax(least, 0.5);
    }
    place_ticks(&scale);
    return scale;
}

static uint32_t colour_of(const colour_scale *scale, double value)
{
    if (!isfinite(value)) return NOT_A_NUMBER;
    double position = (value - scale->low) / (scale->high - scale->low);
    return vt_colour_at(scale->diverging, fmin(1, fmax(0, position)));
}

/* ---- the picture ---- */

static void draw_bar(vt_image *image, int left, int top, int height, const colour_scale *scale)
{
    double range = scale->high - scale->low;
    frame(image, left, top, BAR_WIDTH, height);
    for (int y = 0; y < height; y++)
        vt_draw_box(image, left, top + y, BAR_WIDTH, 1, colour_of(scale, scale->high - range * (y + 0.5) / height));
    int free_from = top + height + VT_TEXT_HEIGHT; /* whatever the bar's height, labels must not overlap */
    for (int i = 0; i < scale->count; i++) {
        int y = top + (int)((scale->high - scale->ticks[i]) / range * (height - 1) + 0.5);
        vt_draw_box(image, left + BAR_WIDTH, y, TICK, 1, INK);
        int text_top = y - VT_TEXT_HEIGHT / 2;
        if (text_top + VT_TEXT_HEIGHT > free_from) continue;
        vt_draw_text(image, left + BAR_WIDTH + TICK + 4, text_top, scale->labels[i], INK);
        free_from = text_top;
    }
}

static int bar_room(const colour_scale *scale)
{
    int label_width = 0;
    for (int i = 0; i < scale->count; i++) label_width = vt_larger(label_width, vt_draw_text_width(scale->labels[i]));
    return BAR_WIDTH + TICK + 4 + label_width + MARGIN;
}

/* ---- degrees at the sides, and coastlines ---- */

/* Where these degrees lie, in grid points; beyond the ends as far as the last two points are apart. The side is known.
 */
static double position_of(const vt_map_side *side, double degrees)
{
    const bool rising = side->degrees[1] > side->degrees[0];
    int64_t low = 0, high = side->count - 1; /* the degrees lie between these points, or beyond an end */
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if ((side->degrees[middle] <= degrees) == rising)
            low = middle;
        else
            high = middle;
    }
    return (double)low + (degrees - side->degrees[low]) / (side->degrees[high] - side->degrees[low]);
}

static void write_label(double value, bool longitude, char label[VT_MAP_LABEL_SIZE])
{
    if (longitude) value -= 360 * ceil((value - 180) / 360); /* -180 … 180 */
    value = round(1e4 * value) / 1e4;
    const bool none = value == 0 || (longitude && fabs(value) == 180);
    const char *side = longitude ? (value < 0 ? "W" : "E") : (value < 0 ? "S" : "N");
    snprintf(label, VT_MAP_LABEL_SIZE, "%.6g%s", fabs(value), none ? "" : side);
}

static void place_map_ticks(vt_map_side *side, double room)
{
    static const double steps[] = {15, 20, 30, 45, 60, 90}; /* beyond 10 */
    const double first = side->degrees[0], last = side->degrees[side->count - 1];
    const double low = fmin(first, last), high = fmax(first, last);
    const double least = room * (high - low) / (double)(side->count - 1) * (1 - 1e-6);
    double step = least <= 10 ? vt_tick_step(fmax(least, 0.01)) : 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && step == 0; i++)
        if (steps[i] >= least) step = steps[i];
    if (step == 0) return;
    for (double k = ceil(low / step - 1e-9); k * step <= high + 1e-9 && side->tick_count < VT_MAP_TICKS; k++) {
        side->ticks[side->tick_count] = position_of(side, k * step);
        write_label(k * step, side->longitudes, side->labels[side->tick_count++]);
    }
}

vt_map_side vt_map_side_open(const double *degrees, int64_t count, bool longitudes, double room)
{
    vt_map_side side = {.longitudes = longitudes};
    double turns = 0;
    bool monotonic = degrees != NULL && count > 1;
    if (!monotonic) return side;
    side.degrees = vt_allocate((size_t)count, sizeof *side.degrees, "a picture");
    for (int64_t i = 0; i < count && monotonic; i++) {
        const double jump = i > 0 ? degrees[i] - degrees[i - 1] : 0;
        if (longitudes && fabs(jump) > 180) turns -= jump > 0 ? 1 : -1;  /* they wrapped */
        side.degrees[i] = round(1e4 * (degrees[i] + 360 * turns)) / 1e4; /* coordinates may be float32 */
        const double step = i > 0 ? side.degrees[i] - side.degrees[i - 1] : 1;
        monotonic = isfinite(side.degrees[i]) && step != 0 && (i < 2 || step * (side.degrees[1] - *side.degrees) > 0);
    }
    if (!monotonic) return side;
    side.count = count;
    place_map_ticks(&side, room);
    return side;
}

void vt_map_side_close(vt_map_side *side)
{
    free(side->degrees);
    *side = (vt_map_side){0};
}

typedef struct {
    vt_map_side latitudes, longitudes;
    int left, bottom; /* room that the ticks' labels take */
} map_axes;

static map_axes axes_of(const vt_comparison *c, int zoom)
{
    enum { WIDEST_LABEL = 70 }; /* in pixels */
    map_axes axes = {.latitudes = vt_map_side_open(c->latitudes, c->height, false, 2.0 * VT_TEXT_HEIGHT / zoom),
                     .longitudes = vt_map_side_open(c->longitudes, c->width, true, (double)WIDEST_LABEL / zoom)};
    for (int i = 0; i < axes.latitudes.tick_count; i++)
        axes.left = vt_larger(axes.left, vt_draw_text_width(axes.latitudes.labels[i]) + TICK + 4);
    if (axes.longitudes.tick_count > 0) axes.bottom = VT_TEXT_HEIGHT + TICK;
    return axes;
}

/* Ticks of one map; the latitudes of the first one, at the left, are written. */
static void draw_axes(vt_image *image, vt_box map, int zoom, const map_axes *axes)
{
    for (int i = 0; i < axes->latitudes.tick_count; i++) {
        const char *label = axes->latitudes.labels[i];
        const int y = map.top + (int)((axes->latitudes.ticks[i] + 0.5) * zoom);
        vt_draw_box(image, map.left - TICK, y, TICK, 1, INK);
        if (map.left == MARGIN + axes->left)
            vt_draw_text(image, map.left - TICK - 4 - vt_draw_text_width(label), y - VT_TEXT_HEIGHT / 2, label, INK);
    }
    for (int i = 0; i < axes->longitudes.tick_count; i++) {
        const char *label = axes->longitudes.labels[i];
        const int x = map.left + (int)((axes->longitudes.ticks[i] + 0.5) * zoom), wide = vt_draw_text_width(label);
        int begin = x - wide / 2; /* within the map's own sides, so that it does not overlap the neighbour's */
        if (begin + wide > map.left + map.width) begin = map.left + map.width - wide;
        vt_draw_box(image, x, map.top + map.height, 1, TICK, INK);
        vt_draw_text(image, vt_larger(begin, map.left), map.top + map.height + TICK, label, INK);
    }
}

/* The next point of the coastlines in *text, longitude and latitude in their steps; false: it begins a line. */
static bool next_point(const char **text, int point[2])
{
    const char *digits = *text;
    const bool begins = *digits == ' ', is_whole = begins || *digits == '!';
    for (int i = 0; i < 2; i++)
        if (is_whole)
            point[i] = (digits[2 * i + 1] - VT_COAST_ZERO) * VT_COAST_BASE + digits[2 * i + 2] - VT_COAST_ZERO;
        else
            point[i] += digits[i] - VT_COAST_ZERO - VT_COAST_BASE / 2;
    *text += is_whole ? 5 : 2;
    return !begins;
}

/* Dark lines with light edges, to be seen on any colour. */
static void draw_coasts(vt_image *image, vt_box map, int zoom, const map_axes *axes)
{
    enum { TURNS = 2 }; /* drawn also these turns further and back, because longitudes may begin anywhere */
    const double steps = VT_COAST_BASE * VT_COAST_BASE - 1;
    vt_stroke *strokes = vt_allocate(strlen(vt_coastlines) / 2 * (2 * TURNS + 1), sizeof *strokes, "a picture");
    int64_t count = 0;
    for (int turn = -TURNS; turn <= TURNS; turn++) {
        int point[2] = {0};
        double x = 0, y = 0;
        for (const char *text = vt_coastlines; *text != '\0';) {
            const bool continues = next_point(&text, point);
            const double longitude = 360 * (point[0] / steps - 0.5 + turn), latitude = 180 * (point[1] / steps - 0.5);
            const double to_x = map.left + zoom * (position_of(&axes->longitudes, longitude) + 0.5);
            const double to_y = map.top + zoom * (position_of(&axes->latitudes, latitude) + 0.5);
            if (continues) strokes[count++] = (vt_stroke){x, y, to_x, to_y};
            x = to_x;
            y = to_y;
        }
    }
    vt_draw_strokes(image, map, strokes, count, 3, WHITE, 0.35);
    vt_draw_strokes(image, map, strokes, count, 1.1, INK, 0.85);
    free(strokes);
}

/* ---- the whole picture ---- */

/* A map with its title, its degrees and the coasts; the grid begins at left, top. */
static void draw_map(vt_image *image, int left, int top, int zoom, const vt_comparison *c, vt_map drawn,
                     const colour_scale *scale, const map_axes *axes)
{
    const vt_box map = {left, top, (int)c->width * zoom, (int)c->height * zoom};
    vt_draw_text(image, left, top - GAP / 2 - VT_TEXT_HEIGHT, drawn.title, INK);
    frame(image, left, top, map.width, map.height);
    for (int64_t y = 0; y < c->height; y++)
        for (int64_t x = 0; x < c->width; x++)
            vt_draw_box(image, left + (int)x * zoom, top + (int)y * zoom, zoom, zoom,
                        colour_of(scale, (double)drawn.field[y * c->width + x]));
    if (c->on_earth && axes->latitudes.count > 0 && axes->longitudes.count > 0) draw_coasts(image, map, zoom, axes);
    draw_axes(image, map, zoom, axes);
}

static void draw(const vt_comparison *c, vt_image *image)
{
    enum { MAPS = 3 };
    const vt_map maps[MAPS] = {c->before, c->left, c->right};
    const bool with_difference = c->difference_title != NULL;
    const int side = (int)(c->width > c->height ? c->width : c->height), zoom = vt_larger(1, PANEL_SIDE / side);
    const int height = (int)c->height * zoom, top = MARGIN + VT_TEXT_HEIGHT + GAP + VT_TEXT_HEIGHT + GAP / 2;
    const int64_t count = c->height * c->width;
    map_axes axes = axes_of(c, zoom);
    float *difference = vt_allocate((size_t)count, sizeof *difference, "a picture");
    for (int64_t i = 0; i < count; i++) difference[i] = c->right.field[i] - c->left.field[i];
    const colour_scale scale = scale_of(c->left.field, count, c->is_signed), other = scale_of(difference, count, true);

    int cell = (int)c->width * zoom, left = MARGIN + axes.left;
    for (int i = 0; i < MAPS; i++)
        if (maps[i].field != NULL) cell = vt_larger(cell, vt_draw_text_width(maps[i].title));
    if (with_difference) cell = vt_larger(cell, vt_draw_text_width(c->difference_title));
    const int apart = cell + MARGIN, bar = left + (c->before.field != NULL ? 3 : 2) * apart;
    const int third = bar + bar_room(&scale), end = with_difference ? third + apart + bar_room(&other) : third;
    image->width = vt_larger(end, 2 * MARGIN + vt_draw_text_width(c->title));
    image->height = top + height + VT_TEXT_HEIGHT + axes.bottom;
    image->pixels = vt_allocate(1, (size_t)image->width * (size_t)image->height * 3, "a picture");

    vt_draw_box(image, 0, 0, image->width, image->height, WHITE);
    vt_draw_text(image, MARGIN, MARGIN, c->title, INK);
    for (int i = 0; i < MAPS; i++) {
        if (maps[i].field == NULL) continue;
        draw_map(image, left, top, zoom, c, maps[i], &scale, &axes);
        left += apart;
    }
    draw_bar(image, bar, top, height, &scale);
    if (with_difference) {
        draw_map(image, third, top, zoom, c, (vt_map){c->difference_title, difference}, &other, &axes);
        draw_bar(image, third + apart, top, height, &other);
    }
    free(difference);
    vt_map_side_close(&axes.latitudes);
    vt_map_side_close(&axes.longitudes);
}

vt_status vt_image_compare(const vt_comparison *comparison, vt_png *png)
{
    vt_status status = VT_OK;
    vt_image image;
    draw(comparison, &image);
    png_image header = {.version = PNG_IMAGE_VERSION,
                        .width = (png_uint_32)image.width,
                        .height = (png_uint_32)image.height,
                        .format = PNG_FORMAT_RGB};
    png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(header);
    *png = (vt_png){image.width, image.height, vt_allocate(1, size, "a picture"), 0};
    VT_CHECK(png_image_write_to_memory(&header, png->bytes, &size, 0, image.pixels, 0, NULL) != 0,
             "a picture of %d×%d pixels can't be encoded: %s", image.width, image.height, header.message);
    png->size = size;
done:
    free(image.pixels);
    return status;
}
