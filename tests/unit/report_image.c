/* Pictures: decoded again with libpng, and examined point by point. */
#include <png.h>

#include "report/image.h"
#include "report/image_data.h"
#include "report/map_ticks.h"
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
    return (vt_comparison){.title = title,
                           .left_title = "target",
                           .right_title = "prediction",
                           .left = left,
                           .right = right,
                           .height = HEIGHT,
                           .width = WIDTH};
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

static vt_image decode(const void *png, size_t size)
{
    png_image header = {.version = PNG_IMAGE_VERSION};
    EXPECT(png_image_begin_read_from_memory(&header, png, size) != 0);
    header.format = PNG_FORMAT_RGB;
    vt_image image = {(int)header.width, (int)header.height, malloc(PNG_IMAGE_SIZE(header))};
    EXPECT(png_image_finish_read(&header, NULL, image.pixels, 0, NULL) != 0);
    return image;
}

TEST(image_of_two_fields)
{
    float left[HEIGHT * WIDTH], right[HEIGHT * WIDTH];
    vt_image image = {0};
    void *png = NULL;
    size_t size = 0;
    make_fields(left, right);
    const vt_comparison comparison = comparison_of("t2m", left, right);
    vt_image_compare(&comparison, &image);
    EXPECT_OK(vt_image_encode(&image, &png, &size));
    vt_image back = decode(png, size);
    EXPECT(back.width == image.width && back.height == image.height);
    EXPECT(memcmp(back.pixels, image.pixels, (size_t)(3 * image.width * image.height)) == 0);

    enum { ZOOM = 10 }; /* 480 / 48 */
    int64_t area = (int64_t)HEIGHT * WIDTH * ZOOM * ZOOM, row = (int64_t)WIDTH * ZOOM * ZOOM;
    EXPECT(count_colour(&image, 0x808080) == row, "not a number is grey");
    int64_t hottest = count_colour(&image, vt_turbo_colours[255]);
    EXPECT(hottest >= area - row + 240 * ZOOM, "is %lld", (long long)hottest); /* the last column of the left, too */
    EXPECT(count_colour(&image, vt_turbo_colours[0]) >= 240 * ZOOM);
    EXPECT(vt_turbo_colours[0] == 0x30123b && vt_turbo_colours[255] == 0x7a0403);
    vt_image_close(&back);
    vt_image_close(&image);
    free(png);
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
            vt_image image = {0};
            vt_comparison comparison = {.title = "title \xc3\xa9",
                                        .left_title = "",
                                        .right_title = "",
                                        .left = field,
                                        .right = field,
                                        .height = sizes[s][0],
                                        .width = sizes[s][1],
                                        .difference_title = "d"};
            vt_image_compare(&comparison, &image);
            EXPECT(image.width > 100 && image.height > 50);
            vt_image_close(&image);
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
    vt_image image = {0};
    vt_comparison comparison = comparison_of("u10", left, right);
    comparison.is_signed = true;
    vt_image_compare(&comparison, &image);
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
    vt_image_compare(&comparison, &image);
    EXPECT(image.width > without, "degrees take room at the left");
    vt_image_close(&image);
}

/* "75N@0 60N@6": labels with their grid points. */
static void expect_ticks(const double *degrees, int64_t count, bool longitudes, double room, const char *expected)
{
    vt_map_ticks ticks;
    char text[512] = "";
    vt_map_ticks_place(degrees, count, longitudes, room, &ticks);
    for (int i = 0; i < ticks.count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s@%.4g", i > 0 ? " " : "", ticks.labels[i],
                 ticks.at[i]);
    EXPECT(strcmp(text, expected) == 0, "are '%s', expected '%s'", text, expected);
}

TEST(ticks_of_maps)
{
    double degrees[64];
    for (int i = 0; i < 24; i++) degrees[i] = 75 - 2.5 * i;
    expect_ticks(degrees, 24, false, 5, "75N@0 60N@6 45N@12 30N@18");
    for (int i = 0; i < 48; i++) degrees[i] = 200 + 2.5 * i;
    expect_ticks(degrees, 48, true, 8, "160W@0 140W@8 120W@16 100W@24 80W@32 60W@40");
    for (int i = 0; i < 19; i++) degrees[i] = (float)(90 - 10 * i); /* both poles */
    expect_ticks(degrees, 19, false, 4, "90N@0 45N@4.5 0@9 45S@13.5 90S@18");
    for (int i = 0; i < 36; i++) degrees[i] = (350 + 10 * i) % 360; /* goes on at 0 */
    expect_ticks(degrees, 36, true, 9, "0@1 90E@10 180@19 90W@28");
    for (int i = 0; i < 36; i++) degrees[i] = -180 + 10 * i;
    expect_ticks(degrees, 36, true, 9, "180@0 90W@9 0@18 90E@27");
    static const double uneven[] = {60, 40, 35, 0, -30}, fine[] = {10.1f, 10.2f, 10.3f, 10.4f};
    expect_ticks(uneven, 5, false, 1, "60N@0 30N@2.143 30S@4 0@3");
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
