#include "storage/hdf5_access.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* H5Pset_file_locking came with 1.10.7 and, on the next branch, with 1.12.1. */
#define HAVE_FILE_LOCKING_PROPERTY (H5_VERSION_GE(1, 12, 1) || (H5_VERSION_GE(1, 10, 7) && !H5_VERSION_GE(1, 12, 0)))

static _Thread_local int entered; /* how often this thread has; a recursive mutex would lose its owner in a fork */
static pthread_mutex_t library = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t preparation = PTHREAD_ONCE_INIT;
static atomic_int waiting;                  /* threads that wait for it */
static char reason[512], refused_file[256]; /* guarded by `library`, as the next */
static bool was_refused;

/* Called before the library starts, which is when older versions read the variable; a value that the user has set is
 * kept. The library's cleanup at exit is left out because it crashes if a file couldn't be written completely. */
static void prepare_library(void)
{
    if (!HAVE_FILE_LOCKING_PROPERTY) setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0);
    H5dont_atexit();
}

void vt_hdf5_enter(void)
{
    if (entered++ > 0) return;
    pthread_once(&preparation, prepare_library);
    if (pthread_mutex_trylock(&library) != 0) {
        atomic_fetch_add(&waiting, 1);
        pthread_mutex_lock(&library);
        atomic_fetch_sub(&waiting, 1);
    }
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void vt_hdf5_leave(void)
{
    if (--entered == 0) pthread_mutex_unlock(&library);
}

/* A mutex prefers who has just left it, so this waits until one of them has it. */
void vt_hdf5_let_others(void)
{
    enum { MOST_WAITS = 100, NANOSECONDS = 50000 };
    if (entered != 1 || atomic_load(&waiting) == 0) return;
    const int before = atomic_load(&waiting);
    vt_hdf5_leave();
    for (int i = 0; i < MOST_WAITS && atomic_load(&waiting) >= before; i++)
        nanosleep(&(struct timespec){0, NANOSECONDS}, NULL);
    vt_hdf5_enter();
}

static herr_t take_first(unsigned depth, const H5E_error2_t *error, void *context)
{
    (void)context;
    if (depth == 0 && error->desc != NULL) snprintf(reason, sizeof reason, "%s", error->desc);
    return 0;
}

/* Of a failed system call the library tells all it knows ("unable to open file: name = …, errno = 2, error message =
 * …"). Keeps what it tried, and the system's message. */
static void shorten_reason(void)
{
    const char *number = strstr(reason, "errno = ");
    char *details = strstr(reason, ": name = ");
    if (details == NULL) details = strstr(reason, ": time = ");
    if (details == NULL) return;
    int error = number != NULL ? atoi(number + strlen("errno = ")) : 0;
    *details = '\0';
    was_refused = error != 0;
    if (was_refused) snprintf(details, sizeof reason - (size_t)(details - reason), ": %s", strerror(error));
}

const char *vt_hdf5_reason(void)
{
    int error_number = errno;
    reason[0] = '\0';
    was_refused = false;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, NULL);
    shorten_reason();
    if (reason[0] == '\0') snprintf(reason, sizeof reason, "%s", strerror(error_number));
    return reason;
}

bool vt_hdf5_was_refused(void)
{
    (void)vt_hdf5_reason();
    return was_refused;
}

hid_t vt_hdf5_file_access(void)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
#if HAVE_FILE_LOCKING_PROPERTY
    H5Pset_file_locking(access, false, true);
#endif
    return access;
}

static herr_t refuse_link(const char *parent, const char *group, const char *target, const char *object,
                          unsigned *flags, hid_t access, void *context)
{
    (void)parent, (void)group, (void)object, (void)flags, (void)access, (void)context;
    snprintf(refused_file, sizeof refused_file, "%s", target);
    return -1;
}

hid_t vt_hdf5_link_access(hid_t class)
{
    hid_t access = H5Pcreate(class);
    H5Pset_elink_cb(access, refuse_link, NULL);
    refused_file[0] = '\0';
    return access;
}

const char *vt_hdf5_refused_file(void)
{
    return refused_file;
}
