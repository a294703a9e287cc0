#include "planning/layouts.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

/* ---- one layout ---- */

/* A stage's first rank with most tokens, of those that attend and of those of its residual stream. */
static int busiest_of_stage(const vt_config *config, const vt_layout *layout, int stage)
{
    const int64_t tokens = vt_model_kind_of(config)->tokens(config);
    int64_t most = -1;
    int busiest = 0;
    for (int rank = 0; rank < layout->ranks; rank++) {
        if (vt_layout_coordinate(layout, rank, VT_AXIS_DATA) != 0 ||
            vt_layout_coordinate(layout, rank, VT_AXIS_PIPELINE) != stage)
            continue;
        int64_t here = vt_parallel_tokens(layout, rank, false, tokens).count * tokens +
                       vt_parallel_tokens(layout, rank, config->sequence_parallel, tokens).count;
        if (here > most) busiest = rank;
        if (here > most) most = here;
    }
    return busiest;
}

/* Plans one rank of a stage. Of all ranks that it is called for, `option` keeps the largest memory and the slowest
 * step; *pass gets the longest of the stage. */
static vt_status take_rank(const vt_config *config, const vt_hardware *hardware, const vt_plan_options *planned,
                           int stage, vt_option_cost *option, double *pass)
{
    vt_status status = VT_OK;
    vt_plan plan;
    vt_cost cost;
    VT_TRY(vt_plan_make(config, planned, &plan));
    vt_cost_of(config, hardware, &plan, &cost);
    *pass = fmax(*pass, cost.pass);
    if (vt_plan_total(&plan) > option->total) {
        option->stage = stage;
        option->total = vt_plan_total(&plan);
        option->waiting = (double)plan.offload.host * (double)plan.in_flight;
        for (int i = 0; i < VT_MEMORY_CATEGORY_COUNT; i++)
            option->bytes[i] = vt_plan_bytes(&plan, (vt_memory_category)i);
    }
    const double hop = fmax(cost.hop, option->cost.hop);
    if (cost.step > option->cost.step) {
        option->cost = cost;
        option->flops = plan.step.flops;
        option->sent = plan.offloaded_bytes;
    }
    option->cost.hop = hop;
done:
    return status;
}

vt_status vt_layouts_cost(const vt_config *config, const vt_hardware *hardware, vt_option_cost *option)
{
    vt_status status = VT_OK;
    double passes = 0;
    vt_layout layout;
    const int ranks = (int)config->ranks;
    const int per_node = hardware->ranks_per_node > 0 ? (int)hardware->ranks_per_node : ranks;
    int *node_of = vt_allocate((size_t)ranks, sizeof *node_of, "the search for layouts");
    for (int rank = 0; rank < ranks; rank++) node_of[rank] = rank / per_node;
    *option = (vt_option_cost){.tensor = config->tensor_parallel,
                               .context = config->context_parallel,
                               .pipeline = config->pipeline_parallel,
                               .data = config->data_parallel,
                               .zero = config->zero_stage,
                               .accumulation = config->grad_accumulation,
                               .micro_batch = vt_trainer_micro_batch(config),
                               .sequence = config->sequence_parallel && config->tensor_parallel > 1,
                               .recompute = (vt_recompute)config->recompute};
    const bool on_gpu = hardware->kind == VT_MACHINE_GPU;
    vt_plan_options planned = {.node_of = node_of, .device_memory = on_gpu, .draws_ahead = on_gpu};
    VT_TRY(vt_layout_make(config, ranks, &layout));
    for (int stage = 0; stage < config->pipeline_parallel; stage++) {
        const int first = vt_layout_first(&layout, stage), busiest = busiest_of_stage(config, &layout, stage);
        double pass = 0;
        planned.rank = first;
        VT_TRY(take_rank(config, hardware, &planned, stage, option, &pass));
        planned.rank = busiest;
        if (busiest != first) VT_TRY(take_rank(config, hardware, &planned, stage, option, &pass));
        passes += pass;
    }
    if (config->pipeline_parallel > 1) vt_cost_add_stages(config, hardware, passes, &option->cost);
    option->fits = option->total <= vt_cost_available(hardware);
done:
    free(node_of);
    return status;
}

/* ---- all of them ---- */

typedef struct {
    const vt_config *config;
    const vt_hardware *hardware;
    vt_layouts *layouts;
    vt_error refusal; /* of the first layout that the nodes don't allow; text "": they all do */
} search;

static bool is_pinned(const search *s, vt_option_id option)
{
    return s->config->origin[option] == VT_FROM_COMMAND_LINE;
}

/* Does the search try this value of an option? */
static bool is_tried(const search *s, vt_option_id option, int64_t own, int64_t value)
{
    return !is_pinned(s, option) || own == value;
}

/* False if these ranks can't be laid out in this way: zero_group node wants equally many ranks of a group on each node.
 */
static bool add(search *s, const vt_config *changed)
{
    vt_layouts *all = s->layouts;
    all->options = vt_grow(all->options, (size_t)all->count, sizeof *all->options, "the search for layouts");
    if (vt_layouts_cost(changed, s->hardware, &all->options[all->count]) != VT_OK) {
        if (s->refusal.text[0] == '\0') vt_error_move_out(&s->refusal);
        vt_error_clear();
        return false;
    }
    all->count++;
    return true;
}

/* A rank's batch in `local` parts, in powers of two of them, and whole: from the smallest micro-batch up to the first
 * that does not fit, since larger ones need more. */
static void search_micro_batches(search *s, vt_config *changed)
{
    int64_t local = s->config->global_batch_size / changed->data_parallel, own = s->config->grad_accumulation;
    int64_t power = 1;
    bool pinned = is_pinned(s, VT_OPTION_grad_accumulation), fits = true;
    while (2 * power < local) power *= 2;
    for (int64_t parts = local; parts >= 1 && fits; parts = parts == local && local > 1 ? power : parts / 2) {
        changed->grad_accumulation = pinned ? own : parts;
        if (local % changed->grad_accumulation != 0) {
            if (pinned) break;
            continue;
        }
        fits = add(s, changed) && s->layouts->options[s->layouts->count - 1].fits && !pinned;
    }
}

/* One grid of ranks, if it divides them and the model. */
static void search_grid(search *s, int64_t tensor, int64_t context, int64_t stages)
{
    const vt_config *config = s->config;
    vt_config grid = *config; /* its strings stay the configuration's */
    if (config->ranks % (tensor * context * stages) != 0 || config->num_heads % tensor != 0 ||
        !is_tried(s, VT_OPTION_tensor_parallel, config->tensor_parallel, tensor) ||
        !is_tried(s, VT_OPTION_context_parallel, config->context_parallel, context) ||
        !is_tried(s, VT_OPTION_pipeline_parallel, config->pipeline_parallel, stages))
        return;
    grid.tensor_parallel = tensor;
    grid.context_parallel = context;
    grid.pipeline_parallel = stages;
    grid.data_parallel = config->ranks / (tensor * context * stages);
    for (int option = 0; option < 4 * 2 * 3; option++) {
        int zero = option / 6, sequence = option / 3 % 2, recompute = option % 3;
        bool alone = (zero > 0 && grid.data_parallel == 1) || (sequence > 0 && grid.tensor_parallel == 1);
        if (zero == 0 && grid.data_parallel == 1 && is_pinned(s, VT_OPTION_zero_stage)) zero = (int)config->zero_stage;
        if (alone || !is_tried(s, VT_OPTION_zero_stage, config->zero_stage, zero) ||
            !is_tried(s, VT_OPTION_recompute, config->recompute, recompute) ||
            (grid.tensor_parallel > 1 &&
             !is_tried(s, VT_OPTION_sequence_parallel, config->sequence_parallel, sequence)))
            continue;
        grid.zero_stage = zero;
        grid.sequence_parallel = sequence != 0;
        grid.recompute = recompute;
        grid.grad_accumulation = 1;
        if (vt_config_check_layout(&grid) != VT_OK || vt_model_check(&grid, NULL) != VT_OK) {
            vt_error_clear();
            continue;
        }
        search_micro_batches(s, &grid);
    }
}

static int by_time(const void *a, const void *b)
{
    const vt_option_cost *x = a, *y = b;
    if (x->cost.step != y->cost.step) return x->cost.step < y->cost.step ? -1 : 1;
    return x->total < y->total ? -1 : x->total > y->total;
}

vt_status vt_layouts_plan(const vt_config *config, const vt_hardware *hardware, vt_layouts *layouts)
{
    vt_status status = VT_OK;
    search s = {.config = config, .hardware = hardware, .layouts = layouts};
    char heads[64] = "";
    *layouts = (vt_layouts){NULL, 0};
    if ((vt_model_kind_of(config)->axes & VT_AXES(VT_AXIS_TENSOR)) != 0)
        snprintf(heads, sizeof heads, "the model's %ld heads and ", config->num_heads);
    VT_TRY(vt_model_check(config, NULL)); /* in one sentence, what no layout can change */
    for (int64_t tensor = 1; tensor <= config->ranks; tensor++)
        for (int64_t context = 1; tensor * context <= config->ranks; context++)
            for (int64_t stages = 1; tensor * context * stages <= config->ranks; stages++)
                search_grid(&s, tensor, context, stages);
    VT_CHECK(layouts->count > 0 || s.refusal.text[0] == '\0', "%ld ranks, %.0f on a node of %s: %s", config->ranks,
             hardware->ranks_per_node, hardware->name, s.refusal.text);
    VT_CHECK(layouts->count > 0,
             "no layout of %ld ranks divides %sthe batch of %ld samples as the flags ask; try other --ranks or "
             "--global_batch_size",
             config->ranks, heads, config->global_batch_size);
    qsort(layouts->options, (size_t)layouts->count, sizeof *layouts->options, by_time);
done:
    if (status != VT_OK) vt_layouts_close(layouts);
    return status;
}

void vt_layouts_close(vt_layouts *layouts)
{
    free(layouts->options);
    *layouts = (vt_layouts){NULL, 0};
}

#define WORD(enumerator, word) word,
const char *const vt_recompute_words[] = {VT_RECOMPUTES(WORD)};

int64_t vt_layouts_steps(const vt_config *config)
{
    if (config->num_iters != VT_UNSET_INTEGER) return config->num_iters;
    if (config->limit_nsamples == VT_UNSET_INTEGER) return 0;
    return config->num_epochs * (config->limit_nsamples / config->global_batch_size);
}

const vt_option_cost *vt_layouts_fastest(const vt_layouts *layouts, const vt_option_cost *grid)
{
    const vt_option_cost *first = NULL;
    for (const vt_option_cost *o = layouts->options; o < layouts->options + layouts->count; o++) {
        if (grid != NULL && (o->tensor != grid->tensor || o->context != grid->context || o->pipeline != grid->pipeline))
            continue;
        if (o->fits) return o;
        if (first == NULL) first = o;
    }
    return first;
}
