#include "checkpoint/find.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "storage/output_file.h"
#include "storage/pytorch_file.h"
#include "storage/safetensors.h"

static bool holds(const char *directory, const char *name)
{
    char *path = vt_text_format("%s/%s", directory, name);
    const bool there = vt_output_exists(path);
    free(path);
    return there;
}

static bool is_checkpoint(const char *directory)
{
    return holds(directory, "checkpoint.h5") || holds(directory, "checkpoint.crc32c");
}

/* The highest step of the entries step-NNNNNNNN, -1 where there are none. */
static int64_t newest_step(const char *directory)
{
    int64_t newest = -1;
    DIR *opened = opendir(directory);
    for (const struct dirent *entry; opened != NULL && (entry = readdir(opened)) != NULL;) {
        long long step = 0;
        int end = 0;
        const bool whole = sscanf(entry->d_name, "step-%lld%n", &step, &end) == 1 && entry->d_name[end] == '\0';
        if (whole && step > newest) newest = step;
    }
    if (opened != NULL) closedir(opened);
    return newest;
}

/* The one that is wanted of <run>/checkpoints; NULL: there is none. */
static char *choose(const char *checkpoints, vt_checkpoint_use use)
{
    char *best = vt_text_format("%s/best", checkpoints);
    if (use != VT_CHECKPOINT_TO_RESUME && is_checkpoint(best)) return best;
    free(best);
    const int64_t newest = newest_step(checkpoints);
    return newest < 0 ? NULL : vt_text_format("%s/step-%08lld", checkpoints, (long long)newest);
}

static const char *expected(vt_checkpoint_use use)
{
    return use == VT_CHECKPOINT_TO_BEGIN
               ? "expected the directory of a checkpoint, like runs/demo/1CPU/00/checkpoints/best, or of a run, or a "
                 "file NAME.safetensors"
               : "expected the directory of a checkpoint, like runs/demo/1CPU/00/checkpoints/best, or of a run";
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

vt_status vt_checkpoint_find(const char *path, vt_checkpoint_use use, char **found)
{
    vt_status status = VT_OK;
    struct stat info;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    char *trimmed = vt_text_format("%.*s", (int)length, path), *below = vt_text_format("%s/checkpoints", trimmed);
    *found = NULL;
    VT_CHECK(stat(trimmed, &info) == 0, "%s: %s; %s", trimmed, strerror(errno), expected(use));
    const bool is_directory = S_ISDIR(info.st_mode), below_there = vt_output_exists(below);
    if (!is_directory || !is_checkpoint(trimmed)) VT_TRY(refuse_foreign(trimmed, use));
    if (is_directory ? is_checkpoint(trimmed) : vt_safetensors_is_name(trimmed)) {
        *found = trimmed;
        trimmed = NULL;
        goto done;
    }
    if (is_directory) *found = choose(below_there ? below : trimmed, use);
    VT_CHECK(*found != NULL || !below_there, "%s is a run that has no checkpoint yet: there is none in %s", trimmed,
             below);
    VT_CHECK(*found != NULL, "%s is neither a checkpoint nor a run; %s", trimmed, expected(use));
done:
    free(trimmed);
    free(below);
    return status;
}
