#include "source/volumes/volumes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"

enum { PAGE = 4096, A_MOMENT = 10000 /* microseconds */ };

/* Whoever unlinks the file does so with its lock; a process that waited for it then holds a file without a name. */
static bool has_its_name(const vt_shared_box *box)
{
    struct stat own, named;
    const int other = shm_open(box->name, O_RDONLY, 0);
    const bool same = other >= 0 && fstat(box->file, &own) == 0 && fstat(other, &named) == 0 &&
                      own.st_ino == named.st_ino && own.st_dev == named.st_dev;
    if (other >= 0) close(other);
    return same;
}

/* Opens the file, with a lock that others may have, too, and maps it; but not one that another process removed since.
 */
static vt_status open_file(vt_shared_box *box)
{
    vt_status status = VT_OK;
    struct stat info;
    char size[VT_NUMBER_SIZE];
    box->file = shm_open(box->name, O_RDWR | O_CREAT, 0600);
    VT_CHECK(box->file >= 0, "data_loader_config inmem: can't make shared memory: %s", strerror(errno));
    VT_CHECK(flock(box->file, LOCK_SH) == 0, "data_loader_config inmem: can't lock shared memory: %s", strerror(errno));
    VT_CHECK(fstat(box->file, &info) == 0 && info.st_uid == geteuid(),
             "data_loader_config inmem: the shared memory %s is another user's; remove it, or use "
             "--data_loader_config=auto",
             box->name);
    if (!has_its_name(box)) goto done;
    const int refused = posix_fallocate(box->file, 0, (off_t)box->bytes);
    VT_CHECK(refused == 0,
             "data_loader_config inmem: %s of shared memory are refused (%s); `df /dev/shm` shows what is free; "
             "--data_loader_config=auto reads the file instead",
             vt_text_bytes((double)box->bytes, size), strerror(refused));
    void *mapped = mmap(NULL, box->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, box->file, 0);
    VT_CHECK(mapped != MAP_FAILED, "data_loader_config inmem: can't map shared memory: %s", strerror(errno));
    box->memory = mapped;
done:
    return status;
}

static void close_file(vt_shared_box *box)
{
    if (box->memory != NULL) munmap(box->memory, box->bytes);
    if (box->file >= 0) close(box->file);
    box->memory = NULL;
    box->file = -1;
}

vt_status vt_shared_box_open(const char *key, size_t bytes, vt_status (*fill)(void *memory, void *context),
                             void *context, vt_shared_box **result)
{
    vt_status status = VT_OK;
    vt_shared_box *box = vt_allocate(1, sizeof *box, "a box");
    *result = NULL;
    box->file = -1;
    box->bytes = (bytes + PAGE - 1) / PAGE * PAGE + PAGE;
    box->name = vt_text_format("/vitrain-%u-%016llx", (unsigned)geteuid(), (unsigned long long)vt_random_name_key(key));
    for (;;) {
        VT_TRY(open_file(box));
        if (box->memory != NULL) {
            char *filled = box->memory + box->bytes - PAGE;
            if (strncmp(filled, key, PAGE) == 0) break;
            /* asking for the exclusive lock gives up the shared one, even if it is refused. It must not wait: another
             * process keeps its shared lock until it ends */
            if (flock(box->file, LOCK_EX | LOCK_NB) == 0 && has_its_name(box)) {
                if (strncmp(filled, key, PAGE) != 0) VT_TRY(fill(box->memory, context));
                snprintf(filled, PAGE, "%s", key);
                flock(box->file, LOCK_SH);
                break;
            }
        }
        close_file(box); /* another process is about to fill it, or has just removed it */
        usleep(A_MOMENT);
    }
    *result = box;
    box = NULL;
done:
    vt_shared_box_close(&box);
    return status;
}

void vt_shared_box_close(vt_shared_box **pointer)
{
    vt_shared_box *box = *pointer;
    if (box == NULL) return;
    if (box->file >= 0 && flock(box->file, LOCK_EX | LOCK_NB) == 0 && has_its_name(box)) shm_unlink(box->name);
    close_file(box);
    free(box->name);
    free(box);
    *pointer = NULL;
}
