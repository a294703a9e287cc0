#include "training/checkpoint_find.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "data/output_file.h"
#include "data/pytorch_file.h"
#include "data/safetensors.h"

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

/* Where it is no directory of ours. */
static vt_status refuse(const char *path, vt_checkpoint_use use)
{
    vt_status status = VT_OK;
    const char *pytorch = vt_pytorch_file_kind(path);
    VT_CHECK(pytorch == NULL,
             "%s is %s: pickled Python objects, which are not read; make a .safetensors file of its weights in Python, as "
             "docs/checkpoints.md shows (\"From PyTorch\"): save_file(model.state_dict(), \"model.safetensors\") of "
             "safetensors.torch; then begin a run with --init_from=model.safetensors%s",
             path, pytorch,
             use == VT_CHECKPOINT_TO_RESUME ? " (--resume goes on from vitrain's own checkpoints only)" : "");
    VT_CHECK(!vt_safetensors_is_name(path),
             "%s holds parameters alone, without %s; begin a run with --init_from=%s", path,
             use == VT_CHECKPOINT_TO_RESUME ? "the optimizer's moments and the progress of a run"
                                            : "the configuration of their model",
             path);
    VT_FAIL("%s is none of ours; expected the directory of a checkpoint, like runs/demo/1CPU/00/checkpoints/best, or of "
            "a run%s",
            path, use == VT_CHECKPOINT_TO_BEGIN ? ", or a file NAME.safetensors" : "");
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
    VT_CHECK(stat(trimmed, &info) == 0,
             "%s: %s; expected the directory of a checkpoint, like runs/demo/1CPU/00/checkpoints/best, or of a run",
             trimmed, strerror(errno));
    const bool is_file = !S_ISDIR(info.st_mode);
    if ((!is_file && is_checkpoint(trimmed)) ||
        (use == VT_CHECKPOINT_TO_BEGIN && is_file && vt_safetensors_is_name(trimmed))) {
        *found = trimmed;
        trimmed = NULL;
        goto done;
    }
    const char *checkpoints = vt_output_exists(below) ? below : trimmed;
    if (!is_file) *found = choose(checkpoints, use);
    if (*found != NULL) goto done;
    VT_CHECK(checkpoints == trimmed, "%s is a run that has no checkpoint yet: nothing is in %s", trimmed, below);
    status = refuse(trimmed, use);
done:
    free(trimmed);
    free(below);
    return status;
}
