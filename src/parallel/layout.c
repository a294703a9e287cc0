#include "parallel/layout.h"

#include <stdio.h>
#include <string.h>

static const char *const names[VT_AXIS_COUNT] = {"tp", "cp", "dp"};

const char *vt_axis_name(vt_axis axis)
{
    return names[axis];
}

void vt_layout_axes_name(const vt_layout *layout, unsigned axes, char name[32])
{
    name[0] = '\0';
    if (axes == VT_AXES_ALL) {
        snprintf(name, 32, "world");
        return;
    }
    for (int i = 0; i < VT_AXIS_COUNT; i++) {
        if ((axes & VT_AXES(layout->order[i])) == 0) continue;
        if (name[0] != '\0') strcat(name, "-");
        strcat(name, names[layout->order[i]]);
    }
    if (name[0] == '\0') snprintf(name, 32, "self");
}

/* "tp-cp-dp" to the order of axes. */
static vt_status parse_order(const char *text, vt_axis order[VT_AXIS_COUNT])
{
    vt_status status = VT_OK;
    unsigned seen = 0;
    const char *rest = text;
    VT_CHECK(strstr(text, "pp") == NULL, "parallel_order '%s': there is no pipeline axis (pp); use tp, cp and dp", text);
    for (int i = 0; i < VT_AXIS_COUNT; i++) {
        int axis = 0;
        while (axis < VT_AXIS_COUNT && strncmp(rest, names[axis], 2) != 0) axis++;
        bool good = axis < VT_AXIS_COUNT && (seen & VT_AXES(axis)) == 0;
        good = good && rest[2] == (i + 1 < VT_AXIS_COUNT ? '-' : '\0');
        VT_CHECK(good, "parallel_order '%s': expected tp, cp and dp, each once, joined by '-', such as tp-cp-dp", text);
        order[i] = (vt_axis)axis;
        seen |= VT_AXES(axis);
        rest += 3;
    }
done:
    return status;
}

vt_status vt_layout_make(const vt_config *config, int ranks, vt_layout *layout)
{
    vt_status status = VT_OK;
    int64_t model = config->tensor_parallel * config->context_parallel;
    *layout = (vt_layout){.ranks = ranks};
    VT_TRY(parse_order(config->parallel_order, layout->order));
    VT_CHECK(ranks % model == 0,
             "tensor_parallel %lld × context_parallel %lld = %lld does not divide the %d ranks; start %lld or %lld",
             (long long)config->tensor_parallel, (long long)config->context_parallel, (long long)model, ranks,
             (long long)(ranks < model ? model : ranks - ranks % model),
             (long long)(ranks < model ? 2 * model : ranks - ranks % model + model));
    layout->size[VT_AXIS_TENSOR] = (int)config->tensor_parallel;
    layout->size[VT_AXIS_CONTEXT] = (int)config->context_parallel;
    layout->size[VT_AXIS_DATA] = (int)(ranks / model);
done:
    return status;
}

/* How far apart neighbours on an axis are. */
static int distance(const vt_layout *layout, vt_axis axis)
{
    int result = 1;
    for (int i = 0; layout->order[i] != axis; i++) result *= layout->size[layout->order[i]];
    return result;
}

int vt_layout_coordinate(const vt_layout *layout, int rank, vt_axis axis)
{
    return rank / distance(layout, axis) % layout->size[axis];
}

int vt_layout_members(const vt_layout *layout, int rank, unsigned axes, int *members)
{
    int count = 0;
    for (int other = 0; other < layout->ranks; other++) {
        bool same = true;
        for (int axis = 0; axis < VT_AXIS_COUNT; axis++) {
            bool free_axis = (axes & VT_AXES(axis)) != 0;
            same = same && (free_axis || vt_layout_coordinate(layout, other, (vt_axis)axis) ==
                                             vt_layout_coordinate(layout, rank, (vt_axis)axis));
        }
        if (same) members[count++] = other;
    }
    return count;
}

vt_run_of vt_layout_run(int64_t total, int parts, int index)
{
    int64_t length = (total + parts - 1) / parts;
    if (length * (parts - 1) >= total) length = total / parts;
    int64_t first = index * length;
    return (vt_run_of){first, index + 1 < parts ? length : total - first};
}
