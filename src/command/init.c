/* `vitrain init`: looks at a set of fields, and writes a configuration that suits it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/median.h"
#include "base/memory.h"
#include "command/command.h"
#include "planning/layouts.h"
#include "planning/practice.h"
#include "planning/recipe.h"
#include "report/page.h"
#include "source/fields/dataset.h"
#include "source/fields/file_list.h"
#include "source/fields/statistics.h"
#include "storage/output_file.h"

typedef struct {
    vt_recipe recipe;
    vt_recipe_times times;
    vt_option_cost layout; /* of several ranks of a machine */
} choice;

typedef struct {
    const vt_init_flags *flags;
    const char *directory;
    double seconds; /* for training */
    char *name;     /* of the configuration */
    char **options; /* flags of a configuration: those of the command line, and what the files say */
    int option_count;
    vt_config *given; /* which has these alone */
    vt_recipe_data data;
    choice chosen;
    vt_backend *backend; /* that times steps; NULL: `hardware` says what they take */
    vt_hardware hardware;
} initial;

/* ---- the data ---- */

static vt_status add_option(initial *init, const char *name, const char *value)
{
    char *text = vt_text_format("%s:\n  model: vit\n", init->name);
    init->options = vt_grow(init->options, (size_t)init->option_count, sizeof *init->options, "the arguments");
    init->options[init->option_count++] = vt_text_format("--%s=%s", name, value);
    vt_config_close(&init->given);
    const vt_status status = vt_config_open_text(text, "init", init->option_count, init->options, 1, &init->given);
    free(text);
    return status;
}

/* A store, or a directory without train/, is one set, unless periods divide it. */
static bool is_one_set(const initial *init)
{
    const bool one = vt_file_is_zarr(init->directory) || !vt_output_holds(init->directory, "train");
    return one && init->given->train_period == NULL;
}

/* Of files whose variables nobody has named: all that have the grid and the times of the first one. */
static vt_status find_variables(initial *init)
{
    vt_status status = VT_OK;
    vt_file_list files = {0};
    vt_text words = {0};
    char *list = NULL;
    int64_t extent[4] = {0};
    const vt_fields_form any = {.variables = "any"};
    const char *directory = is_one_set(init) ? init->directory : init->given->train_data_path;
    if (init->given->variables != NULL) return VT_OK;
    VT_TRY(vt_file_list_open(directory, "train_data_path", &any, &files));
    for (int64_t i = 0; i < files.groups[0].count; i++)
        VT_TRY(vt_netcdf_variables(files.paths[files.groups[0].first + i], extent, &words));
    if (words.length == 0) goto done;
    list = vt_text_format("[%s]", words.characters);
    VT_TRY(add_option(init, "variables", list));
done:
    vt_file_list_close(&files);
    vt_text_close(&words);
    free(list);
    return status;
}

static vt_status open_whole(const initial *init, const char *directory, vt_dataset **dataset)
{
    vt_dataset_options options = vt_fields_options(init->given, VT_SET_TRAINING);
    options.directory = directory;
    options.whole = options.quiet = true;
    return vt_dataset_open(&options, dataset);
}

/* Of one set the last fifth of the times, at most a year, is for validation. */
static vt_status split_times(initial *init)
{
    enum { DAY = 24 * 60 };
    vt_status status = VT_OK;
    vt_dataset *all = NULL;
    char days[4][VT_DATE_SIZE], period[2 * VT_DATE_SIZE + 2];
    if (!is_one_set(init)) return VT_OK;
    VT_TRY(open_whole(init, init->directory, &all));
    const vt_fields_about *about = all->about;
    VT_CHECK(about->span_count > 0,
             "%s has no train/ and valid/, and its files don't say when their times are, so they can't be divided; put "
             "the files of training into %s/train and later ones into %s/valid",
             init->directory, init->directory, init->directory);
    const vt_date first = about->spans[0].first, last = about->spans[about->span_count - 1].last;
    const int64_t fifth = (last.minutes - first.minutes) / 5, part = fifth < 365 * DAY ? fifth : 365 * DAY;
    const vt_date dates[4] = {first, vt_date_after(last, -part - DAY), vt_date_after(last, -part), last};
    for (int i = 0; i < 4; i++) vt_date_format(dates[i], days[i]);
    snprintf(period, sizeof period, "%.10s..%.10s", days[0], days[1]);
    VT_TRY(add_option(init, "train_period", period));
    snprintf(period, sizeof period, "%.10s..%.10s", days[2], days[3]);
    VT_TRY(add_option(init, "valid_period", period));
done:
    vt_dataset_close(&all);
    return status;
}

static vt_status run_stats(const initial *init)
{
    const char *directory = init->directory;
    char dt[48], *options[init->option_count + 1];
    vt_stats_flags flags = {.harmonics = 1};
    snprintf(dt, sizeof dt, "--dt=%ld", init->data.dt);
    memcpy(options, init->options, (size_t)init->option_count * sizeof *options);
    options[init->option_count] = dt;
    return vt_command_stats(&(vt_call){.flags = &flags,
                                       .operands = &directory,
                                       .operand_count = 1,
                                       .options = options,
                                       .option_count = init->option_count + 1});
}

/* Makes the statistics that aren't there. Where values are missing this fails, and its error names the option that
 * leaves them out, with which it is tried again. Statistics that are there say which dt they are of. */
static vt_status make_statistics(initial *init)
{
    vt_status status = VT_OK;
    vt_recipe_data *data = &init->data;
    vt_fields_about *about = NULL;
    const bool chooses = init->given->origin[VT_OPTION_dt] == VT_FROM_DEFAULT;
    data->dt = chooses ? vt_recipe_dt(data->minutes) : init->given->dt;
    if (!vt_output_exists(init->given->global_means_path) || !vt_output_exists(init->given->time_diff_stds_path)) {
        status = run_stats(init);
        if (status == VT_ERROR && strstr(vt_error_text(), "--missing=mask") != NULL) {
            vt_error_clear();
            VT_TRY(add_option(init, "missing", "mask"));
            status = run_stats(init);
        }
        if (status != VT_OK) goto done;
    }
    VT_TRY(vt_statistics_about(init->given->time_diff_stds_path, VT_FILE_OF_CHANGES, &about));
    if (about != NULL && about->dt > 0 && chooses) data->dt = about->dt;
    if (about != NULL && about->masked && init->given->missing != VT_GAPS_MASK)
        VT_TRY(add_option(init, "missing", "mask"));
    data->climatology = data->dated && vt_output_exists(init->given->climatology_path);
    data->minutes *= data->dt;
done:
    vt_fields_about_close(&about);
    return status;
}

static vt_status look_at_data(initial *init)
{
    vt_status status = VT_OK;
    vt_dataset *training = NULL;
    VT_TRY(find_variables(init));
    VT_TRY(split_times(init));
    VT_TRY(open_whole(init, init->given->train_data_path, &training));
    const vt_fields_about *about = training->about;
    const bool named = init->given->variables != NULL, on_earth = !about->rotated;
    init->data = (vt_recipe_data){.channels = named ? vt_config_channels_a_time(init->given) : about->channels,
                                  .outputs = named ? init->given->n_out_channels : about->channels,
                                  .rows = about->window.rows,
                                  .columns = about->window.width,
                                  .minutes = vt_index_minutes(&training->index),
                                  .dated = about->span_count > 0,
                                  .latitudes = about->latitudes != NULL && on_earth,
                                  .longitudes = about->longitudes != NULL && on_earth,
                                  .goes_round = about->longitudes != NULL && about->window.width == about->columns &&
                                                vt_window_period(about->longitudes, about->columns) > 0,
                                  .ranks = init->flags->ranks};
    VT_TRY(make_statistics(init));
done:
    vt_dataset_close(&training);
    return status;
}

/* ---- configurations ---- */

static void write_recipe(const initial *init, vt_text *text)
{
    vt_text_append(text, "%s:\n", init->name);
    vt_recipe_write(&init->data, &init->chosen.recipe, init->given, text);
}

/* The present choice, trained over this rollout alone. */
static vt_status make_config(const initial *init, int64_t rollout, vt_config **config)
{
    vt_text text = {0};
    char *options[init->option_count + 2], only[48], once[] = "--lr_restarts=None";
    snprintf(only, sizeof only, "--rollout=%ld", rollout);
    memcpy(options, init->options, (size_t)init->option_count * sizeof *options);
    options[init->option_count] = only;
    options[init->option_count + 1] = once;
    write_recipe(init, &text);
    const vt_status status =
        vt_config_open_text(text.characters, init->name, init->option_count + 2, options, 1, config);
    vt_text_close(&text);
    return status;
}

static int64_t samples_of(const vt_config *config, vt_set set, int64_t reach)
{
    vt_dataset *dataset = NULL;
    vt_dataset_options options = vt_fields_options(config, set);
    options.targets = options.reach = reach;
    options.quiet = true;
    const bool opened = reach > 0 && vt_dataset_open(&options, &dataset) == VT_OK;
    const int64_t count = opened ? dataset->source.sample_count : 0;
    if (!opened) vt_error_clear();
    vt_dataset_close(&dataset);
    return count;
}

/* Rollouts are left out if gaps between the times would leave few samples that reach so far. */
static vt_status count_samples(initial *init)
{
    vt_status status = VT_OK;
    vt_recipe_data *data = &init->data;
    vt_config *config = NULL;
    data->samples = 1;
    vt_recipe_candidate(data, 0, &init->chosen.recipe);
    VT_TRY(make_config(init, 1, &config));
    const int64_t all = data->samples = samples_of(config, VT_SET_TRAINING, 1);
    data->validation = samples_of(config, VT_SET_VALIDATION, 1);
    VT_CHECK(all > 0 && data->validation > 0,
             "%s: there are %ld samples of training and %ld of validation, each of which spans %ld times without a "
             "gap; give more files (%s, %s), or --n_history=0",
             init->directory, all, data->validation, config->dt * (config->n_history + 1) + 1, config->train_data_path,
             config->valid_data_path);
    vt_recipe_rollouts(data->minutes, data->rollouts);
    for (int i = 0; i < 3; i++) {
        const int64_t count = samples_of(config, VT_SET_TRAINING, data->rollouts[i]);
        if (count >= all * 3 / 4)
            data->samples = count;
        else
            data->rollouts[i] = 0;
    }
done:
    vt_config_close(&config);
    return status;
}

/* ---- the choice ---- */

/* The part of the time given that a step may take and be worth a second look. */
#define MOST 0.01

/* Seconds of a step of these samples here; INFINITY: it doesn't fit into memory. */
static vt_status measure_step(const initial *init, const vt_config *config, int64_t samples, double *seconds)
{
    enum { WARM_UP = 1, STEPS = 5 };
    vt_status status = VT_OK;
    vt_practice *practice = NULL;
    vt_plan plan;
    double taken[STEPS];
    *seconds = INFINITY;
    VT_TRY(vt_practice_plan(config, samples, &plan));
    if (vt_plan_total(&plan) > 0.8 * init->backend->available_memory(init->backend)) goto done;
    VT_TRY(vt_practice_open(config, samples, init->backend, &practice));
    for (int i = 0; i < WARM_UP + STEPS; i++) {
        const double begin = vt_clock_seconds();
        VT_TRY(vt_practice_step(practice));
        *seconds = vt_clock_seconds() - begin;
        if (*seconds > MOST * init->seconds) goto done;
        if (i >= WARM_UP) taken[i - WARM_UP] = *seconds;
    }
    *seconds = vt_median(taken, STEPS);
done:
    vt_practice_close(&practice);
    return status;
}

static vt_status step_seconds(initial *init, int64_t rollout, double *seconds)
{
    vt_status status = VT_OK;
    vt_config *config = NULL;
    vt_layouts layouts = {NULL, 0};
    VT_TRY(make_config(init, rollout, &config));
    if (init->backend != NULL) {
        VT_TRY(measure_step(init, config, config->global_batch_size / init->data.ranks, seconds));
        goto done;
    }
    config->ranks = init->data.ranks;
    VT_TRY(vt_layouts_plan(config, &init->hardware, &layouts));
    init->chosen.layout = *vt_layouts_fastest(&layouts, NULL);
    *seconds = init->chosen.layout.fits ? init->chosen.layout.cost.step : INFINITY;
done:
    vt_layouts_close(&layouts);
    vt_config_close(&config);
    return status;
}

/* Times steps of a candidate. *worth: there is time enough for it; else it has as much as there is. */
static vt_status try_candidate(initial *init, int number, bool *worth)
{
    vt_status status = VT_OK;
    const vt_recipe_data *data = &init->data;
    vt_recipe_times *times = &init->chosen.times;
    times->rollout = data->rollouts[1] > 1 ? data->rollouts[1] : data->rollouts[0];
    vt_recipe_candidate(data, number, &init->chosen.recipe);
    VT_TRY(step_seconds(init, 1, &times->one));
    times->several = times->one;
    if (times->rollout > 1 && times->one < MOST * init->seconds)
        VT_TRY(step_seconds(init, times->rollout, &times->several));
    *worth = isfinite(times->several) && vt_recipe_deal(data, times, 0.9 * init->seconds, &init->chosen.recipe);
done:
    return status;
}

/* The best candidate for which there is time enough, or the cheapest one: from that on better ones are tried. */
static vt_status choose(initial *init)
{
    vt_status status = VT_OK;
    int number = 0;
    bool worth = false;
    while (vt_recipe_candidate(&init->data, number + 1, &init->chosen.recipe)) number++;
    VT_TRY(try_candidate(init, number, &worth));
    while (worth && number > 0) {
        const choice last = init->chosen;
        VT_TRY(try_candidate(init, --number, &worth));
        if (!worth) init->chosen = last;
    }
    VT_CHECK(isfinite(init->chosen.times.several), "no model that learns something from %s fits into memory",
             init->directory);
    VT_CHECK(init->chosen.recipe.epochs[0] > 0 || init->chosen.recipe.steps >= 20,
             "%g hours are too few for %s: a step takes %.3g s; give more, or a smaller window", init->flags->hours,
             init->directory, init->chosen.times.one);
done:
    return status;
}

/* ---- the file ---- */

static void write_layout(const initial *init, vt_text *text)
{
    const vt_option_cost *layout = &init->chosen.layout;
    if (init->backend != NULL || init->data.ranks == 1) return;
    vt_text_append(text,
                   "  # the fastest layout of %ld ranks of %s\n  tensor_parallel: %ld\n  context_parallel: %ld\n"
                   "  pipeline_parallel: %ld\n  zero_stage: %ld\n  grad_accumulation: %ld\n  recompute: %s\n"
                   "  sequence_parallel: %s\n",
                   init->data.ranks, init->hardware.name, layout->tensor, layout->context, layout->pipeline,
                   layout->zero, layout->accumulation, vt_recompute_words[layout->recompute],
                   layout->sequence ? "true" : "false");
}

static vt_status write_file(const initial *init, const char *path, const char *command)
{
    vt_status status = VT_OK;
    const vt_recipe *recipe = &init->chosen.recipe;
    FILE *file = NULL;
    vt_text text = {0};
    char took[VT_NUMBER_SIZE];
    vt_number_duration(vt_recipe_seconds(&init->data, &init->chosen.times, recipe), took);
    vt_text_append(&text, "# %s\n# %ld samples of training, %ld of validation; a step takes %.3g s%s%s, all about %s\n",
                   command, init->data.samples, init->data.validation, init->chosen.times.one,
                   init->backend != NULL ? " here" : " on ", init->backend != NULL ? "" : init->hardware.name, took);
    write_recipe(init, &text);
    write_layout(init, &text);
    VT_TRY(vt_output_open(path, &file));
    fputs(text.characters, file);
    VT_TRY(vt_output_close(file, path));
    vt_print("%s: %ld blocks of width %ld on patches of %ld × %ld; training takes about %s\n"
             "train with:  vitrain --yaml_config=%s --config=%s\n",
             path, recipe->depth, recipe->embed_dim, recipe->patch_size, recipe->patch_size, took, path, init->name);
done:
    vt_text_close(&text);
    return status;
}

/* "era5" of data/era5.zarr */
static char *name_of(const char *directory)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    char *name = vt_text_copy(vt_file_name(directory));
    if (vt_text_ends_with(name, ".zarr")) name[strlen(name) - strlen(".zarr")] = '\0';
    for (char *c = name; *c != '\0'; c++)
        if (strchr(plain, *c) == NULL) *c = '_';
    return name;
}

vt_status vt_command_init(const vt_call *call)
{
    vt_status status = VT_OK;
    const vt_init_flags *flags = call->flags;
    initial init = {.flags = flags,
                    .directory = call->operands[0],
                    .seconds = 3600 * flags->hours,
                    .name = name_of(call->operands[0])};
    char *path = flags->output != NULL ? vt_text_copy(flags->output) : vt_text_format("%s.yaml", init.name);
    init.options = vt_allocate((size_t)call->option_count + 1, sizeof *init.options, "the arguments");
    for (; init.option_count < call->option_count; init.option_count++)
        init.options[init.option_count] = vt_text_copy(call->options[init.option_count]);
    VT_TRY(vt_output_check_file("--output", path));
    VT_TRY(vt_output_check_absent(path, flags->force));
    VT_TRY(add_option(&init, "data_dir", init.directory));
    VT_TRY(look_at_data(&init));
    if (flags->hardware != NULL)
        VT_TRY(vt_hardware_read(flags->hardware, &init.hardware));
    else
        VT_TRY(vt_backend_open(init.given, 0, 0, &init.backend));
    init.data.on_gpu = init.backend != NULL ? !init.backend->shares_host_memory : init.hardware.kind == VT_MACHINE_GPU;
    VT_TRY(count_samples(&init));
    VT_TRY(choose(&init));
    VT_TRY(write_file(&init, path, call->line));
done:
    vt_backend_close(&init.backend);
    vt_config_close(&init.given);
    vt_text_free_list(init.options, init.option_count);
    free(init.name);
    free(path);
    return status;
}
