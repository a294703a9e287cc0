#include "training/budget.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"

double vt_plan_total(const vt_plan *plan)
{
    double total = 0;
    for (int i = 0; i < VT_MEMORY_CATEGORY_COUNT; i++) total += (double)plan->bytes[i];
    return total;
}

void vt_plan_describe(const vt_plan *plan, char *buffer, size_t size)
{
    static const char *const names[VT_MEMORY_CATEGORY_COUNT] = {"parameters",  "gradients", "optimizer",
                                                                "activations", "data",      "workspace"};
    char number[VT_NUMBER_SIZE];
    size_t used = 0;
    buffer[0] = '\0';
    for (int i = 0; i < VT_MEMORY_CATEGORY_COUNT && used < size; i++) {
        if (plan->bytes[i] == 0) continue;
        used += (size_t)snprintf(buffer + used, size - used, "%s%s %s", used > 0 ? ", " : "", names[i],
                                 vt_text_bytes((double)plan->bytes[i], number));
    }
}

typedef struct {
    char flag[64];
    double saved; /* bytes */
} remedy;

/* The least number above `divisor` that divides `whole`, or 0. */
static int64_t next_divisor(int64_t whole, int64_t divisor)
{
    for (int64_t next = divisor + 1; next <= whole; next++)
        if (whole % next == 0) return next;
    return 0;
}

static void try_remedy(const vt_config *changed, const vt_trainer_data *data, const vt_plan *plan, remedy *result)
{
    vt_plan smaller;
    if (vt_trainer_plan(changed, data, &smaller) == VT_OK)
        result->saved = vt_plan_total(plan) - vt_plan_total(&smaller);
    vt_error_clear();
}

static int by_saving(const void *a, const void *b)
{
    double difference = ((const remedy *)b)->saved - ((const remedy *)a)->saved;
    return difference > 0 ? 1 : difference < 0 ? -1 : 0;
}

enum { REMEDIES = 7 };

/* Each setting by itself, in the order of what it saves; a setting that isn't to be had saves 0. */
static void find_remedies(const vt_config *config, const vt_trainer_data *data, const vt_plan *plan,
                          remedy remedies[REMEDIES])
{
    int64_t parts = next_divisor(config->global_batch_size, config->grad_accumulation);
    int64_t patch = 2 * config->patch_size;
    for (int i = 0; i < REMEDIES; i++) remedies[i] = (remedy){.saved = 0};
    vt_config changed = *config;
    changed.recompute = VT_RECOMPUTE_BLOCK;
    snprintf(remedies[0].flag, sizeof remedies[0].flag, "--recompute=block");
    try_remedy(&changed, data, plan, &remedies[0]);
    changed = *config;
    changed.prefetch = 1;
    snprintf(remedies[1].flag, sizeof remedies[1].flag, "--prefetch=1");
    try_remedy(&changed, data, plan, &remedies[1]);
    if (parts > 0) {
        changed = *config;
        changed.grad_accumulation = parts;
        snprintf(remedies[2].flag, sizeof remedies[2].flag, "--grad_accumulation=%lld", (long long)parts);
        try_remedy(&changed, data, plan, &remedies[2]);
    }
    if (config->global_batch_size > 1) {
        changed = *config;
        changed.global_batch_size = config->global_batch_size / 2;
        changed.grad_accumulation = 1;
        snprintf(remedies[3].flag, sizeof remedies[3].flag, "--global_batch_size=%lld",
                 (long long)changed.global_batch_size);
        try_remedy(&changed, data, plan, &remedies[3]);
    }
    if (config->img_size[0] % patch == 0 && config->img_size[1] % patch == 0) {
        changed = *config;
        changed.patch_size = patch;
        snprintf(remedies[4].flag, sizeof remedies[4].flag, "--patch_size=%lld", (long long)patch);
        try_remedy(&changed, data, plan, &remedies[4]);
    }
    if (config->embed_dim % (2 * config->num_heads) == 0) {
        changed = *config;
        changed.embed_dim = config->embed_dim / 2;
        snprintf(remedies[5].flag, sizeof remedies[5].flag, "--embed_dim=%lld", (long long)changed.embed_dim);
        try_remedy(&changed, data, plan, &remedies[5]);
    }
    if (config->depth > 1) {
        changed = *config;
        changed.depth = config->depth / 2;
        snprintf(remedies[6].flag, sizeof remedies[6].flag, "--depth=%lld", (long long)changed.depth);
        try_remedy(&changed, data, plan, &remedies[6]);
    }
    qsort(remedies, REMEDIES, sizeof remedies[0], by_saving);
}

vt_status vt_budget_check(const vt_config *config, const vt_trainer_data *data, const vt_plan *plan, double available)
{
    vt_status status = VT_OK;
    char needed[VT_NUMBER_SIZE], left[VT_NUMBER_SIZE], saved[VT_NUMBER_SIZE], parts[256];
    vt_text help = {0};
    if (available < 0 || vt_plan_total(plan) <= available) return VT_OK;
    remedy remedies[REMEDIES];
    find_remedies(config, data, plan, remedies);
    for (int i = 0; i < 3 && remedies[i].saved > 0; i++)
        vt_text_append(&help, "%s %s saves %s", i > 0 ? "," : ".", remedies[i].flag,
                       vt_text_bytes(remedies[i].saved, saved));
    vt_plan_describe(plan, parts, sizeof parts);
    VT_FAIL("the run needs %s of memory (%s), %s are free%s", vt_text_bytes(vt_plan_total(plan), needed), parts,
            vt_text_bytes(available, left), help.characters != NULL ? help.characters : "");
done:
    vt_text_close(&help);
    return status;
}
