#include "training/schedule.h"

vt_action vt_schedule_in_turn(int64_t micro_batches, int64_t index)
{
    if (index == 2 * micro_batches) return (vt_action){.kind = VT_STEP_ENDS};
    return (vt_action){index % 2 == 0 ? VT_FORWARD : VT_BACKWARD, index / 2};
}

int64_t vt_schedule_in_flight(vt_step_schedule *schedule, int64_t micro_batches)
{
    int64_t flying = 0, most = 0;
    for (int64_t i = 0; schedule(micro_batches, i).kind != VT_STEP_ENDS; i++) {
        flying += schedule(micro_batches, i).kind == VT_FORWARD ? 1 : -1;
        if (flying > most) most = flying;
    }
    return most;
}
