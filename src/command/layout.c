/* vitrain layout: shows the place of each rank in the grid, the ranks it communicates with, and its part of the model
 * and the data. Needs no ranks, no data and no device. */
#include "command/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "config/stages.h"
#include "model/split.h"
#include "source/sources.h"
#include "training/plan.h"
#include "training/schedule.h"

/* "0-1012", or the number of a single token */
static const char *span_text(vt_span span, char text[48])
{
    if (span.count == 1)
        snprintf(text, 48, "%ld", span.first);
    else
        snprintf(text, 48, "%ld-%ld", span.first, span.first + span.count - 1);
    return text;
}

static void print_sizes(const vt_config *config, const vt_layout *layout)
{
    const vt_model_kind *model = vt_model_kind_of(config);
    int64_t batch = config->global_batch_size, local = batch / config->data_parallel, tokens = model->tokens(config);
    char *shares = model->describe_shares != NULL ? model->describe_shares(config) : NULL;
    vt_print("%d rank%s: tp %d x cp %d", layout->ranks, layout->ranks == 1 ? "" : "s", layout->size[VT_AXIS_TENSOR],
             layout->size[VT_AXIS_CONTEXT]);
    if (layout->size[VT_AXIS_PIPELINE] > 1) vt_print(" x pp %d", layout->size[VT_AXIS_PIPELINE]);
    vt_print(" x dp %d, order %s\n", layout->size[VT_AXIS_DATA], config->parallel_order);
    vt_print("configuration %s:\n", config->config);
    if (shares != NULL) vt_print("  %s\n", shares);
    free(shares);
    vt_print("  samples  %ld a step, %ld on each dp rank", batch, local);
    if (config->grad_accumulation > 1)
        vt_print(" in %ld parts of %ld", config->grad_accumulation, local / config->grad_accumulation);
    vt_print("\n  tokens   %ld a sample", tokens);
    for (int part = 0; layout->size[VT_AXIS_CONTEXT] > 1 && part < layout->size[VT_AXIS_CONTEXT]; part++)
        vt_print("%s%ld", part == 0 ? ", on the cp ranks " : " ",
                 vt_layout_span(tokens, layout->size[VT_AXIS_CONTEXT], part).count);
    vt_print("\n");
    if (!config->sequence_parallel || layout->size[VT_AXIS_TENSOR] == 1) return;
    vt_print("           split again over the tp ranks for LayerNorm, residual and dropout (\"own tokens\")\n");
}

/* What each stage of a pipeline computes and keeps, and the memory of its first rank. */
static vt_status print_stages(const vt_config *config, const vt_layout *layout)
{
    vt_status status = VT_OK;
    vt_split split = {0};
    vt_plan plan;
    vt_step_shape shape = {0};
    char memory[VT_NUMBER_SIZE];
    if (config->pipeline_parallel == 1) return VT_OK;
    VT_TRY(vt_split_open(config, &split));
    for (int64_t stage = 0; stage < split.stages; stage++) {
        shape = vt_schedule_shape(config, stage, vt_config_longest_rollout(config));
        const int64_t kept = vt_schedule_in_flight(&shape);
        VT_TRY(vt_plan_make(config, &(vt_plan_options){.rank = vt_layout_first(layout, (int)stage)}, &plan));
        char *units = vt_split_describe(&split, stage);
        vt_print("  stage %ld: %s, %.1f %% of the work, keeps %ld micro-batch%s, needs %s\n", stage, units,
                 100 * split.work[stage], kept, kept == 1 ? "" : "es", vt_text_bytes(vt_plan_total(&plan), memory));
        free(units);
    }
    vt_print("  idle     %.1f %% of the time%s\n", 100 * vt_schedule_idle(&shape),
             shape.rollout > 1 ? "" : ", by (p - 1)/(m + p - 1)");
done:
    vt_split_close(&split);
    return status;
}

/* What each rank has. Its own tokens are those for LayerNorm, residual and dropout: with sequence_parallel a part of
 * the tokens for attention and the MLP. */
static void print_table(const vt_config *config, const vt_layout *layout)
{
    const int64_t batch = config->global_batch_size / config->data_parallel;
    const int64_t all = vt_model_kind_of(config)->tokens(config);
    const bool splits = config->sequence_parallel && layout->size[VT_AXIS_TENSOR] > 1;
    char text[48];
    vt_print("\n%6s %4s %4s%s %4s  %-13s %s\n", "rank", "tp", "cp", layout->size[VT_AXIS_PIPELINE] > 1 ? "   pp" : "",
             "dp", "samples", splits ? "tokens          own tokens" : "tokens");
    for (int rank = 0; rank < layout->ranks; rank++) {
        int place[VT_AXIS_COUNT];
        vt_print("%6d", rank);
        for (vt_axis axis = VT_AXIS_TENSOR; axis < VT_AXIS_COUNT; axis++) {
            place[axis] = vt_layout_coordinate(layout, rank, axis);
            if (axis != VT_AXIS_PIPELINE || layout->size[axis] > 1) vt_print(" %4d", place[axis]);
        }
        const vt_span tokens = vt_layout_span(all, layout->size[VT_AXIS_CONTEXT], place[VT_AXIS_CONTEXT]);
        vt_span own = vt_layout_span(tokens.count, layout->size[VT_AXIS_TENSOR], place[VT_AXIS_TENSOR]);
        own.first += tokens.first;
        vt_print("  %-13s", span_text((vt_span){batch * place[VT_AXIS_DATA], batch}, text));
        vt_print(splits ? " %-15s" : " %s", span_text(tokens, text));
        if (splits) vt_print(" %s", span_text(own, text));
        vt_print("\n");
    }
}

/* "[0 1] [2 3]": the groups in the order of their lowest ranks, with this between members and between groups; malloc'd.
 */
static char *groups_text(const vt_layout *layout, unsigned axes, const char *between)
{
    vt_text text = {0};
    int *members = vt_allocate((size_t)layout->ranks, sizeof(int), "the table of ranks");
    for (int rank = 0; rank < layout->ranks; rank++) {
        const int count = vt_layout_members(layout, rank, axes, members);
        if (members[0] != rank) continue;
        vt_text_append(&text, "%s[%d", rank > 0 ? between : "", rank);
        for (int i = 1; i < count; i++) vt_text_append(&text, "%s%d", between, members[i]);
        vt_text_append(&text, "]");
    }
    free(members);
    return text.characters;
}

static void print_groups(const vt_layout *layout, unsigned axes, const char *uses)
{
    char name[32], *groups = groups_text(layout, axes, " ");
    vt_layout_axes_name(layout, axes, name);
    vt_print_wrapped("\n%-10s%s\n          %s\n", name, uses, groups);
    free(groups);
}

/* "dp: [[0, 4], [1, 5], …]" for each set of axes of a list as "dp,tp-cp". */
static vt_status print_group_lists(const vt_layout *layout, const char *list)
{
    vt_status status = VT_OK;
    for (const char *names = list;; names++) {
        const size_t length = strcspn(names, ",");
        vt_axis order[VT_AXIS_COUNT];
        unsigned axes = 0;
        VT_TRY(vt_layout_parse_axes(names, length, "--groups", order, &axes));
        char *groups = groups_text(layout, axes, ", ");
        vt_print("%.*s: [%s]\n", (int)length, names, groups);
        free(groups);
        names += length;
        if (*names == '\0') break;
    }
done:
    return status;
}

static vt_status print_communication(const vt_config *config)
{
    vt_status status = VT_OK;
    vt_plan plan;
    char number[VT_NUMBER_SIZE];
    if (config->ranks == 1) return VT_OK;
    VT_TRY(vt_plan_make(config, &(vt_plan_options){.rank = 0}, &plan));
    vt_print("\nsent by rank 0 in a step (docs/parallelism.md has the formulas)\n");
    for (vt_traffic i = 0; i < VT_TRAFFIC_FIGURES; i++) {
        const vt_volume *sent = &plan.communication[i];
        if (sent->bytes == 0) continue;
        vt_print("          %-10s %s", vt_traffic_names[i], vt_text_bytes(sent->bytes - sent->padding, number));
        if (i != VT_TRAFFIC_GRADIENTS) vt_print(" in %ld operations", sent->operations);
        vt_print("\n");
    }
done:
    return status;
}

vt_status vt_command_layout(const vt_call *call)
{
    vt_status status = VT_OK;
    const vt_layout_flags *flags = call->flags;
    vt_config *config = NULL;
    vt_layout layout;
    const int64_t ranks = flags->ranks != VT_UNSET_INTEGER ? flags->ranks : call->launch.world_size;
    VT_TRY(vt_config_open(call->option_count, call->options, ranks, &config));
    VT_TRY(vt_layout_make(config, (int)ranks, &layout));
    if (flags->groups != NULL) {
        VT_TRY(print_group_lists(&layout, flags->groups));
        goto done;
    }
    VT_TRY(vt_source_complete(config));
    VT_TRY(vt_model_check(config, NULL));
    print_sizes(config, &layout);
    VT_TRY(print_stages(config, &layout));
    print_table(config, &layout);
    const unsigned tp = VT_AXES(VT_AXIS_TENSOR), cp = VT_AXES(VT_AXIS_CONTEXT), dp = VT_AXES(VT_AXIS_DATA);
    const unsigned pp = layout.size[VT_AXIS_PIPELINE] > 1 ? VT_AXES(VT_AXIS_PIPELINE) : 0;
    print_groups(&layout, tp, "share each layer");
    print_groups(&layout, cp, "share each sample");
    if (pp != 0) print_groups(&layout, pp, "are the stages of one model");
    print_groups(&layout, dp, "share each batch");
    if (pp != 0) print_groups(&layout, tp | cp, "one stage");
    print_groups(&layout, tp | cp | pp, "one model");
    print_groups(&layout, dp | cp, "have the same part of the layers: sum gradients");
    VT_TRY(print_communication(config));
done:
    vt_config_close(&config);
    return status;
}
