/* Makes a configuration of vitrain out of one of DeepSpeed's. Its JSON is read as YAML, which takes JSON, too. What the
 * keys mean: https://www.deepspeed.ai/docs/config-json, version 0.19. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/config.h"
#include "config/keys.h"

typedef struct {
    const char *path;
    vt_keys keys;
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
    const char *path, *value;
} harmless[] = {{"optimizer.params.bias_correction", "true"},
                {"optimizer.params.amsgrad", "false"},
                {"optimizer.params.maximize", "false"},
                {"optimizer.params.dampening", "0"},
                {"prescale_gradients", "false"},
                {"sparse_gradients", "false"},
                {"fp16.auto_cast", "false"},
                {"fp16.fp16_master_weights_and_grads", "false"},
                {"zero_optimization.offload_optimizer.device", "none"},
                {"zero_optimization.offload_param.device", "none"},
                {"zero_optimization.cpu_offload", "false"},
                {"scheduler.params.warmup_min_ratio", "0"},
                {"scheduler.params.cos_min_ratio", "0"},
                {"scheduler.params.warmup_type", "linear"}};

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
    const double global = vt_keys_whole_number(&c->keys, "train_batch_size", 1, 0);
    const double micro = vt_keys_whole_number(&c->keys, "train_micro_batch_size_per_gpu", 1, 0);
    const double parts = vt_keys_whole_number(&c->keys, "gradient_accumulation_steps", 1, 0);
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
    vt_keys *keys = &c->keys;
    const bool fp16 = vt_keys_truth(keys, "fp16.enabled", false);
    const bool bf16 = vt_keys_truth(keys, "bfloat16.enabled", vt_keys_truth(keys, "bf16.enabled", false));
    const bool refills = vt_keys_truth(keys, "fp16.consecutive_hysteresis", false);
    const double scale = vt_keys_number(keys, "fp16.loss_scale", 0, 0);
    const double least = vt_keys_number(keys, "fp16.min_loss_scale", 0, 1);
    const bool follows = fp16 && scale == 0; /* overflows */
    VT_CHECK(!fp16 || !bf16, "%s: fp16 and bf16 are both enabled; disable one of the two", c->path);
    put_text(c, true, "amp_mode", fp16 ? "fp16" : bf16 ? "bf16" : "none");
    put(c, fp16, "loss_scale", scale);
    put(c, follows, "loss_scale_power", vt_keys_whole_number(keys, "fp16.initial_scale_power", 0, 16));
    put(c, follows, "loss_scale_window", vt_keys_whole_number(keys, "fp16.loss_scale_window", 1, 1000));
    put(c, follows, "loss_scale_hysteresis", vt_keys_whole_number(keys, "fp16.hysteresis", 1, 2));
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
    vt_keys *keys = &c->keys;
    const vt_yaml_node *betas = vt_keys_find(keys, "optimizer.params.betas");
    const bool decouples = vt_keys_truth(keys, "optimizer.params.adam_w_mode", true) || is_adamw;
    const bool of_torch = vt_keys_truth(keys, "optimizer.params.torch_adam", false);
    const double decay = decouples && of_torch ? 0.01 : 0;
    double pair[2] = {0.9, 0.999};
    char text[2][VT_NUMBER_SIZE];
    for (size_t i = 0; betas != NULL && i < 2; i++)
        if (betas->kind != VT_YAML_SEQUENCE || betas->count != 2 || betas->child[i]->kind != VT_YAML_SCALAR ||
            !vt_text_to_double(betas->child[i]->text, &pair[i]))
            vt_keys_refuse(keys, "optimizer.params.betas", betas, "two numbers, like [0.9, 0.999]");
    put_text(c, true, "optimizer", decouples ? "AdamW" : "Adam");
    vt_text_append(c->yaml, "  betas: [%s, %s]\n", vt_text_double(pair[0], text[0]), vt_text_double(pair[1], text[1]));
    put(c, true, "eps", vt_keys_number(keys, "optimizer.params.eps", 0, 1e-8));
    put(c, true, "weight_decay", vt_keys_number(keys, "optimizer.params.weight_decay", 0, decay));
}

static void convert_sgd(conversion *c)
{
    vt_keys *keys = &c->keys;
    const bool nesterov = vt_keys_truth(keys, "optimizer.params.nesterov", false);
    put_text(c, true, "optimizer", "SGD");
    put(c, true, "momentum", vt_keys_number(keys, "optimizer.params.momentum", 0, 0));
    put_text(c, true, "nesterov", nesterov ? "true" : "false");
    put(c, true, "weight_decay", vt_keys_number(keys, "optimizer.params.weight_decay", 0, 0));
}

/* An optimizer's numbers are always written: DeepSpeed's defaults are not those of vitrain. */
static void convert_optimizer(conversion *c)
{
    const vt_yaml_node *section = vt_keys_find(&c->keys, "optimizer");
    const vt_yaml_node *type = vt_keys_find(&c->keys, "optimizer.type");
    if (type == NULL && section != NULL)
        vt_keys_refuse(&c->keys, "optimizer", section, "an object with type Adam, AdamW or SGD, and params");
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
        vt_keys_refuse(&c->keys, "optimizer.type", type, "Adam, AdamW or SGD");
    put(c, true, "lr", vt_keys_number(&c->keys, "optimizer.params.lr", 0, 1e-3));
}

static void convert_scheduler(conversion *c)
{
    const vt_yaml_node *section = vt_keys_find(&c->keys, "scheduler");
    const vt_yaml_node *type = vt_keys_find(&c->keys, "scheduler.type");
    if (type == NULL && section != NULL)
        vt_keys_refuse(&c->keys, "scheduler", section, "an object with type WarmupCosineLR, and params");
    if (type == NULL) {
        vt_text_append(c->notes, "scheduler: not in the file, so lr_schedule stays that of vitrain, cosine; none is a "
                                 "constant rate\n");
        return;
    }
    if (!vt_yaml_is(type, "WarmupCosineLR")) vt_keys_refuse(&c->keys, "scheduler.type", type, "WarmupCosineLR");
    const double steps = vt_keys_whole_number(&c->keys, "scheduler.params.total_num_steps", 1, 0);
    put_text(c, true, "lr_schedule", "cosine");
    put(c, true, "warmup", vt_keys_whole_number(&c->keys, "scheduler.params.warmup_num_steps", 0, 1000));
    put(c, steps > 0, "num_iters", steps);
    vt_text_append(c->notes,
                   "scheduler: here warm-up is linear, and multiplies a cosine of the whole run that ends at 0\n");
}

static void convert_rest(conversion *c)
{
    vt_keys *keys = &c->keys;
    const double clip = vt_keys_number(keys, "gradient_clipping", 0, 1);
    const double print = vt_keys_whole_number(keys, "steps_per_print", 1, 0);
    const double bucket = vt_keys_whole_number(keys, "zero_optimization.reduce_bucket_size", 1, 0);
    if (vt_keys_find(keys, "gradient_clipping") == NULL)
        vt_text_append(c->notes, "gradient_clipping: not in the file, so it is 1.0, as in new versions of DeepSpeed; "
                                 "older ones did not clip (grad_clip: None)\n");
    put(c, clip > 0, "grad_clip", clip);
    put_text(c, clip == 0, "grad_clip", "None");
    put(c, print > 0, "log_every", print);
    put(c, true, "zero_stage", vt_keys_whole_number(keys, "zero_optimization.stage", 0, 0));
    put(c, bucket > 0, "bucket_cap_mb", 4 * bucket / 1048576);
    put_text(c, vt_keys_find(keys, "activation_checkpointing") != NULL, "recompute", "block");
    put_text(c, vt_keys_truth(keys, "activation_checkpointing.cpu_checkpointing", false), "offload_activations",
             "host");
}

/* ---- what is left ---- */

static bool is_harmless(const vt_key *k)
{
    double value = 0;
    for (const char *word = without_effect; *word != '\0'; word += strspn(word, "|")) {
        const size_t length = strcspn(word, "|");
        if (strncmp(k->path, word, length) == 0) return true;
        word += length;
    }
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (strcmp(k->path, harmless[i].path) == 0)
            return vt_yaml_is(k->node, harmless[i].value) ||
                   (strcmp(harmless[i].value, "0") == 0 && k->node->kind == VT_YAML_SCALAR &&
                    vt_text_to_double(k->node->text, &value) && value == 0);
    return vt_yaml_is(k->node, "null");
}

/* Is it in a section that its "enabled": false switches off, or in one that offloads to no device? */
static bool is_switched_off(const conversion *c, const vt_key *k)
{
    const char *last = strrchr(k->path, '.');
    const size_t section = strcspn(k->path, "."), inner = last != NULL ? (size_t)(last - k->path) : section;
    for (size_t i = 0; i < c->keys.count; i++) {
        const vt_key *other = &c->keys.keys[i];
        if (strncmp(other->path, k->path, section) == 0 && strcmp(other->path + section, ".enabled") == 0)
            return vt_yaml_is(other->node, "false");
        if (strncmp(other->path, k->path, inner) == 0 && strcmp(other->path + inner, ".device") == 0)
            return vt_yaml_is(other->node, "none");
    }
    return false;
}

static vt_status check_rest(conversion *c)
{
    vt_status status = VT_OK;
    for (size_t i = 0; i < c->keys.count; i++) {
        const vt_key *k = &c->keys.keys[i];
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
    VT_TRY(vt_keys_open(path, "DeepSpeed's settings ({\"train_batch_size\": 16, ...})", &c.keys));
    vt_text_append(yaml, "base:\n");
    VT_TRY(convert_batch(&c));
    VT_TRY(convert_precision(&c));
    convert_optimizer(&c);
    convert_scheduler(&c);
    convert_rest(&c);
    VT_TRY(c.keys.status);
    VT_TRY(check_rest(&c));
    VT_TRY(check_result(&c));
done:
    vt_keys_close(&c.keys);
    free(c.local_batch);
    return status;
}
