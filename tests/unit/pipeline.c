/* Pipeline parallelism without ranks: the order of a stage's actions, walked by all stages together, and how units are
 * dealt out to stages. */
#include "model/split.h"
#include "settings.h"
#include "training/schedule.h"

/* "F0 F1 B0 …" */
static void check_actions(vt_step_schedule *schedule, int64_t stages, int64_t stage, int64_t count, const char *wanted)
{
    const vt_step_shape shape = {stages, stage, count};
    vt_text text = {0};
    vt_action action;
    for (int64_t i = 0; (action = schedule(&shape, i)).kind != VT_STEP_ENDS; i++)
        vt_text_append(&text, "%s%c%lld", i > 0 ? " " : "", action.kind == VT_FORWARD ? 'F' : 'B',
                       (long long)action.micro_batch);
    EXPECT(strcmp(text.characters, wanted) == 0, "stage %lld: %s", (long long)stage, text.characters);
    vt_text_close(&text);
}

TEST(actions_of_a_stage)
{
    check_actions(vt_schedule_1f1b, 4, 0, 8, "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
    check_actions(vt_schedule_1f1b, 4, 1, 8, "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7");
    check_actions(vt_schedule_1f1b, 4, 2, 8, "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
    check_actions(vt_schedule_1f1b, 4, 3, 8, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
    check_actions(vt_schedule_1f1b, 4, 0, 2, "F0 F1 B0 B1");
    check_actions(vt_schedule_1f1b, 1, 0, 3, "F0 B0 F1 B1 F2 B2");
    check_actions(vt_schedule_gpipe, 4, 2, 3, "F0 F1 F2 B0 B1 B2");
}

/* ---- all stages together ---- */

enum { MOST_STAGES = 8, MOST_PARTS = 32, FORWARD_TIME = 1, BACKWARD_TIME = 2 };

/* When each action of each stage ends, in the time of a forward; 0: not yet. */
typedef struct {
    int64_t end[MOST_STAGES][2][MOST_PARTS];
} times;

/* Walks the stages until each has ended or none can go on. A send ends when the next stage has posted its receive,
 * which it does when it begins to compute the message before: a rank may not be farther ahead. *peaks [stages]: the
 * most micro-batches that a stage kept, in `slots` rooms that it takes in turn. Returns the length; -1: they lock up,
 * -2: a room was taken twice, -3: gradients were added in another order. */
static int64_t walk(vt_step_schedule *schedule, int64_t stages, int64_t parts, int64_t slots, int64_t *peaks)
{
    times t = {0};
    int64_t place[MOST_STAGES] = {0}, now[MOST_STAGES] = {0}, done[MOST_STAGES] = {0}, left = stages, length = 0;
    bool taken[MOST_STAGES][MOST_PARTS] = {{false}};
    memset(peaks, 0, (size_t)stages * sizeof *peaks);
    for (bool moved = true; moved && left > 0;) {
        moved = false;
        for (int64_t s = 0; s < stages; s++) {
            const vt_step_shape shape = {stages, s, parts};
            const vt_action action = schedule(&shape, place[s]);
            const bool is_backward = action.kind == VT_BACKWARD;
            const int64_t k = action.micro_batch, from = is_backward ? s + 1 : s - 1, to = is_backward ? s - 1 : s + 1;
            if (action.kind == VT_STEP_ENDS) continue;
            const bool receives = from >= 0 && from < stages, sends = to >= 0 && to < stages;
            if (receives && t.end[from][is_backward][k] == 0) continue;
            if (sends && k >= 2 && t.end[to][is_backward][k - 2] == 0) continue; /* its last message is on its way */
            if (is_backward && k != done[s]) return -3;
            const int64_t begin =
                receives && t.end[from][is_backward][k] > now[s] ? t.end[from][is_backward][k] : now[s];
            now[s] = begin + (is_backward ? BACKWARD_TIME : FORWARD_TIME);
            t.end[s][is_backward][k] = now[s];
            if (!is_backward && taken[s][k % slots]) return -2;
            taken[s][k % slots] = !is_backward;
            done[s] += is_backward;
            const int64_t kept = is_backward ? 0 : k + 1 - done[s];
            if (kept > peaks[s]) peaks[s] = kept;
            place[s]++;
            left -= schedule(&shape, place[s]).kind == VT_STEP_ENDS;
            if (now[s] > length) length = now[s];
            moved = true;
        }
    }
    return left > 0 ? -1 : length;
}

TEST(stages_that_work_together)
{
    int64_t peaks[MOST_STAGES];
    for (int64_t stages = 1; stages <= MOST_STAGES; stages++) {
        for (int64_t parts = 1; parts <= MOST_PARTS; parts++) {
            const int64_t ideal = (FORWARD_TIME + BACKWARD_TIME) * (parts + stages - 1);
            const int64_t slots = parts < stages ? parts : stages;
            int64_t length = walk(vt_schedule_1f1b, stages, parts, slots, peaks);
            EXPECT(length == ideal, "1f1b of %lld stages, %lld parts: %lld, expected %lld", (long long)stages,
                   (long long)parts, (long long)length, (long long)ideal);
            for (int64_t s = 0; s < stages; s++) {
                const vt_step_shape shape = {stages, s, parts};
                const int64_t most = parts < stages - s ? parts : stages - s;
                EXPECT(peaks[s] == most && vt_schedule_in_flight(vt_schedule_1f1b, &shape) == most,
                       "stage %lld of %lld keeps %lld, expected %lld", (long long)s, (long long)stages,
                       (long long)peaks[s], (long long)most);
                EXPECT(vt_schedule_in_flight(vt_schedule_gpipe, &shape) == parts);
            }
            length = walk(vt_schedule_gpipe, stages, parts, parts, peaks);
            EXPECT(length == ideal && peaks[0] == parts, "gpipe of %lld stages, %lld parts: %lld", (long long)stages,
                   (long long)parts, (long long)length);
        }
    }
    EXPECT_NEAR(vt_schedule_idle(4, 8), 3.0 / 11, 1e-15);
    EXPECT_NEAR(vt_schedule_idle(4, 1), 0.75, 1e-15);
}

/* Two backwards change places. */
static vt_action swapped(const vt_step_shape *shape, int64_t index)
{
    vt_action action = vt_schedule_1f1b(shape, index);
    if (action.kind == VT_BACKWARD && action.micro_batch < 2) action.micro_batch = 1 - action.micro_batch;
    return action;
}

/* The last stage begins backward before its forward. */
static vt_action too_early(const vt_step_shape *shape, int64_t index)
{
    if (shape->stage + 1 == shape->stages && index < 2) return (vt_action){index == 0 ? VT_BACKWARD : VT_FORWARD, 0};
    return vt_schedule_1f1b(shape, index);
}

/* A stage that waits for a gradient before it has sent all forwards that lead to it. */
static vt_action locked(const vt_step_shape *shape, int64_t index)
{
    const vt_step_shape last = {shape->stages, shape->stages - 1, shape->micro_batches};
    return shape->stage == 1 ? vt_schedule_gpipe(shape, index) : vt_schedule_1f1b(&last, index);
}

TEST(mistakes_of_a_schedule_are_noticed)
{
    int64_t peaks[MOST_STAGES];
    EXPECT(walk(swapped, 4, 8, 4, peaks) < 0);
    EXPECT(walk(too_early, 1, 4, 1, peaks) != 3 * 4 || peaks[0] != 1);
    EXPECT(walk(locked, 3, 4, 4, peaks) == -1);
    EXPECT(walk(vt_schedule_1f1b, 4, 8, 3, peaks) == -2);
    EXPECT(walk(vt_schedule_gpipe, 2, 4, 3, peaks) == -2);
}

/* ---- units ---- */

static void split_text(const vt_span *spans, int64_t stages, int64_t units, vt_text *text)
{
    int64_t next = 0;
    for (int64_t s = 0; s < stages; s++) {
        EXPECT(spans[s].first == next && spans[s].count > 0);
        next += spans[s].count;
        vt_text_append(text, "%s%lld", s > 0 ? " " : "", (long long)(spans[s].count - (s == 0) - (s == stages - 1)));
    }
    EXPECT(next == units);
}

static void check_split(const char *settings, const char *blocks)
{
    vt_config *config = config_with(8 * 9 * 5 * 7 * 14, "img_size=[360,720] patch_size=8 num_heads=8 depth=12",
                                    SETTINGS("local_batch_size=1 %s", settings));
    vt_split split;
    vt_text found = {0};
    double work = 0;
    EXPECT_OK(vt_split_open(config, &split));
    split_text(split.units, split.stages, 14, &found);
    for (int64_t s = 0; s < split.stages; s++) work += split.work[s];
    EXPECT(strcmp(found.characters, blocks) == 0, "%s: %s, expected %s", settings, found.characters, blocks);
    EXPECT_NEAR(work, 1, 1e-12);
    vt_text_close(&found);
    vt_split_close(&split);
    vt_config_close(&config);
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
    vt_config *config = config_with(4, "depth=5 pipeline_parallel=4 pipeline_split=[2,1,2,0]", "");
    static const char *const words[] = {"embedding, blocks 0-1", "block 2", "blocks 3-4", "head"};
    vt_split split;
    EXPECT_OK(vt_split_open(config, &split));
    for (int64_t s = 0; s < 4; s++) {
        char *text = vt_split_describe(&split, s);
        EXPECT(strcmp(text, words[s]) == 0, "%s, expected %s", text, words[s]);
        free(text);
    }
    vt_split_close(&split);
    vt_config_close(&config);
}

static vt_status open_with(const char *settings)
{
    vt_config *config = config_with(60, "depth=12 local_batch_size=1", settings);
    vt_split split;
    const vt_status status = vt_split_open(config, &split);
    vt_split_close(&split);
    vt_config_close(&config);
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
