/* Pictures: decoded again with libpng, and looked at point by point. */
#include <png.h>

#include "report/image.h"
#include "report/turbo.h"
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
    vt_comparison comparison = {"t2m", "target", "prediction", left, right, HEIGHT, WIDTH, NULL};
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

/* Constant, empty of numbers, very large, very small, negative, one point: a scale each, and nothing outside memory. */
TEST(image_of_odd_fields)
{
    static const float values[][2] = {{0, 0},           {NAN, NAN},   {1e30f, -1e30f},
                                      {1e-30f, 2e-30f}, {-5, -4.99f}, {7e6f, 8e6f}};
    static const int64_t sizes[][2] = {{1, 1}, {1, 2}, {97, 1}, {1, 1013}, {7, 3}};
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            int64_t count = sizes[s][0] * sizes[s][1];
            float *field = malloc((size_t)count * sizeof *field);
            for (int64_t i = 0; i < count; i++) field[i] = values[v][i % 2];
            vt_image image = {0};
            vt_comparison comparison = {"title \xc3\xa9", "", "", field, field, sizes[s][0], sizes[s][1], "d"};
            vt_image_compare(&comparison, &image);
            EXPECT(image.width > 100 && image.height > 50);
            vt_image_close(&image);
            free(field);
        }
    }
}
