/* Pipeline parallelism without ranks: the order of a stage's actions, walked by all stages together, and how units are
 * dealt out to stages. */
#include "model/split.h"
#include "settings.h"
#include "training/schedule.h"

/* "F0 F1 B0 …"; of a rollout P0.1 is a prediction of micro-batch 0 in step 1, and <2 says that two messages from the
 * other end of the pipeline have to be there. */
static void check_actions(vt_step_shape shape, const char *wanted)
{
    static const char letters[] = {[VT_PREDICT] = 'P', [VT_FORWARD] = 'F', [VT_BACKWARD] = 'B'};
    SCOPED(vt_text) text = {0};
    vt_action action;
    int64_t taken = 0;
    for (int64_t i = 0; (action = vt_schedule_action(&shape, i)).kind != VT_STEP_ENDS; i++) {
        vt_text_append(&text, i > 0 ? " " : "");
        if (action.taken > taken) vt_text_append(&text, "<%ld ", action.taken);
        if (action.taken > taken) taken = action.taken;
        vt_text_append(&text, "%c%ld", letters[action.kind], action.micro_batch);
        if (shape.rollout > 1) vt_text_append(&text, ".%ld", action.step);
    }
    EXPECT(strcmp(text.characters, wanted) == 0, "stage %ld: %s", shape.stage, text.characters);
}

TEST(actions_of_a_stage)
{
    check_actions((vt_step_shape){4, 0, 8, 1, false, false}, "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
    check_actions((vt_step_shape){4, 1, 8, 1, false, false}, "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7");
    check_actions((vt_step_shape){4, 2, 8, 1, false, false}, "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
    check_actions((vt_step_shape){4, 3, 8, 1, false, false}, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
    check_actions((vt_step_shape){4, 0, 2, 1, false, false}, "F0 F1 B0 B1");
    check_actions((vt_step_shape){1, 0, 3, 0, false, false}, "F0 B0 F1 B1 F2 B2");
    check_actions((vt_step_shape){4, 2, 3, 1, false, true}, "F0 F1 F2 B0 B1 B2");
}

TEST(actions_of_a_rollout)
{
    check_actions((vt_step_shape){1, 0, 2, 2, false, false}, "P0.0 F0.1 B0.1 F0.0 B0.0 P1.0 F1.1 B1.1 F1.0 B1.0");
    check_actions((vt_step_shape){1, 0, 2, 2, true, false}, "P0.0 F0.1 B0.1 P1.0 F1.1 B1.1");
    check_actions((vt_step_shape){2, 0, 3, 2, false, false},
                  "P0.0 P1.0 <1 P2.0 <2 F0.1 <3 F1.1 B0.1 F2.1 B1.1 F0.0 B2.1 F1.0 B0.0 F2.0 B1.0 B2.0");
    check_actions((vt_step_shape){2, 1, 3, 2, false, false},
                  "P0.0 P1.0 P2.0 F0.1 B0.1 F1.1 B1.1 F2.1 <1 B2.1 F0.0 <2 B0.0 F1.0 <3 B1.0 F2.0 B2.0");
    check_actions((vt_step_shape){2, 0, 3, 2, true, false}, "P0.0 P1.0 <1 P2.0 <2 F0.1 <3 F1.1 B0.1 F2.1 B1.1 B2.1");
    check_actions((vt_step_shape){2, 1, 3, 2, false, true},
                  "P0.0 P1.0 P2.0 F0.1 F1.1 F2.1 B0.1 B1.1 <1 B2.1 <3 F0.0 F1.0 F2.0 B0.0 B1.0 B2.0");
}

/* ---- all stages together ---- */

enum { MOST_STAGES = 8, MOST_PARTS = 32, MOST_ROLLOUT = 4, FORWARD_TIME = 1, BACKWARD_TIME = 2 };

/* What one stage sends another, in order. A send ends when the receiver has posted its receive, which it does when it
 * takes the message before: a rank may not be farther ahead. */
typedef struct {
    int64_t sent, taken;
    struct {
        int64_t time, micro_batch, step; /* in the time of a forward */
    } messages[2 * MOST_ROLLOUT * MOST_PARTS];
} channel;

static bool may_send(const channel *c)
{
    return c->sent < 2 || c->taken >= c->sent - 1;
}

static void send(channel *c, int64_t time, int64_t micro_batch, int64_t step)
{
    c->messages[c->sent].time = time;
    c->messages[c->sent].micro_batch = micro_batch;
    c->messages[c->sent++].step = step;
}

/* The next message, which is that of this micro-batch and step; *now moves on to its time. False: it is not there. */
static bool take(channel *c, int64_t micro_batch, int64_t step, int64_t *now)
{
    if (c->taken == c->sent) return false;
    EXPECT(c->messages[c->taken].micro_batch == micro_batch && c->messages[c->taken].step == step);
    if (c->messages[c->taken].time > *now) *now = c->messages[c->taken].time;
    c->taken++;
    return true;
}

typedef vt_action schedule_of_test(const vt_step_shape *shape, int64_t index);

typedef struct {
    schedule_of_test *schedule;
    vt_step_shape shape;
    int64_t slots;
    channel forward[MOST_STAGES], back[MOST_STAGES]; /* from this stage to its neighbour */
    channel forecasts, gradients;                    /* from the last stage to the first, and back */
    struct {
        int64_t place, now, kept, peak, done, taken;
        bool has_forward[MOST_PARTS], has_input;
    } stages[MOST_STAGES];
} walker;

enum { WAITS = 0, GOES_ON = 1, LOCKS = -1, TAKES_A_ROOM_TWICE = -2, IN_ANOTHER_ORDER = -3, LACKS_A_MESSAGE = -4 };

/* The messages between the ends that the action asks for. */
static bool take_from_the_end(walker *w, int64_t s, const vt_action *action)
{
    for (; w->stages[s].taken < action->taken; w->stages[s].taken++) {
        const vt_action made = vt_schedule_message(&w->shape, s == 0 ? VT_PREDICT : VT_BACKWARD, w->stages[s].taken);
        channel *from = s == 0 ? &w->forecasts : &w->gradients;
        if (!take(from, made.micro_batch, made.step, &w->stages[s].now)) return false;
    }
    return true;
}

/* Does stage s have what the other end of the pipeline must have sent before? */
static bool has_messages(const walker *w, int64_t s, const vt_action *action)
{
    const int64_t parts = w->shape.micro_batches, last = w->shape.rollout - 1;
    if (w->shape.stages == 1) return true;
    if (s == 0 && action->kind != VT_BACKWARD && action->step > 0)
        return w->stages[s].taken > (action->step - 1) * parts + action->micro_batch;
    if (s + 1 == w->shape.stages && action->kind == VT_BACKWARD && action->step < last)
        return w->stages[s].taken > (last - 1 - action->step) * parts + action->micro_batch;
    return true;
}

static bool comes_in_order(const walker *w, int64_t s, const vt_action *action)
{
    const int64_t done = w->stages[s].done, parts = w->shape.micro_batches, last = w->shape.rollout - 1;
    const int64_t each = w->shape.last_alone ? 1 : w->shape.rollout;
    if (w->shape.stages == 1) return action->micro_batch == done / each && action->step == last - done % each;
    return action->micro_batch == done % parts && action->step == last - done / parts;
}

/* Stage s does its next action, if it can. */
static int64_t go_on(walker *w, int64_t s)
{
    w->shape.stage = s;
    const vt_action action = w->schedule(&w->shape, w->stages[s].place);
    const bool is_backward = action.kind == VT_BACKWARD, is_last = s + 1 == w->shape.stages;
    const int64_t k = action.micro_batch, step = action.step;
    channel *from = is_backward ? (is_last ? NULL : &w->back[s + 1]) : s == 0 ? NULL : &w->forward[s - 1];
    channel *to = is_backward ? (s == 0 ? NULL : &w->back[s]) : is_last ? NULL : &w->forward[s], *to_end = NULL;
    if (action.kind == VT_STEP_ENDS || !take_from_the_end(w, s, &action)) return WAITS;
    if (!has_messages(w, s, &action)) return LACKS_A_MESSAGE;
    if (!w->stages[s].has_input && from != NULL && !take(from, k, step, &w->stages[s].now)) return WAITS;
    w->stages[s].has_input = true;
    if (w->shape.stages > 1 && is_last && action.kind == VT_PREDICT) to_end = &w->forecasts;
    if (w->shape.stages > 1 && s == 0 && is_backward && step > 0 && !w->shape.last_alone) to_end = &w->gradients;
    if ((to != NULL && !may_send(to)) || (to_end != NULL && !may_send(to_end))) return WAITS;
    if (is_backward && (!comes_in_order(w, s, &action) || !w->stages[s].has_forward[k])) return IN_ANOTHER_ORDER;
    if (action.kind == VT_FORWARD && (w->stages[s].has_forward[k] || w->stages[s].kept == w->slots))
        return TAKES_A_ROOM_TWICE;
    w->stages[s].now += is_backward ? BACKWARD_TIME : FORWARD_TIME;
    if (to != NULL) send(to, w->stages[s].now, k, step);
    if (to_end != NULL) send(to_end, w->stages[s].now, k, is_backward ? step - 1 : step);
    w->stages[s].kept += is_backward ? -1 : action.kind == VT_FORWARD;
    if (w->stages[s].kept > w->stages[s].peak) w->stages[s].peak = w->stages[s].kept;
    if (action.kind != VT_PREDICT) w->stages[s].has_forward[k] = !is_backward;
    w->stages[s].done += is_backward;
    w->stages[s].has_input = false;
    w->stages[s].place++;
    return GOES_ON;
}

/* Walks the stages until each has ended or none can go on. *peaks [stages]: the most micro-batches that a stage kept,
 * in at most `slots` rooms. Returns the length, or what went wrong. */
static int64_t walk(schedule_of_test *schedule, vt_step_shape shape, int64_t slots, int64_t *peaks)
{
    int64_t length = 0, left = 0, result = 0;
    walker *w = calloc(1, sizeof *w);
    VT_ASSERT(w != NULL);
    *w = (walker){.schedule = schedule, .shape = shape, .slots = slots};
    if (shape.rollout == 0) w->shape.rollout = 1;
    for (bool moved = true; moved && result >= 0;) {
        moved = false;
        for (int64_t s = 0; s < shape.stages && result >= 0; s++) {
            const int64_t before = w->forecasts.taken + w->gradients.taken;
            result = go_on(w, s);
            moved = moved || result == GOES_ON || w->forecasts.taken + w->gradients.taken > before;
        }
    }
    for (int64_t s = 0; s < shape.stages; s++) {
        w->shape.stage = s;
        left += schedule(&w->shape, w->stages[s].place).kind != VT_STEP_ENDS;
        peaks[s] = w->stages[s].peak;
        if (w->stages[s].now > length) length = w->stages[s].now;
    }
    left += w->forecasts.sent - w->forecasts.taken + w->gradients.sent - w->gradients.taken;
    free(w);
    return result < 0 ? result : left > 0 ? LOCKS : length;
}

/* Its length and peaks. */
static void check_walk(vt_step_shape shape)
{
    const int64_t stages = shape.stages, parts = shape.micro_batches;
    const vt_step_counts counts = vt_schedule_counts(&shape);
    const int64_t work = FORWARD_TIME * counts.forwards + BACKWARD_TIME * counts.backwards;
    int64_t peaks[MOST_STAGES];
    const int64_t length = walk(vt_schedule_action, shape, parts < stages || shape.gpipe ? parts : stages, peaks);
    const double idle = vt_schedule_idle(&shape);
    EXPECT(fabs((double)length * (1 - idle) - (double)work) < 1e-9 * (double)length,
           "%ld stages, %ld parts, rollout %ld: %ld of work takes %ld, but %g should be idle", stages, parts,
           shape.rollout, work, length, idle);
    for (shape.stage = 0; shape.stage < stages; shape.stage++) {
        const int64_t at_once = stages == 1 ? 1 : parts,
                      few = parts < stages - shape.stage ? parts : stages - shape.stage;
        const int64_t most = shape.gpipe ? at_once : few, kept = vt_schedule_in_flight(&shape);
        EXPECT(peaks[shape.stage] == most && kept == most, "stage %ld of %ld keeps %ld, %ld, expected %ld", shape.stage,
               stages, peaks[shape.stage], kept, most);
    }
}

TEST(stages_that_work_together)
{
    for (int64_t stages = 1; stages <= MOST_STAGES; stages++)
        for (int64_t parts = 1; parts <= MOST_PARTS; parts++)
            for (int64_t rollout = 1; rollout <= MOST_ROLLOUT; rollout++)
                for (int last_alone = 0; last_alone < 2; last_alone++) {
                    check_walk((vt_step_shape){stages, 0, parts, rollout, last_alone, false});
                    if (stages > 1) check_walk((vt_step_shape){stages, 0, parts, rollout, last_alone, true});
                }
}

TEST(idle_parts_of_a_step)
{
    EXPECT_NEAR(vt_schedule_idle(&(vt_step_shape){4, 0, 8, 1, false, false}), 3.0 / 11, 1e-15);
    EXPECT_NEAR(vt_schedule_idle(&(vt_step_shape){4, 0, 1, 1, false, false}), 0.75, 1e-15);
    /* a rollout is as a step of more micro-batches: 4 forwards and backwards of 3, and 3 forwards more */
    EXPECT_NEAR(vt_schedule_idle(&(vt_step_shape){4, 0, 8, 4, false, false}), 9.0 / (8 * 15 + 9), 1e-15);
}

/* Two backwards change places. */
static vt_action swapped(const vt_step_shape *shape, int64_t index)
{
    vt_action action = vt_schedule_action(shape, index);
    if (action.kind == VT_BACKWARD && action.micro_batch < 2) action.micro_batch = 1 - action.micro_batch;
    return action;
}

/* The last stage begins backward before its forward. */
static vt_action too_early(const vt_step_shape *shape, int64_t index)
{
    vt_action action = vt_schedule_action(shape, index);
    if (shape->stage + 1 == shape->stages && index < 2) action.kind = index == 0 ? VT_BACKWARD : VT_FORWARD;
    return action;
}

/* A stage that waits for a gradient before it has sent all forwards that lead to it. */
static vt_action locked(const vt_step_shape *shape, int64_t index)
{
    const vt_step_shape last = {shape->stages, shape->stages - 1, shape->micro_batches, 1, false, false};
    vt_step_shape all_forwards_first = *shape;
    all_forwards_first.gpipe = true;
    return vt_schedule_action(shape->stage == 1 ? &all_forwards_first : &last, index);
}

/* The ends of the pipeline take what the other one has sent only when they need it. */
static vt_action taken_late(const vt_step_shape *shape, int64_t index)
{
    const int64_t parts = shape->micro_batches, last = shape->rollout - 1;
    vt_action action = vt_schedule_action(shape, index);
    const bool needs = action.kind == VT_BACKWARD ? action.step < last : action.step > 0;
    const int64_t before = action.kind == VT_BACKWARD ? last - 1 - action.step : action.step - 1;
    if (action.taken > 0) action.taken = needs ? before * parts + action.micro_batch + 1 : 0;
    return action;
}

/* The ends of the pipeline never take anything. */
static vt_action never_taken(const vt_step_shape *shape, int64_t index)
{
    vt_action action = vt_schedule_action(shape, index);
    action.taken = 0;
    return action;
}

TEST(mistakes_of_a_schedule_are_noticed)
{
    int64_t peaks[MOST_STAGES];
    EXPECT(walk(swapped, (vt_step_shape){4, 0, 8, 1, false, false}, 4, peaks) == IN_ANOTHER_ORDER);
    EXPECT(walk(too_early, (vt_step_shape){1, 0, 4, 1, false, false}, 1, peaks) == IN_ANOTHER_ORDER);
    EXPECT(walk(locked, (vt_step_shape){3, 0, 4, 1, false, false}, 4, peaks) == LOCKS);
    EXPECT(walk(vt_schedule_action, (vt_step_shape){4, 0, 8, 1, false, false}, 3, peaks) == TAKES_A_ROOM_TWICE);
    EXPECT(walk(vt_schedule_action, (vt_step_shape){2, 0, 4, 1, false, true}, 3, peaks) == TAKES_A_ROOM_TWICE);
    EXPECT(walk(taken_late, (vt_step_shape){2, 0, 32, 3, false, false}, 2, peaks) == LOCKS);
    EXPECT(walk(never_taken, (vt_step_shape){2, 0, 2, 2, false, false}, 2, peaks) == LACKS_A_MESSAGE);
}

/* ---- units ---- */

static void split_text(const vt_span *spans, int64_t stages, int64_t units, vt_text *text)
{
    int64_t next = 0;
    for (int64_t s = 0; s < stages; s++) {
        EXPECT(spans[s].first == next && spans[s].count > 0);
        next += spans[s].count;
        vt_text_append(text, "%s%ld", s > 0 ? " " : "", spans[s].count - (s == 0) - (s == stages - 1));
    }
    EXPECT(next == units);
}

static void check_split(const char *settings, const char *blocks)
{
    SCOPED(vt_config) *config = config_with(8 * 9 * 5 * 7 * 14, "img_size=[360,720] patch_size=8 num_heads=8 depth=12",
                                            SETTINGS("local_batch_size=1 %s", settings));
    SCOPED(vt_split) split;
    SCOPED(vt_text) found = {0};
    double work = 0;
    EXPECT_OK(vt_split_open(config, &split));
    split_text(split.units, split.stages, 14, &found);
    for (int64_t s = 0; s < split.stages; s++) work += split.work[s];
    EXPECT(strcmp(found.characters, blocks) == 0, "%s: %s, expected %s", settings, found.characters, blocks);
    EXPECT_NEAR(work, 1, 1e-12);
}

TEST(splits_by_cost)
{
    static const char *const widths[] = {"384", "1024"};
    for (int i = 0; i < 2; i++) {
        check_split(SETTINGS("embed_dim=%s pipeline_parallel=2", widths[i]), "6 6");
        check_split(SETTINGS("embed_dim=%s pipeline_parallel=3", widths[i]), "4 4 4");
        check_split(SETTINGS("embed_dim=%s pipeline_parallel=4", widths[i]), "3 3 3 3");
        check_split(SETTINGS("embed_dim=%s pipeline_parallel=5", widths[i]), "2 2 3 3 2");
        check_split(SETTINGS("embed_dim=%s pipeline_parallel=6", widths[i]), "2 2 2 2 2 2");
        check_split(SETTINGS("embed_dim=%s pipeline_parallel=7", widths[i]), "1 2 2 2 2 2 1");
        check_split(SETTINGS("embed_dim=%s pipeline_parallel=8", widths[i]), "1 1 1 2 2 2 2 1");
        check_split(SETTINGS("embed_dim=%s pipeline_parallel=14", widths[i]), "0 1 1 1 1 1 1 1 1 1 1 1 1 0");
    }
    check_split("pipeline_parallel=4 pipeline_split=[0,5,7,0]", "0 5 7 0");
    check_split("pipeline_parallel=1", "12");
}

/* Against all splits there are. */
TEST(splits_are_the_best)
{
    enum { UNITS = 9 };
    for (uint32_t seed = 0; seed < 40; seed++) {
        double costs[UNITS];
        for (int i = 0; i < UNITS; i++) costs[i] = (double)(1 + (seed * 7919u + (uint32_t)i * 104729u) / 13 % 9);
        for (int stages = 1; stages <= UNITS; stages++) {
            vt_span spans[UNITS];
            double best[2] = {INFINITY, INFINITY}, own[2] = {0, 0};
            vt_split_balance(costs, UNITS, stages, spans);
            for (int cuts = 0; cuts < 1 << (UNITS - 1); cuts++) { /* a bit between two units: a new stage begins */
                if (__builtin_popcount((unsigned)cuts) != stages - 1) continue;
                double most[2] = {0, 0}, sum = 0, blocks = 0;
                for (int unit = 0, stage = 0; unit < UNITS; unit++) {
                    sum += costs[unit];
                    blocks += unit > 0 && unit + 1 < UNITS;
                    most[0] = fmax(most[0], sum);
                    most[1] = fmax(most[1], blocks * (stages - stage));
                    if (unit + 1 < UNITS && (cuts >> unit & 1) != 0) {
                        stage++;
                        sum = blocks = 0;
                    }
                }
                if (most[0] < best[0] || (most[0] == best[0] && most[1] < best[1])) memcpy(best, most, sizeof best);
            }
            for (int stage = 0; stage < stages; stage++) {
                double sum = 0, blocks = 0;
                for (int64_t unit = spans[stage].first; unit < spans[stage].first + spans[stage].count; unit++) {
                    sum += costs[unit];
                    blocks += unit > 0 && unit + 1 < UNITS;
                }
                own[0] = fmax(own[0], sum);
                own[1] = fmax(own[1], blocks * (stages - stage));
            }
            EXPECT(own[0] == best[0] && own[1] == best[1], "%d stages: %g, %g, expected %g, %g", stages, own[0], own[1],
                   best[0], best[1]);
        }
    }
}

TEST(splits_in_words)
{
    SCOPED(vt_config) *config = config_with(4, "depth=5 pipeline_parallel=4 pipeline_split=[2,1,2,0]", "");
    static const char *const words[] = {"embedding, blocks 0-1", "block 2", "blocks 3-4", "head"};
    SCOPED(vt_split) split;
    EXPECT_OK(vt_split_open(config, &split));
    for (int64_t s = 0; s < 4; s++) {
        char *text = vt_test_owned(vt_split_describe(&split, s));
        EXPECT_TEXT(text, words[s]);
    }
}

static vt_status open_with(const char *settings)
{
    SCOPED(vt_config) *config = config_with(60, "depth=12 local_batch_size=1", settings);
    SCOPED(vt_split) split;
    const vt_status status = vt_split_open(config, &split);
    return status;
}

TEST(splits_that_are_refused)
{
    EXPECT_ERROR(open_with("pipeline_parallel=15"), "pipeline_parallel 15 is more than the 14 units of the model, its "
                                                    "embedding, 12 blocks and head; use 12");
    EXPECT_ERROR(open_with("pipeline_parallel=4 pipeline_split=[3,3,6]"),
                 "'[3,3,6]' holds 3 numbers, but there are 4 stages");
    EXPECT_ERROR(open_with("pipeline_parallel=4 pipeline_split=[3,3,3,3,0]"), "holds 5 numbers");
    EXPECT_ERROR(open_with("pipeline_parallel=4 pipeline_split=[3,3,3,2]"),
                 "adds up to 11 blocks, but the model has 12");
    EXPECT_ERROR(open_with("pipeline_parallel=4 pipeline_split=[3,0,6,3]"), "leaves stage 1 without a block");
    EXPECT_ERROR(open_with("pipeline_parallel=4 pipeline_split=[3,-3,9,3]"), "'-3' of '[3,-3,9,3]' is no number");
    EXPECT_ERROR(open_with("pipeline_parallel=4 pipeline_split=[3,3,3,x]"), "'x' of");
}
