#include "model/split.h"

#include <math.h>
#include <stdlib.h>

#include "backend/work.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/batch.h"

/* ---- the best split ---- */

typedef struct {
    const double *before; /* [units + 1]: the cost of all units before a unit */
    int64_t units, stages;
    double most; /* that a stage may cost; INFINITY: it is what is searched for */
} problem;

static int64_t blocks_in(const problem *p, int64_t first, int64_t end)
{
    return end - first - (first == 0) - (end == p->units);
}

/* What counts of a stage that has the units first … end - 1: its cost, or when that is limited its activations. */
static double weight_of(const problem *p, int64_t stage, int64_t first, int64_t end)
{
    const double cost = p->before[end] - p->before[first];
    if (isinf(p->most)) return cost;
    return cost > p->most ? INFINITY : (double)(blocks_in(p, first, end) * (p->stages - stage));
}

static double *entry(const problem *p, double *table, int64_t stage, int64_t first)
{
    return &table[stage * (p->units + 1) + first];
}

/* table [stages + 1, units + 1]: the least largest weight of the stages `stage` … when they have the units from `first`
 * on. Returns that of all. */
static double fill_table(const problem *p, double *table)
{
    for (int64_t first = 0; first <= p->units; first++)
        *entry(p, table, p->stages, first) = first == p->units ? 0 : INFINITY;
    for (int64_t stage = p->stages - 1; stage >= 0; stage--) {
        for (int64_t first = 0; first <= p->units; first++) {
            double least = INFINITY;
            for (int64_t end = first + 1; end <= p->units; end++)
                least = fmin(least, fmax(weight_of(p, stage, first, end), *entry(p, table, stage + 1, end)));
            *entry(p, table, stage, first) = least;
        }
    }
    return *entry(p, table, 0, 0);
}

void vt_split_balance(const double *costs, int64_t units, int64_t stages, vt_span *spans)
{
    double *before = vt_allocate((size_t)units + 1, sizeof *before, "the pipeline's stages");
    double *table = vt_allocate((size_t)((stages + 1) * (units + 1)), sizeof *table, "the pipeline's stages");
    problem p = {before, units, stages, INFINITY};
    for (int64_t unit = 0; unit < units; unit++) before[unit + 1] = before[unit] + costs[unit];
    p.most = fill_table(&p, table);
    const double most = fill_table(&p, table);
    for (int64_t stage = 0, first = 0; stage < stages; stage++) {
        int64_t end = first + 1;
        while (weight_of(&p, stage, first, end) > most || *entry(&p, table, stage + 1, end) > most) end++;
        spans[stage] = (vt_span){first, end - first};
        first = end;
    }
    free(table);
    free(before);
}

/* ---- what units cost ---- */

/* Runs the layer that the model leaves to the loss. */
static void count_head(const vt_linear *head, const vt_pass *pass, vt_matrix prediction)
{
    vt_matrix made = vt_pass_push_float32(pass, prediction.rows, head->out);
    vt_linear_forward(head, pass, prediction, made);
    vt_linear_backward(head, pass, prediction, made, prediction);
}

/* Runs each unit of a sample forward and backward, and counts. costs: operations; columns: of the stream behind the
 * unit. */
static void count_units(const vt_model *model, const vt_config *config, vt_arena *arena, double *costs,
                        int64_t *columns)
{
    vt_backend *backend = arena->backend;
    const vt_dry_count *count = vt_backend_dry_count(backend);
    const int64_t units = model->parameters->unit_count;
    const vt_pass pass = {.backend = backend,
                          .arena = arena,
                          .parallel = model->parallel,
                          .batch = 1,
                          .training = true,
                          .has_backward = true};
    const vt_model_tensor tensors[VT_BATCH_TENSORS] = {{.channels = config->n_in_channels},
                                                       {.channels = config->n_out_channels}};
    vt_saved *saved = NULL;
    vt_matrix stream = {0};
    vt_saved_open(model, (vt_span){0, units}, &saved);
    for (int64_t unit = 0; unit < units; unit++) {
        costs[unit] = -count->flops;
        stream = model->kind->forward(model, &pass, unit, tensors, stream, saved);
        costs[unit] += count->flops;
        columns[unit] = stream.columns;
    }
    costs[units - 1] -= count->flops;
    if (model->head != NULL) count_head(model->head, &pass, stream);
    costs[units - 1] += count->flops;
    for (int64_t unit = units - 1; unit >= model->first_trained; unit--) {
        costs[unit] -= count->flops;
        stream = model->kind->backward(model, &pass, unit, tensors, stream, saved);
        costs[unit] += count->flops;
    }
    vt_saved_close(&saved);
}

/* costs, columns [*units]; malloc'd. */
static vt_status learn_units(const vt_config *config, double **costs, int64_t **columns, int64_t *units)
{
    vt_status status = VT_OK;
    const vt_model_kind *kind = vt_model_kind_of(config);
    vt_config own = *config; /* its strings stay the configuration's */
    vt_backend *dry = NULL;
    vt_world *world = NULL;
    vt_parallel *parallel = NULL;
    vt_parameters *parameters = NULL;
    vt_model *model = NULL;
    vt_arena arena = {0};
    own.tensor_parallel = own.context_parallel = own.pipeline_parallel = own.data_parallel = own.ranks = 1;
    VT_TRY(vt_backend_open_dry(&dry));
    VT_TRY(vt_world_open_dry(&own, 0, 1, NULL, &world));
    VT_TRY(vt_parallel_open(&own, world, dry, kind->tokens(&own), &parallel));
    VT_TRY(vt_parameters_open(dry, parallel, &parameters));
    VT_TRY(vt_model_open(&own, parameters, &model));
    VT_TRY(vt_parameters_allocate(parameters, VT_FLOAT32, &(vt_parameters_storage){.shards = 1, .grain = 1}));
    VT_TRY(vt_arena_open(dry, SIZE_MAX, &arena));
    *units = parameters->unit_count;
    *costs = vt_allocate((size_t)*units, sizeof **costs, "the pipeline's stages");
    *columns = vt_allocate((size_t)*units, sizeof **columns, "the pipeline's stages");
    count_units(model, &own, &arena, *costs, *columns);
done:
    vt_arena_close(&arena);
    vt_model_close(&model);
    vt_parameters_close(&parameters);
    vt_parallel_close(&parallel);
    vt_world_close(&world, false);
    vt_backend_close(&dry);
    return status;
}

/* ---- as the configuration has it ---- */

/* "[2, 3, 3, 2]": the blocks of each stage. */
static vt_status read_split(const char *text, int64_t units, int64_t stages, vt_span *spans)
{
    vt_status status = VT_OK;
    const char *rest = text, *word;
    size_t length;
    int64_t stage = 0, blocks = 0;
    while ((word = vt_text_next_word(&rest, &length)) != NULL) {
        char *end = NULL;
        const int64_t own = strtoll(word, &end, 10);
        const bool is_edge = stage == 0 || stage == stages - 1;
        VT_CHECK(end == word + length && own >= 0 && own <= units,
                 "pipeline_split: '%.*s' of '%.200s' is no number of the model's %ld blocks", (int)length, word, text,
                 units - 2);
        VT_CHECK(own > 0 || is_edge || stage >= stages,
                 "pipeline_split '%.200s' leaves stage %ld without a block; only the first stage, which has the "
                 "embedding, and the last, which has the head, can do without",
                 text, stage);
        if (stage < stages) spans[stage] = (vt_span){blocks + (stage > 0), own + (stage == 0) + (stage == stages - 1)};
        blocks += own;
        stage++;
    }
    VT_CHECK(stage == stages,
             "pipeline_split '%.200s' holds %ld number%s, but there are %ld stages "
             "(pipeline_parallel)",
             text, stage, stage == 1 ? "" : "s", stages);
    VT_CHECK(blocks == units - 2, "pipeline_split '%.200s' adds up to %ld blocks, but the model has %ld", text, blocks,
             units - 2);
done:
    return status;
}

/* The largest number of stages up to `units` that divides the ranks. */
static int64_t most_stages(const vt_config *config, int64_t units)
{
    vt_config changed = *config; /* its strings stay the configuration's */
    for (changed.pipeline_parallel = units; config->ranks % vt_config_model_ranks(&changed) != 0;)
        changed.pipeline_parallel--;
    return changed.pipeline_parallel;
}

vt_status vt_split_open(const vt_config *config, vt_split *split)
{
    vt_status status = VT_OK;
    const int64_t stages = config->pipeline_parallel;
    int64_t units = 0, *columns = NULL;
    double *costs = NULL, all = 0;
    *split = (vt_split){.stages = stages};
    VT_TRY(learn_units(config, &costs, &columns, &units));
    VT_CHECK(stages <= units,
             "pipeline_parallel %ld is more than the %ld units of the model, its embedding, %ld blocks and head; "
             "use %ld",
             stages, units, units - 2, most_stages(config, units));
    split->units = vt_allocate((size_t)stages, sizeof *split->units, "the pipeline's stages");
    split->columns = vt_allocate((size_t)stages, sizeof *split->columns, "the pipeline's stages");
    split->work = vt_allocate((size_t)stages, sizeof *split->work, "the pipeline's stages");
    for (int64_t unit = 0; unit < units; unit++) all += costs[unit];
    if (config->pipeline_split != NULL && stages > 1)
        VT_TRY(read_split(config->pipeline_split, units, stages, split->units));
    else
        vt_split_balance(costs, units, stages, split->units);
    for (int64_t stage = 0; stage < stages; stage++) {
        const vt_span own = split->units[stage];
        split->columns[stage] = columns[own.first + own.count - 1];
        for (int64_t i = 0; i < own.count; i++) split->work[stage] += costs[own.first + i] / all;
    }
done:
    free(columns);
    free(costs);
    if (status != VT_OK) vt_split_close(split);
    return status;
}

void vt_split_close(vt_split *split)
{
    free(split->units);
    free(split->columns);
    free(split->work);
    *split = (vt_split){0};
}

char *vt_split_describe(const vt_split *split, int64_t stage)
{
    const vt_span last = split->units[split->stages - 1], own = split->units[stage];
    const int64_t head = last.first + last.count - 1, end = own.first + own.count;
    const int64_t first = own.first == 0 ? 0 : own.first - 1, behind = (end > head ? head : end) - 1; /* blocks */
    vt_text text = {0};
    if (own.first == 0) vt_text_append(&text, "embedding");
    if (behind > first) {
        vt_text_append(&text, "%sblock%s %ld", text.length > 0 ? ", " : "", behind - first > 1 ? "s" : "", first);
        if (behind - first > 1) vt_text_append(&text, "-%ld", behind - 1);
    }
    if (end > head) vt_text_append(&text, "%shead", text.length > 0 ? ", " : "");
    return text.characters;
}
