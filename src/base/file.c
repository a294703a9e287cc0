#include "base/file.h"

#include <errno.h>

bool vt_file_close(FILE *file, bool written)
{
    int reason = errno;
    written = written && !ferror(file);
    if (written && fflush(file) != 0) {
        written = false;
        reason = errno;
    }
    if (fclose(file) != 0 && written) {
        written = false;
        reason = errno;
    }
    errno = reason;
    return written;
}
