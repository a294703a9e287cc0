#include "report/drawing.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static vt_box box_within(vt_box box, vt_box limits)
{
    const int left = vt_larger(box.left, limits.left), top = vt_larger(box.top, limits.top);
    const int right = smaller(box.left + box.width, limits.left + limits.width);
    const int bottom = smaller(box.top + box.height, limits.top + limits.height);
    return (vt_box){left, top, vt_larger(0, right - left), vt_larger(0, bottom - top)};
}

static void mix(vt_image *image, int x, int y, uint32_t colour, double share)
{
    uint8_t *pixel = image->pixels + 3 * ((size_t)y * (size_t)image->width + (size_t)x);
    for (int i = 0; i < 3; i++) {
        const double ink = colour >> (16 - 8 * i) & 255;
        pixel[i] = (uint8_t)(pixel[i] + share * (ink - pixel[i]) + 0.5);
    }
}

void vt_draw_box(vt_image *image, int left, int top, int width, int height, uint32_t colour)
{
    const vt_box box = box_within((vt_box){left, top, width, height}, (vt_box){0, 0, image->width, image->height});
    for (int y = box.top; y < box.top + box.height; y++)
        for (int x = box.left; x < box.left + box.width; x++) mix(image, x, y, colour, 1);
}

/* How far a point lies from a stroke. */
static double distance(const vt_stroke *stroke, double x, double y)
{
    const double along_x = stroke->to_x - stroke->from_x, along_y = stroke->to_y - stroke->from_y;
    const double length = along_x * along_x + along_y * along_y;
    double share = length > 0 ? ((x - stroke->from_x) * along_x + (y - stroke->from_y) * along_y) / length : 0;
    share = fmin(1, fmax(0, share));
    return hypot(x - stroke->from_x - share * along_x, y - stroke->from_y - share * along_y);
}

static int to_pixel(double position)
{
    return (int)floor(fmin(1e6, fmax(-1e6, position)));
}

void vt_draw_strokes(vt_image *image, vt_box box, const vt_stroke *strokes, int64_t count, double width,
                     uint32_t colour, double opacity)
{
    box = box_within(box, (vt_box){0, 0, image->width, image->height});
    const double reach = width / 2 + 0.5;
    float *shares = vt_allocate((size_t)box.width * (size_t)box.height + 1, sizeof *shares, "a picture");
    for (int64_t i = 0; i < count; i++) {
        const vt_stroke *s = &strokes[i];
        vt_box near = {to_pixel(fmin(s->from_x, s->to_x) - reach), to_pixel(fmin(s->from_y, s->to_y) - reach), 0, 0};
        near.width = to_pixel(fmax(s->from_x, s->to_x) + reach) + 1 - near.left;
        near.height = to_pixel(fmax(s->from_y, s->to_y) + reach) + 1 - near.top;
        near = box_within(near, box);
        for (int y = near.top; y < near.top + near.height; y++)
            for (int x = near.left; x < near.left + near.width; x++) {
                float *share = &shares[(y - box.top) * box.width + x - box.left];
                *share = fmaxf(*share, (float)fmin(1, reach - distance(s, x + 0.5, y + 0.5)));
            }
    }
    for (int y = 0; y < box.height; y++)
        for (int x = 0; x < box.width; x++)
            mix(image, box.left + x, box.top + y, colour, opacity * (double)shares[y * box.width + x]);
    free(shares);
}

double vt_tick_step(double least)
{
    const double power = pow(10, floor(log10(least))), ratio = least / power;
    return power * (ratio > 5 ? 10 : ratio > 2 ? 5 : ratio > 1 ? 2 : 1);
}

/* ---- colours ---- */

/* At equal distances; between two of them colours are mixed. */
enum { TURBO_STOPS = 31, DIVERGING_STOPS = 5 };
static const uint32_t turbo[TURBO_STOPS] = {
    /* Mikhailov 2019, "Turbo, an improved rainbow colormap for visualization" (Google; Apache-2.0) */
    0x30123b, 0x3a2c76, 0x4143a7, 0x455acd, 0x4771e9, 0x4686fa, 0x3e9bfe, 0x30b0f4, 0x22c5e2, 0x18d6cc, 0x1ae4b6,
    0x2bf0a0, 0x46f884, 0x67fd68, 0x88ff4e, 0xa2fc3c, 0xb9f635, 0xceeb34, 0xe1dd37, 0xf0cc3a, 0xfaba39, 0xfea632,
    0xfd8d27, 0xf8741c, 0xf05b12, 0xe4460a, 0xd63506, 0xc42603, 0xaf1801, 0x960e01, 0x7a0403};
static const uint32_t diverging_stops[DIVERGING_STOPS] = {
    /* the ends of ColorBrewer's RdBu, https://colorbrewer2.org */
    0x053061, 0x4393c3, 0xf7f7f7, 0xd6604d, 0x67001f};

uint32_t vt_colour_at(bool diverging, double position)
{
    const uint32_t *stops = diverging ? diverging_stops : turbo;
    const int last = (diverging ? DIVERGING_STOPS : TURBO_STOPS) - 1, below = smaller(last - 1, (int)(last * position));
    const double share = last * position - below;
    uint32_t colour = 0;
    for (int shift = 16; shift >= 0; shift -= 8) {
        const double from = stops[below] >> shift & 255, to = stops[below + 1] >> shift & 255;
        colour = colour << 8 | (uint32_t)(from + share * (to - from) + 0.5);
    }
    return colour;
}

/* ---- text ---- */

/* Pixels to a unit of the font, whose capitals are 21 units high, from 12 above its zero to 9 below. */
static const double font_unit = 0.62, line_zero = 12;

/* The glyph of the character at *text; moves *text to the next character. */
static const char *next_glyph(const char **text)
{
    const unsigned char first = (unsigned char)*(*text)++;
    while ((**text & 0xc0) == 0x80) (*text)++; /* the rest of a character of UTF-8 */
    return vt_font_glyphs[(first >= VT_FONT_FIRST && first <= VT_FONT_LAST ? first : '?') - VT_FONT_FIRST];
}

int vt_draw_text_width(const char *text)
{
    int units = 0;
    while (*text != '\0') {
        const char *glyph = next_glyph(&text);
        units += glyph[1] - glyph[0];
    }
    return (int)ceil(font_unit * units);
}

void vt_draw_text(vt_image *image, int left, int top, const char *text, uint32_t colour)
{
    enum { MOST_STROKES = 64 }; /* of a glyph */
    double begin = left;
    while (*text != '\0') {
        const char *glyph = next_glyph(&text);
        vt_stroke strokes[MOST_STROKES];
        int count = 0;
        double x = 0, y = 0;
        bool down = false; /* the pen */
        for (const char *point = glyph + 2; *point != '\0'; point += 2) {
            const bool lifted = point[0] == ' ';
            const double to_x = begin + font_unit * (point[0] - glyph[0]);
            const double to_y = top + line_zero + font_unit * (point[1] - 'R');
            if (down && !lifted && count < MOST_STROKES) strokes[count++] = (vt_stroke){x, y, to_x, to_y};
            down = !lifted;
            x = to_x;
            y = to_y;
        }
        const double width = font_unit * (glyph[1] - glyph[0]);
        const vt_box box = {(int)begin - 1, top, (int)width + 3, VT_TEXT_HEIGHT};
        vt_draw_strokes(image, box, strokes, count, 1.4, colour, 1);
        begin += width;
    }
}
