/* Which checkpoint a path of the user's means, and what else it may be. */
#ifndef VT_CHECKPOINT_FIND_H
#define VT_CHECKPOINT_FIND_H

#include "base/status.h"

typedef enum {
    VT_CHECKPOINT_TO_SHOW,   /* evaluate, predict, export, inspect: of a run its best */
    VT_CHECKPOINT_TO_BEGIN,  /* --init_from: of a run its best, too; also a .safetensors file */
    VT_CHECKPOINT_TO_RESUME, /* --resume: of a run its newest */
} vt_checkpoint_use;

/* *found (malloc'd): `path` where that is a checkpoint's directory; of a run's directory, or its checkpoints/, the best
 * one, or the newest where there is no best, or the newest is wanted. The error says what the path is instead, and what
 * to do: a PyTorch file, a .safetensors file where one can't be used, nothing of ours. Whether the checkpoint is whole
 * is not checked. */
vt_status vt_checkpoint_find(const char *path, vt_checkpoint_use use, char **found);

#endif
