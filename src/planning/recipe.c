#include "planning/recipe.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/whole.h"
#include "config/option.h"

enum { DAY = 24 * 60, STEP = 6 * 60 };

int64_t vt_recipe_dt(int64_t minutes)
{
    return minutes > 0 && minutes < STEP ? (STEP + minutes / 2) / minutes : 1;
}

void vt_recipe_rollouts(int64_t minutes, int64_t rollouts[3])
{
    static const int64_t days[] = {1, 3, 10}, long_steps[] = {3, 10, 0};
    for (int i = 0; i < 3; i++) rollouts[i] = minutes > DAY / 2 ? long_steps[i] : days[i] * DAY / minutes;
}

/* ---- sizes ---- */

static const struct {
    int64_t embed_dim, depth;
} sizes[] = {{384, 12}, {256, 8}, {192, 6}, {128, 4}, {96, 4}, {64, 4}};
enum { SIZES = sizeof sizes / sizeof sizes[0], MOST_TOKENS = 4096, FEWEST_TOKENS = 64, BATCH = 16 };

static int64_t tokens_of(const vt_recipe_data *data, int64_t patch)
{
    return vt_quotient_up(data->rows, patch) * vt_quotient_up(data->columns, patch);
}

static bool divides(const vt_recipe_data *data, int64_t patch)
{
    return data->rows % patch == 0 && data->columns % patch == 0;
}

/* The smallest patch, or the next larger one; of those that are nearly as large one that divides the grid. */
static int64_t patch_above(const vt_recipe_data *data, int64_t patch)
{
    int64_t next = patch > 0 ? patch + vt_quotient_up(patch, 2) : 4;
    while (patch == 0 && next > 1 && tokens_of(data, next) < FEWEST_TOKENS) next /= 2;
    while (tokens_of(data, next) > MOST_TOKENS) next++;
    for (int64_t more = 0; more <= next / 4; more++)
        if (divides(data, next + more)) return next + more;
    return next;
}

/* A parameter wants about eight values to learn from. */
bool vt_recipe_candidate(const vt_recipe_data *data, int number, vt_recipe *recipe)
{
    const double values = (double)(data->samples * data->channels) * (double)(data->rows * data->columns);
    int size = 0;
    while (size + 1 < SIZES && 8 * 12.0 * pow((double)sizes[size].embed_dim, 2) * (double)sizes[size].depth > values)
        size++;
    int64_t patch = patch_above(data, 0), batch = vt_quotient_up(BATCH, data->ranks) * data->ranks;
    while (batch > data->samples && batch > data->ranks) batch -= data->ranks;
    for (size += number; size >= SIZES; size--) patch = patch_above(data, patch);
    *recipe = (vt_recipe){.patch_size = patch,
                          .embed_dim = sizes[size].embed_dim,
                          .depth = sizes[size].depth,
                          .batch = batch,
                          .steps = 1};
    return patch == patch_above(data, 0) || tokens_of(data, patch) >= 4 * FEWEST_TOKENS;
}

/* ---- length ---- */

static int64_t steps_an_epoch(const vt_recipe_data *data, const vt_recipe *recipe)
{
    return data->samples / recipe->batch > 0 ? data->samples / recipe->batch : 1;
}

/* Validation is a third of a training step for each batch; 0.3 s and 3 % go into pictures, checkpoints and logs. */
static double epoch_seconds(const vt_recipe_data *data, const vt_recipe_times *times, const vt_recipe *recipe,
                            int stage)
{
    double step = times->one;
    if (stage > 0 && times->rollout > 1)
        step += (times->several - times->one) * (double)(data->rollouts[stage - 1] - 1) / (double)(times->rollout - 1);
    return 0.3 + 1.03 * ((double)steps_an_epoch(data, recipe) * step +
                         (double)vt_quotient_up(data->validation, recipe->batch) * times->one / 3);
}

double vt_recipe_seconds(const vt_recipe_data *data, const vt_recipe_times *times, const vt_recipe *recipe)
{
    double seconds = (double)recipe->steps * times->one;
    for (int stage = 0; stage < 4; stage++)
        seconds += (double)recipe->epochs[stage] * epoch_seconds(data, times, recipe, stage);
    return seconds;
}

/* Steps of training over one step that come before, and epochs over rollouts of 1, 3 and 10 days; the best first. */
static const int64_t patterns[][4] = {{1400, 0, 2, 1}, {900, 0, 1, 1}, {700, 0, 0, 1},
                                      {700, 0, 1, 0},  {500, 1, 0, 0}, {1, 0, 0, 0}};
enum { PATTERNS = sizeof patterns / sizeof patterns[0], MOST_EPOCHS = 32 };

bool vt_recipe_deal(const vt_recipe_data *data, const vt_recipe_times *times, double seconds, vt_recipe *recipe)
{
    const double one = epoch_seconds(data, times, recipe, 0);
    const int64_t each = steps_an_epoch(data, recipe), enough = vt_quotient_up(patterns[0][0], each);
    const double most = (double)(enough > MOST_EPOCHS ? enough : MOST_EPOCHS); /* of small sets */
    recipe->steps = 0;
    for (int p = 0; p < PATTERNS; p++) {
        double left = seconds;
        for (int stage = 1; stage < 4; stage++) {
            recipe->epochs[stage] = data->rollouts[stage - 1] > 0 ? patterns[p][stage] : 0;
            left -= (double)recipe->epochs[stage] * epoch_seconds(data, times, recipe, stage);
        }
        const double epochs = floor(left / one);
        recipe->epochs[0] = (int64_t)fmin(epochs, most);
        if (epochs >= (double)vt_quotient_up(patterns[p][0], each)) return p == 0;
    }
    memset(recipe->epochs, 0, sizeof recipe->epochs);
    recipe->steps = (int64_t)(seconds / times->one);
    return false;
}

/* ---- the file ---- */

typedef struct {
    const vt_config *given;
    vt_text *yaml;
} writer;

/* A comment, and an option that isn't given; reason NULL: no comment. */
static void put(const writer *to, const char *key, const char *reason, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void put(const writer *to, const char *key, const char *reason, const char *format, ...)
{
    const vt_row *row = vt_row_find(vt_options, key);
    char value[512];
    va_list arguments;
    VT_ASSERT(row != NULL);
    if (*vt_row_origin(row, to->given) == VT_FROM_COMMAND_LINE) return;
    va_start(arguments, format);
    vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    if (reason != NULL) vt_text_append(to->yaml, "  # %s\n", reason);
    vt_text_append(to->yaml, "  %s: %s\n", key, value);
}

static void put_data(const writer *to, const vt_recipe_data *data)
{
    const int64_t history = data->channels <= 2 ? 3 : data->channels <= 4 ? 1 : 0;
    put(to, "img_size", "the grid of the files, or its window", "[%ld, %ld]", data->rows, data->columns);
    put(to, "n_history", "earlier times that the model sees: of few channels, one time doesn't tell what moves where",
        "%ld", history);
    if (to->given->variables == NULL) {
        put(to, "n_in_channels", NULL, "%ld", data->channels * (history + 1));
        put(to, "n_out_channels", NULL, "%ld", data->outputs);
    }
    put(to, "dt", "times of the files in a step of forecast: about 6 hours, as shorter steps add up more errors", "%ld",
        data->dt);
}

static void put_task(const writer *to, const vt_recipe_data *data)
{
    put(to, "predict", "the change over a step is easier to learn than the state", "tendency");
    if (data->climatology) {
        put(to, "normalise", "departures from the season and the time of day, which are known", "climatology");
        put(to, "augment", "a departure is about as likely as its opposite: twice the data", "sign");
    }
    char *forcings = vt_text_format(
        "%s%s%s%s%s", data->dated && data->latitudes && data->longitudes ? ", cos_zenith" : "",
        data->dated ? ", sin_year, cos_year" : "", data->dated && data->minutes < DAY ? ", sin_day, cos_day" : "",
        data->latitudes ? ", sin_lat, cos_lat" : "", data->longitudes ? ", sin_lon, cos_lon" : "");
    if (forcings[0] != '\0')
        put(to, "forcings", "what is known of every time and place: it helps the first day most", "[%s]", forcings + 2);
    put(to, "input_noise", "the model learns to live with its own errors", "0.1");
    put(to, "loss", "what RMSE measures", "mse");
    if (data->latitudes) put(to, "latitude_weights", "a point counts as the area that it stands for", "true");
    free(forcings);
}

static void put_model(const writer *to, const vt_recipe_data *data, const vt_recipe *recipe)
{
    char tokens[128];
    snprintf(tokens, sizeof tokens, "%ld tokens a sample; smaller patches show more, and cost more time",
             tokens_of(data, recipe->patch_size));
    put(to, "patch_size", tokens, "%ld", recipe->patch_size);
    if (!divides(data, recipe->patch_size))
        put(to, "pad", "fills up the patches, which don't divide the grid", data->goes_round ? "wrap" : "edge");
    put(to, "embed_dim", "the largest model that the data support and the time allows", "%ld", recipe->embed_dim);
    put(to, "depth", NULL, "%ld", recipe->depth);
    put(to, "num_heads", NULL, "%ld", recipe->embed_dim < 128 ? 4 : recipe->embed_dim / 32);
}

/* Steps of the first `stages` stages. */
static int64_t steps_of(const vt_recipe_data *data, const vt_recipe *recipe, int stages)
{
    int64_t epochs = 0;
    for (int stage = 0; stage < stages; stage++) epochs += recipe->epochs[stage];
    return recipe->steps + epochs * steps_an_epoch(data, recipe);
}

/* Rates fall as 1 / embed_dim: 3e-3 at 64 (docs/forecasting.md), 5e-4 at 384 (the tutorials'). */
static void put_training(const writer *to, const vt_recipe_data *data, const vt_recipe *recipe)
{
    const double width = 64 / (double)recipe->embed_dim, steps = (double)steps_of(data, recipe, 4);
    const int64_t first = steps_of(data, recipe, 1);
    if (data->on_gpu) put(to, "amp_mode", "matrix products in 16 bits, which GPUs do several times as fast", "bf16");
    if (data->on_gpu) put(to, "enable_jit", NULL, "true");
    put(to, "global_batch_size", NULL, "%ld", recipe->batch);
    put(to, "optimizer", NULL, "AdamW");
    put(to, "weight_decay", NULL, "0.1");
    put(to, "lr", "less for wider models, more for larger batches", "%.2g",
        3e-3 * width * sqrt((double)recipe->batch / BATCH));
    put(to, "warmup", NULL, "%ld", first < 2000 ? first / 10 : 200);
    put(to, "grad_clip", NULL, "0.5");
    put(to, "ema_decay", "averages the weights over about a fifteenth of the run, which forecasts better", "%.4g",
        fmin(0.9999, fmax(0.9, 1 - 15 / steps)));
}

/* The last stage moves less, which keeps the first hours as good as they are (docs/lab/forecasting.md). */
static void put_length(const writer *to, const vt_recipe_data *data, const vt_recipe *recipe)
{
    static const double rates[] = {1e-3, 1e-3, 6e-4};
    vt_text rollout = {0}, restarts = {0};
    int64_t epochs = recipe->epochs[0];
    for (int stage = 1; stage < 4; epochs += recipe->epochs[stage++]) {
        if (recipe->epochs[stage] == 0) continue;
        vt_text_append(&rollout, ", %ld@%ld", data->rollouts[stage - 1], epochs);
        vt_text_append(&restarts, "%s%.2g@%ld", restarts.length > 0 ? ", " : "",
                       rates[stage - 1] * 64 / (double)recipe->embed_dim, epochs);
    }
    if (recipe->steps > 0)
        put(to, "num_iters", "steps in the time given, which is less than an epoch", "%ld", recipe->steps);
    else
        put(to, "num_epochs", "as many as the time allows", "%ld", epochs);
    const bool chosen = to->given->origin[VT_OPTION_rollout] == VT_FROM_DEFAULT;
    if (rollout.length == 0 || !chosen) goto done;
    put(to, "rollout", "at last over forecasts of days: these keep long forecasts from drifting", "[1%s]",
        rollout.characters);
    put(to, "lr_restarts", NULL, "[%s]", restarts.characters);
    put(to, "restart_warmup", NULL, "20");
done:
    vt_text_close(&rollout);
    vt_text_close(&restarts);
}

void vt_recipe_write(const vt_recipe_data *data, const vt_recipe *recipe, const vt_config *given, vt_text *yaml)
{
    const writer to = {given, yaml};
    vt_text_append(yaml, "  # as given\n");
    for (const vt_row *row = vt_options; row->kind != VT_ROW_END; row++)
        if (vt_row_is_option(row) && !row->flag_only && *vt_row_origin(row, given) == VT_FROM_COMMAND_LINE)
            vt_row_save(row, given, yaml);
    put_data(&to, data);
    put_task(&to, data);
    put_model(&to, data, recipe);
    put_training(&to, data, recipe);
    put_length(&to, data, recipe);
}
