#include "task/task.h"

#include <stdlib.h>

#define DECLARE(name, ...) extern const vt_task_kind vt_task_##name;
VT_TASKS(DECLARE)

#define ROW(name, ...) &vt_task_##name,
static const vt_task_kind *const kinds[] = {VT_TASKS(ROW)};

const vt_task_kind *vt_task_kind_of(const vt_config *config)
{
    return kinds[config->task];
}

vt_status vt_task_open(const vt_config *config, const vt_source *training, const vt_source *validation, vt_task **task)
{
    return vt_task_kind_of(config)->open(config, training, validation, task);
}

void vt_task_close(vt_task **task)
{
    if (*task != NULL) (*task)->kind->close(*task);
    *task = NULL;
}

void vt_picture_close(vt_picture *picture)
{
    free(picture->title);
    free(picture->tag);
    free(picture->input);
    *picture = (vt_picture){0};
}
