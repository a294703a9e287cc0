/* DeepSpeed's configuration as one of vitrain. JSON is read as the YAML that it is part of. The keys' meaning:
 * https://www.deepspeed.ai/docs/config-json, version 0.19. */
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

static void put_text(conversion *c, const char *name, const char *value)
{
    vt_text_append(c->yaml, "  %s: %s\n", name, value);
}

static void put(conversion *c, const char *name, double value)
{
    char text[VT_NUMBER_SIZE];
    if (value == floor(value) && fabs(value) < 1e15)
        snprintf(text, sizeof text, "%.0f", value);
    else
        vt_text_double(value, text);
    put_text(c, name, text);
}

/* ---- sections ---- */

/* DeepSpeed's rule: train_batch_size = train_micro_batch_size_per_gpu · gradient_accumulation_steps · ranks. */
static vt_status convert_batch(conversion *c)
{
    vt_status status = VT_OK;
    double global = 0, micro = 0, parts = 0;
    VT_TRY(vt_keys_whole_number(&c->keys, "train_batch_size", 1, &global));
    VT_TRY(vt_keys_whole_number(&c->keys, "train_micro_batch_size_per_gpu", 1, &micro));
    VT_TRY(vt_keys_whole_number(&c->keys, "gradient_accumulation_steps", 1, &parts));
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
    if (global > 0) put(c, "global_batch_size", global);
    if (parts > 0) put(c, "grad_accumulation", parts);
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
    bool fp16 = false, bf16 = false, refill = false;
    double scale = 0, power = 16, window = 1000, hysteresis = 2, least = 1;
    VT_TRY(vt_keys_truth(&c->keys, "fp16.enabled", &fp16));
    VT_TRY(vt_keys_truth(&c->keys, "bf16.enabled", &bf16));
    VT_TRY(vt_keys_truth(&c->keys, "bfloat16.enabled", &bf16));
    VT_TRY(vt_keys_number(&c->keys, "fp16.loss_scale", 0, &scale));
    VT_TRY(vt_keys_whole_number(&c->keys, "fp16.initial_scale_power", 0, &power));
    VT_TRY(vt_keys_whole_number(&c->keys, "fp16.loss_scale_window", 1, &window));
    VT_TRY(vt_keys_whole_number(&c->keys, "fp16.hysteresis", 1, &hysteresis));
    VT_TRY(vt_keys_truth(&c->keys, "fp16.consecutive_hysteresis", &refill));
    VT_TRY(vt_keys_number(&c->keys, "fp16.min_loss_scale", 0, &least));
    VT_CHECK(!fp16 || !bf16, "%s: fp16 and bf16 are both enabled; disable one of the two", c->path);
    put_text(c, "amp_mode", fp16 ? "fp16" : bf16 ? "bf16" : "none");
    if (!fp16) goto done;
    put(c, "loss_scale", scale);
    if (scale > 0) {
        vt_text_append(c->notes, "fp16.loss_scale: one for good, so fp16's other settings have no effect\n");
        goto done;
    }
    put(c, "loss_scale_power", power);
    put(c, "loss_scale_window", window);
    put(c, "loss_scale_hysteresis", hysteresis);
    put_text(c, "loss_scale_refill", refill ? "true" : "false");
    if (least > 0) put(c, "loss_scale_min", least);
done:
    return status;
}

/* Type Adam decouples weight_decay, too, unless adam_w_mode is false. */
static vt_status convert_adam(conversion *c, bool is_adamw)
{
    vt_status status = VT_OK;
    const vt_yaml_node *betas = vt_keys_find(&c->keys, "optimizer.params.betas");
    bool decouples = true, of_torch = false;
    double eps = 1e-8, pair[2] = {0.9, 0.999};
    char text[2][VT_NUMBER_SIZE];
    VT_TRY(vt_keys_truth(&c->keys, "optimizer.params.adam_w_mode", &decouples));
    VT_TRY(vt_keys_truth(&c->keys, "optimizer.params.torch_adam", &of_torch));
    VT_TRY(vt_keys_number(&c->keys, "optimizer.params.eps", 0, &eps));
    decouples = decouples || is_adamw;
    double decay = decouples && of_torch ? 0.01 : 0;
    VT_TRY(vt_keys_number(&c->keys, "optimizer.params.weight_decay", 0, &decay));
    for (size_t i = 0; betas != NULL && i < 2; i++)
        if (betas->kind != VT_YAML_SEQUENCE || betas->count != 2 || betas->child[i]->kind != VT_YAML_SCALAR ||
            !vt_text_to_double(betas->child[i]->text, &pair[i]))
            VT_TRY(vt_keys_refuse("optimizer.params.betas", betas, "two numbers, like [0.9, 0.999]"));
    put_text(c, "optimizer", decouples ? "AdamW" : "Adam");
    vt_text_append(c->yaml, "  betas: [%s, %s]\n", vt_text_double(pair[0], text[0]), vt_text_double(pair[1], text[1]));
    put(c, "eps", eps);
    put(c, "weight_decay", decay);
done:
    return status;
}

static vt_status convert_sgd(conversion *c)
{
    vt_status status = VT_OK;
    double momentum = 0, decay = 0;
    bool nesterov = false;
    VT_TRY(vt_keys_number(&c->keys, "optimizer.params.momentum", 0, &momentum));
    VT_TRY(vt_keys_number(&c->keys, "optimizer.params.weight_decay", 0, &decay));
    VT_TRY(vt_keys_truth(&c->keys, "optimizer.params.nesterov", &nesterov));
    put_text(c, "optimizer", "SGD");
    put(c, "momentum", momentum);
    put_text(c, "nesterov", nesterov ? "true" : "false");
    put(c, "weight_decay", decay);
done:
    return status;
}

/* An optimizer's numbers are always written: DeepSpeed's defaults are not those of vitrain. */
static vt_status convert_optimizer(conversion *c)
{
    vt_status status = VT_OK;
    const vt_yaml_node *section = vt_keys_find(&c->keys, "optimizer");
    const vt_yaml_node *type = vt_keys_find(&c->keys, "optimizer.type");
    double rate = 1e-3;
    if (type == NULL && section != NULL)
        VT_TRY(vt_keys_refuse("optimizer", section, "an object with type Adam, AdamW or SGD, and params"));
    if (type == NULL) {
        vt_text_append(c->notes,
                       "optimizer: not in the file, so it stays that of vitrain, as do lr and weight_decay\n");
        goto done;
    }
    const char *name = type->kind == VT_YAML_SCALAR ? type->text : "";
    if (strcasecmp(name, "Adam") == 0 || strcasecmp(name, "AdamW") == 0)
        VT_TRY(convert_adam(c, strlen(name) > strlen("Adam")));
    else if (strcasecmp(name, "SGD") == 0)
        VT_TRY(convert_sgd(c));
    else
        VT_TRY(vt_keys_refuse("optimizer.type", type, "Adam, AdamW or SGD"));
    VT_TRY(vt_keys_number(&c->keys, "optimizer.params.lr", 0, &rate));
    put(c, "lr", rate);
done:
    return status;
}

static vt_status convert_scheduler(conversion *c)
{
    vt_status status = VT_OK;
    const vt_yaml_node *section = vt_keys_find(&c->keys, "scheduler");
    const vt_yaml_node *type = vt_keys_find(&c->keys, "scheduler.type");
    double steps = 0, warmup = 1000;
    if (type == NULL && section != NULL)
        VT_TRY(vt_keys_refuse("scheduler", section, "an object with type WarmupCosineLR, and params"));
    if (type == NULL) {
        vt_text_append(c->notes, "scheduler: not in the file, so lr_schedule stays that of vitrain, cosine; none is a "
                                 "constant rate\n");
        goto done;
    }
    if (!vt_yaml_is(type, "WarmupCosineLR")) VT_TRY(vt_keys_refuse("scheduler.type", type, "WarmupCosineLR"));
    VT_TRY(vt_keys_whole_number(&c->keys, "scheduler.params.total_num_steps", 1, &steps));
    VT_TRY(vt_keys_whole_number(&c->keys, "scheduler.params.warmup_num_steps", 0, &warmup));
    put_text(c, "lr_schedule", "cosine");
    put(c, "warmup", warmup);
    if (steps > 0) put(c, "num_iters", steps);
    vt_text_append(c->notes,
                   "scheduler: here warm-up is linear, and multiplies a cosine of the whole run that ends at 0\n");
done:
    return status;
}

static vt_status convert_rest(conversion *c)
{
    vt_status status = VT_OK;
    double clip = 1, print = 0, stage = 0, bucket = 0;
    bool offload = false;
    VT_TRY(vt_keys_number(&c->keys, "gradient_clipping", 0, &clip));
    if (vt_keys_find(&c->keys, "gradient_clipping") == NULL)
        vt_text_append(c->notes, "gradient_clipping: not in the file, so it is 1.0, as in new versions of DeepSpeed; "
                                 "older ones did not clip (grad_clip: None)\n");
    if (clip > 0) put(c, "grad_clip", clip);
    if (clip == 0) put_text(c, "grad_clip", "None");
    VT_TRY(vt_keys_whole_number(&c->keys, "steps_per_print", 1, &print));
    if (print > 0) put(c, "log_every", print);
    VT_TRY(vt_keys_whole_number(&c->keys, "zero_optimization.stage", 0, &stage));
    put(c, "zero_stage", stage);
    VT_TRY(vt_keys_whole_number(&c->keys, "zero_optimization.reduce_bucket_size", 1, &bucket));
    if (bucket > 0) put(c, "bucket_cap_mb", 4 * bucket / 1048576);
    if (vt_keys_find(&c->keys, "activation_checkpointing") != NULL) put_text(c, "recompute", "block");
    VT_TRY(vt_keys_truth(&c->keys, "activation_checkpointing.cpu_checkpointing", &offload));
    if (offload) put_text(c, "offload_activations", "host");
done:
    return status;
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

/* A section that is something else would look like a key without counterpart. */
static vt_status check_sections(conversion *c)
{
    vt_status status = VT_OK;
    static const char *const sections[] = {
        "fp16", "bf16", "bfloat16", "zero_optimization", "optimizer", "scheduler", "activation_checkpointing"};
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        const vt_yaml_node *section = vt_keys_find(&c->keys, sections[i]);
        if (section != NULL && section->kind != VT_YAML_MAPPING)
            VT_TRY(vt_keys_refuse(sections[i], section, "an object with its settings"));
    }
done:
    return status;
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
    VT_TRY(check_sections(&c));
    VT_TRY(convert_batch(&c));
    VT_TRY(convert_precision(&c));
    VT_TRY(convert_optimizer(&c));
    VT_TRY(convert_scheduler(&c));
    VT_TRY(convert_rest(&c));
    VT_TRY(check_rest(&c));
    VT_TRY(check_result(&c));
done:
    vt_keys_close(&c.keys);
    free(c.local_batch);
    return status;
}
