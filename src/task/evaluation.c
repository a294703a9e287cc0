#include "task/evaluation.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/text.h"

void vt_evaluation_open(int64_t count, bool with_baseline, vt_evaluation *evaluation)
{
    const int64_t each = 1 + count;
    double *numbers = vt_allocate(4 * (size_t)each, sizeof *numbers, "an evaluation");
    *evaluation = (vt_evaluation){.count = count,
                                  .infinite = -1,
                                  .has_baseline = with_baseline,
                                  .model = {numbers, numbers + each},
                                  .baseline = {numbers + 2 * each, numbers + 3 * each}};
}

void vt_evaluation_finish(vt_world *world, bool counts_in_sums, vt_evaluation *evaluation)
{
    const int64_t each = 1 + evaluation->count, count = 1 + 4 * each;
    double *sums = vt_allocate((size_t)count, sizeof *sums, "an evaluation"), *numbers = evaluation->model.values;
    if (counts_in_sums) {
        sums[0] = evaluation->samples;
        for (int64_t i = 1; i < count; i++) sums[i] = numbers[i - 1];
    }
    vt_world_sum(world, sums, count);
    evaluation->samples = sums[0];
    for (int64_t i = 1; i < count; i++) numbers[i - 1] = sums[i];
    const vt_scores_of both[] = {evaluation->model, evaluation->baseline};
    for (int k = 0; k < 2; k++) /* NaN where there are no samples, or no baseline */
        for (int64_t i = 0; i < each; i++) both[k].values[i] = vt_text_plain_nan(both[k].values[i] / both[k].counts[i]);
    evaluation->loss = evaluation->model.values[0];
    evaluation->baseline_loss = evaluation->baseline.values[0];
    free(sums);
}

void vt_evaluation_close(vt_evaluation *evaluation)
{
    free(evaluation->model.values);
    *evaluation = (vt_evaluation){0};
}
