#include "task/task.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/text.h"

#define DECLARE(name, ...) extern const vt_task_kind vt_task_##name;
VT_TASKS(DECLARE)

#define ROW(name, ...) &vt_task_##name,
static const vt_task_kind *const kinds[] = {VT_TASKS(ROW)};

const vt_task_kind *vt_task_kind_of(const vt_config *config)
{
    return kinds[config->task];
}

void vt_task_close(vt_task **task)
{
    vt_task *t = *task;
    if (t == NULL) return;
    float *const placed[] = {t->tendency, t->noise, t->bounds[0], t->bounds[1], t->crps_units};
    for (int i = 0; t->backend != NULL && i < 5; i++) t->backend->release(t->backend, placed[i]);
    for (int i = 0; t->backend != NULL && i < VT_BATCH_TENSORS; i++) {
        t->backend->release(t->backend, t->normalisation[i].mean);
        t->backend->release(t->backend, t->normalisation[i].inverse_std);
    }
    vt_text_free_list(t->scores.names, t->scores.count);
    free(t->scores.curve);
    if (t->kind->close != NULL) t->kind->close(t);
    free(t);
    *task = NULL;
}

vt_status vt_floats_place(vt_backend *backend, float *host, int64_t count, float **placed)
{
    vt_status status = VT_OK;
    if (*placed == NULL) VT_TAKE(backend, VT_MEMORY_DATA, count, *placed);
    backend->copy_from_host(backend, *placed, host, (size_t)count * sizeof *host);
done:
    free(host);
    return status;
}

vt_status vt_normalisation_place(vt_backend *backend, const float *means, const float *stds, int64_t period,
                                 int64_t count, vt_normalisation *placed)
{
    vt_status status = VT_OK;
    float *host = vt_allocate((size_t)count, sizeof *host, "the task");
    for (int64_t c = 0; c < count; c++) host[c] = period > 0 ? means[c % period] : 0;
    VT_TRY(vt_floats_place(backend, host, count, &placed->mean));
    host = vt_allocate((size_t)count, sizeof *host, "the task");
    for (int64_t c = 0; c < count; c++) host[c] = period > 0 ? (float)(1 / (double)stds[c % period]) : 1;
    VT_TRY(vt_floats_place(backend, host, count, &placed->inverse_std));
    placed->count = count;
done:
    return status;
}

void vt_picture_close(vt_picture *picture)
{
    free(picture->title);
    free(picture->tag);
    free(picture->input);
    *picture = (vt_picture){0};
}
