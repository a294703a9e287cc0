/* Pictures: decoded again with libpng, and examined point by point. */
#include <png.h>

#include "report/drawing.h"
#include "report/image.h"
#include "task/weather/channels.h"
#include "test.h"

enum { HEIGHT = 24, WIDTH = 48 };

/* A ramp from west to east, 250 … 297. */
static void make_fields(float *left, float *right)
{
    for (int y = 0; y < HEIGHT; y++) {
        for (int x = 0; x < WIDTH; x++) {
            left[y * WIDTH + x] = 250.0f + (float)x;
            right[y * WIDTH + x] = y == 0 ? NAN : 1000.0f;
        }
    }
}

static vt_comparison comparison_of(const char *title, const float *left, const float *right)
{
    return (vt_comparison){
        .title = title, .left = {"target", left}, .right = {"prediction", right}, .height = HEIGHT, .width = WIDTH};
}

static uint32_t pixel(const vt_image *image, int x, int y)
{
    const uint8_t *p = image->pixels + (y * image->width + x) * 3;
    return (uint32_t)(p[0] << 16 | p[1] << 8 | p[2]);
}

/* Pixels of one colour. */
static int64_t count_colour(const vt_image *image, uint32_t colour)
{
    int64_t count = 0;
    for (int y = 0; y < image->height; y++)
        for (int x = 0; x < image->width; x++) count += pixel(image, x, y) == colour;
    return count;
}

static void vt_image_close(vt_image *image)
{
    free(image->pixels);
    *image = (vt_image){0};
}

static void compare(const vt_comparison *comparison, vt_image *image)
{
    vt_png png;
    png_image header = {.version = PNG_IMAGE_VERSION};
    EXPECT_OK(vt_image_compare(comparison, &png));
    EXPECT(png_image_begin_read_from_memory(&header, png.bytes, png.size) != 0);
    header.format = PNG_FORMAT_RGB;
    *image = (vt_image){(int)header.width, (int)header.height, malloc(PNG_IMAGE_SIZE(header))};
    EXPECT(png_image_finish_read(&header, NULL, image->pixels, 0, NULL) != 0);
    EXPECT(png.width == image->width && png.height == image->height);
    free(png.bytes);
}

TEST(image_of_two_fields)
{
    float left[HEIGHT * WIDTH], right[HEIGHT * WIDTH];
    SCOPED(vt_image) image = {0};
    make_fields(left, right);
    const vt_comparison comparison = comparison_of("t2m", left, right);
    compare(&comparison, &image);
    enum { ZOOM = 10 }; /* 480 / 48 */
    int64_t area = (int64_t)HEIGHT * WIDTH * ZOOM * ZOOM, row = (int64_t)WIDTH * ZOOM * ZOOM;
    EXPECT(count_colour(&image, 0x808080) == row, "not a number is grey");
    int64_t hottest = count_colour(&image, vt_colour_at(false, 1));
    EXPECT(hottest >= area - row + 240 * ZOOM, "is %ld", hottest); /* the last column of the left, too */
    EXPECT(count_colour(&image, vt_colour_at(false, 0)) >= 240 * ZOOM);
    EXPECT(vt_colour_at(false, 0) == 0x30123b && vt_colour_at(false, 1) == 0x7a0403);
}

/* Constant, only NaN, very large, very small, negative, one point: each has a scale, and memory stays intact. */
TEST(image_of_odd_fields)
{
    static const float values[][2] = {{0, 0},           {NAN, NAN},   {1e30f, -1e30f},
                                      {1e-30f, 2e-30f}, {-5, -4.99f}, {7e6f, 8e6f}};
    static const int64_t sizes[][2] = {{1, 1}, {1, 2}, {97, 1}, {1, 1013}, {7, 3}};
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            int64_t count = sizes[s][0] * sizes[s][1];
            float *field = vt_test_owned(malloc((size_t)count * sizeof *field));
            for (int64_t i = 0; i < count; i++) field[i] = values[v][i % 2];
            SCOPED(vt_image) image = {0};
            vt_comparison comparison = {.title = "title \xc3\xa9",
                                        .left = {"", field},
                                        .right = {"", field},
                                        .height = sizes[s][0],
                                        .width = sizes[s][1],
                                        .difference_title = "d"};
            compare(&comparison, &image);
            EXPECT(image.width > 100 && image.height > 50);
        }
    }
}

/* 0 is in the middle of the scale, whatever the values: white; -10 and +5 are blue and half-way to red. */
TEST(image_of_a_wind)
{
    enum { ZOOM = 10, WHITE_OF_SCALE = 0xf7f7f7, BLUE_END = 0x053061 };
    float left[HEIGHT * WIDTH], right[HEIGHT * WIDTH];
    for (int i = 0; i < HEIGHT * WIDTH; i++) {
        left[i] = i == 0 ? -10.0f : 5.0f;
        right[i] = 0;
    }
    SCOPED(vt_image) image = {0};
    vt_comparison comparison = comparison_of("u10", left, right);
    comparison.is_signed = true;
    compare(&comparison, &image);
    EXPECT(count_colour(&image, WHITE_OF_SCALE) >= (int64_t)HEIGHT * WIDTH * ZOOM * ZOOM);
    EXPECT(count_colour(&image, BLUE_END) >= ZOOM * ZOOM);
    EXPECT(count_colour(&image, 0xd6604d) >= (int64_t)(HEIGHT * WIDTH - 1) * ZOOM * ZOOM); /* 3/4 of the scale */
    const int without = image.width;
    vt_image_close(&image);
    double latitudes[HEIGHT], longitudes[WIDTH];
    for (int y = 0; y < HEIGHT; y++) latitudes[y] = 75 - 2.5 * y;
    for (int x = 0; x < WIDTH; x++) longitudes[x] = 200 + 2.5 * x;
    comparison.latitudes = latitudes;
    comparison.longitudes = longitudes;
    compare(&comparison, &image);
    EXPECT(image.width > without, "degrees take room at the left");
}

/* Does a map have a coast within `reach` pixels of this place? Its grid, of 2 x 2 degrees, begins at 89 N and `west`.
 */
static bool has_coast(const vt_image *with, const vt_image *without, double west, double longitude, double latitude,
                      int reach)
{
    enum { ZOOM = 2 }; /* pixels to a grid point */
    int left = 0, top = 0;
    const uint32_t colour = vt_colour_at(false, 0.5); /* of the middle of the scale */
    while (pixel(without, left, without->height / 2) != colour) left++;
    while (pixel(without, left, top) != colour) top++;
    const int x = left + (int)(((longitude - west) / 2 + 0.5) * ZOOM), y = top + (int)((89 - latitude) / 2 * ZOOM);
    for (int i = -reach; i <= reach; i++)
        for (int j = -reach; j <= reach; j++)
            if (pixel(with, x + i, y + j) != pixel(without, x + i, y + j)) return true;
    return false;
}

TEST(coasts_lie_where_they_are)
{
    enum { ROWS = 90, COLUMNS = 180 };
    /* degrees east and north: capes Agulhas, Comorin, Horn and Wrath, and the tip of Florida; then seas and plains */
    static const double capes[][2] = {{20, -34.8}, {77.5, 8.1}, {292.7, -55.9}, {355, 58.6}, {279, 25.2}};
    static const double elsewhere[][2] = {{220, -30}, {262, 39}, {100, 60}, {330, 40}, {80, -30}};
    static const double wests[] = {1, -179};
    float field[ROWS * COLUMNS] = {0};
    double latitudes[ROWS], longitudes[COLUMNS];
    for (int y = 0; y < ROWS; y++) latitudes[y] = 89 - 2 * y;
    for (int w = 0; w < 2; w++) {
        for (int x = 0; x < COLUMNS; x++) longitudes[x] = wests[w] + 2 * x;
        vt_comparison comparison = {.title = "",
                                    .left = {"", field},
                                    .right = {"", field},
                                    .height = ROWS,
                                    .width = COLUMNS,
                                    .latitudes = latitudes,
                                    .longitudes = longitudes};
        SCOPED(vt_image) without = {0}, with = {0};
        compare(&comparison, &without);
        comparison.on_earth = true;
        compare(&comparison, &with);
        for (int i = 0; i < 5; i++) {
            const double turn = w == 1 && capes[i][0] > 180 ? -360 : 0;
            const double other = w == 1 && elsewhere[i][0] > 180 ? -360 : 0;
            EXPECT(has_coast(&with, &without, wests[w], capes[i][0] + turn, capes[i][1], 3), "cape %d", i);
            EXPECT(!has_coast(&with, &without, wests[w], elsewhere[i][0] + other, elsewhere[i][1], 5), "place %d", i);
        }
        vt_image_close(&with);
        comparison.longitudes = NULL;
        compare(&comparison, &with);
        EXPECT(count_colour(&with, vt_colour_at(false, 0.5)) == count_colour(&without, vt_colour_at(false, 0.5)));
    }
}

/* Each character has a glyph within its line; a stroke as wide as three pixels fills the middle one. */
TEST(text_and_strokes)
{
    enum { SIDE = 40 };
    uint8_t pixels[SIDE * SIDE * 3];
    vt_image image = {SIDE, SIDE, pixels};
    for (int character = VT_FONT_FIRST; character <= VT_FONT_LAST; character++) {
        const char text[2] = {(char)character, 0};
        memset(pixels, 255, sizeof pixels);
        vt_draw_text(&image, 8, 8, text, 0x000000);
        const int64_t inked = SIDE * SIDE - count_colour(&image, 0xffffff);
        EXPECT(character == ' ' ? inked == 0 : inked > 4, "'%c' has %ld points", character, inked);
        for (int x = 0; x < SIDE; x++)
            for (int y = 0; y < SIDE; y++)
                if (x < 6 || x > 9 + vt_draw_text_width(text) || y < 8 || y >= 8 + VT_TEXT_HEIGHT)
                    EXPECT(pixel(&image, x, y) == 0xffffff, "'%c' is drawn at %d, %d", character, x, y);
    }
    EXPECT(vt_draw_text_width("\xc3\xa9") == vt_draw_text_width("?") &&
           vt_draw_text_width("mm") == 2 * vt_draw_text_width("m"));
    memset(pixels, 0, sizeof pixels);
    const vt_stroke outside[] = {{-1e9, 20.5, 1e9, 20.5}, {5, 30, 5, 30}};
    vt_draw_strokes(&image, (vt_box){10, -5, 20, 100}, outside, 2, 2, 0xff0000, 0.5);
    EXPECT(count_colour(&image, 0x800000) == 20, "one row, within the box");
    EXPECT(count_colour(&image, 0x400000) == 40, "and half of the rows beside it");
    EXPECT(count_colour(&image, 0) == SIDE * SIDE - 60);
}

/* "75N@0 60N@6": labels with their grid points. */
static void expect_ticks(const double *degrees, int64_t count, bool longitudes, double room, const char *expected)
{
    char text[512] = "";
    vt_map_side side = vt_map_side_open(degrees, count, longitudes, room);
    for (int i = 0; i < side.tick_count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s@%.4g", i > 0 ? " " : "", side.labels[i],
                 side.ticks[i]);
    vt_map_side_close(&side);
    EXPECT_TEXT(text, expected);
}

TEST(ticks_of_maps)
{
    double degrees[64];
    for (int i = 0; i < 24; i++) degrees[i] = 75 - 2.5 * i;
    expect_ticks(degrees, 24, false, 5, "30N@18 45N@12 60N@6 75N@0");
    for (int i = 0; i < 48; i++) degrees[i] = 200 + 2.5 * i;
    expect_ticks(degrees, 48, true, 8, "160W@0 140W@8 120W@16 100W@24 80W@32 60W@40");
    for (int i = 0; i < 19; i++) degrees[i] = (float)(90 - 10 * i); /* both poles */
    expect_ticks(degrees, 19, false, 4, "90S@18 45S@13.5 0@9 45N@4.5 90N@0");
    for (int i = 0; i < 36; i++) degrees[i] = (350 + 10 * i) % 360; /* goes on at 0 */
    expect_ticks(degrees, 36, true, 9, "0@1 90E@10 180@19 90W@28");
    for (int i = 0; i < 36; i++) degrees[i] = -180 + 10 * i;
    expect_ticks(degrees, 36, true, 9, "180@0 90W@9 0@18 90E@27");
    static const double uneven[] = {60, 40, 35, 0, -30}, fine[] = {10.1f, 10.2f, 10.3f, 10.4f};
    expect_ticks(uneven, 5, false, 1, "30S@4 0@3 30N@2.143 60N@0");
    expect_ticks(fine, 4, true, 2, "10.2E@1 10.4E@3");
    static const double turns_back[] = {10, 20, 15}, twice[] = {10, 10, 20}, none[] = {10, NAN, 20};
    expect_ticks(turns_back, 3, false, 1, "");
    expect_ticks(twice, 3, false, 1, "");
    expect_ticks(none, 3, false, 1, "");
    expect_ticks(NULL, 3, false, 1, "");
    expect_ticks(uneven, 1, false, 1, "");
}

TEST(fields_that_are_signed)
{
    static const float both[] = {-8, 5, NAN, 10}, mostly_above[] = {-1, 20, 3}, zero[] = {0, 0};
    EXPECT(vt_variable_is_signed("u10", mostly_above, 3) && vt_variable_is_signed("v500", zero, 2));
    EXPECT(!vt_variable_is_signed("t850", both, 4), "a temperature is none, whatever its values");
    EXPECT(vt_variable_is_signed("stress", both, 4));
    EXPECT(!vt_variable_is_signed("stress", mostly_above, 3) && !vt_variable_is_signed("channel 2", zero, 2));
}
