#include "checkpoint/find.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "storage/output_file.h"
#include "storage/safetensors.h"

static bool is_checkpoint(const char *directory)
{
    return vt_output_holds(directory, "checkpoint.h5") || vt_output_holds(directory, "checkpoint.crc32c");
}

int64_t vt_checkpoint_step_of(const char *name, const char *end)
{
    int64_t step = -1;
    if (sscanf(name, "step-%ld", &step) != 1 || step < 0) return -1;
    char *expected = vt_text_format("step-%08ld%s", step, end);
    if (strcmp(name, expected) != 0) step = -1;
    free(expected);
    return step;
}

static int newest_first(const void *a, const void *b)
{
    const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return left > right ? -1 : left < right;
}

vt_status vt_checkpoint_list(const char *checkpoints, const char *end, vt_step_list *list)
{
    vt_status status = VT_OK;
    DIR *opened = opendir(checkpoints);
    *list = (vt_step_list){0};
    VT_CHECK(opened != NULL || errno == ENOENT, "can't read the directory %s: %s", checkpoints, strerror(errno));
    for (struct dirent *entry; opened != NULL && (errno = 0, entry = readdir(opened)) != NULL;) {
        const int64_t step = vt_checkpoint_step_of(entry->d_name, end);
        if (step < 0) continue;
        list->steps = vt_grow(list->steps, (size_t)list->count, sizeof *list->steps, "the list of checkpoints");
        list->steps[list->count++] = step;
    }
    VT_CHECK(opened == NULL || errno == 0, "can't read the directory %s: %s", checkpoints, strerror(errno));
    if (list->count > 1) qsort(list->steps, (size_t)list->count, sizeof *list->steps, newest_first);
done:
    if (opened != NULL) closedir(opened);
    if (status != VT_OK) list->count = 0;
    return status;
}

/* Of a link its target, of a file its first line; "" if that is not the name of a checkpoint. */
static void read_name(const char *path, char name[VT_CHECKPOINT_NAME])
{
    ssize_t length = readlink(path, name, VT_CHECKPOINT_NAME - 1);
    FILE *file = NULL;
    if (length < 0 && vt_file_open(path, &file, NULL) != VT_OK) vt_error_clear();
    if (file != NULL) {
        length = (ssize_t)fread(name, 1, VT_CHECKPOINT_NAME - 1, file);
        fclose(file);
    }
    name[length > 0 ? length : 0] = '\0';
    if (file != NULL) name[strcspn(name, "\r\n")] = '\0';
    if (vt_checkpoint_step_of(name, "") < 0) name[0] = '\0';
}

void vt_checkpoint_best_name(const char *checkpoints, char name[VT_CHECKPOINT_NAME])
{
    struct stat info;
    char *best = vt_text_format("%s/best", checkpoints);
    name[0] = '\0';
    if (lstat(best, &info) == 0 && !S_ISDIR(info.st_mode)) read_name(best, name);
    if (name[0] == '\0' && is_checkpoint(best)) snprintf(name, VT_CHECKPOINT_NAME, "best");
    free(best);
}

char *vt_checkpoint_best(const char *checkpoints)
{
    char name[VT_CHECKPOINT_NAME];
    vt_checkpoint_best_name(checkpoints, name);
    char *best = vt_text_format("%s/%s", checkpoints, name);
    if (name[0] != '\0' && is_checkpoint(best)) return best;
    free(best);
    return NULL;
}

/* The one that is wanted of <run>/checkpoints; NULL: there is none. */
static char *choose(const char *checkpoints, vt_checkpoint_use use)
{
    char *best = use == VT_CHECKPOINT_TO_RESUME ? NULL : vt_checkpoint_best(checkpoints);
    if (best != NULL) return best;
    vt_step_list list;
    if (vt_checkpoint_list(checkpoints, "", &list) != VT_OK) vt_error_clear(); /* as if there were none */
    if (list.count > 0) best = vt_text_format("%s/step-%08ld", checkpoints, list.steps[0]);
    free(list.steps);
    return best;
}

/* Files of others, and parameters where more is needed. */
static vt_status refuse_foreign(const char *path, vt_checkpoint_use use)
{
    vt_status status = VT_OK;
    struct stat info;
    const char *pytorch = vt_pytorch_file_kind(path);
    const char *only = use == VT_CHECKPOINT_TO_RESUME ? "; --resume goes on from vitrain's own checkpoints only" : "";
    const bool is_directory = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    VT_CHECK(pytorch == NULL || !is_directory,
             "%s is %s, which is not read; `python3 -m torch.distributed.checkpoint.format_utils dcp_to_torch %s "
             "model.pt` makes one file of it, from which docs/checkpoints.md (\"From PyTorch\") goes on%s",
             path, pytorch, path, only);
    VT_CHECK(
        pytorch == NULL,
        "%s is %s, which is not read, as pickled objects can run code; in Python `import torch, safetensors.torch; "
        "safetensors.torch.save_file(torch.load('%s', map_location='cpu'), 'model.safetensors')` makes a file for "
        "--init_from=model.safetensors (docs/checkpoints.md, \"From PyTorch\")%s",
        path, pytorch, path, only);
    VT_CHECK(use == VT_CHECKPOINT_TO_BEGIN || !vt_safetensors_is_name(path),
             "%s holds parameters alone, without %s; begin a run with --init_from=%s", path,
             use == VT_CHECKPOINT_TO_RESUME ? "the optimizer's moments and the progress of a run"
                                            : "the configuration of their model",
             path);
done:
    return status;
}

/* Where `path` is the link or the file `best`, the checkpoint beside it that it names; NULL: it is something else. */
static vt_status follow_best(const char *path, char **found)
{
    vt_status status = VT_OK;
    char name[VT_CHECKPOINT_NAME] = "";
    struct stat info;
    const char *own = vt_file_name(path);
    char *named = NULL;
    if (strcmp(own, "best") == 0 && lstat(path, &info) == 0 && !S_ISDIR(info.st_mode)) read_name(path, name);
    if (name[0] == '\0') return VT_OK;
    named = vt_text_format("%.*s%s", (int)(own - path), path, name);
    VT_CHECK(is_checkpoint(named), "%s names %s, but there is no such checkpoint beside it", path, name);
    *found = named;
    return VT_OK;
done:
    free(named);
    return status;
}

/* As vt_checkpoint_find, but nothing is held. */
static vt_status look_for(const char *path, vt_checkpoint_use use, char **found)
{
    vt_status status = VT_OK;
    static const char expected[] = "expected the directory of a checkpoint, like "
                                   "runs/demo/1CPU/00/checkpoints/best, or of a run";
    const char *or_file = use == VT_CHECKPOINT_TO_BEGIN ? ", or a file NAME.safetensors" : "";
    struct stat info;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    char *trimmed = vt_text_format("%.*s", (int)length, path), *below = vt_text_format("%s/checkpoints", trimmed);
    *found = NULL;
    VT_CHECK(stat(trimmed, &info) == 0, "%s: %s; %s%s", trimmed, strerror(errno), expected, or_file);
    const bool is_directory = S_ISDIR(info.st_mode), below_there = vt_output_exists(below);
    VT_TRY(follow_best(trimmed, found));
    if (*found != NULL) goto done;
    if (!is_directory || !is_checkpoint(trimmed)) VT_TRY(refuse_foreign(trimmed, use));
    if (is_directory ? is_checkpoint(trimmed) : vt_safetensors_is_name(trimmed)) {
        *found = trimmed;
        trimmed = NULL;
        goto done;
    }
    if (is_directory) *found = choose(below_there ? below : trimmed, use);
    VT_CHECK(*found != NULL || !below_there, "%s is a run that has no checkpoint yet: there is none in %s", trimmed,
             below);
    VT_CHECK(*found != NULL, "%s is neither a checkpoint nor a run; %s%s", trimmed, expected, or_file);
done:
    free(trimmed);
    free(below);
    return status;
}

int vt_checkpoint_hold(const char *directory)
{
    struct stat opened, named;
    char *path = vt_text_format("%s/checkpoint.h5", directory);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool removed = descriptor >= 0 && flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    const bool is_there = descriptor >= 0 && !removed && fstat(descriptor, &opened) == 0 && stat(path, &named) == 0 &&
                          opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
    if (descriptor >= 0 && !is_there) {
        close(descriptor);
        descriptor = -1;
    }
    free(path);
    return descriptor;
}

vt_status vt_checkpoint_find(const char *path, vt_checkpoint_use use, char **found)
{
    enum { TRIES = 100, TRIES_OF_ERRORS = 3 }; /* as a run may save checkpoints and remove others meanwhile */
    vt_status status = look_for(path, use, found);
    for (int i = 0; i < TRIES && use == VT_CHECKPOINT_TO_SHOW; i++) {
        if (status == VT_OK ? vt_checkpoint_hold(*found) >= 0 : i >= TRIES_OF_ERRORS) break;
        free(*found);
        vt_error_clear();
        status = look_for(path, use, found);
    }
    return status;
}
