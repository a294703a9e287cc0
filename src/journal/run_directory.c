#include "journal/run_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "storage/output_file.h"

char *vt_run_directory_name_for_old(const char *path)
{
    struct stat info;
    struct tm local;
    char stamp[32];
    time_t now = time(NULL);
    localtime_r(&now, &local);
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
    char *name = vt_text_format("%s.old-%s", path, stamp);
    for (int i = 1; lstat(name, &info) == 0; i++) {
        free(name);
        name = vt_text_format("%s.old-%s-%d", path, stamp, i);
    }
    return name;
}

/* TensorBoard shows every directory that has a file with "tfevents" in its name, hidden or not, as a run. So that it
 * does not show an earlier run, logs/events.out.tfevents.<rest> becomes logs/events.out.old.<rest>. A file that can't
 * be renamed stays, with a warning. */
static void hide_events(const char *run)
{
    char *logs = vt_text_format("%s/logs", run);
    vt_names shown = vt_file_matching(logs, "events.out.tfevents.*");
    for (int64_t i = 0; i < shown.count; i++) {
        const char *rest = vt_file_name(shown.names[i]) + strlen("events.out.tfevents.");
        char *hidden = vt_text_format("%s/events.out.old.%s", logs, rest);
        if (rename(shown.names[i], hidden) != 0)
            vt_log_warning("can't rename %s: %s; TensorBoard goes on showing that earlier run", shown.names[i],
                           strerror(errno));
        free(hidden);
    }
    vt_names_close(&shown);
    free(logs);
}

char *vt_run_directory_path(const vt_config *config, bool on_gpu)
{
    const int64_t model_ranks = vt_config_model_ranks(config);
    return vt_text_format("%s/%s/%ld%s/%s", config->expdir, config->config,
                          model_ranks > 1 ? model_ranks : config->ranks,
                          model_ranks > 1 ? "MP"
                          : on_gpu        ? "GPU"
                                          : "CPU",
                          config->run_num);
}

vt_status vt_run_directory_make(const char *path, char **renamed)
{
    vt_status status = VT_OK;
    struct stat info;
    *renamed = NULL;
    if (lstat(path, &info) == 0) {
        *renamed = vt_run_directory_name_for_old(path);
        VT_CHECK(rename(path, *renamed) == 0, "can't rename the earlier run %s to %s: %s", path, *renamed,
                 strerror(errno));
        hide_events(*renamed);
    }
    VT_TRY(vt_output_make_directory(path));
done:
    return status;
}

vt_status vt_run_directory_lock(const char *path, bool wait, int *lock)
{
    vt_status status = VT_OK;
    *lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0) return VT_OK; /* missing, or not to be opened: the next use of it reports that */
    if (flock(*lock, wait ? LOCK_EX : LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(*lock);
        *lock = -1;
        VT_FAIL("a run is still going in %s; give this one another --run_num", path);
    }
done:
    return status;
}

void vt_run_directory_unlock(int *lock)
{
    if (*lock >= 0) close(*lock);
    *lock = -1;
}

vt_status vt_run_directory_lock_above(const char *path, int *lock)
{
    vt_status status = VT_OK;
    char *parent = vt_file_directory(path);
    VT_TRY(vt_output_make_directory(parent));
    VT_TRY(vt_run_directory_lock(parent, true, lock));
done:
    free(parent);
    return status;
}
