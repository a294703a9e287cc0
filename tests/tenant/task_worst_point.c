/* The tests' own task: predictions are scored by the error of their worst point, and the baseline is 0 everywhere. The
 * numbers of samples are taken as they are. It computes in the host's memory, which is the CPU back end's. */
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "task/task.h"

extern const vt_task_kind vt_task_worst_point;

typedef struct {
    vt_task task;
    const vt_model *model;
} worst_point;

static vt_status open_task(const vt_config *config, const vt_source *training, const vt_source *validation,
                           vt_task **task)
{
    worst_point *own = vt_allocate(1, sizeof *own, "the task");
    (void)training, (void)validation;
    own->task = (vt_task){.kind = &vt_task_worst_point, .config = config};
    own->task.scores = (vt_score_names){.title = "error of the worst point",
                                        .column = "worst",
                                        .baseline = "zero",
                                        .baseline_is = "0 at every point",
                                        .curve = vt_text_copy("Worst/valid"),
                                        .count = 1,
                                        .names = vt_allocate(1, sizeof(char *), "the score's name")};
    own->task.scores.names[0] = vt_text_copy("point");
    *task = &own->task;
    return VT_OK;
}

/* mean 0, standard deviation 1 */
static vt_status place_task(vt_task *task, vt_backend *backend, const vt_model *model, vt_span rows, int64_t batch)
{
    vt_status status = VT_OK;
    worst_point *own = (worst_point *)task;
    const int64_t channels[2] = {task->config->n_in_channels, task->config->n_out_channels};
    (void)rows, (void)batch;
    own->model = model;
    for (int i = 0; i < 2; i++)
        VT_TRY(vt_normalisation_place(backend, NULL, NULL, 0, channels[i], &task->normalisation[i]));
done:
    return status;
}

/* The dry back end has no memory. */
static void score(vt_task *task, const vt_pass *pass, vt_matrix prediction, vt_matrix target, const float *losses,
                  vt_scores_of *sums)
{
    const int64_t each = prediction.rows * prediction.columns / pass->batch;
    (void)task;
    for (int64_t i = 0; i < pass->batch && strcmp(pass->backend->name, "dry") != 0; i++) {
        double worst = 0;
        for (int64_t j = i * each; j < (i + 1) * each; j++)
            worst = fmax(worst, fabs((double)prediction.data[j] - (double)target.data[j]));
        sums->values[0] += (double)losses[i];
        sums->values[1] += worst;
        for (int s = 0; s < 2; s++) sums->counts[s] += 1;
    }
}

static vt_matrix baseline(const vt_task *task, const vt_pass *pass, const vt_model_tensor *tensors)
{
    const vt_model *model = ((const worst_point *)task)->model;
    vt_matrix zeros = vt_model_lay_out(model, pass, &tensors[VT_TENSOR_TARGET]);
    pass->backend->zero(pass->backend, zeros.data, (size_t)(zeros.rows * zeros.columns) * sizeof(float));
    return zeros;
}

static const char *const identity[] = {"task", NULL};

const vt_task_kind vt_task_worst_point = {.name = "worst_point",
                                          .identity = identity,
                                          .open = open_task,
                                          .place = place_task,
                                          .score = score,
                                          .baseline = baseline};
