#define _GNU_SOURCE /* nftw */
#include "checkpoint/store.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/find.h"
#include "checkpoint/inside.h"
#include "storage/output_file.h"

struct vt_checkpoint_store {
    char *directory; /* <run directory>/checkpoints */
    char *best;      /* in it: a link, or a file where none can be made */
    int64_t keep_last;
    int64_t best_step; /* of the last one that was the best; -1: of none yet */
    bool told;         /* that no link can be made */
};

static const char unfinished_end[] = ".tmp";    /* being written, or being removed */
static const char replaced_end[] = ".replaced"; /* stands in until the new one of the same step has its name */

static char *step_path(const vt_checkpoint_store *store, int64_t step, const char *end)
{
    return vt_text_format("%s/step-%08ld%s", store->directory, step, end);
}

vt_status vt_checkpoint_store_open(const char *run_directory, int64_t keep_last, vt_checkpoint_store **result)
{
    vt_checkpoint_store *store = vt_allocate(1, sizeof *store, "the list of checkpoints");
    store->directory = vt_text_format("%s/checkpoints", run_directory);
    store->best = vt_text_format("%s/best", store->directory);
    store->keep_last = keep_last;
    store->best_step = -1;
    *result = store;
    return VT_OK;
}

void vt_checkpoint_store_close(vt_checkpoint_store **store)
{
    if (*store == NULL) return;
    free((*store)->directory);
    free((*store)->best);
    free(*store);
    *store = NULL;
}

vt_status vt_checkpoint_store_has_any(const vt_checkpoint_store *store, bool *any)
{
    vt_status status = VT_OK;
    vt_step_list whole = {0}, replaced = {0};
    VT_TRY(vt_checkpoint_list(store->directory, "", &whole));
    VT_TRY(vt_checkpoint_list(store->directory, replaced_end, &replaced));
    *any = whole.count + replaced.count > 0;
done:
    free(whole.steps);
    free(replaced.steps);
    return status;
}

bool vt_checkpoint_store_owns(const vt_checkpoint_store *store, const char *path)
{
    char *own = realpath(store->directory, NULL), *real = realpath(path, NULL);
    const size_t length = own != NULL ? strlen(own) : 0;
    const bool below = own != NULL && real != NULL && strncmp(own, real, length) == 0 && real[length] == '/';
    free(own);
    free(real);
    return below;
}

/* ---- removing ---- */

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info;
    (void)kind;
    (void)place;
    return remove(path);
}

void vt_checkpoint_remove(const char *path)
{
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        vt_log_warning("can't remove %s: %s", path, strerror(errno));
}

/* Renames it first, so that a checkpoint that is only half removed never looks whole. One that a program reads
 * (vt_checkpoint_hold) stays until the next save. */
static void remove_step(const vt_checkpoint_store *store, int64_t step)
{
    char *path = step_path(store, step, ""), *unfinished = step_path(store, step, unfinished_end);
    char *index = vt_text_format("%s/checkpoint.h5", path);
    const int descriptor = open(index, O_RDWR | O_CLOEXEC); /* NFS needs it open for writing */
    const bool is_held = descriptor >= 0 && flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!is_held) {
        vt_checkpoint_remove(unfinished);
        if (rename(path, unfinished) == 0)
            vt_checkpoint_remove(unfinished);
        else
            vt_log_warning("can't rename %s to %s: %s", path, unfinished, strerror(errno));
    }
    if (descriptor >= 0) close(descriptor);
    free(index);
    free(path);
    free(unfinished);
}

/* The step that `best` names, or -1. */
static int64_t best_step(const vt_checkpoint_store *store)
{
    char name[VT_CHECKPOINT_NAME];
    vt_checkpoint_best_name(store->directory, name);
    return vt_output_holds(store->directory, name) ? vt_checkpoint_step_of(name, "") : -1;
}

void vt_checkpoint_store_remove_old(const vt_checkpoint_store *store)
{
    int64_t best = best_step(store);
    vt_step_list list = {0};
    if (vt_checkpoint_list(store->directory, "", &list) != VT_OK) { /* the new one is there: no reason to end a run */
        vt_log_warning("old checkpoints can't be removed: %s", vt_error_text());
        vt_error_clear();
    }
    for (int64_t i = store->keep_last; i < list.count; i++)
        if (list.steps[i] != best && list.steps[i] != store->best_step) remove_step(store, list.steps[i]);
    free(list.steps);
}

/* ---- saving ---- */

static vt_status make_link(const vt_checkpoint_store *store, const char *name)
{
    vt_status status = VT_OK;
    char *fresh = vt_text_format("%s%s", store->best, unfinished_end);
    unlink(fresh);
    VT_CHECK(symlink(name, fresh) == 0, "can't make the link %s: %s", fresh, strerror(errno));
    VT_CHECK(rename(fresh, store->best) == 0, "can't rename %s to %s: %s", fresh, store->best, strerror(errno));
done:
    free(fresh);
    return status;
}

static vt_status write_name(const vt_checkpoint_store *store, const char *name)
{
    vt_status status = VT_OK;
    FILE *file = NULL;
    VT_TRY(vt_output_open(store->best, &file));
    fprintf(file, "%s\n", name);
    VT_TRY(vt_output_close(file, store->best));
done:
    return status;
}

/* Makes `best` name this step: as a link, or as a file on a file system without links. If it can be neither, the log
 * warns: that is no reason to end the run. */
static vt_status name_best(vt_checkpoint_store *store, int64_t step)
{
    char *name = vt_text_format("step-%08ld", step), *obstacle = NULL;
    store->best_step = step;
    if (make_link(store, name) != VT_OK) {
        obstacle = vt_text_copy(vt_error_text());
        vt_error_clear();
        const bool written = write_name(store, name) == VT_OK;
        if (!written)
            vt_log_warning("%s; %s; the best checkpoint is %s/%s", obstacle, vt_error_text(), store->directory, name);
        else if (!store->told)
            vt_log_warning("%s; %s is now a file that holds the name of the best checkpoint", obstacle, store->best);
        vt_error_clear();
        store->told = true;
    }
    free(name);
    free(obstacle);
    return vt_output_synchronise(store->directory);
}

vt_status vt_checkpoint_store_begin(const vt_checkpoint_store *store, int64_t step, char **unfinished)
{
    vt_status status = VT_OK;
    *unfinished = step_path(store, step, unfinished_end);
    VT_TRY(vt_output_make_directory(store->directory));
    vt_checkpoint_remove(*unfinished);
    VT_TRY(vt_output_make_directory(*unfinished));
done:
    return status;
}

/* A checkpoint of the same step (saved before its epoch's validation, say) makes room first, under a name from which
 * the next start brings it back. */
vt_status vt_checkpoint_store_settle(vt_checkpoint_store *store, const char *unfinished, int64_t step, bool is_best)
{
    vt_status status = VT_OK;
    char *path = step_path(store, step, ""), *replaced = step_path(store, step, replaced_end);
    if (vt_output_exists(path)) {
        vt_checkpoint_remove(replaced);
        VT_CHECK(rename(path, replaced) == 0, "can't rename %s to %s: %s", path, replaced, strerror(errno));
    }
    VT_CHECK(rename(unfinished, path) == 0, "can't rename %s to %s: %s", unfinished, path, strerror(errno));
    VT_TRY(vt_output_synchronise(store->directory));
    vt_checkpoint_remove(replaced);
    if (is_best) VT_TRY(name_best(store, step));
    vt_checkpoint_store_remove_old(store);
done:
    free(path);
    free(replaced);
    return status;
}

/* ---- going on ---- */

/* Removes or renames what an interrupted save left. */
static vt_status tidy(const vt_checkpoint_store *store)
{
    vt_status status = VT_OK;
    vt_step_list unfinished = {0}, replaced = {0};
    VT_TRY(vt_checkpoint_list(store->directory, unfinished_end, &unfinished));
    VT_TRY(vt_checkpoint_list(store->directory, replaced_end, &replaced));
    for (int64_t i = 0; i < unfinished.count; i++) {
        char *path = step_path(store, unfinished.steps[i], unfinished_end);
        vt_checkpoint_remove(path);
        free(path);
    }
    for (int64_t i = 0; i < replaced.count; i++) {
        char *path = step_path(store, replaced.steps[i], replaced_end), *name = step_path(store, replaced.steps[i], "");
        if (vt_output_exists(name) || rename(path, name) != 0) vt_checkpoint_remove(path);
        free(path);
        free(name);
    }
done:
    free(unfinished.steps);
    free(replaced.steps);
    return status;
}

/* To a name that nothing has yet: step-00000014.aside, then -1, -2, … behind it. */
static void set_aside(const char *path, const char *why)
{
    char *aside = vt_text_format("%s.aside", path);
    for (int i = 1; vt_output_exists(aside); i++) {
        free(aside);
        aside = vt_text_format("%s.aside-%d", path, i);
    }
    if (rename(path, aside) == 0)
        vt_log_info("%s %s: renamed to %s", path, why, aside);
    else
        vt_log_warning("can't rename %s to %s: %s", path, aside, strerror(errno));
    free(aside);
}

/* Checkpoints that are newer than `step`. */
static vt_status set_aside_newer(const vt_checkpoint_store *store, int64_t step, const char *why)
{
    vt_status status = VT_OK;
    vt_step_list list = {0};
    VT_TRY(vt_checkpoint_list(store->directory, "", &list));
    for (int64_t i = 0; i < list.count && list.steps[i] > step; i++) {
        char *path = step_path(store, list.steps[i], "");
        set_aside(path, why);
        free(path);
    }
done:
    free(list.steps);
    return status;
}

/* The step of the whole checkpoint in this directory, and what tells it from others. */
static vt_status look_into(const char *directory, int64_t *step, uint32_t *checksum)
{
    vt_status status = VT_OK;
    vt_tensor_file *index = NULL;
    VT_TRY(vt_checkpoint_open(directory, NULL, &index, NULL));
    VT_TRY(vt_tensor_file_get_integer(index, "step", step));
    VT_TRY(vt_checkpoint_checksum(directory, checksum));
done:
    vt_tensor_file_close(&index);
    return status;
}

/* A copy of the run that followed links (cp -rL) has a whole checkpoint in the place of `best`. It gets the name of its
 * step, or goes if that one is there, and `best` names it again. */
static vt_status adopt_best(vt_checkpoint_store *store)
{
    struct stat info;
    int64_t step = 0, other_step = 0;
    uint32_t checksum = 0, other = 0;
    if (lstat(store->best, &info) != 0 || !S_ISDIR(info.st_mode)) return VT_OK;
    const bool whole = look_into(store->best, &step, &checksum) == VT_OK;
    char *path = step_path(store, step, ""), *unfinished = step_path(store, step, unfinished_end);
    const bool there = vt_output_exists(path);
    const bool same = whole && there && look_into(path, &other_step, &other) == VT_OK && other == checksum;
    vt_error_clear();
    if (same && rename(store->best, unfinished) == 0) vt_checkpoint_remove(unfinished);
    const bool named = same || (whole && !there && rename(store->best, path) == 0);
    if (!named) set_aside(store->best, "is a directory, not the name of a checkpoint of the run");
    free(path);
    free(unfinished);
    return named ? name_best(store, step) : VT_OK;
}

/* `best` may be missing when the run died right after a save, or name one that was set aside. The checkpoint `read` may
 * itself have been set aside before, and another one of its step be there. */
static vt_status restore_best(vt_checkpoint_store *store, const char *read, vt_run_progress *progress)
{
    vt_status status = VT_OK;
    char *path = step_path(store, progress->step, "");
    if (progress->validation_loss <= progress->best_loss && vt_checkpoint_is_one_place(read, path))
        VT_TRY(name_best(store, progress->step));
    if (best_step(store) < 0) {
        unlink(store->best);
        progress->best_loss = INFINITY;
    }
done:
    free(path);
    return status;
}

/* Reads the newest one that is not damaged; damaged ones are logged. Rank 0 says which to try. */
static vt_status read_newest(const vt_checkpoint_store *store, const vt_checkpoint_subject *subject,
                             vt_run_progress *progress, char **path)
{
    vt_status status = VT_OK;
    vt_world *world = subject->world;
    const bool lists = world->rank == 0;
    vt_step_list list = {0};
    VT_TRY(vt_world_agree(world, lists ? vt_checkpoint_list(store->directory, "", &list) : VT_OK));
    double count = (double)list.count;
    vt_world_sum(world, &count, 1);
    VT_CHECK(count > 0, "there is no checkpoint in %s any more", store->directory);
    status = VT_ERROR;
    for (int64_t i = 0; i < (int64_t)count && status != VT_OK; i++) {
        bool damaged = false;
        free(*path);
        VT_ASSERT(!lists || list.steps != NULL);
        *path = lists ? step_path(store, list.steps[i], "") : NULL;
        vt_world_broadcast_text(world, path);
        status = vt_checkpoint_read(*path, subject, progress, &damaged);
        if (status == VT_OK || !damaged) break;
        if (i + 1 == (int64_t)count) break;
        char *cause = vt_world_cause(world, status);
        vt_log_warning("%s; going back to an older checkpoint", cause);
        free(cause);
        vt_error_clear();
    }
done:
    free(list.steps);
    return status;
}

vt_status vt_checkpoint_store_restore(vt_checkpoint_store *store, const char *chosen,
                                      const vt_checkpoint_subject *subject, vt_run_progress *progress)
{
    vt_status status = VT_OK;
    vt_world *world = subject->world;
    bool is_first = world->rank == 0, damaged = false;
    char *path = NULL;
    VT_TRY(vt_world_agree(world, is_first ? tidy(store) : VT_OK)); /* all wait for it */
    if (chosen != NULL) {
        path = vt_text_copy(chosen);
        VT_TRY(vt_world_agree(world, vt_checkpoint_read(path, subject, progress, &damaged)));
    } else {
        VT_TRY(vt_world_agree(world, read_newest(store, subject, progress, &path)));
    }
    VT_ASSERT(path != NULL);
    VT_TRY(vt_world_agree(world, is_first ? adopt_best(store) : VT_OK));
    if (is_first) /* the run will make others of those steps */
        status = set_aside_newer(store, progress->step, "is newer than the step that the run continues from");
    VT_TRY(vt_world_agree(world, status));
    VT_TRY(vt_world_agree(world, is_first ? restore_best(store, path, progress) : VT_OK));
    double best_loss = is_first ? progress->best_loss : 0;
    vt_world_sum(world, &best_loss, 1);
    progress->best_loss = best_loss;
    vt_checkpoint_log_resumed(path, progress);
done:
    free(path);
    return status;
}

vt_status vt_checkpoint_store_step_back(const vt_checkpoint_store *store, int64_t step, bool *older)
{
    vt_status status = VT_OK;
    vt_step_list list = {0};
    VT_TRY(vt_checkpoint_list(store->directory, "", &list));
    *older = list.count > 0 && list.steps[list.count - 1] < step;
    if (*older) VT_TRY(set_aside_newer(store, step - 1, "gives no finite numbers when the run continues from it"));
done:
    free(list.steps);
    return status;
}

void vt_checkpoint_log_resumed(const char *path, const vt_run_progress *progress)
{
    vt_log_info("resuming from %s: step %ld, epoch %ld", path, progress->step, progress->epoch + 1);
}
