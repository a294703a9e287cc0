/* The rules of `vitrain init`: whatever the data are, they make a configuration that can be read, and that ends in
 * time. */
#include "planning/recipe.h"

#include <math.h>

#include "task/weather/calendar.h"
#include "test.h"

static vt_config *given_nothing(void)
{
    vt_config *config = NULL;
    EXPECT_OK(vt_config_open_text("x:\n  model: vit\n", "a test", 0, NULL, 1, &config));
    return config;
}

/* Seconds of a step on a machine of 50 GFLOP/s that starts a step in 3 ms. */
static vt_recipe_times times_of(const vt_recipe_data *data, const vt_recipe *recipe)
{
    const double tokens = ceil((double)data->rows / (double)recipe->patch_size) *
                          ceil((double)data->columns / (double)recipe->patch_size) * (double)recipe->batch;
    const double width = (double)recipe->embed_dim;
    const double one = 0.003 + 72 * tokens * width * width * (double)recipe->depth / 50e9;
    return (vt_recipe_times){.one = one, .several = 5 * one, .rollout = 4};
}

/* The best candidate for which there is time enough, or the last one. */
static bool choose(const vt_recipe_data *data, double seconds, vt_recipe *recipe, vt_recipe_times *times)
{
    vt_recipe next;
    for (int number = 0; vt_recipe_candidate(data, number, &next); number++) {
        EXPECT(number < 100);
        *recipe = next;
        *times = times_of(data, recipe);
        if (vt_recipe_deal(data, times, seconds, recipe)) return true;
    }
    return false;
}

static void check(const vt_recipe_data *data, double seconds)
{
    vt_recipe recipe;
    vt_recipe_times times;
    SCOPED(vt_text) text = {0};
    SCOPED(vt_config) *given = given_nothing(), *config = NULL;
    choose(data, seconds, &recipe, &times);
    const double takes = vt_recipe_seconds(data, &times, &recipe);
    EXPECT(takes <= seconds * (1 + 1e-9), "%g of %g seconds", takes, seconds);
    vt_text_append(&text, "x:\n");
    vt_recipe_write(data, &recipe, given, &text);
    if (recipe.epochs[0] > 0 || recipe.steps > 0)
        EXPECT_OK(vt_config_open_text(text.characters, "a recipe", 0, NULL, 1, &config));
    if (config != NULL) {
        const int64_t rest = config->global_batch_size % data->ranks;
        EXPECT(config->img_size[0] == data->rows && rest == 0);
        EXPECT(config->predict == VT_PREDICT_TENDENCY && config->n_out_channels == data->outputs);
    } else {
        EXPECT(seconds < 600, "nothing in %g seconds:\n%s", seconds, text.characters);
    }
}

TEST(any_data_make_a_configuration)
{
    static const int64_t grids[][2] = {{1, 1}, {1, 40}, {5, 7}, {17, 31}, {24, 48}, {32, 64}, {181, 360}, {721, 1440}},
                         channels[] = {1, 2, 3, 8, 70}, steps[] = {60, 180, 360, 720, 1440, 7200, VT_A_MONTH};
    static const double hours[] = {0.01, 0.1, 1, 24, 1000};
    for (size_t g = 0; g < sizeof grids / sizeof grids[0]; g++)
        for (size_t c = 0; c < sizeof channels / sizeof channels[0]; c++)
            for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
                vt_recipe_data data = {.channels = channels[c],
                                       .outputs = channels[c],
                                       .rows = grids[g][0],
                                       .columns = grids[g][1],
                                       .samples = s % 3 == 0   ? 9
                                                  : s % 3 == 1 ? 1400
                                                               : 50000,
                                       .validation = 300,
                                       .dt = vt_recipe_dt(steps[s]),
                                       .dated = s % 2 == 0,
                                       .climatology = s % 2 == 0,
                                       .latitudes = g % 2 == 0,
                                       .longitudes = c % 2 == 0,
                                       .goes_round = g % 3 == 0,
                                       .on_gpu = c == 2};
                data.minutes = data.dt * steps[s];
                vt_recipe_rollouts(data.minutes, data.rollouts);
                if (g % 2 == 1) data.rollouts[1] = data.rollouts[2] = 0;
                for (size_t h = 0; h < sizeof hours / sizeof hours[0]; h++) {
                    data.ranks = h % 2 == 0 ? 1 : 24;
                    check(&data, 3600 * hours[h]);
                }
            }
}

/* Of the reanalysis and of the synthetic atmosphere of a year, as docs/forecasting.md has them. */
TEST(more_time_makes_longer_runs_then_larger_models)
{
    vt_recipe_data data = {.channels = 8,
                           .outputs = 8,
                           .rows = 32,
                           .columns = 64,
                           .samples = 1420,
                           .validation = 365,
                           .dt = 1,
                           .minutes = 360,
                           .rollouts = {4, 12, 40},
                           .ranks = 1};
    int64_t width = 0;
    double work = 0;
    for (double seconds = 10; seconds < 3e6; seconds *= 3) {
        vt_recipe recipe;
        vt_recipe_times times;
        choose(&data, seconds, &recipe, &times);
        const double takes = vt_recipe_seconds(&data, &times, &recipe);
        EXPECT(recipe.embed_dim >= width && takes >= work);
        EXPECT(takes > seconds / 3 || recipe.embed_dim == 192 || recipe.steps > 0, "%g of %g seconds", takes, seconds);
        width = recipe.embed_dim;
        work = takes;
    }
    EXPECT(width == 192); /* what 23 million values support */
}

TEST(steps_of_about_six_hours)
{
    static const int64_t minutes[] = {60, 30, 180, 240, 360, 720, 1440, VT_A_MONTH}, dt[] = {6, 12, 2, 2, 1, 1, 1, 1};
    static const int64_t rollouts[][3] = {{4, 12, 40}, {4, 12, 40}, {4, 12, 40}, {3, 9, 30},
                                          {4, 12, 40}, {2, 6, 20},  {3, 10, 0},  {3, 10, 0}};
    for (int i = 0; i < 8; i++) {
        int64_t found[3];
        EXPECT(vt_recipe_dt(minutes[i]) == dt[i]);
        vt_recipe_rollouts(minutes[i] * dt[i], found);
        for (int k = 0; k < 3; k++)
            EXPECT(found[k] == rollouts[i][k], "%ld minutes: %ld steps, expected %ld", minutes[i], found[k],
                   rollouts[i][k]);
    }
}
