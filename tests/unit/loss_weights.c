/* channel_weights: the list and what is wrong with it, and weights that follow from the channels' changes. */
#include "task/loss_weights.h"

#include "settings.h"
#include "storage/npy.h"
#include "task/weather.h"
#include "unit/data_files.h"

static const float changes[3] = {0.5f, 1, 2};

static vt_config *of_list(const char *list)
{
    vt_config *config = config_with(1, "n_in_channels=3 n_out_channels=3", "");
    EXPECT_OK(vt_config_set(config, "channel_weights", list));
    return config;
}

static void expect_weights(const char *list, double first, double second, double third)
{
    SCOPED(vt_config) *config = of_list(list);
    const double expected[3] = {first, second, third};
    float weights[3];
    EXPECT_OK(vt_channel_weights(config, changes, weights));
    for (int c = 0; c < 3; c++) EXPECT_NEAR((double)weights[c], expected[c], 1e-6);
}

/* Their mean is 1: only their ratios count. */
TEST(channel_weights_have_mean_1)
{
    expect_weights("None", 1, 1, 1);
    expect_weights("[1, 2, 3]", 0.5, 1, 1.5);
    expect_weights("10,20,30", 0.5, 1, 1.5);
    expect_weights(" 0 0 1e-3 ", 0, 0, 3);
    expect_weights("auto", 4 / 1.75, 1 / 1.75, 0.25 / 1.75);
}

TEST(channel_weights_that_are_none)
{
    static const char *const lists[][2] = {
        {"1,2", "'1,2' holds 2 weights, but 3 channels are forecast (n_out_channels)"},
        {"1", "holds 1 weight, but 3 channels"},
        {"1 2 3 4", "holds 4 weights, but 3 channels"},
        {"[1, x, 3]", "'x' of '[1, x, 3]' is no weight; expected numbers from 0 on"},
        {"1 2 -3", "'-3' of"},
        {"1 2 inf", "'inf' of"},
        {"1 2 nan", "'nan' of"},
        {"1 2 3K", "'3K' of"},
        {"automatic", "'automatic' of"},
        {"0, 0, 0", "all weights of '0, 0, 0' are 0"},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        SCOPED(vt_config) *config = of_list(lists[i][0]);
        EXPECT_ERROR(vt_channel_weights(config, changes, NULL), lists[i][1]);
    }
}

/* The file has units of the data, and one more channel than is used. */
TEST(channel_weights_from_a_file)
{
    static const float means[3] = {0, 280, 5}, stds[3] = {2, 4, 8};
    static const int64_t shape[4] = {1, 4, 1, 1};
    const float in_units[4] = {1, 4, 16, 7}, bad[4] = {1, 0, 16, 7};
    const char *path = test_path("time_diff_stds.npy");
    SCOPED(vt_config) *config = of_list("auto");
    EXPECT_OK(vt_config_set(config, "time_diff_stds_path", path));
    SCOPED(vt_task) *task = NULL;
    SCOPED(vt_fields_about) *about = vt_fields_about_make();
    const vt_weather_data data = {.about = about, .name = "the data"};
    about->channels = 3;
    EXPECT_OK(vt_npy_write(test_path("global_means.npy"), means, (const int64_t[]){1, 3, 1, 1}, 4));
    EXPECT_OK(vt_npy_write(test_path("global_stds.npy"), stds, (const int64_t[]){1, 3, 1, 1}, 4));
    EXPECT_OK(vt_config_set(config, "global_means_path", test_path("global_means.npy")));
    EXPECT_OK(vt_config_set(config, "global_stds_path", test_path("global_stds.npy")));
    EXPECT_ERROR(vt_weather_open(config, &data, &task), "time_diff_stds_path (`vitrain stats` makes such a file)");
    EXPECT_OK(vt_npy_write(path, bad, shape, 4));
    EXPECT_ERROR(vt_weather_open(config, &data, &task), "holds 0 for channel 1, but a standard deviation is above 0");
    EXPECT_OK(vt_npy_write(path, in_units, shape, 4));
    EXPECT_OK(vt_weather_open(config, &data, &task));
}
