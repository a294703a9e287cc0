#include "base/file.h"

#include <errno.h>

#include "base/memory.h"

size_t vt_file_line(FILE *file, char **line, size_t *size)
{
    errno = 0;
    ssize_t length = getline(line, size, file);
    if (length < 0 && errno == ENOMEM && !feof(file)) vt_memory_exhausted(*size, "a line of a file");
    return length > 0 ? (size_t)length : 0;
}

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
