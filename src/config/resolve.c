/* What follows from other options, and the checks that need more than one. May be called again after a vt_config_set:
 * what was derived keeps the origin "default", so that it is derived anew. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "config/option.h"

enum { DEFAULT_ITERATIONS = 30000 };

/* ---- what works ---- */

/* "use 6 or 8": the divisors of `whole` nearest to `divisor`, which does not divide it. */
static const char *nearest_divisors(int64_t whole, int64_t divisor, char text[64])
{
    enum { FARTHEST = 1 << 16 }; /* above every range that is asked for */
    int64_t below = divisor < whole ? divisor - 1 : whole, above = divisor + 1;
    while (whole % below != 0) below--;
    while (above <= whole && above <= FARTHEST && whole % above != 0) above++;
    if (above <= whole && above <= FARTHEST)
        snprintf(text, 64, "use %lld or %lld", (long long)below, (long long)above);
    else
        snprintf(text, 64, "use %lld", (long long)below);
    return text;
}

/* "15 or 18": the multiples of `unit` nearest to `number`, which is none. */
static const char *nearest_multiples(int64_t unit, int64_t number, char text[64])
{
    int64_t below = number - number % unit;
    if (below > 0)
        snprintf(text, 64, "%lld or %lld", (long long)below, (long long)(below + unit));
    else
        snprintf(text, 64, "%lld", (long long)unit);
    return text;
}

/* ---- what follows ---- */

vt_status vt_config_check_ranks(const vt_config *config, int64_t ranks)
{
    vt_status status = VT_OK;
    char divisors[64], multiples[64];
    int64_t model = config->tensor_parallel * config->context_parallel;
    VT_CHECK(ranks % model == 0,
             "tensor_parallel %lld x context_parallel %lld = %lld does not divide the %lld rank%s of this run; %s as "
             "the product, or start %s ranks",
             (long long)config->tensor_parallel, (long long)config->context_parallel, (long long)model,
             (long long)ranks, ranks == 1 ? "" : "s", nearest_divisors(ranks, model, divisors),
             nearest_multiples(model, ranks, multiples));
done:
    return status;
}

static vt_status derive_data_parallel(vt_config *config)
{
    vt_status status = VT_OK;
    VT_TRY(vt_config_check_ranks(config, config->ranks));
    config->data_parallel = config->ranks / (config->tensor_parallel * config->context_parallel);
done:
    return status;
}

/* data_dir gives the paths that are not set. One that came with the command line also replaces those of the file, which
 * name the places of another machine. */
static void derive_paths(vt_config *config)
{
    size_t length = strlen(config->data_dir);
    while (length > 0 && config->data_dir[length - 1] == '/') length--;
    for (int i = 0; i < VT_DATA_PATH_COUNT; i++) {
        char **path = (char **)((char *)config + vt_data_paths[i].offset);
        vt_origin *origin = &config->origin[vt_data_paths[i].id];
        bool set = *path != NULL && *origin != VT_FROM_DEFAULT;
        bool overruled = config->origin[VT_OPTION_data_dir] == VT_FROM_COMMAND_LINE && *origin == VT_FROM_YAML;
        if (set && !overruled) continue;
        free(*path);
        *path = vt_text_format("%.*s/%s", (int)length, config->data_dir, vt_data_paths[i].below_data_dir);
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
                 "--num_iters=%lld and --num_epochs=%lld both give the length of the run; give one of the two",
                 (long long)config->num_iters, (long long)config->num_epochs);
        VT_CHECK(iterations != epochs,
                 "%s: configuration '%s' gives the length of the run by num_iters %lld and by num_epochs %lld; set one "
                 "of the two to None there, or give one as a flag",
                 config->yaml_config, config->config, (long long)config->num_iters, (long long)config->num_epochs);
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
    int64_t global = config->local_batch_size * config->data_parallel;
    VT_CHECK(config->origin[VT_OPTION_global_batch_size] != VT_FROM_COMMAND_LINE || config->global_batch_size == global,
             "--local_batch_size=%lld on %lld data-parallel rank%s makes a global batch of %lld, but "
             "--global_batch_size=%lld "
             "asks for another; give one of the two",
             (long long)config->local_batch_size, (long long)config->data_parallel,
             config->data_parallel == 1 ? "" : "s", (long long)global, (long long)config->global_batch_size);
    config->global_batch_size = global;
done:
    return status;
}

/* model_backend transformer-engine and enable_jit mean the same layers: of two places that disagree, the command line
 * wins; within the file, either switches them on. */
static vt_status derive_layers(vt_config *config)
{
    vt_status status = VT_OK;
    if (config->model_backend != VT_MODEL_TRANSFORMER_ENGINE || config->enable_jit) return VT_OK;
    bool flag_says_off = config->origin[VT_OPTION_enable_jit] == VT_FROM_COMMAND_LINE;
    VT_CHECK(!flag_says_off || config->origin[VT_OPTION_model_backend] != VT_FROM_COMMAND_LINE,
             "--model_backend=transformer-engine asks for the fused layers that --enable_jit=false switches off; give "
             "one of the two");
    if (flag_says_off)
        config->model_backend = VT_MODEL_PYTORCH;
    else
        config->enable_jit = true;
done:
    return status;
}

/* The variables of netCDF files say how many channels there are, unless something as strong says otherwise: those of
 * the command line overrule the channels of the file. */
static void derive_channels(vt_config *config)
{
    const char *separators = "[], \t\n'\"";
    int64_t count = 0;
    if (config->variables == NULL) return;
    for (const char *at = config->variables + strspn(config->variables, separators); *at != '\0'; count++) {
        at += strcspn(at, separators);
        at += strspn(at, separators);
    }
    if (count == 0) return; /* opening the data says so */
    const vt_origin *origin = config->origin, stronger = origin[VT_OPTION_variables];
    if (origin[VT_OPTION_n_in_channels] == VT_FROM_DEFAULT || origin[VT_OPTION_n_in_channels] < stronger)
        config->n_in_channels = count * (config->n_history + 1);
    if (origin[VT_OPTION_n_out_channels] == VT_FROM_DEFAULT || origin[VT_OPTION_n_out_channels] < stronger)
        config->n_out_channels = count;
}

static void derive_weight_decay(vt_config *config)
{
    if (!isnan(config->weight_decay) && config->origin[VT_OPTION_weight_decay] != VT_FROM_DEFAULT) return;
    config->weight_decay = config->optimizer == VT_OPTIMIZER_ADAMW ? 0.01 : 0;
    config->origin[VT_OPTION_weight_decay] = VT_FROM_DEFAULT;
}

/* resume_newest goes on also where no place is named. */
static void derive_resume(vt_config *config)
{
    vt_origin *origin = &config->origin[VT_OPTION_resume];
    if (config->resume != NULL && *origin != VT_FROM_DEFAULT) return;
    free(config->resume);
    config->resume = config->resume_newest ? vt_text_copy(VT_SWITCH_ON) : NULL;
    *origin = VT_FROM_DEFAULT;
}

double vt_config_learning_rate(const vt_config *config)
{
    double ratio = (double)config->global_batch_size / (double)config->base_batch_size;
    if (config->lr_scaling == VT_SCALING_SQRT) return config->lr * sqrt(ratio);
    return config->lr_scaling == VT_SCALING_LINEAR ? config->lr * ratio : config->lr;
}

/* "HH:MM:SS" or seconds; false when it is neither. */
static bool parse_duration(const char *text, double *seconds)
{
    int64_t part = 0;
    *seconds = 0;
    for (int parts = 1;; parts++) {
        size_t digits = strspn(text, "0123456789");
        char number[8] = "";
        if (digits == 0 || digits >= sizeof number) return false;
        memcpy(number, text, digits);
        if (!vt_text_to_integer(number, &part) || (parts > 1 && part > 59)) return false;
        *seconds = 60 * *seconds + (double)part;
        text += digits;
        if (*text == '\0') return (parts == 1 || parts == 3) && *seconds > 0;
        if (*text++ != ':') return false;
    }
}

double vt_config_max_seconds(const vt_config *config)
{
    double seconds = INFINITY;
    if (config->max_time != NULL) VT_ASSERT(parse_duration(config->max_time, &seconds));
    return seconds;
}

/* ---- checks ---- */

static int64_t greatest_common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static vt_status check_shapes(const vt_config *config)
{
    vt_status status = VT_OK;
    char hint[64], window[96] = "";
    int64_t patch = config->patch_size, rows = config->img_size[0], columns = config->img_size[1];
    int64_t times = config->n_history + 1, channels = config->n_in_channels;
    VT_CHECK(config->embed_dim % config->num_heads == 0, "num_heads %lld does not divide embed_dim %lld; %s heads",
             (long long)config->num_heads, (long long)config->embed_dim,
             nearest_divisors(config->embed_dim, config->num_heads, hint));
    if (rows % patch != 0 || columns % patch != 0) {
        if (rows >= patch && columns >= patch)
            snprintf(window, sizeof window, ", or img_size [%lld, %lld]", (long long)(rows - rows % patch),
                     (long long)(columns - columns % patch));
        VT_FAIL("patch_size %lld does not divide both of img_size [%lld, %lld]; %s as patch_size%s", (long long)patch,
                (long long)rows, (long long)columns,
                nearest_divisors(greatest_common_divisor(rows, columns), patch, hint), window);
    }
    VT_CHECK(
        channels % times == 0 && channels >= times,
        "n_in_channels %lld is not a multiple of n_history + 1 = %lld, the times that each channel is read at; use "
        "%lld or %lld",
        (long long)channels, (long long)times, (long long)(channels < times ? times : channels - channels % times),
        (long long)((channels / times + (channels < times ? 2 : 1)) * times));
done:
    return status;
}

static vt_status check_cache(const vt_config *config)
{
    vt_status status = VT_OK;
    VT_CHECK(config->cache != VT_CACHE_DEVICE || config->device == VT_DEVICE_CUDA,
             "cache: device keeps the sets in a GPU's memory and needs --device=cuda; this machine's memory is "
             "--cache=host");
    VT_CHECK(
        config->cache != VT_CACHE_DEVICE || !config->skip_bad_samples,
        "cache: device reads both sets once, whole, so that skip_bad_samples can't replace samples in batches; use "
        "--cache=host");
done:
    return status;
}

static vt_status check_batch(const vt_config *config)
{
    vt_status status = VT_OK;
    char hint[64];
    int64_t batch = config->global_batch_size / config->data_parallel;
    VT_CHECK(config->global_batch_size % config->data_parallel == 0,
             "global_batch_size %lld is not a multiple of the %lld data-parallel ranks; use %s",
             (long long)config->global_batch_size, (long long)config->data_parallel,
             nearest_multiples(config->data_parallel, config->global_batch_size, hint));
    VT_CHECK(batch % config->grad_accumulation == 0,
             "grad_accumulation %lld does not divide a rank's batch of %lld samples; %s",
             (long long)config->grad_accumulation, (long long)batch,
             nearest_divisors(batch, config->grad_accumulation, hint));
done:
    return status;
}

/* Tokens of the shortest of `parts` runs: ceil(total / parts) each and the last takes the rest; floor if it is none. */
static int64_t shortest_run(int64_t total, int64_t parts)
{
    int64_t rest = total - (total + parts - 1) / parts * (parts - 1);
    return rest > 0 ? rest : total / parts;
}

/* Each rank must have a head, a token and, with sequence_parallel, a token of its context's. (That tensor_parallel
 * divides 4 · embed_dim follows: it divides num_heads, which divides embed_dim.) */
static vt_status check_parallel(const vt_config *config)
{
    vt_status status = VT_OK;
    char hint[64];
    int64_t tensor = config->tensor_parallel, context = config->context_parallel, patch = config->patch_size;
    int64_t tokens = config->img_size[0] / patch * (config->img_size[1] / patch);
    VT_CHECK(config->num_heads % tensor == 0, "tensor_parallel %lld does not divide num_heads %lld; %s ranks",
             (long long)tensor, (long long)config->num_heads, nearest_divisors(config->num_heads, tensor, hint));
    VT_CHECK(context <= tokens, "context_parallel %lld is more than the %lld tokens of a sample; use %lld or fewer",
             (long long)context, (long long)tokens, (long long)tokens);
    VT_CHECK(!config->sequence_parallel || shortest_run(tokens, context) >= tensor,
             "sequence_parallel splits each run of tokens over tensor_parallel %lld ranks, but with context_parallel "
             "%lld the shortest run of the %lld tokens has %lld; use a smaller one of the two",
             (long long)tensor, (long long)context, (long long)tokens, (long long)shortest_run(tokens, context));
    VT_CHECK(!config->noddp || config->zero_stage == 0,
             "--noddp leaves the gradients of the data-parallel ranks apart, but zero_stage %lld needs them summed; "
             "add --zero_stage=0",
             (long long)config->zero_stage);
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
    }
done:
    return status;
}

static vt_status check_max_time(const vt_config *config)
{
    vt_status status = VT_OK;
    double seconds = 0;
    VT_CHECK(config->max_time == NULL || parse_duration(config->max_time, &seconds),
             "max_time '%.40s': expected HH:MM:SS (01:30:00) or a number of seconds", config->max_time);
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

vt_status vt_config_resolve(vt_config *config)
{
    vt_status status = VT_OK;
    derive_paths(config);
    derive_channels(config);
    derive_weight_decay(config);
    derive_resume(config);
    VT_TRY(derive_length(config));
    VT_TRY(derive_data_parallel(config));
    VT_TRY(derive_batch(config));
    VT_TRY(derive_layers(config));
    VT_TRY(check_names(config));
    VT_TRY(check_shapes(config));
    VT_TRY(check_parallel(config));
    VT_TRY(check_cache(config));
    VT_TRY(check_batch(config));
    VT_TRY(check_max_time(config));
done:
    return status;
}
