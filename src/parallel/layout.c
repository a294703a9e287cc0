#include "parallel/layout.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char *const axis_names[] = {[VT_AXIS_TENSOR] = "tp", [VT_AXIS_CONTEXT] = "cp", [VT_AXIS_DATA] = "dp"};

/* The axis of a name of `length` bytes; VT_AXIS_COUNT: none. */
static vt_axis find_axis(const char *name, size_t length)
{
    vt_axis axis = VT_AXIS_TENSOR;
    while (axis < VT_AXIS_COUNT && (strlen(axis_names[axis]) != length || strncmp(name, axis_names[axis], length) != 0))
        axis++;
    return axis;
}

static vt_status parse_order(const char *text, vt_axis order[VT_AXIS_COUNT])
{
    vt_status status = VT_OK;
    unsigned seen = 0;
    int count = 0;
    for (const char *name = text;;) {
        size_t length = strcspn(name, "-");
        vt_axis axis = find_axis(name, length);
        VT_CHECK(length != 2 || strncmp(name, "pp", 2) != 0,
                 "parallel_order '%.40s': pp, splitting the blocks over ranks, is not supported yet; leave it out",
                 text);
        VT_CHECK(axis < VT_AXIS_COUNT,
                 "parallel_order '%.40s': '%.*s' is no axis; expected tp, cp and dp joined by "
                 "'-', as in tp-cp-dp",
                 text, length < 40 ? (int)length : 40, name);
        VT_CHECK((seen & VT_AXES(axis)) == 0,
                 "parallel_order '%.40s' names %s twice; expected tp, cp and dp, each once", text, axis_names[axis]);
        seen |= VT_AXES(axis);
        order[count++] = axis;
        if (name[length] == '\0') break;
        name += length + 1;
    }
    for (vt_axis axis = VT_AXIS_TENSOR; axis < VT_AXIS_COUNT; axis++)
        VT_CHECK((seen & VT_AXES(axis)) != 0, "parallel_order '%.40s' lacks %s; expected tp, cp and dp, each once",
                 text, axis_names[axis]);
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
    made.size[VT_AXIS_DATA] = (int)(ranks / (config->tensor_parallel * config->context_parallel));
    VT_TRY(parse_order(config->parallel_order, made.order));
    *layout = made;
done:
    return status;
}

void vt_layout_axes_name(const vt_layout *layout, unsigned axes, char name[32])
{
    name[0] = '\0';
    if (axes == VT_AXES_ALL) {
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

vt_span vt_layout_run(int64_t total, int parts, int index)
{
    int64_t length = (total + parts - 1) / parts;
    if (length * (parts - 1) >= total) length = total / parts;
    vt_span run = {.first = length * index, .count = length};
    if (index == parts - 1) run.count = total - run.first;
    return run;
}
