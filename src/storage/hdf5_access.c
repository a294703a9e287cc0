#include "storage/hdf5_access.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"

/* H5Pset_file_locking came with 1.10.7 and, on the next branch, with 1.12.1. */
#define HAVE_FILE_LOCKING_PROPERTY (H5_VERSION_GE(1, 12, 1) || (H5_VERSION_GE(1, 10, 7) && !H5_VERSION_GE(1, 12, 0)))

static _Thread_local int entered; /* how often this thread has; a recursive mutex would lose its owner in a fork */
static pthread_mutex_t library = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t preparation = PTHREAD_ONCE_INIT;
static atomic_int waiting;                  /* threads that wait for it */
static H5E_auto2_t failures_told;           /* see vt_hdf5_tell_failures */
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
    H5Eset_auto2(H5E_DEFAULT, failures_told, NULL);
}

void vt_hdf5_tell_failures(H5E_auto2_t told)
{
    failures_told = told;
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

/* HDF5 describes a failed system call at length ("unable to open file: name = …, errno = 2, error message = …"). Keeps
 * what it tried, and the system's message. */
static herr_t take_first(unsigned depth, const H5E_error2_t *error, void *context)
{
    (void)context;
    if (depth > 0 || error->desc == NULL) return 0;
    const char *number = strstr(error->desc, "errno = ");
    const char *details = strstr(error->desc, ": name = ") ?: strstr(error->desc, ": time = ");
    const int length = details != NULL ? (int)(details - error->desc) : (int)strlen(error->desc);
    const int code = details != NULL && number != NULL ? atoi(number + strlen("errno = ")) : 0;
    was_refused = code != 0;
    snprintf(reason, sizeof reason, "%.*s%s%s", length, error->desc, was_refused ? ": " : "",
             was_refused ? strerror(code) : "");
    return 0;
}

const char *vt_hdf5_reason(void)
{
    int error_number = errno;
    reason[0] = '\0';
    was_refused = false;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, NULL);
    if (reason[0] == '\0') snprintf(reason, sizeof reason, "%s", strerror(error_number));
    return reason;
}

bool vt_hdf5_was_refused(void)
{
    (void)vt_hdf5_reason();
    return was_refused;
}

/* ---- attributes ---- */

int vt_hdf5_numbers(hid_t object, const char *name, hid_t type, int most, void *values, bool *is_float)
{
    int count = 0;
    vt_hdf5_enter();
    if (H5Aexists(object, name) > 0) {
        hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
        hid_t stored = H5Aget_type(attribute), space = H5Aget_space(attribute);
        const H5T_class_t class = H5Tget_class(stored);
        const hssize_t found = H5Sget_simple_extent_npoints(space);
        bool are_numbers = (class == H5T_FLOAT || class == H5T_INTEGER) && found >= 1 && found <= most;
        if (are_numbers) are_numbers = H5Aread(attribute, type, values) >= 0;
        *is_float = class == H5T_FLOAT;
        count = are_numbers ? (int)found : -1;
        H5Sclose(space);
        H5Tclose(stored);
        H5Aclose(attribute);
    }
    vt_hdf5_leave();
    return count;
}

/* Texts of fixed length lie one after another; of variable length there are pointers, to be freed by HDF5. */
static bool read_texts(hid_t attribute, hid_t stored, size_t count, vt_names *texts)
{
    enum { MOST_BYTES = 16 << 20 };
    const bool variable = H5Tis_variable_str(stored) > 0;
    const size_t size = variable ? sizeof(char *) : H5Tget_size(stored) + 1;
    if (count > MOST_BYTES || size > MOST_BYTES || count * size > MOST_BYTES) return false;
    char *memory = vt_allocate(count, size, "the texts of a file");
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, variable ? H5T_VARIABLE : size);
    H5Tset_cset(type, H5Tget_cset(stored));
    const bool good = H5Aread(attribute, type, memory) >= 0;
    for (size_t i = 0; i < count; i++) {
        char *text = memory + i * size;
        if (variable) memcpy(&text, memory + i * size, sizeof text);
        if (good) vt_names_add(texts, text != NULL ? text : "");
        if (variable) H5free_memory(text);
    }
    free(memory);
    H5Tclose(type);
    return good;
}

bool vt_hdf5_texts(hid_t object, const char *name, vt_names *texts)
{
    bool good = true;
    vt_hdf5_enter();
    if (H5Aexists(object, name) > 0) {
        hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
        hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
        const hssize_t count = H5Sget_simple_extent_npoints(space);
        good = count >= 0 && H5Tget_class(type) == H5T_STRING;
        if (good && count > 0) good = read_texts(attribute, type, (size_t)count, texts);
        H5Sclose(space);
        H5Tclose(type);
        H5Aclose(attribute);
    }
    vt_hdf5_leave();
    return good;
}

/* ---- access ---- */

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

/* ---- spaces, and writing ---- */

hid_t vt_hdf5_space(int rank, const int64_t *extent)
{
    hsize_t sizes[H5S_MAX_RANK];
    for (int i = 0; i < rank; i++) sizes[i] = (hsize_t)extent[i];
    return rank > 0 ? H5Screate_simple(rank, sizes, NULL) : H5Screate(H5S_SCALAR);
}

void vt_hdf5_select(hid_t space, int rank, const int64_t *start, const int64_t *count)
{
    hsize_t from[H5S_MAX_RANK], sizes[H5S_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        from[i] = (hsize_t)start[i];
        sizes[i] = (hsize_t)count[i];
    }
    H5Sselect_hyperslab(space, H5S_SELECT_SET, from, NULL, sizes, NULL);
}

vt_status vt_hdf5_make_dataset(hid_t file, const char *name, hid_t type, hid_t properties, int rank,
                               const int64_t *extent, hid_t *dataset)
{
    vt_status status = VT_OK;
    hid_t space = vt_hdf5_space(rank, extent);
    H5Pset_obj_track_times(properties, false);
    *dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    VT_CHECK(*dataset >= 0, "%s", vt_hdf5_reason());
done:
    H5Pclose(properties);
    H5Sclose(space);
    return status;
}

vt_status vt_hdf5_write_box(hid_t dataset, int rank, const int64_t *start, const int64_t *count, const float *values)
{
    vt_status status = VT_OK;
    hid_t there = H5Dget_space(dataset), here = vt_hdf5_space(rank, count);
    vt_hdf5_select(there, rank, start, count);
    VT_CHECK(H5Dwrite(dataset, H5T_NATIVE_FLOAT, here, there, H5P_DEFAULT, values) >= 0, "%s", vt_hdf5_reason());
done:
    H5Sclose(here);
    H5Sclose(there);
    return status;
}

vt_status vt_hdf5_write_attribute(hid_t object, const char *name, hid_t stored, hid_t type, int64_t count,
                                  const void *values)
{
    vt_status status = VT_OK;
    hid_t space = vt_hdf5_space(count < 0 ? 0 : 1, &count);
    hid_t attribute = H5Acreate2(object, name, stored, space, H5P_DEFAULT, H5P_DEFAULT);
    VT_CHECK(attribute >= 0 && H5Awrite(attribute, type, values) >= 0, "%s", vt_hdf5_reason());
done:
    if (attribute >= 0) H5Aclose(attribute);
    H5Sclose(space);
    return status;
}
