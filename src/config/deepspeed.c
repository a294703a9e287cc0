/* Makes a configuration of vitrain out of one of DeepSpeed's. Its JSON is read as YAML, which takes JSON, too. What the
 * keys mean: https://www.deepspeed.ai/docs/config-json, version 0.19. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "config/config.h"
#include "config/yaml.h"

/* A key of the file by its path, "fp16.enabled". */
typedef struct {
    char *path;
    const vt_yaml_node *node;
    bool known; /* it was asked for; so are mappings, whose own keys follow them */
} key;

typedef struct {
    const char *path;
    vt_yaml *file;
    key *keys; /* in the file's order */
    size_t count;
    vt_status status; /* VT_ERROR: a value was refused; the first one is noted */
    vt_text *yaml, *notes;
    char *local_batch; /* a flag that the run needs as well; "": none */
} conversion;

/* Keys that begin with one of these have no effect on results here, whatever their value is. */
static const char without_effect[] =
    "zero_optimization.stage3_|zero_optimization.allgather_|zero_optimization.contiguous_gradients|"
    "zero_optimization.overlap_comm|zero_optimization.reduce_scatter|zero_optimization.sub_group_size|"
    "zero_optimization.round_robin_gradients|zero_allow_|zero_force_ds_cpu_optimizer|wall_clock_breakdown|"
    "memory_breakdown|dump_state|flops_profiler.|comms_logger.|tensorboard.|wandb.|csv_monitor.|"
    "activation_checkpointing.partition_activations|activation_checkpointing.contiguous_memory_optimization|"
    "activation_checkpointing.number_checkpoints|activation_checkpointing.synchronize_checkpoint_boundary|"
    "activation_checkpointing.profile|optimizer.params.torch_adam|optimizer.params.foreach|optimizer.params.fused";

/* These are without effect only with this value. */
static const struct {
    const char *value, *paths;
} harmless[] = {
    {"true", "optimizer.params.bias_correction"},
    {"false", "optimizer.params.amsgrad|optimizer.params.maximize|prescale_gradients|sparse_gradients|fp16.auto_cast|"
              "fp16.fp16_master_weights_and_grads|zero_optimization.cpu_offload"},
    {"0", "optimizer.params.dampening|scheduler.params.warmup_min_ratio|scheduler.params.cos_min_ratio"},
    {"none", "zero_optimization.offload_optimizer.device|zero_optimization.offload_param.device"},
    {"linear", "scheduler.params.warmup_type"},
};

/* ---- the keys ---- */

static vt_status collect(conversion *c, const vt_yaml_node *mapping, const char *above)
{
    vt_status status = VT_OK;
    VT_TRY(vt_yaml_entries(mapping));
    for (size_t i = 0; i < mapping->entry_count; i++) {
        const vt_yaml_node *value = mapping->entries[i].value;
        char *path = vt_text_format("%s%s%s", above, above[0] != '\0' ? "." : "", mapping->entries[i].key->text);
        c->keys = vt_grow(c->keys, c->count, sizeof *c->keys, "the keys of a file");
        c->keys[c->count++] = (key){path, value, value->kind == VT_YAML_MAPPING};
        if (value->kind == VT_YAML_MAPPING) VT_TRY(collect(c, value, path));
    }
done:
    return status;
}

/* Is it this scalar, or the same number? */
static bool is(const vt_yaml_node *node, const char *text)
{
    double value = 0, wanted = 0;
    if (node->kind != VT_YAML_SCALAR) return false;
    return strcmp(node->text, text) == 0 ||
           (vt_text_to_double(text, &wanted) && vt_text_to_double(node->text, &value) && value == wanted);
}

/* Notes "FILE:LINE:COLUMN: PATH is ...; expected ...". The conversion goes on, and fails in the end. */
static void refuse(conversion *c, const char *path, const vt_yaml_node *node, const char *expected)
{
    char found[96];
    c->status = VT_ERROR;
    if (is(node, "auto"))
        vt_error_note(__FILE__, __LINE__,
                      "%s:%zu:%zu: %s is \"auto\", which a program fills in that calls DeepSpeed; write the value "
                      "itself",
                      VT_YAML_PLACE(node), path);
    else
        vt_error_note(__FILE__, __LINE__, "%s:%zu:%zu: %s is %s; expected %s", VT_YAML_PLACE(node), path,
                      vt_yaml_describe(node, found), expected);
}

/* The value, which is known from now on; NULL: it is not in the file, or null. Of "fp16.enabled" a value of `fp16` that
 * is no object is refused. */
static const vt_yaml_node *find(conversion *c, const char *path)
{
    for (size_t i = 0; i < c->count; i++) {
        key *k = &c->keys[i];
        const size_t length = strlen(k->path);
        const bool is_null = is(k->node, "null");
        if (strncmp(k->path, path, length) != 0) continue;
        if (path[length] == '.' && k->node->kind != VT_YAML_MAPPING && !is_null)
            refuse(c, k->path, k->node, "an object with its settings");
        k->known = k->known || path[length] == '\0' || (path[length] == '.' && is_null);
        if (path[length] == '\0') return is_null ? NULL : k->node;
    }
    return NULL;
}

/* The value, or `preset` if the file has none. What is no number, or less than `least`, no whole number, or neither
 * true nor false is refused. */
static double number(conversion *c, const char *path, double least, double preset)
{
    const vt_yaml_node *node = find(c, path);
    char expected[64];
    double found = 0;
    if (node == NULL) return preset;
    if (node->kind == VT_YAML_SCALAR && vt_text_to_double(node->text, &found) && found >= least) return found;
    snprintf(expected, sizeof expected, "a number of at least %g", least);
    refuse(c, path, node, expected);
    return preset;
}

static double whole_number(conversion *c, const char *path, double least, double preset)
{
    const double value = number(c, path, least, preset);
    if (value != floor(value)) refuse(c, path, find(c, path), "a whole number");
    return value;
}

static bool truth(conversion *c, const char *path, bool preset)
{
    const vt_yaml_node *node = find(c, path);
    if (node == NULL) return preset;
    const int place = node->kind == VT_YAML_SCALAR ? vt_text_choice(node->text, "false|False|true|True") : -1;
    if (place < 0) refuse(c, path, node, "true or false");
    return place >= 2;
}

/* Writes the option, if the file sets it. */
static void put_text(conversion *c, bool is_set, const char *option, const char *value)
{
    if (is_set) vt_text_append(c->yaml, "  %s: %s\n", option, value);
}

static void put(conversion *c, bool is_set, const char *option, double value)
{
    char text[VT_NUMBER_SIZE];
    if (value == floor(value) && fabs(value) < 1e15)
        snprintf(text, sizeof text, "%.0f", value);
    else
        vt_text_double(value, text);
    put_text(c, is_set, option, text);
}

/* ---- sections ---- */

/* DeepSpeed's rule: train_batch_size = train_micro_batch_size_per_gpu · gradient_accumulation_steps · ranks. */
static vt_status convert_batch(conversion *c)
{
    vt_status status = VT_OK;
    const double global = whole_number(c, "train_batch_size", 1, 0);
    const double micro = whole_number(c, "train_micro_batch_size_per_gpu", 1, 0);
    const double parts = whole_number(c, "gradient_accumulation_steps", 1, 0);
    const double local = micro * (parts > 0 ? parts : 1);
    VT_CHECK(global > 0 || micro > 0,
             "%s: it gives neither train_batch_size nor train_micro_batch_size_per_gpu, so the size of a batch is "
             "unknown; add one of the two",
             c->path);
    VT_CHECK(global == 0 || micro == 0 || fmod(global, local) == 0,
             "%s: train_batch_size %.0f is not a multiple of train_micro_batch_size_per_gpu %.0f x "
             "gradient_accumulation_steps %.0f; make it train_micro_batch_size_per_gpu x gradient_accumulation_steps x "
             "the number of GPUs",
             c->path, global, micro, parts > 0 ? parts : 1);
    put(c, global > 0, "global_batch_size", global);
    put(c, parts > 0, "grad_accumulation", parts);
    if (global == 0) {
        free(c->local_batch);
        c->local_batch = vt_text_format("--local_batch_size=%.0f", local);
        vt_text_append(c->notes,
                       "train_micro_batch_size_per_gpu: a file can't give the batch of a rank; start the run with %s\n",
                       c->local_batch);
    } else if (micro > 0 && parts == 0) {
        vt_text_append(c->notes,
                       "train_micro_batch_size_per_gpu: on N ranks start the run with --grad_accumulation=%.0f/N\n",
                       global / micro);
    } else if (micro > 0) {
        vt_text_append(c->notes, "train_micro_batch_size_per_gpu: means %.0f data-parallel ranks; start as many\n",
                       global / local);
    }
done:
    return status;
}

static vt_status convert_precision(conversion *c)
{
    vt_status status = VT_OK;
    const bool fp16 = truth(c, "fp16.enabled", false);
    const bool bf16 = truth(c, "bfloat16.enabled", truth(c, "bf16.enabled", false));
    const bool refills = truth(c, "fp16.consecutive_hysteresis", false);
    const double scale = number(c, "fp16.loss_scale", 0, 0);
    const double least = number(c, "fp16.min_loss_scale", 0, 1);
    const bool follows = fp16 && scale == 0; /* overflows */
    VT_CHECK(!fp16 || !bf16, "%s: fp16 and bf16 are both enabled; disable one of the two", c->path);
    put_text(c, true, "amp_mode", fp16 ? "fp16" : bf16 ? "bf16" : "none");
    put(c, fp16, "loss_scale", scale);
    put(c, follows, "loss_scale_power", whole_number(c, "fp16.initial_scale_power", 0, 16));
    put(c, follows, "loss_scale_window", whole_number(c, "fp16.loss_scale_window", 1, 1000));
    put(c, follows, "loss_scale_hysteresis", whole_number(c, "fp16.hysteresis", 1, 2));
    put_text(c, follows, "loss_scale_refill", refills ? "true" : "false");
    put(c, follows && least > 0, "loss_scale_min", least);
    if (fp16 && !follows)
        vt_text_append(c->notes, "fp16.loss_scale: one for good, so fp16's other settings have no effect\n");
done:
    return status;
}

/* Type Adam decouples weight_decay, too, unless adam_w_mode is false. */
static void convert_adam(conversion *c, bool is_adamw)
{
    const vt_yaml_node *betas = find(c, "optimizer.params.betas");
    const bool decouples = truth(c, "optimizer.params.adam_w_mode", true) || is_adamw;
    const bool of_torch = truth(c, "optimizer.params.torch_adam", false);
    const double decay = decouples && of_torch ? 0.01 : 0;
    double pair[2] = {0.9, 0.999};
    char text[2][VT_NUMBER_SIZE];
    for (size_t i = 0; betas != NULL && i < 2; i++)
        if (betas->kind != VT_YAML_SEQUENCE || betas->count != 2 || betas->child[i]->kind != VT_YAML_SCALAR ||
            !vt_text_to_double(betas->child[i]->text, &pair[i]))
            refuse(c, "optimizer.params.betas", betas, "two numbers, like [0.9, 0.999]");
    put_text(c, true, "optimizer", decouples ? "AdamW" : "Adam");
    vt_text_append(c->yaml, "  betas: [%s, %s]\n", vt_text_double(pair[0], text[0]), vt_text_double(pair[1], text[1]));
    put(c, true, "eps", number(c, "optimizer.params.eps", 0, 1e-8));
    put(c, true, "weight_decay", number(c, "optimizer.params.weight_decay", 0, decay));
}

static void convert_sgd(conversion *c)
{
    const bool nesterov = truth(c, "optimizer.params.nesterov", false);
    put_text(c, true, "optimizer", "SGD");
    put(c, true, "momentum", number(c, "optimizer.params.momentum", 0, 0));
    put_text(c, true, "nesterov", nesterov ? "true" : "false");
    put(c, true, "weight_decay", number(c, "optimizer.params.weight_decay", 0, 0));
}

/* An optimizer's numbers are always written: DeepSpeed's defaults are not those of vitrain. */
static void convert_optimizer(conversion *c)
{
    const vt_yaml_node *section = find(c, "optimizer");
    const vt_yaml_node *type = find(c, "optimizer.type");
    if (type == NULL && section != NULL)
        refuse(c, "optimizer", section, "an object with type Adam, AdamW or SGD, and params");
    if (type == NULL) {
        vt_text_append(c->notes,
                       "optimizer: not in the file, so it stays that of vitrain, as do lr and weight_decay\n");
        return;
    }
    const char *name = type->kind == VT_YAML_SCALAR ? type->text : "";
    if (strcasecmp(name, "Adam") == 0 || strcasecmp(name, "AdamW") == 0)
        convert_adam(c, strlen(name) > strlen("Adam"));
    else if (strcasecmp(name, "SGD") == 0)
        convert_sgd(c);
    else
        refuse(c, "optimizer.type", type, "Adam, AdamW or SGD");
    put(c, true, "lr", number(c, "optimizer.params.lr", 0, 1e-3));
}

static void convert_scheduler(conversion *c)
{
    const vt_yaml_node *section = find(c, "scheduler");
    const vt_yaml_node *type = find(c, "scheduler.type");
    if (type == NULL && section != NULL)
        refuse(c, "scheduler", section, "an object with type WarmupCosineLR, and params");
    if (type == NULL) {
        vt_text_append(c->notes, "scheduler: not in the file, so lr_schedule stays that of vitrain, cosine; none is a "
                                 "constant rate\n");
        return;
    }
    if (!is(type, "WarmupCosineLR")) refuse(c, "scheduler.type", type, "WarmupCosineLR");
    const double steps = whole_number(c, "scheduler.params.total_num_steps", 1, 0);
    put_text(c, true, "lr_schedule", "cosine");
    put(c, true, "warmup", whole_number(c, "scheduler.params.warmup_num_steps", 0, 1000));
    put(c, steps > 0, "num_iters", steps);
    vt_text_append(c->notes,
                   "scheduler: here warm-up is linear, and multiplies a cosine of the whole run that ends at 0\n");
}

static void convert_rest(conversion *c)
{
    const double clip = number(c, "gradient_clipping", 0, 1);
    const double print = whole_number(c, "steps_per_print", 1, 0);
    const double bucket = whole_number(c, "zero_optimization.reduce_bucket_size", 1, 0);
    if (find(c, "gradient_clipping") == NULL)
        vt_text_append(c->notes, "gradient_clipping: not in the file, so it is 1.0, as in new versions of DeepSpeed; "
                                 "older ones did not clip (grad_clip: None)\n");
    put(c, clip > 0, "grad_clip", clip);
    put_text(c, clip == 0, "grad_clip", "None");
    put(c, print > 0, "log_every", print);
    put(c, true, "zero_stage", whole_number(c, "zero_optimization.stage", 0, 0));
    put(c, bucket > 0, "bucket_cap_mb", 4 * bucket / 1048576);
    put_text(c, find(c, "activation_checkpointing") != NULL, "recompute", "block");
    put_text(c, truth(c, "activation_checkpointing.cpu_checkpointing", false), "offload_activations", "host");
}

/* ---- what is left ---- */

static bool is_harmless(const key *k)
{
    for (const char *word = without_effect; *word != '\0'; word += strspn(word, "|")) {
        const size_t length = strcspn(word, "|");
        if (strncmp(k->path, word, length) == 0) return true;
        word += length;
    }
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (vt_text_choice(k->path, harmless[i].paths) >= 0) return is(k->node, harmless[i].value);
    return is(k->node, "null");
}

/* Is it in a section that its "enabled": false switches off, or in one that offloads to no device? */
static bool is_switched_off(const conversion *c, const key *k)
{
    const char *last = strrchr(k->path, '.');
    const size_t section = strcspn(k->path, "."), inner = last != NULL ? (size_t)(last - k->path) : section;
    for (size_t i = 0; i < c->count; i++) {
        const key *other = &c->keys[i];
        if (strncmp(other->path, k->path, section) == 0 && strcmp(other->path + section, ".enabled") == 0)
            return is(other->node, "false");
        if (strncmp(other->path, k->path, inner) == 0 && strcmp(other->path + inner, ".device") == 0)
            return is(other->node, "none");
    }
    return false;
}

static vt_status check_rest(conversion *c)
{
    vt_status status = VT_OK;
    for (size_t i = 0; i < c->count; i++) {
        const key *k = &c->keys[i];
        if (k->known) continue;
        VT_CHECK(strstr(k->path, ".offload_") == NULL || is_harmless(k) || is_switched_off(c, k),
                 "%s:%zu:%zu: %s: vitrain keeps values and state where it computes; remove offload_optimizer and "
                 "offload_param, and split them over more ranks (zero_stage)",
                 VT_YAML_PLACE(k->node), k->path);
        VT_CHECK(is_harmless(k) || is_switched_off(c, k),
                 "%s:%zu:%zu: %s has no counterpart in vitrain and may change results; remove it from the file if the "
                 "run can do without (docs/migration.md lists the keys that are known)",
                 VT_YAML_PLACE(k->node), k->path);
        char *shown = vt_text_clean(k->path);
        vt_text_append(c->notes, "%s: no effect\n", shown);
        free(shown);
    }
done:
    return status;
}

/* The values' ranges, and what goes together, as for any file. */
static vt_status check_result(const conversion *c)
{
    vt_config *config = NULL;
    char *name = vt_text_format("the YAML of %s", c->path);
    const vt_status status =
        vt_config_open_text(c->yaml->characters, name, c->local_batch[0] != '\0', &c->local_batch, 1, &config);
    vt_config_close(&config);
    free(name);
    return status;
}

vt_status vt_deepspeed_convert(const char *path, vt_text *yaml, vt_text *notes)
{
    vt_status status = VT_OK;
    conversion c = {.path = path, .yaml = yaml, .notes = notes, .local_batch = vt_text_copy("")};
    VT_TRY(vt_yaml_open(path, NULL, "DeepSpeed's settings ({\"train_batch_size\": 16, ...})", &c.file));
    VT_TRY(collect(&c, vt_yaml_top(c.file), ""));
    vt_text_append(yaml, "base:\n");
    VT_TRY(convert_batch(&c));
    VT_TRY(convert_precision(&c));
    convert_optimizer(&c);
    convert_scheduler(&c);
    convert_rest(&c);
    VT_TRY(c.status);
    VT_TRY(check_rest(&c));
    VT_TRY(check_result(&c));
done:
    for (size_t i = 0; i < c.count; i++) free(c.keys[i].path);
    free(c.keys);
    vt_yaml_close(&c.file);
    free(c.local_batch);
    return status;
}
