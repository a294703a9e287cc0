/* The task of the 2022 tutorial: the gas of a universe (density, velocity, temperature) from its dark matter. Fields
 * are used as the files have them, and scored by the mean absolute error of each. The baseline copies the dark matter's
 * density and velocity, and predicts 0 for the temperature. */
#include <stdlib.h>

#include "base/memory.h"
#include "base/text.h"
#include "task/task.h"

typedef struct {
    vt_task task;
    double *sums; /* [batch, 2], on the back end */
    double *host_sums;
} cosmology;

static const char *const field_names[] = {"density", "vx", "vy", "vz", "temperature"};
enum { NAMED = sizeof field_names / sizeof field_names[0], INPUTS = 4 };

static vt_status cosmology_open(const vt_config *config, const vt_source *training, const vt_source *validation,
                                vt_task **task)
{
    cosmology *own = vt_allocate(1, sizeof *own, "the task");
    vt_score_names *scores = &own->task.scores;
    (void)training, (void)validation;
    own->task.kind = vt_task_kind_of(config);
    own->task.config = config;
    *scores = (vt_score_names){.title = "L1 by channel",
                               .column = "l1",
                               .baseline = "copying",
                               .baseline_is = "dark matter's fields",
                               .curve = vt_text_copy("L1(density)/valid"),
                               .count = config->N_out_channels};
    scores->names = vt_allocate((size_t)scores->count, sizeof *scores->names, "the scores' names");
    for (int64_t c = 0; c < scores->count; c++)
        scores->names[c] = c < NAMED ? vt_text_copy(field_names[c]) : vt_text_format("%ld", c);
    *task = &own->task;
    return VT_OK;
}

static void cosmology_close(vt_task *task)
{
    cosmology *own = (cosmology *)task;
    if (task->backend != NULL) task->backend->release(task->backend, own->sums);
    free(own->host_sums);
}

static vt_status cosmology_place(vt_task *task, vt_backend *backend, const vt_model *model, vt_span rows, int64_t batch)
{
    vt_status status = VT_OK;
    cosmology *own = (cosmology *)task;
    const size_t sums = 2 * (size_t)batch;
    (void)model, (void)rows;
    const int64_t counts[] = {[VT_TENSOR_INPUT] = INPUTS, [VT_TENSOR_TARGET] = task->config->N_out_channels};
    for (int t = 0; t < 2; t++)
        VT_TRY(vt_normalisation_place(backend, NULL, NULL, 0, counts[t], &task->normalisation[t]));
    VT_TAKE(backend, VT_MEMORY_DATA, sums, own->sums);
    own->host_sums = vt_allocate(sums, sizeof *own->host_sums, "the task");
done:
    return status;
}

static void cosmology_score(vt_task *task, const vt_pass *pass, vt_matrix prediction, vt_matrix target,
                            const float *losses, vt_scores_of *sums)
{
    cosmology *own = (cosmology *)task;
    vt_backend *backend = pass->backend;
    for (int64_t i = 0; i < pass->batch; i++) sums->values[0] += (double)losses[i];
    sums->counts[0] += (double)pass->batch;
    for (int64_t c = 0; c < task->scores.count; c++) {
        backend->density_loss_sums(backend, 0, pass->batch, vt_matrix_columns(prediction, c, 1),
                                   vt_matrix_columns(target, c, 1), own->sums);
        backend->copy_to_host(backend, own->host_sums, own->sums, 2 * (size_t)pass->batch * sizeof(double));
        for (int64_t i = 0; i < pass->batch; i++)
            sums->values[1 + c] += own->host_sums[2 * i] / own->host_sums[2 * i + 1];
        sums->counts[1 + c] += (double)pass->batch;
    }
}

static vt_matrix cosmology_baseline(const vt_task *task, const vt_pass *pass, const vt_model_tensor *tensors)
{
    const int64_t count = task->config->N_out_channels, copied = count < INPUTS ? count : INPUTS;
    const vt_model_tensor *input = &tensors[VT_TENSOR_INPUT];
    vt_backend *backend = pass->backend;
    vt_matrix copy = vt_pass_push_float32(pass, vt_pass_rows(pass), count);
    vt_matrix fields = vt_matrix_make((float *)(uintptr_t)input->values, copy.rows, input->channels);
    backend->zero(backend, copy.data, (size_t)(copy.rows * copy.stride) * sizeof(float));
    backend->convert(backend, vt_matrix_columns(fields, 0, copied), vt_matrix_columns(copy, 0, copied));
    return copy;
}

/* ---- pictures: the density on the plane in the middle ---- */

static vt_picture_part cosmology_pictured(const vt_config *config)
{
    const int64_t side = config->data_size;
    return (vt_picture_part){.field = 0, .first = side / 2 * side * side, .height = side, .width = side};
}

static void cosmology_describe_picture(const vt_task *task, const vt_batch *batch, float *prediction, float *target,
                                       vt_picture *picture)
{
    const vt_picture_part part = cosmology_pictured(task->config);
    const float *input = batch->tensors[VT_TENSOR_INPUT];
    const int64_t count = part.height * part.width;
    (void)prediction, (void)target;
    *picture = (vt_picture){.tag = vt_text_copy("Visualization, density"),
                            .title = vt_text_format("density, ln(rho) / 14, plane %ld", task->config->data_size / 2),
                            .height = part.height,
                            .width = part.width};
    if (input == NULL || batch->sample_count == 0) return;
    picture->input = vt_allocate((size_t)count, sizeof *picture->input, "a picture");
    for (int64_t i = 0; i < count; i++) picture->input[i] = input[(part.first + i) * INPUTS];
}

static const char *const identity[] = {"task", "rotate_vectors", "box_size", NULL};

const vt_task_kind vt_task_cosmology = {.name = "cosmology",
                                        .identity = identity,
                                        .open = cosmology_open,
                                        .close = cosmology_close,
                                        .place = cosmology_place,
                                        .score = cosmology_score,
                                        .baseline = cosmology_baseline,
                                        .pictured = cosmology_pictured,
                                        .describe_picture = cosmology_describe_picture};
