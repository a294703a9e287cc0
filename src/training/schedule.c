#include "training/schedule.h"

#include "base/whole.h"

static int64_t rollout_of(const vt_step_shape *shape)
{
    return shape->rollout > 1 ? shape->rollout : 1;
}

static int64_t steps_with_backward(const vt_step_shape *shape)
{
    return shape->last_alone ? 1 : rollout_of(shape);
}

/* The micro-batches that take their steps of forecast together. */
static int64_t together(const vt_step_shape *shape)
{
    return shape->stages == 1 && rollout_of(shape) > 1 ? 1 : shape->micro_batches;
}

/* Does a step of forecast finish its backward passes before the step before it is computed again? With fewer
 * micro-batches than stages that waits less. */
static bool goes_by_steps(const vt_step_shape *shape)
{
    return shape->gpipe || shape->micro_batches < shape->stages;
}

/* How many messages, at most `all`, have come before pass `pass` of those that await one each, if all stages work in
 * step. */
static int64_t come_before(const vt_step_shape *shape, int64_t pass, int64_t all)
{
    const int64_t come = pass + 1 - vt_smaller(shape->stages, shape->micro_batches);
    return come < 0 ? 0 : vt_smaller(come, all);
}

/* What happens in place `index` of `passes` forwards and as many backwards: `first` forwards, then a forward and a
 * backward in turn, then the backwards that are left. *pass: which one. */
static vt_action_kind turn_of(int64_t passes, int64_t first, int64_t index, int64_t *pass)
{
    const int64_t in_turn = index - first, turns = 2 * (passes - first);
    if (index < first) {
        *pass = index;
        return VT_FORWARD;
    }
    const bool is_forward = in_turn < turns && in_turn % 2 == 0;
    *pass = is_forward ? first + in_turn / 2 : in_turn < turns ? in_turn / 2 : index - passes;
    return is_forward ? VT_FORWARD : VT_BACKWARD;
}

vt_action vt_schedule_action(const vt_step_shape *shape, int64_t index)
{
    /* forwards before the first backward, at most */
    const int64_t ahead = shape->gpipe ? shape->micro_batches : shape->stages - 1 - shape->stage;
    const int64_t group = together(shape), steps = rollout_of(shape), behind = steps_with_backward(shape) * group;
    const int64_t predicted = (steps - 1) * group, passes = goes_by_steps(shape) ? group : behind;
    const int64_t length = predicted + 2 * behind, first_of_group = index / length * group;
    const bool is_first = shape->stages > 1 && shape->stage == 0;
    const bool is_last = shape->stages > 1 && shape->stage + 1 == shape->stages;
    int64_t pass = index % length;
    vt_action action = {.kind = VT_PREDICT, .step = pass / group};
    if (first_of_group >= shape->micro_batches) return (vt_action){.kind = VT_STEP_ENDS};
    if (pass < predicted) {
        if (is_first) action.taken = come_before(shape, pass, predicted);
    } else {
        const int64_t place = pass - predicted, round = place / (2 * passes) * passes;
        action.kind = turn_of(passes, vt_smaller(ahead, group - 1), place % (2 * passes), &pass);
        pass += round;
        action.step = steps - 1 - pass / group;
        if (is_first) action.taken = come_before(shape, predicted + pass, predicted);
        if (is_last && action.kind == VT_BACKWARD) action.taken = come_before(shape, pass, behind - group);
        if (is_last && action.taken < round) action.taken = round;
    }
    action.micro_batch = first_of_group + pass % group;
    return action;
}

vt_step_shape vt_schedule_shape(const vt_config *config, int64_t stage, int64_t rollout)
{
    return (vt_step_shape){.stages = config->pipeline_parallel,
                           .stage = stage,
                           .micro_batches = config->grad_accumulation,
                           .rollout = rollout,
                           .last_alone = config->rollout_gradient == VT_ROLLOUT_GRADIENT_LAST,
                           .gpipe = config->pipeline_parallel > 1 && config->pipeline_schedule == VT_PIPELINE_GPIPE};
}

vt_step_counts vt_schedule_counts(const vt_step_shape *shape)
{
    const int64_t count = shape->micro_batches, steps = rollout_of(shape), backwards = steps_with_backward(shape);
    return (vt_step_counts){.micro_batches = count,
                            .forwards = (steps - 1 + backwards) * count,
                            .backwards = backwards * count,
                            .forecasts = (steps - 1) * count,
                            .gradients = (backwards - 1) * count};
}

vt_action vt_schedule_message(const vt_step_shape *shape, vt_action_kind kind, int64_t index)
{
    const int64_t round = index / shape->micro_batches;
    return (vt_action){.kind = kind,
                       .micro_batch = index % shape->micro_batches,
                       .step = kind == VT_PREDICT ? round : rollout_of(shape) - 2 - round};
}

int64_t vt_schedule_in_flight(const vt_step_shape *shape)
{
    int64_t flying = 0, most = 0;
    vt_action action;
    for (int64_t i = 0; (action = vt_schedule_action(shape, i)).kind != VT_STEP_ENDS; i++) {
        flying += action.kind == VT_BACKWARD ? -1 : action.kind == VT_FORWARD;
        if (flying > most) most = flying;
    }
    return most;
}

int64_t vt_schedule_begun(const vt_step_shape *shape)
{
    return rollout_of(shape) > 1 ? together(shape) : vt_schedule_in_flight(shape);
}

double vt_schedule_bubble(const vt_step_shape *shape)
{
    enum { FORWARD = 1, PAIR = 3 }; /* the time of a forward; that of a forward and its backward */
    const double stages = (double)shape->stages, parts = (double)shape->micro_batches;
    const double more = (double)(rollout_of(shape) - 1), again = (double)(steps_with_backward(shape) - 1);
    const double pairs = goes_by_steps(shape) ? parts + stages - 1 : parts; /* of one more step of forecast */
    const double length = PAIR * (parts + stages - 1 + again * pairs) + FORWARD * more * fmax(parts, stages);
    const double own = PAIR * (1 + again) + FORWARD * more; /* of a micro-batch */
    return shape->stages == 1 ? 0 : length / own - parts;
}

double vt_schedule_idle(const vt_step_shape *shape)
{
    const double bubble = vt_schedule_bubble(shape);
    return bubble / ((double)shape->micro_batches + bubble);
}
