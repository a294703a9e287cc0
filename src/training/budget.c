/* Whether a run fits: the plan of the dry back end against the memory that is free. */
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "config/fit.h"
#include "training/plan.h"

typedef struct {
    char flag[64];
    double saved; /* bytes */
} remedy;

enum { MOST_REMEDIES = 8 };

typedef struct {
    const vt_plan_options *options;
    double needed; /* bytes */
    remedy found[MOST_REMEDIES];
    int count;
} remedies;

/* The configuration with --name=value; `changed` is one that has more of it changed already. What would be refused is
 * no remedy. */
static void add_remedy(remedies *known, vt_config changed, const char *name, const char *value)
{
    vt_plan smaller;
    remedy *next = &known->found[known->count];
    vt_status status = vt_config_set(&changed, name, value);
    if (status == VT_OK && (!vt_fit_patch(&changed) || !vt_fit_heads(&changed))) return;
    if (status == VT_OK) status = vt_config_check_layout(&changed);
    if (status == VT_OK) status = vt_plan_make(&changed, known->options, &smaller);
    vt_error_clear();
    if (status != VT_OK || vt_plan_total(&smaller) >= known->needed) return;
    snprintf(next->flag, sizeof next->flag, "--%s=%s", name, value);
    next->saved = known->needed - vt_plan_total(&smaller);
    known->count++;
}

static void add_number(remedies *known, const vt_config *config, const char *name, int64_t value)
{
    char text[VT_NUMBER_SIZE];
    snprintf(text, sizeof text, "%ld", value);
    add_remedy(known, *config, name, text);
}

/* Half the samples that a rank works on at once. */
static void add_batch(remedies *known, const vt_config *config)
{
    const bool is_local = config->local_batch_size != VT_UNSET_INTEGER; /* then the two must agree */
    const int64_t local = vt_trainer_micro_batch(config) / 2 * config->grad_accumulation;
    if (local == 0) return; /* a flag of 0 counts as not given */
    vt_config changed = *config;
    changed.global_batch_size = local * config->data_parallel;
    add_number(known, &changed, is_local ? "local_batch_size" : "global_batch_size",
               is_local ? local : changed.global_batch_size);
}

int64_t vt_plan_divisor(int64_t whole, int64_t least)
{
    for (int64_t next = least; next <= whole; next++)
        if (whole % next == 0) return next;
    return 0;
}

/* All else that would need less, each setting by itself. */
static void add_training(remedies *known, const vt_config *config)
{
    if (config->async_checkpoint) add_remedy(known, *config, "async_checkpoint", "false");
    if (known->options->device_memory) add_remedy(known, *config, "offload_activations", "host");
    add_remedy(known, *config, "recompute", "block");
    add_number(known, config, "prefetch", 1);
    add_number(known, config, "grad_accumulation",
               vt_plan_divisor(config->global_batch_size / config->data_parallel, config->grad_accumulation + 1));
    add_number(known, config, "patch_size", 2 * config->patch_size);
    add_number(known, config, "embed_dim", config->embed_dim / 2);
    add_number(known, config, "depth", config->depth / 2);
}

static int by_saving(const void *a, const void *b)
{
    double difference = ((const remedy *)b)->saved - ((const remedy *)a)->saved;
    return difference > 0 ? 1 : difference < 0 ? -1 : 0;
}

vt_status vt_budget_check(const vt_config *config, const vt_plan_options *options, const vt_plan *plan,
                          double available, bool trains)
{
    vt_status status = VT_OK;
    char needed[VT_NUMBER_SIZE], left[VT_NUMBER_SIZE], saved[VT_NUMBER_SIZE], parts[256];
    vt_text help = {0};
    if (available < 0) return VT_OK;
    if (!options->device_memory)
        available += (double)plan->held_bytes; /* the sets are open, so this is taken already */
    if (vt_plan_total(plan) <= available) return VT_OK;
    remedies known = {.options = options, .needed = vt_plan_total(plan)};
    add_batch(&known, config);
    if (trains) add_training(&known, config);
    qsort(known.found, (size_t)known.count, sizeof known.found[0], by_saving);
    for (int i = 0; i < 3 && i < known.count; i++)
        vt_text_append(&help, "%s %s saves %s", i > 0 ? "," : ".", known.found[i].flag,
                       vt_text_bytes(known.found[i].saved, saved));
    vt_plan_describe(plan, parts, sizeof parts);
    VT_FAIL("the run needs %s of memory (%s), %s are free%s", vt_text_bytes(vt_plan_total(plan), needed), parts,
            vt_text_bytes(available, left), help.characters != NULL ? help.characters : "");
done:
    vt_text_close(&help);
    return status;
}

vt_status vt_budget_keep_outputs(vt_config *config, const vt_plan_options *options, double taken, double available,
                                 vt_plan *plan)
{
    vt_status status = VT_OK;
    vt_plan more;
    const bool waits = config->offload_activations == VT_OFFLOAD_HOST; /* then they would take the link's time */
    if (config->keep_outputs != VT_KEEP_AUTO || waits || !options->device_memory || available < 0) return VT_OK;
    config->keep_outputs = VT_KEEP_TRUE;
    VT_TRY(vt_plan_make(config, options, &more));
    if (vt_plan_total(&more) + taken <= 0.9 * available)
        *plan = more;
    else
        config->keep_outputs = VT_KEEP_AUTO;
done:
    return status;
}

vt_status vt_budget_check_host(const vt_config *config, const vt_plan *plan, double available)
{
    vt_status status = VT_OK;
    char needed[VT_NUMBER_SIZE], left[VT_NUMBER_SIZE], pinned[VT_NUMBER_SIZE], rings[VT_NUMBER_SIZE];
    const bool waits = config->offload_activations == VT_OFFLOAD_HOST;
    const double all = (double)(plan->pinned_bytes + plan->ring_bytes);
    if (plan->pinned_bytes == 0 || available < 0 || all <= available + (double)plan->held_bytes) return VT_OK;
    VT_FAIL(
        "the run needs %s of the host's memory (%s pinned for %s%s%s, %s for batches), %s are free for each rank. %s "
        "needs less",
        vt_text_bytes(all, needed), vt_text_bytes((double)plan->pinned_bytes, pinned), waits ? "activations" : "",
        waits && config->async_checkpoint ? " and " : "", config->async_checkpoint ? "checkpoints" : "",
        vt_text_bytes((double)plan->ring_bytes, rings), vt_text_bytes(available, left),
        waits ? config->recompute == VT_RECOMPUTE_BLOCK ? "--offload_activations=none" : "--recompute=block"
              : "--async_checkpoint=false");
done:
    return status;
}
