/* The tests' own task: predictions are scored by the error of their worst point, and the baseline is 0 everywhere. The
 * numbers of samples are taken as they are. It computes in the host's memory, which is the CPU back end's. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "task/task.h"

extern const vt_task_kind vt_task_worst_point;

typedef struct {
    vt_task task;
    vt_backend *backend; /* NULL: not placed */
    const vt_model *model;
    char *names[1]; /* of the score */
} worst_point;

static vt_status open_task(const vt_config *config, const vt_source *training, const vt_source *validation,
                           vt_task **task)
{
    worst_point *own = vt_allocate(1, sizeof *own, "the task");
    (void)training, (void)validation;
    own->names[0] = vt_text_copy("point");
    own->task = (vt_task){.kind = &vt_task_worst_point, .config = config};
    own->task.scores = (vt_score_names){.title = "error of the worst point",
                                        .column = "worst",
                                        .baseline = "zero",
                                        .baseline_is = "0 at every point",
                                        .curve = vt_text_copy("Worst/valid"),
                                        .count = 1,
                                        .names = own->names};
    *task = &own->task;
    return VT_OK;
}

static void close_task(vt_task *task)
{
    worst_point *own = (worst_point *)task;
    for (int i = 0; own->backend != NULL && i < 2; i++) {
        own->backend->release(own->backend, task->normalisation[i].mean);
        own->backend->release(own->backend, task->normalisation[i].inverse_std);
    }
    free(task->scores.curve);
    free(own->names[0]);
    free(own);
}

/* mean 0, standard deviation 1 */
static vt_status place_task(vt_task *task, vt_backend *backend, const vt_model *model, vt_span rows, int64_t batch)
{
    worst_point *own = (worst_point *)task;
    const int64_t channels[2] = {task->config->n_in_channels, task->config->n_out_channels};
    (void)rows, (void)batch;
    own->backend = backend;
    own->model = model;
    for (int i = 0; i < 2; i++) {
        void *memory[2];
        const size_t bytes = (size_t)channels[i] * sizeof(float);
        float *host = vt_allocate((size_t)channels[i], sizeof *host, "the task");
        for (int j = 0; j < 2; j++) {
            for (int64_t c = 0; c < channels[i]; c++) host[c] = (float)j;
            VT_ASSERT(backend->allocate(backend, VT_MEMORY_DATA, bytes, &memory[j]) == VT_OK);
            backend->copy_from_host(backend, memory[j], host, bytes);
        }
        task->normalisation[i] = (vt_normalisation){channels[i], memory[0], memory[1]};
        free(host);
    }
    return VT_OK;
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

static bool has_baseline(const vt_config *config)
{
    (void)config;
    return true;
}

static vt_matrix baseline(const vt_task *task, const vt_pass *pass, const vt_model_tensor *tensors)
{
    const vt_model *model = ((const worst_point *)task)->model;
    vt_matrix zeros = model->kind->lay_out(model, pass, &tensors[VT_TENSOR_TARGET]);
    pass->backend->zero(pass->backend, zeros.data, (size_t)(zeros.rows * zeros.columns) * sizeof(float));
    return zeros;
}

static const char *const identity[] = {"task", NULL};

const vt_task_kind vt_task_worst_point = {.name = "worst_point",
                                          .identity = identity,
                                          .open = open_task,
                                          .close = close_task,
                                          .place = place_task,
                                          .score = score,
                                          .has_baseline = has_baseline,
                                          .baseline = baseline};
