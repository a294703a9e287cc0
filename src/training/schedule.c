#include "training/schedule.h"

/* `first` forwards, then a forward and a backward in turn, then the backwards that are left. */
static vt_action action_of(int64_t micro_batches, int64_t first, int64_t index)
{
    const int64_t turns = 2 * (micro_batches - first), in_turn = index - first;
    if (index == 2 * micro_batches) return (vt_action){.kind = VT_STEP_ENDS};
    if (index < first) return (vt_action){VT_FORWARD, index};
    if (in_turn >= turns) return (vt_action){VT_BACKWARD, index - micro_batches};
    return in_turn % 2 == 0 ? (vt_action){VT_FORWARD, first + in_turn / 2} : (vt_action){VT_BACKWARD, in_turn / 2};
}

vt_action vt_schedule_1f1b(const vt_step_shape *shape, int64_t index)
{
    const int64_t behind = shape->stages - 1 - shape->stage;
    return action_of(shape->micro_batches, behind < shape->micro_batches ? behind : shape->micro_batches, index);
}

vt_action vt_schedule_gpipe(const vt_step_shape *shape, int64_t index)
{
    return action_of(shape->micro_batches, shape->micro_batches, index);
}

vt_step_schedule *vt_schedule_of(const vt_config *config)
{
    const bool keeps_all = config->pipeline_parallel > 1 && config->pipeline_schedule == VT_PIPELINE_GPIPE;
    return keeps_all ? vt_schedule_gpipe : vt_schedule_1f1b;
}

int64_t vt_schedule_in_flight(vt_step_schedule *schedule, const vt_step_shape *shape)
{
    int64_t flying = 0, most = 0;
    vt_action action;
    for (int64_t i = 0; (action = schedule(shape, i)).kind != VT_STEP_ENDS; i++) {
        flying += action.kind == VT_FORWARD ? 1 : -1;
        if (flying > most) most = flying;
    }
    return most;
}

double vt_schedule_idle(int64_t stages, int64_t micro_batches)
{
    return (double)(stages - 1) / (double)(micro_batches + stages - 1);
}
