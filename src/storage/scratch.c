#include "storage/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/text.h"

vt_status vt_scratch_open(const char *directory, size_t bytes, void **memory)
{
    vt_status status = VT_OK;
    char *path = vt_text_format("%s/.scratch-XXXXXX", directory), size[VT_NUMBER_SIZE];
    const int file = mkstemp(path);
    VT_CHECK(file >= 0, "%s: can't make a file for %s there: %s", directory, vt_text_bytes((double)bytes, size),
             strerror(errno));
    unlink(path);
    const int refused = posix_fallocate(file, 0, (off_t)bytes); /* or a full disk would end the process later */
    VT_CHECK(refused == 0, "%s: can't make a file of %s there: %s", directory, vt_text_bytes((double)bytes, size),
             strerror(refused));
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    VT_CHECK(mapped != MAP_FAILED, "%s: can't map a file of %s there: %s", directory,
             vt_text_bytes((double)bytes, size), strerror(errno));
    *memory = mapped;
done:
    if (file >= 0) close(file); /* the mapping keeps it */
    free(path);
    return status;
}

void vt_scratch_close(void **memory, size_t bytes)
{
    if (*memory != NULL) munmap(*memory, bytes);
    *memory = NULL;
}
