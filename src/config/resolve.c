/* What follows from other options, and the checks that need more than one. May be called again after a vt_config_set:
 * what was derived keeps the origin "default", so that it is derived anew. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "config/fit.h"
#include "config/option.h"
#include "config/roles.h"
#include "config/stages.h"

enum { DEFAULT_ITERATIONS = 30000 };

#define WORD(enumerator, word) word,
static const char *const differences[] = {VT_DIFFERENCES(WORD) NULL};

/* ---- the grid of ranks ---- */

/* "use tensor_parallel 2 or 4": one axis changed, where that is enough. */
static void advise_grid(const vt_config *config, vt_text *advice)
{
    static const char *const axes[] = {"tensor_parallel", "context_parallel", "pipeline_parallel"};
    const int64_t ranks[] = {config->tensor_parallel, config->context_parallel, config->pipeline_parallel};
    char values[64];
    for (int i = 0; i < 3 && advice->length == 0; i++)
        if (ranks[i] > 1 &&
            vt_fit_nearest(config, vt_row_find(vt_options, axes[i])->offset, vt_fit_tensor, values) != NULL)
            vt_text_append(advice, "use %s %s", axes[i], values);
    if (advice->length == 0) vt_text_append(advice, "use 1 for each");
}

vt_status vt_config_check_ranks(const vt_config *config, int64_t ranks)
{
    vt_status status = VT_OK;
    char values[64], stages[48] = "";
    vt_text advice = {0};
    vt_config started = *config; /* its strings stay the configuration's */
    started.ranks = ranks;
    if (vt_fit_ranks(&started)) goto done;
    advise_grid(&started, &advice);
    if (VT_FIT_NEAREST(&started, ranks, vt_fit_tensor, values) != NULL)
        vt_text_append(&advice, ", or start %s ranks", values);
    if (config->pipeline_parallel > 1)
        snprintf(stages, sizeof stages, " x pipeline_parallel %ld", config->pipeline_parallel);
    VT_FAIL("tensor_parallel %ld x context_parallel %ld%s = %ld does not divide the %ld rank%s of this run; %s",
            config->tensor_parallel, config->context_parallel, stages, vt_config_model_ranks(config), ranks,
            ranks == 1 ? "" : "s", advice.characters);
done:
    vt_text_close(&advice);
    return status;
}

/* ---- what follows ---- */

static vt_status derive_data_parallel(vt_config *config)
{
    const vt_status status = vt_config_check_ranks(config, config->ranks);
    if (status == VT_OK) config->data_parallel = config->ranks / vt_config_model_ranks(config);
    return status;
}

/* "file:///path" becomes "/path". */
static void take_address(char *path)
{
    const char *place = vt_file_of_address(path);
    memmove(path, place, strlen(place) + 1);
}

char *vt_config_beside_store(const char *store, const char *below)
{
    size_t length = strlen(store);
    while (length > 0 && store[length - 1] == '/') length--;
    if (length > 5 && strncmp(store + length - 5, ".zarr", 5) == 0) length -= 5;
    return vt_text_format("%.*s.%s", (int)length, store, below);
}

/* data_dir gives the paths that are not set. A data_dir from the command line also replaces the file's paths, which may
 * be those of another machine. */
static void derive_paths(vt_config *config)
{
    take_address(config->data_dir);
    const bool is_store = vt_file_is_zarr(config->data_dir);
    /* a store that is named by itself has its statistics beside it, too, if nothing says where they are */
    const vt_origin of_data = config->origin[VT_OPTION_data_dir], of_store = config->origin[VT_OPTION_train_data_path];
    const bool by_itself =
        of_data == VT_FROM_DEFAULT || (of_store == VT_FROM_COMMAND_LINE && of_data != VT_FROM_COMMAND_LINE);
    const bool training_store =
        by_itself && config->train_data_path != NULL && vt_file_is_zarr(config->train_data_path);
    const char *const periods[] = {config->train_period, config->valid_period, config->test_period};
    size_t length = strlen(config->data_dir);
    while (length > 0 && config->data_dir[length - 1] == '/') length--;
    for (const vt_row *row = vt_options; row->kind != VT_ROW_END; row++) {
        if (row->below_data == NULL) continue;
        char **path = (char **)(void *)((char *)config + row->offset);
        vt_origin *origin = vt_row_origin(row, config);
        const int set = vt_text_choice(row->below_data, "train|valid|test"); /* -1: it is no set's */
        const bool is_set = *path != NULL && *origin != VT_FROM_DEFAULT;
        if (set >= 0 && *path != NULL) take_address(*path);
        if (is_set && !(of_data == VT_FROM_COMMAND_LINE && *origin == VT_FROM_YAML)) continue;
        free(*path);
        if (set >= 0 && (is_store || periods[set] != NULL)) /* the set is where its period is chosen from */
            *path = set == 2 && periods[set] == NULL ? NULL : vt_text_format("%.*s", (int)length, config->data_dir);
        else if (is_store || (training_store && strncmp(row->below_data, "stats/", 6) == 0)) /* era5.stats/… */
            *path = vt_config_beside_store(is_store ? config->data_dir : config->train_data_path, row->below_data);
        else
            *path = vt_text_format("%.*s/%s", (int)length, config->data_dir, row->below_data);
        *origin = VT_FROM_DEFAULT;
    }
}

/* One of num_iters and num_epochs: the command line's, else the file's, else DEFAULT_ITERATIONS. */
static vt_status derive_length(vt_config *config)
{
    vt_status status = VT_OK;
    vt_origin iterations = config->origin[VT_OPTION_num_iters], epochs = config->origin[VT_OPTION_num_epochs];
    if (config->num_iters != VT_UNSET_INTEGER && config->num_epochs != VT_UNSET_INTEGER) {
        VT_CHECK(iterations != epochs || epochs != VT_FROM_COMMAND_LINE,
                 "--num_iters=%ld and --num_epochs=%ld both give the length of the run; give one of the two",
                 config->num_iters, config->num_epochs);
        VT_CHECK(iterations != epochs,
                 "%s: configuration '%s' gives the length of the run by num_iters %ld and by num_epochs %ld; set one "
                 "of the two to None there, or give one as a flag",
                 config->yaml_config, config->config, config->num_iters, config->num_epochs);
        if (iterations < epochs)
            config->num_iters = VT_UNSET_INTEGER;
        else
            config->num_epochs = VT_UNSET_INTEGER;
    }
    if (config->num_iters == VT_UNSET_INTEGER && config->num_epochs == VT_UNSET_INTEGER) {
        config->num_iters = DEFAULT_ITERATIONS;
        config->origin[VT_OPTION_num_iters] = VT_FROM_DEFAULT;
    }
done:
    return status;
}

static vt_status derive_batch(vt_config *config)
{
    vt_status status = VT_OK;
    if (config->local_batch_size == VT_UNSET_INTEGER) return VT_OK;
    if (config->origin[VT_OPTION_local_batch_size] == VT_FROM_YAML &&
        config->origin[VT_OPTION_global_batch_size] == VT_FROM_COMMAND_LINE) {
        config->local_batch_size = VT_UNSET_INTEGER; /* a file's batch_size */
        return VT_OK;
    }
    int64_t global = config->local_batch_size * config->data_parallel;
    VT_CHECK(config->origin[VT_OPTION_global_batch_size] != VT_FROM_COMMAND_LINE || config->global_batch_size == global,
             "--local_batch_size=%ld on %ld data-parallel rank%s makes a global batch of %ld, but "
             "--global_batch_size=%ld "
             "asks for another; give one of the two",
             config->local_batch_size, config->data_parallel, config->data_parallel == 1 ? "" : "s", global,
             config->global_batch_size);
    config->global_batch_size = global;
done:
    return status;
}

/* model_backend transformer-engine and enable_jit mean the same layers: of two places that disagree, the command line
 * wins; within the file, either switches them on. */
static vt_status derive_layers(vt_config *config)
{
    vt_status status = VT_OK;
    if (config->model_backend != VT_MODEL_BACKEND_TRANSFORMER_ENGINE || config->enable_jit) return VT_OK;
    bool flag_says_off = config->origin[VT_OPTION_enable_jit] == VT_FROM_COMMAND_LINE;
    VT_CHECK(!flag_says_off || config->origin[VT_OPTION_model_backend] != VT_FROM_COMMAND_LINE,
             "--model_backend=transformer-engine asks for the fused layers that --enable_jit=false switches off; give "
             "one of the two");
    if (flag_says_off)
        config->model_backend = VT_MODEL_BACKEND_PYTORCH;
    else
        config->enable_jit = true;
done:
    return status;
}

static void take_channel_count(const vt_config *config, vt_option_id option, int64_t count, int64_t *channels,
                               int64_t *replaced)
{
    const vt_origin origin = config->origin[option];
    if (origin != VT_FROM_DEFAULT && origin >= config->origin[VT_OPTION_variables]) return;
    if (origin == VT_FROM_YAML && *channels != count) *replaced = *channels;
    *channels = count;
}

/* The number of `variables` gives the numbers of channels, unless these are set as well, in the same place or on the
 * command line. */
static vt_status derive_channels(vt_config *config)
{
    vt_status status = VT_OK;
    VT_TRY(vt_config_resolve_variables(config));
    const int64_t both = vt_config_role_count(config, VT_ROLE_PROGNOSTIC), in = both * (config->n_history + 1);
    const int64_t out = both + vt_config_role_count(config, VT_ROLE_DIAGNOSTIC);
    if (both == 0) goto done; /* opening the data says so */
    take_channel_count(config, VT_OPTION_n_in_channels, in, &config->n_in_channels, &config->replaced_channels[0]);
    take_channel_count(config, VT_OPTION_n_out_channels, out, &config->n_out_channels, &config->replaced_channels[1]);
    VT_CHECK(config->roles == NULL || (config->n_in_channels == in && config->n_out_channels == out),
             "n_in_channels %ld and n_out_channels %ld don't go with the roles of the variables, which make %ld and "
             "%ld; leave both options out",
             config->n_in_channels, config->n_out_channels, in, out);
done:
    return status;
}

/* resume_newest means resume, too, where no checkpoint is named. */
static void derive_resume(vt_config *config)
{
    vt_origin *origin = &config->origin[VT_OPTION_resume];
    if (config->resume != NULL && *origin != VT_FROM_DEFAULT) return;
    free(config->resume);
    config->resume = config->resume_newest ? vt_text_copy(VT_SWITCH_ON) : NULL;
    *origin = VT_FROM_DEFAULT;
}

/* "HH:MM:SS" or seconds; false when it is neither. */
static bool parse_duration(const char *text, double *seconds)
{
    char part[3][8] = {""};
    int end = 0;
    int parts = sscanf(text, "%7[0-9]%n:%7[0-9]:%7[0-9]%n", part[0], &end, part[1], part[2], &end);
    if ((parts != 1 && parts != 3) || text[end] != '\0') return false;
    *seconds = 0;
    for (int i = 0; i < parts; i++) {
        if (i > 0 && atoi(part[i]) > 59) return false;
        *seconds = 60 * *seconds + atoi(part[i]);
    }
    return *seconds > 0;
}

int64_t vt_config_channels_a_time(const vt_config *config)
{
    return config->n_in_channels / (config->n_history + 1);
}

double vt_config_max_seconds(const vt_config *config)
{
    double seconds = INFINITY;
    if (config->max_time != NULL) VT_ASSERT(parse_duration(config->max_time, &seconds));
    return seconds;
}

/* ---- checks ---- */

static vt_status check_shapes(const vt_config *config)
{
    vt_status status = VT_OK;
    char values[64], window[96] = "";
    int64_t patch = config->patch_size, rows = config->img_size[0], columns = config->img_size[1];
    int64_t times = config->n_history + 1, channels = config->n_in_channels;
    VT_CHECK(vt_fit_heads(config), "num_heads %ld does not divide embed_dim %ld; use %s heads", config->num_heads,
             config->embed_dim, VT_FIT_NEAREST(config, num_heads, vt_fit_heads, values));
    if (!vt_fit_patch(config)) {
        if (rows >= patch && columns >= patch && !config->window_known)
            snprintf(window, sizeof window, ", or img_size [%ld, %ld]", rows - rows % patch, columns - columns % patch);
        VT_FAIL("patch_size %ld does not divide both of img_size [%ld, %ld]; use %s as patch_size%s, or --pad=edge "
                "or --pad=wrap, which fill up the patches at the south and the east",
                patch, rows, columns, VT_FIT_NEAREST(config, patch_size, vt_fit_patch, values), window);
    }
    VT_CHECK(channels % times == 0 && channels >= times,
             "n_in_channels %ld is not a multiple of n_history + 1 = %ld, the times that each channel is read at; use "
             "%ld or %ld",
             channels, times, channels < times ? times : channels - channels % times,
             (channels / times + (channels < times ? 2 : 1)) * times);
done:
    return status;
}

static vt_status check_pairs(const vt_config *config)
{
    vt_status status = VT_OK;
    double seconds = 0;
    VT_CHECK(!config->mask_channels || config->missing == VT_GAPS_MASK,
             "mask_channels show the model where values are missing, but with missing: refuse none is; add "
             "--missing=mask, or --mask_channels=false");
    VT_CHECK(
        config->augment != VT_AUGMENT_SIGN || config->normalise == VT_NORMALISE_CLIMATOLOGY,
        "augment sign changes the sign of departures from the climatology, but with normalise mean there are none; "
        "add --normalise=climatology, or use --augment=none");
    VT_CHECK(config->augment != VT_AUGMENT_SIGN || vt_config_role_count(config, VT_ROLE_FORCING) == 0,
             "augment sign changes the sign of what is forecast, but variables that are forcings keep theirs; use "
             "--augment=none");
    VT_CHECK(config->bounds == NULL || config->normalise == VT_NORMALISE_MEAN,
             "bounds of a departure depend on its place and date, so they don't go with normalise climatology; use "
             "--normalise=mean, or --bounds=None");
    VT_CHECK(config->cache != VT_CACHE_DEVICE || config->device == VT_DEVICE_CUDA,
             "cache: device keeps the sets in a GPU's memory and needs --device=cuda; this machine's memory is "
             "--cache=host");
    VT_CHECK(
        config->cache != VT_CACHE_DEVICE || !config->skip_bad_samples,
        "cache: device reads both sets once, whole, so that skip_bad_samples can't replace samples in batches; use "
        "--cache=host");
    VT_CHECK(!config->enable_benchy || !config->enable_manual_profiling,
             "enable_benchy measures instead of training, so that enable_manual_profiling has no second epoch to "
             "record; give one of the two");
    VT_CHECK(config->max_time == NULL || parse_duration(config->max_time, &seconds),
             "max_time '%.40s': expected HH:MM:SS (01:30:00) or a number of seconds", config->max_time);
done:
    return status;
}

static vt_status check_batch(const vt_config *config)
{
    vt_status status = VT_OK;
    char values[64];
    VT_CHECK(vt_fit_batch(config), "global_batch_size %ld is not a multiple of the %ld data-parallel ranks; use %s",
             config->global_batch_size, config->data_parallel,
             vt_fit_multiples(config->data_parallel * config->grad_accumulation, config->global_batch_size, values));
    VT_CHECK(vt_fit_accumulation(config), "grad_accumulation %ld does not divide a rank's batch of %ld samples; use %s",
             config->grad_accumulation, config->global_batch_size / config->data_parallel,
             VT_FIT_NEAREST(config, grad_accumulation, vt_fit_accumulation, values));
done:
    return status;
}

static vt_status check_pipeline(const vt_config *config)
{
    vt_status status = VT_OK;
    const int64_t stages = config->pipeline_parallel;
    VT_CHECK(config->pipeline_schedule != VT_PIPELINE_INTERLEAVED,
             "pipeline_schedule interleaved is not offered: it idles less only by sending each micro-batch through "
             "several parts of every stage, and raising grad_accumulation does the same without these messages; use "
             "1f1b or gpipe");
    VT_CHECK(config->pipeline_comm == VT_PIPELINE_FLOAT32 || config->amp_mode == VT_AMP_BF16,
             "pipeline_comm bf16 needs amp_mode bf16, which computes in bfloat16 as well; add --amp_mode=bf16, or use "
             "--pipeline_comm=float32");
    if (stages == 1) goto done;
    VT_CHECK(config->zero_stage < 2,
             "zero_stage %ld with pipeline_parallel %ld: gradients would be reduced %ld times a step; use "
             "zero_stage 1",
             config->zero_stage, stages, config->grad_accumulation);
done:
    return status;
}

/* Each rank must have a head, a token and, with sequence_parallel, a token of its context's. (That tensor_parallel
 * divides 4 · embed_dim follows: it divides num_heads, which divides embed_dim.) */
static vt_status check_parallel(const vt_config *config)
{
    vt_status status = VT_OK;
    char values[64];
    int64_t tensor = config->tensor_parallel, context = config->context_parallel, tokens = vt_fit_tokens(config);
    VT_CHECK(vt_fit_context(config), "context_parallel %ld is more than the %ld tokens of a sample; use %s", context,
             tokens, VT_FIT_NEAREST(config, context_parallel, vt_fit_context, values));
    VT_CHECK(vt_fit_tensor(config), "tensor_parallel %ld does not divide num_heads %ld; use %s", tensor,
             config->num_heads, VT_FIT_NEAREST(config, tensor_parallel, vt_fit_tensor, values));
    VT_CHECK(vt_fit_sequence(config),
             "sequence_parallel splits each span of tokens over tensor_parallel %ld ranks, but with context_parallel "
             "%ld the shortest span of the %ld tokens has %ld; use a smaller one of the two",
             tensor, context, tokens, vt_fit_shortest_span(config));
    VT_CHECK(config->col_parallel_size == 1,
             "--col_parallel_size=%ld: only 1 is possible, as layers are split over one axis of ranks; "
             "--tensor_parallel (or its older name --row_parallel_size) says over how many",
             config->col_parallel_size);
    VT_CHECK(!config->noddp || config->zero_stage == 0,
             "--noddp leaves the gradients of the data-parallel ranks apart, but zero_stage %ld needs them summed; "
             "add --zero_stage=0",
             config->zero_stage);
    VT_TRY(check_pipeline(config));
done:
    return status;
}

/* The run directory is <expdir>/<config>/<n>CPU/<run_num>: its parts must each be one name. */
static vt_status check_names(const vt_config *config)
{
    vt_status status = VT_OK;
    const struct {
        const char *name, *value;
    } parts[] = {{"config", config->config}, {"run_num", config->run_num}};
    for (int i = 0; i < 2; i++) {
        const char *value = parts[i].value;
        VT_CHECK(strchr(value, '/') == NULL && strcmp(value, ".") != 0 && strcmp(value, "..") != 0,
                 "--%s=%s: it names a directory, so it can't be '.' or '..' nor hold a '/'", parts[i].name, value);
        VT_CHECK(strlen(value) <= NAME_MAX - 40, "--%s=%.40s...: %zu bytes are too long for the name of a directory",
                 parts[i].name, value, strlen(value));
        char shown[4 * NAME_MAX];
        vt_text_on_one_line(shown, sizeof shown, value);
        VT_CHECK(strcmp(shown, value) == 0,
                 "--%s=%s: it names a directory, so it can't hold control characters, such as the end of a line",
                 parts[i].name, value);
    }
done:
    return status;
}

vt_status vt_config_check_words(const char *option, const char *list, const char *const *words)
{
    vt_status status = VT_OK;
    vt_text known = {0};
    const char *word;
    size_t length;
    do {
        word = vt_text_next_word(&list, &length);
    } while (word != NULL && vt_text_place(word, length, words) >= 0);
    if (word == NULL) goto done; /* without memory, as each step comes here for its forcings */
    for (int i = 0; words[i] != NULL; i++) vt_text_append(&known, "%s%s", i > 0 ? ", " : "", words[i]);
    VT_FAIL("%s: there is no '%.*s'; there are %s", option, (int)length, word, known.characters);
done:
    vt_text_close(&known);
    return status;
}

/* A forecast can go on from itself when it has all fields of the input. */
static vt_status check_forecast(const vt_config *config)
{
    vt_status status = VT_OK;
    int64_t scales[VT_MOST_SCALES];
    int scale_count = 0;
    VT_TRY(vt_config_check_stages(config));
    if (vt_config_members(config) > 1 && !vt_config_awaits_window(config))
        VT_TRY(vt_config_scales(config, scales, &scale_count));
    const int64_t in = vt_config_channels_a_time(config), out = config->n_out_channels;
    const int64_t rollout = vt_config_longest_rollout(config);
    const bool changes = config->predict == VT_PREDICT_TENDENCY;
    VT_CHECK((rollout == 1 && !changes) || in <= out,
             "%s needs a model that forecasts all channels of its input, but n_out_channels is %ld and the input has "
             "%ld a time; use --n_out_channels=%ld%s",
             changes ? "predict: tendency" : "rollout", out, in, in,
             changes ? ", or --predict=state" : ", or --rollout=1");
    VT_CHECK(rollout == 1 || config->pad != VT_PAD_WRAP || config->context_parallel == 1,
             "rollout of %ld steps with pad: wrap needs each row of tokens whole on one rank, but context_parallel is "
             "%ld; use --pad=edge, or --context_parallel=1",
             rollout, config->context_parallel);
    VT_CHECK(config->lr_restarts == NULL || config->num_epochs != VT_UNSET_INTEGER,
             "lr_restarts count epochs, so the run's length must be given by num_epochs, not by num_iters");
done:
    return status;
}

vt_status vt_config_check_layout(vt_config *config)
{
    vt_status status = VT_OK;
    VT_TRY(derive_data_parallel(config));
    VT_TRY(check_parallel(config));
    VT_TRY(check_batch(config));
done:
    return status;
}

/* An img_size from the command line wins over ranges of the file, and the reverse; of the same place both must agree.
 */
bool vt_config_awaits_window(const vt_config *config)
{
    const vt_origin *origin = config->origin, size = origin[VT_OPTION_img_size];
    const bool by_rows = !isnan(config->lat_range[0]), by_columns = !isnan(config->lon_range[0]);
    if (config->window_known || (!by_rows && !by_columns)) return false;
    return size == VT_FROM_DEFAULT || (by_rows && size < origin[VT_OPTION_lat_range]) ||
           (by_columns && size < origin[VT_OPTION_lon_range]);
}

vt_status vt_config_set_window(vt_config *config, int64_t height, int64_t width)
{
    config->img_size[0] = height;
    config->img_size[1] = width;
    config->window_known = true;
    return vt_config_resolve(config);
}

/* Is lat_range from south to north, and lon_range not more than the globe? */
static vt_status check_window(const double latitudes[2], const double longitudes[2])
{
    vt_status status = VT_OK;
    VT_CHECK(!(latitudes[0] > latitudes[1]), "lat_range [%g, %g]: expected [south, north], the smaller one first",
             latitudes[0], latitudes[1]);
    VT_CHECK(!(longitudes[1] - longitudes[0] > 360), "lon_range [%g, %g] goes round the globe more than once",
             longitudes[0], longitudes[1]);
done:
    return status;
}

vt_status vt_config_resolve(vt_config *config)
{
    vt_status status = VT_OK;
    vt_config_take_presets(config);
    VT_TRY(vt_config_choose_schedule(config));
    for (const vt_row *row = vt_options; row->kind != VT_ROW_END; row++) VT_TRY(vt_row_check_scope(row, config));
    VT_TRY(vt_config_check_kinds(config));
    derive_paths(config);
    VT_TRY(derive_channels(config));
    derive_resume(config);
    VT_TRY(derive_length(config));
    VT_TRY(derive_data_parallel(config));
    VT_TRY(derive_batch(config));
    VT_TRY(derive_layers(config));
    VT_TRY(check_names(config));
    VT_TRY(vt_config_check_words("accept", config->accept, differences));
    VT_TRY(check_window(config->lat_range, config->lon_range));
    if (!vt_config_awaits_window(config)) {
        VT_TRY(check_shapes(config));
        VT_TRY(check_parallel(config));
    }
    VT_TRY(check_pairs(config));
    VT_TRY(vt_config_resolve_optimizer(config));
    VT_TRY(check_batch(config));
    VT_TRY(check_forecast(config));
done:
    return status;
}
