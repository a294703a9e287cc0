/* Which checkpoint a path of the user's means, and what else it may be. */
#ifndef VT_CHECKPOINT_FIND_H
#define VT_CHECKPOINT_FIND_H

#include <stdint.h>

#include "base/status.h"

typedef enum {
    VT_CHECKPOINT_TO_SHOW,   /* evaluate, predict, export, inspect: of a run its best */
    VT_CHECKPOINT_TO_BEGIN,  /* --init_from: of a run its best, too; also a .safetensors file */
    VT_CHECKPOINT_TO_RESUME, /* --resume: of a run its newest */
} vt_checkpoint_use;

/* What `best` in <run>/checkpoints names: "step-NNNNNNNN" of a link, or of the file that stands there where no links
 * can be made; "best" of a whole copy, as `cp -rL` of a run makes it; "" if it is missing or none of these. */
enum { VT_CHECKPOINT_NAME = 64 };
void vt_checkpoint_best_name(const char *checkpoints, char name[VT_CHECKPOINT_NAME]);

/* The path of the best checkpoint in <run>/checkpoints, malloc'd; NULL: there is none. */
char *vt_checkpoint_best(const char *checkpoints);

/* The step of an entry step-NNNNNNNN<end> of <run>/checkpoints; -1: it is none. */
int64_t vt_checkpoint_step_of(const char *name, const char *end);

/* Steps from the newest to the oldest. */
typedef struct {
    int64_t *steps; /* malloc'd */
    int64_t count;
} vt_step_list;

/* The steps of all entries step-NNNNNNNN<end>. Free list->steps, also after a failure. A directory that is missing has
 * none; one that can't be read is an error: a run that found it empty would start afresh. */
vt_status vt_checkpoint_list(const char *checkpoints, const char *end, vt_step_list *list);

/* Holds a checkpoint, so that a run doesn't remove it, until the descriptor that is returned is closed. -1: it was
 * removed. (By a shared lock; a file system without locks holds nothing.) */
int vt_checkpoint_hold(const char *directory);

/* *found (malloc'd): `path` where that is a checkpoint's directory; what it names where it is `best`; of a run's
 * directory, or its checkpoints/, the best one, or the newest where there is no best, or the newest is wanted. One that
 * is to be shown is held until the process ends. The error says what the path is instead, and what to do: a PyTorch
 * file, a .safetensors file where one can't be used, nothing of ours. Whether the checkpoint is whole is not checked.
 */
vt_status vt_checkpoint_find(const char *path, vt_checkpoint_use use, char **found);

/* Do both paths exist, and do they name the same file or directory? */
bool vt_checkpoint_is_one_place(const char *a, const char *b);

#endif
