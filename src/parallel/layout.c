#include "parallel/layout.h"

#include <string.h>

#include "base/text.h"

static const char *const axis_names[] = {
    [VT_AXIS_TENSOR] = "tp", [VT_AXIS_CONTEXT] = "cp", [VT_AXIS_PIPELINE] = "pp", [VT_AXIS_DATA] = "dp", NULL};

vt_status vt_layout_parse_axes(const char *text, size_t length, const char *what, vt_axis order[VT_AXIS_COUNT],
                               unsigned *axes)
{
    vt_status status = VT_OK;
    enum { SHOWN = 40 };
    const int shown = length < SHOWN ? (int)length : SHOWN;
    *axes = 0;
    for (size_t begin = 0, end; begin <= length; begin = end + 1) {
        for (end = begin; end < length && text[end] != '-';) end++;
        const int axis = vt_text_place(text + begin, end - begin, axis_names);
        VT_CHECK(axis >= 0, "%s '%.*s': '%.*s' is no axis; expected tp, cp, pp and dp joined by '-', as in tp-cp-dp",
                 what, shown, text, end - begin < SHOWN ? (int)(end - begin) : SHOWN, text + begin);
        VT_CHECK((*axes & VT_AXES(axis)) == 0, "%s '%.*s' names %s twice; expected each axis once", what, shown, text,
                 axis_names[axis]);
        order[__builtin_popcount(*axes)] = (vt_axis)axis;
        *axes |= VT_AXES(axis);
    }
done:
    return status;
}

static vt_status parse_order(const char *text, const int size[VT_AXIS_COUNT], vt_axis order[VT_AXIS_COUNT])
{
    vt_status status = VT_OK;
    unsigned named = 0;
    VT_TRY(vt_layout_parse_axes(text, strlen(text), "parallel_order", order, &named));
    int count = __builtin_popcount(named);
    for (vt_axis axis = VT_AXIS_TENSOR; axis < VT_AXIS_COUNT; axis++) {
        if ((named & VT_AXES(axis)) != 0) continue;
        VT_CHECK(size[axis] == 1 || axis == VT_AXIS_PIPELINE,
                 "parallel_order '%.40s' lacks %s, which has %d ranks; name each axis of more than one rank once", text,
                 axis_names[axis], size[axis]);
        /* pp lies behind all others; where an axis of one rank stands changes nothing */
        order[count++] = axis;
    }
done:
    return status;
}

vt_status vt_layout_make(const vt_config *config, int ranks, vt_layout *layout)
{
    vt_status status = VT_OK;
    vt_layout made = {.ranks = ranks};
    VT_TRY(vt_config_check_ranks(config, ranks));
    made.size[VT_AXIS_TENSOR] = (int)config->tensor_parallel;
    made.size[VT_AXIS_CONTEXT] = (int)config->context_parallel;
    made.size[VT_AXIS_PIPELINE] = (int)config->pipeline_parallel;
    made.size[VT_AXIS_DATA] = (int)(ranks / vt_config_model_ranks(config));
    VT_TRY(parse_order(config->parallel_order, made.size, made.order));
    *layout = made;
done:
    return status;
}

void vt_layout_axes_name(const vt_layout *layout, unsigned axes, char name[32])
{
    name[0] = '\0';
    const unsigned alone = layout->size[VT_AXIS_PIPELINE] == 1 ? VT_AXES(VT_AXIS_PIPELINE) : 0;
    if ((axes | alone) == VT_AXES_ALL) {
        strcpy(name, "world");
        return;
    }
    for (int i = 0; i < VT_AXIS_COUNT; i++) {
        if ((axes & VT_AXES(layout->order[i])) == 0) continue;
        if (name[0] != '\0') strcat(name, "-");
        strcat(name, axis_names[layout->order[i]]);
    }
}

/* The distance between the ranks of neighbours on an axis. */
static int stride_of(const vt_layout *layout, vt_axis axis)
{
    int stride = 1;
    for (int i = 0; layout->order[i] != axis; i++) stride *= layout->size[layout->order[i]];
    return stride;
}

int vt_layout_coordinate(const vt_layout *layout, int rank, vt_axis axis)
{
    return rank / stride_of(layout, axis) % layout->size[axis];
}

int vt_layout_first(const vt_layout *layout, int stage)
{
    int rank = 0;
    while (vt_layout_coordinate(layout, rank, VT_AXIS_PIPELINE) != stage) rank++;
    return rank;
}

int vt_layout_members(const vt_layout *layout, int rank, unsigned axes, int *members)
{
    int count = 1;
    members[0] = rank;
    for (vt_axis axis = VT_AXIS_TENSOR; axis < VT_AXIS_COUNT; axis++) {
        if ((axes & VT_AXES(axis)) != 0)
            members[0] -= vt_layout_coordinate(layout, rank, axis) * stride_of(layout, axis);
    }
    for (int i = 0; i < VT_AXIS_COUNT; i++) { /* copies of what is there, further along each axis, fastest first */
        vt_axis axis = layout->order[i];
        if ((axes & VT_AXES(axis)) == 0) continue;
        for (int place = 1; place < layout->size[axis]; place++) {
            for (int j = 0; j < count; j++) members[place * count + j] = members[j] + place * stride_of(layout, axis);
        }
        count *= layout->size[axis];
    }
    return count;
}

vt_span vt_layout_span(int64_t total, int parts, int index)
{
    int64_t length = (total + parts - 1) / parts;
    if (length * (parts - 1) >= total) length = total / parts;
    vt_span span = {.first = length * index, .count = length};
    if (index == parts - 1) span.count = total - span.first;
    return span;
}
