#include "report/image.h"

#include <math.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "report/image_data.h"
#include "report/map_ticks.h"

enum { WHITE = 0xffffff, INK = 0x202020, NOT_A_NUMBER = 0x808080 };

/* In pixels. */
enum { MARGIN = 16, GAP = 10, PANEL_SIDE = 480, BAR_WIDTH = 18, TICK = 5, TEXT_SCALE = 2, MOST_TICKS = 16 };

typedef struct {
    double low, high;
    bool diverging; /* blue, white, red; else turbo */
    int count;
    double ticks[MOST_TICKS];
    char labels[MOST_TICKS][24];
} colour_scale;

/* ---- drawing; pixels outside the image are skipped ---- */

static void fill(vt_image *image, int left, int top, int width, int height, uint32_t colour)
{
    for (int y = top < 0 ? 0 : top; y < top + height && y < image->height; y++) {
        for (int x = left < 0 ? 0 : left; x < left + width && x < image->width; x++) {
            uint8_t *pixel = image->pixels + ((size_t)y * (size_t)image->width + (size_t)x) * 3;
            for (int i = 0; i < 3; i++) pixel[i] = (uint8_t)(colour >> (16 - 8 * i));
        }
    }
}

static void frame(vt_image *image, int left, int top, int width, int height)
{
    fill(image, left - 1, top - 1, width + 2, 1, INK);
    fill(image, left - 1, top + height, width + 2, 1, INK);
    fill(image, left - 1, top - 1, 1, height + 2, INK);
    fill(image, left + width, top - 1, 1, height + 2, INK);
}

static int text_width(const char *text, int scale)
{
    return (int)strlen(text) * VT_FONT_WIDTH * scale;
}

static void write_text(vt_image *image, int left, int top, int scale, const char *text)
{
    for (; *text != '\0'; text++, left += VT_FONT_WIDTH * scale) {
        bool known = *text >= VT_FONT_FIRST && *text <= VT_FONT_LAST;
        const uint8_t *glyph = vt_font_glyphs[(known ? *text : '?') - VT_FONT_FIRST];
        for (int y = 0; y < VT_FONT_HEIGHT; y++)
            for (int x = 0; x < VT_FONT_WIDTH; x++)
                if ((glyph[y] >> (VT_FONT_WIDTH - 1 - x) & 1) != 0)
                    fill(image, left + x * scale, top + y * scale, scale, scale, INK);
    }
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

/* 0: dark blue, 0.5: white, 1: dark red (the ends of ColorBrewer's RdBu, https://colorbrewer2.org). */
static uint32_t diverging_colour(double position)
{
    static const double stops[5][3] = {{5, 48, 97}, {67, 147, 195}, {247, 247, 247}, {214, 96, 77}, {103, 0, 31}};
    int below = position >= 1 ? 3 : (int)(4 * position);
    double share = 4 * position - below;
    uint32_t colour = 0;
    for (int i = 0; i < 3; i++)
        colour = colour << 8 | (uint32_t)(stops[below][i] + share * (stops[below + 1][i] - stops[below][i]) + 0.5);
    return colour;
}

static uint32_t colour_of(const colour_scale *scale, double value)
{
    if (!isfinite(value)) return NOT_A_NUMBER;
    double position = (value - scale->low) / (scale->high - scale->low);
    position = fmin(1, fmax(0, position));
    return scale->diverging ? diverging_colour(position) : vt_turbo_colours[(int)(255 * position + 0.5)];
}

/* ---- the picture ---- */

static void draw_field(vt_image *image, int left, int top, int zoom, const vt_comparison *c, const float *field,
                       const colour_scale *scale)
{
    for (int64_t y = 0; y < c->height; y++)
        for (int64_t x = 0; x < c->width; x++)
            fill(image, left + (int)x * zoom, top + (int)y * zoom, zoom, zoom,
                 colour_of(scale, (double)field[y * c->width + x]));
    frame(image, left, top, (int)c->width * zoom, (int)c->height * zoom);
}

static void draw_bar(vt_image *image, int left, int top, int height, const colour_scale *scale)
{
    double range = scale->high - scale->low;
    for (int y = 0; y < height; y++)
        fill(image, left, top + y, BAR_WIDTH, 1, colour_of(scale, scale->high - range * (y + 0.5) / height));
    frame(image, left, top, BAR_WIDTH, height);
    int free_from = top + height + VT_FONT_HEIGHT * TEXT_SCALE; /* whatever the bar's height, labels must not overlap */
    for (int i = 0; i < scale->count; i++) {
        int y = top + (int)((scale->high - scale->ticks[i]) / range * (height - 1) + 0.5);
        fill(image, left + BAR_WIDTH, y, TICK, 1, INK);
        int text_top = y - VT_FONT_HEIGHT * TEXT_SCALE / 2;
        if (text_top + VT_FONT_HEIGHT * TEXT_SCALE > free_from) continue;
        write_text(image, left + BAR_WIDTH + TICK + 4, text_top, TEXT_SCALE, scale->labels[i]);
        free_from = text_top;
    }
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static int bar_room(const colour_scale *scale)
{
    int label_width = 0;
    for (int i = 0; i < scale->count; i++) label_width = larger(label_width, text_width(scale->labels[i], TEXT_SCALE));
    return BAR_WIDTH + TICK + 4 + label_width + MARGIN;
}

/* ---- degrees at the sides ---- */

typedef struct {
    vt_map_ticks latitudes, longitudes;
    int left, below; /* room that their labels take */
} map_axes;

static map_axes axes_of(const vt_comparison *c, int zoom)
{
    enum { WIDEST_LABEL = 7 };
    map_axes axes = {.left = 0};
    const int across = WIDEST_LABEL * VT_FONT_WIDTH * TEXT_SCALE, down = 2 * VT_FONT_HEIGHT * TEXT_SCALE;
    vt_map_ticks_place(c->latitudes, c->height, false, (double)down / zoom, &axes.latitudes);
    vt_map_ticks_place(c->longitudes, c->width, true, (double)across / zoom, &axes.longitudes);
    for (int i = 0; i < axes.latitudes.count; i++)
        axes.left = larger(axes.left, text_width(axes.latitudes.labels[i], TEXT_SCALE) + TICK + 4);
    if (axes.longitudes.count > 0) axes.below = VT_FONT_HEIGHT * TEXT_SCALE + TICK;
    return axes;
}

/* Ticks of one map, whose grid begins at left, top; latitudes are written only where `labelled`. */
static void draw_axes(vt_image *image, int left, int top, int zoom, const vt_comparison *c, const map_axes *axes,
                      bool labelled)
{
    const int width = (int)c->width * zoom, height = (int)c->height * zoom, line = VT_FONT_HEIGHT * TEXT_SCALE;
    for (int i = 0; i < axes->latitudes.count; i++) {
        const int y = top + (int)((axes->latitudes.at[i] + 0.5) * zoom);
        fill(image, left - TICK, y, TICK, 1, INK);
        if (!labelled) continue;
        const char *label = axes->latitudes.labels[i];
        write_text(image, left - TICK - 4 - text_width(label, TEXT_SCALE), y - line / 2, TEXT_SCALE, label);
    }
    for (int i = 0; i < axes->longitudes.count; i++) {
        const char *label = axes->longitudes.labels[i];
        const int x = left + (int)((axes->longitudes.at[i] + 0.5) * zoom), wide = text_width(label, TEXT_SCALE);
        int begin = x - wide / 2; /* within the map's own sides, so that it does not overlap the neighbour's */
        if (begin + wide > left + width) begin = left + width - wide;
        fill(image, x, top + height, 1, TICK, INK);
        write_text(image, begin < left ? left : begin, top + height + TICK, TEXT_SCALE, label);
    }
}

/* ---- the whole picture ---- */

static float *subtract(const vt_comparison *c)
{
    int64_t count = c->height * c->width;
    float *difference = vt_allocate((size_t)count, sizeof *difference, "a picture");
    for (int64_t i = 0; i < count; i++) difference[i] = c->right[i] - c->left[i];
    return difference;
}

/* A field with its title and its degrees; the grid begins at left, top. */
static void draw_map(vt_image *image, int left, int top, int zoom, const vt_comparison *c, const char *title,
                     const float *field, const colour_scale *scale, const map_axes *axes, bool labelled)
{
    write_text(image, left, top - GAP / 2 - VT_FONT_HEIGHT * TEXT_SCALE, TEXT_SCALE, title);
    draw_field(image, left, top, zoom, c, field, scale);
    draw_axes(image, left, top, zoom, c, axes, labelled);
}

void vt_image_compare(const vt_comparison *c, vt_image *image)
{
    const bool with_difference = c->difference_title != NULL;
    const int side = (int)(c->width > c->height ? c->width : c->height), zoom = larger(1, PANEL_SIDE / side);
    const int width = (int)c->width * zoom, height = (int)c->height * zoom, line = VT_FONT_HEIGHT * TEXT_SCALE;
    const map_axes axes = axes_of(c, zoom);
    float *difference = with_difference ? subtract(c) : NULL;
    colour_scale scale = scale_of(c->left, c->height * c->width, c->is_signed), other = {0};
    if (with_difference) other = scale_of(difference, c->height * c->width, true);

    int cell = larger(width, larger(text_width(c->left_title, TEXT_SCALE), text_width(c->right_title, TEXT_SCALE)));
    if (with_difference) cell = larger(cell, text_width(c->difference_title, TEXT_SCALE));
    const int top = MARGIN + line + GAP + line + GAP / 2;
    const int before = MARGIN + axes.left, left = before + (c->before_title != NULL ? cell + MARGIN : 0);
    const int right = left + cell + MARGIN, bar = right + cell + MARGIN;
    const int third = bar + bar_room(&scale);
    const int end = with_difference ? third + cell + MARGIN + bar_room(&other) : third;
    image->width = larger(end, 2 * MARGIN + text_width(c->title, TEXT_SCALE));
    image->height = top + height + larger(MARGIN, line) + axes.below;
    image->pixels = vt_allocate(1, (size_t)image->width * (size_t)image->height * 3, "a picture");

    fill(image, 0, 0, image->width, image->height, WHITE);
    write_text(image, MARGIN, MARGIN, TEXT_SCALE, c->title);
    if (c->before_title != NULL) draw_map(image, before, top, zoom, c, c->before_title, c->before, &scale, &axes, true);
    draw_map(image, left, top, zoom, c, c->left_title, c->left, &scale, &axes, c->before_title == NULL);
    draw_map(image, right, top, zoom, c, c->right_title, c->right, &scale, &axes, false);
    draw_bar(image, bar, top, height, &scale);
    if (with_difference) {
        draw_map(image, third, top, zoom, c, c->difference_title, difference, &other, &axes, false);
        draw_bar(image, third + cell + MARGIN, top, height, &other);
    }
    free(difference);
}

void vt_image_close(vt_image *image)
{
    free(image->pixels);
    *image = (vt_image){0};
}

vt_status vt_image_encode(const vt_image *image, void **result, size_t *size)
{
    vt_status status = VT_OK;
    png_image header = {.version = PNG_IMAGE_VERSION,
                        .width = (png_uint_32)image->width,
                        .height = (png_uint_32)image->height,
                        .format = PNG_FORMAT_RGB};
    png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(header);
    void *png = vt_allocate(1, bytes, "a picture");
    VT_CHECK(png_image_write_to_memory(&header, png, &bytes, 0, image->pixels, 0, NULL) != 0,
             "a picture of %d×%d pixels can't be encoded: %s", image->width, image->height, header.message);
    *result = png;
    *size = bytes;
    png = NULL;
done:
    free(png);
    return status;
}
