/* Windows by latitudes and longitudes, however the files are stored and read. */
#include <hdf5.h>

#include "source/fields/window.h"
#include "test.h"
#include "unit/data_files.h"
#include "unit/netcdf_files.h"

enum { ROWS = 9, COLUMNS = 16, TIMES = 4, CHANNELS = 2 };

/* Latitudes from 80 to -80 in steps of 20; longitudes in steps of `step` from `west` on, from -180 to 180 with
 * `signed_ones`. */
static void write_grid(const char *name, const test_fields *fields, double west, double step, bool signed_ones)
{
    double latitudes[ROWS], longitudes[COLUMNS];
    for (int i = 0; i < ROWS; i++) latitudes[i] = 80 - 20 * i;
    for (int i = 0; i < COLUMNS; i++) {
        longitudes[i] = fmod(west + step * i, 360);
        if (signed_ones && longitudes[i] >= 180) longitudes[i] -= 360;
    }
    test_fields_write(test_path(name), fields);
    hid_t file = H5Fopen(test_path(name), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Dclose(test_nc_times(file, "lat", H5T_IEEE_F32LE, ROWS, latitudes, NULL));
    H5Dclose(test_nc_times(file, "lon", H5T_IEEE_F32LE, COLUMNS, longitudes, NULL));
    H5Fclose(file);
}

static const test_fields plain = {.times = TIMES, .channels = CHANNELS, .height = ROWS, .width = COLUMNS};

static vt_window_range range_of(double south, double north, double west, double east)
{
    return (vt_window_range){true, true, south, north, west, east};
}

/* The window [rows, columns] whose first point is (row, column) of the files, as any rank of several reads it. */
static void expect_window(const vt_dataset_options *base, const test_fields *fields, int64_t row, int64_t column)
{
    const int64_t rows = base->height, columns = base->width;
    float input[CHANNELS * ROWS * COLUMNS], target[CHANNELS * ROWS * COLUMNS], later[CHANNELS * ROWS * COLUMNS];
    for (int64_t first = 0; first < rows; first += 2)
        for (int64_t count = 1; first + count <= rows; count += 2) {
            vt_dataset_options options = *base;
            options.first_row = first;
            options.rows = count;
            SCOPED(vt_dataset) *dataset = test_open(&options);
            if (first == 2) EXPECT_OK(test_keep_frames(dataset));
            for (int64_t sample = 0; sample < 2 * (TIMES - 1); sample++) {
                const int64_t t = sample % (TIMES - 1);
                EXPECT_OK(vt_dataset_read(dataset, sample, input, target));
                EXPECT_OK(vt_dataset_read_later(dataset, sample, 1, later));
                for (int64_t i = 0; i < CHANNELS * count * columns; i++) {
                    const int64_t c = i / (count * columns), y = row + first + i / columns % count;
                    const int64_t x = (column + i % columns) % COLUMNS;
                    EXPECT(input[i] == (float)test_value(fields, t, c, y, x), "sample %ld, %ld: %g", sample, i,
                           (double)input[i]);
                    EXPECT(target[i] == (float)test_value(fields, t + 1, c, y, x) && target[i] == later[i]);
                }
            }
        }
}

/* Contiguous, chunked across the seam, compressed, reversed and wider numbers; with and without HDF5's reader; a window
 * within the grid, one across the columns' seam, and rows or columns alone. */
TEST(windows_by_range)
{
    const test_fields forms[] = {plain,
                                 {.chunk = {1, 1, ROWS, COLUMNS}, .deflate = 1},
                                 {.chunk = {2, 2, 4, 5}, .deflate = 1, .shuffle = true},
                                 {.type = H5T_IEEE_F32BE},
                                 {.type = H5T_IEEE_F64LE, .chunk = {3, 1, 2, 3}}};
    const struct {
        vt_window_range range;
        int64_t height, width, row, column;
    } windows[] = {{range_of(-40, 20, 45, 135), 4, 5, 3, 2},
                   {range_of(-40, 20, -45, 67.5), 4, 6, 3, 14},
                   {range_of(-41, 39, 315, 67.5), 4, 6, 3, 14},
                   {range_of(-90, 90, -180, 180), 9, 16, 0, 8},
                   {range_of(0, 0, 0, 360), 1, 16, 4, 0},
                   {range_of(60, 80, 337.5, -22.5), 2, 1, 0, 15},
                   {{.by_rows = true, .south = -80, .north = -20}, 4, 10, 5, 0},
                   {{.by_columns = true, .west = 300, .east = 359}, 6, 2, 0, 14}};
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        test_fields fields = forms[f];
        fields.times = TIMES;
        fields.channels = CHANNELS;
        fields.height = ROWS;
        fields.width = COLUMNS;
        write_grid("2001.h5", &fields, 0, 22.5, false);
        write_grid("2002.h5", &fields, 0, 22.5, false);
        for (size_t w = 0; w < 2 * sizeof windows / sizeof windows[0]; w++) {
            vt_dataset_options options = test_fields_options(&fields);
            options.direct = w % 2 == 0;
            options.range = windows[w / 2].range;
            options.height = windows[w / 2].height;
            options.width = windows[w / 2].width;
            expect_window(&options, &fields, windows[w / 2].row, windows[w / 2].column);
        }
    }
}

/* The same window of files that count from -180, and that begin elsewhere. */
TEST(windows_in_either_convention)
{
    static const struct {
        double west;
        bool signed_ones;
        int64_t column; /* of 315 degrees */
    } grids[] = {{0, false, 14}, {180, true, 6}, {180, false, 6}, {90, true, 10}};
    const vt_window_range ranges[] = {range_of(-40, 20, -45, 67.5), range_of(-40, 20, 315, 67.5)};
    for (size_t g = 0; g < sizeof grids / sizeof grids[0]; g++)
        for (int r = 0; r < 2; r++) {
            write_grid("2001.h5", &plain, grids[g].west, 22.5, grids[g].signed_ones);
            write_grid("2002.h5", &plain, grids[g].west, 22.5, grids[g].signed_ones);
            vt_dataset_options options = test_fields_options(&plain);
            options.range = ranges[r];
            options.height = 4;
            options.width = 6;
            expect_window(&options, &plain, 3, grids[g].column);
        }
    SCOPED(vt_dataset) *training = NULL, *validation = NULL; /* the same meridians, written in another way */
    vt_dataset_options options = test_fields_options(&plain), others = options;
    write_grid("train/2001.h5", &plain, 0, 22.5, false);
    write_grid("valid/2002.h5", &plain, 180, 22.5, true);
    others.range = options.range = ranges[0];
    others.height = options.height = 4;
    others.width = options.width = 6;
    options.directory = test_path("train");
    others.directory = test_path("valid");
    training = test_open(&options);
    validation = test_open(&others);
    EXPECT_OK(vt_source_agree(&training->source, &validation->source));
    EXPECT(training->latitudes[0] == 20 && training->latitudes[3] == -40);
}

/* The first meridian repeated at the end counts once. */
TEST(window_over_a_repeated_meridian)
{
    write_grid("2001.h5", &plain, 0, 24, false); /* 16 columns from 0 to 360 */
    vt_dataset_options options = test_fields_options(&plain);
    options.range = range_of(-80, 80, -48, 24);
    options.height = ROWS;
    options.width = 4; /* 312, 336, 0, 24 */
    float input[CHANNELS * ROWS * 4], target[CHANNELS * ROWS * 4];
    SCOPED(vt_dataset) *dataset = test_open(&options);
    EXPECT_OK(vt_dataset_read(dataset, 0, input, target));
    EXPECT(input[1] == 14 && input[2] == 0 && input[3] == 1, "%g %g", (double)input[1], (double)input[2]);
}

TEST(repeated_meridians_are_seen)
{
    double longitudes[20];
    for (int i = 0; i < 20; i++) longitudes[i] = 24 * i; /* 360 is index 15 */
    EXPECT(vt_window_repeats(longitudes, 15) == 0);
    EXPECT(vt_window_repeats(longitudes, 16) == 15 && vt_window_repeats(longitudes, 20) == 15);
    for (int i = 0; i < 20; i++) longitudes[i] = fmod(350 + 22.5 * i, 360) - 180;
    EXPECT(vt_window_repeats(longitudes, 16) == 0 && vt_window_repeats(longitudes, 17) == 16);
    EXPECT(vt_window_repeats(longitudes, 1) == 0);
}

/* Invalid values are found, and named by their place in the file, only inside the window. */
TEST(window_names_the_place_of_a_nan)
{
    test_fields fields = plain;
    fields.poison = NAN;
    fields.poison_index = 5 * COLUMNS + 1;
    vt_dataset_options options = test_fields_options(&fields);
    options.range = range_of(-40, 20, -45, 67.5);
    options.height = 4;
    options.width = 6;
    for (int round = 0; round < 4; round++) {
        float input[CHANNELS * 4 * 6], target[CHANNELS * 4 * 6];
        options.direct = round % 2 == 0;
        if (round == 2) fields.chunk[0] = fields.chunk[1] = 1, fields.chunk[2] = 3, fields.chunk[3] = 4;
        write_grid("2001.h5", &fields, 0, 22.5, false);
        SCOPED(vt_dataset) *dataset = test_open(&options);
        EXPECT_ERROR(vt_dataset_read(dataset, 0, input, target), "NaN at time 0, channel 0, row 5, column 1;");
    }
    fields.poison_index = 5 * COLUMNS + 7; /* outside */
    write_grid("2001.h5", &fields, 0, 22.5, false);
    float input[CHANNELS * 4 * 6], target[CHANNELS * 4 * 6];
    SCOPED(vt_dataset) *dataset = test_open(&options);
    EXPECT_OK(vt_dataset_read(dataset, 0, input, target));
}

TEST(windows_that_are_not_there)
{
    vt_dataset_options options = test_fields_options(&plain);
    options.height = 4;
    options.width = 6;
    options.range = range_of(-40, 20, -45, 67.5);
    test_fields_write(test_path("2001.h5"), &plain);
    test_expect_open_error(&options, "lat_range: ");
    write_grid("2001.h5", &plain, 0, 22.5, false);
    options.range = range_of(-40, 20, -45, 45);
    test_expect_open_error(&options, "lon_range [-45, 45] holds 5 columns, but img_size says 6; set --img_size=[4,5]");
    options.range = range_of(-60, 20, -45, 67.5);
    test_expect_open_error(&options, "lat_range [-60, 20] holds 5 rows, but img_size says 4; set --img_size=[5,6]");
    options.range = range_of(81, 90, -45, 67.5);
    test_expect_open_error(&options, "lat_range [81, 90]: no row of ");
    options.range = range_of(-40, 20, 1, 2);
    test_expect_open_error(&options, "lon_range [1, 2]: no column of ");
    write_grid("2001.h5", &plain, 200, 2, false); /* 200 to 230 */
    options.range = range_of(-40, 20, 225, 205);
    test_expect_open_error(&options, "don't lie side by side from west to east (its longitudes go from 200 to 230)");
}

TEST(windows_that_go_round)
{
    vt_dataset_options options = test_fields_options(&plain);
    options.round = true;
    test_fields_write(test_path("2001.h5"), &plain); /* no longitudes: assumed to go around the globe */
    SCOPED(vt_dataset) *dataset = test_open(&options);
    vt_dataset_close(&dataset);
    for (int round = 0; round < 2; round++) { /* also across 0, and with the first meridian twice */
        write_grid("2001.h5", &plain, 350, round == 0 ? 22.5 : 24, round == 0);
        dataset = test_open(&options);
        vt_dataset_close(&dataset);
    }
    options.width = 12;
    test_expect_open_error(&options, "the longitudes of train_data_path");
    test_expect_open_error(&options, "in the window; use --pad=edge");
    options.width = COLUMNS;
    write_grid("2001.h5", &plain, 200, 2, false);
    test_expect_open_error(&options, "go from 200 to 230; use --pad=edge");
    options.round = false;
    dataset = test_open(&options);
}

TEST(advice_on_windows)
{
    double latitudes[ROWS] = {80, 60, 40, 20, 0, -20, -40, -60, -80}, longitudes[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) longitudes[i] = 22.5 * i;
    const vt_fields_about grid = {.rows = ROWS, .columns = COLUMNS, .latitudes = latitudes, .longitudes = longitudes};
    const vt_window_range range = range_of(-40, 20, -45, 45);
    vt_frame_window window;
    EXPECT_OK(vt_window_find(&range, &grid, "x", &window));
    EXPECT(window.first_row == 3 && window.rows == 4 && window.first_column == 14 && window.width == 5);
    char *advice = vt_test_owned(vt_window_advice(&range, &grid, &window, 4));
    EXPECT(advice != NULL &&
               strcmp(advice, "lon_range [-45, 22.5] would be 4 columns, lon_range [-45, 112.5] would be 8 "
                              "columns") == 0,
           "%s", advice);
    advice = vt_window_advice(&range, &grid, &window, 5);
    EXPECT(advice != NULL && strcmp(advice, "lat_range [-60, 20] would be 5 rows") == 0, "%s", advice);
    free(advice);
    EXPECT(vt_window_advice(&range, &grid, &window, 1) == NULL);
}
