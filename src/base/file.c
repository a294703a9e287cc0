#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "base/text.h"

size_t vt_file_line(FILE *file, char **line, size_t *size)
{
    errno = 0;
    ssize_t length = getline(line, size, file);
    if (length < 0 && errno == ENOMEM && !feof(file)) vt_memory_exhausted(*size, "a line of a file");
    return length > 0 ? (size_t)length : 0;
}

const char *vt_file_of_address(const char *address)
{
    static const char *const hosts[] = {"file://localhost/", "file:///"};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++)
        if (strncmp(address, hosts[i], strlen(hosts[i])) == 0) return address + strlen(hosts[i]) - 1;
    return address;
}

bool vt_file_is_zarr(const char *path)
{
    static const char *const marks[] = {".zgroup", ".zmetadata", "zarr.json", ".zarray"};
    bool is_zarr =
        strstr(path, "://") != NULL || vt_text_ends_with(path, ".zarr") || vt_text_ends_with(path, ".zarr.zip");
    for (size_t i = 0; i < sizeof marks / sizeof marks[0] && !is_zarr; i++) {
        char *mark = vt_text_format("%s/%s", path, marks[i]);
        is_zarr = access(mark, F_OK) == 0;
        free(mark);
    }
    return is_zarr;
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

vt_status vt_file_write(const char *path, const void *bytes, size_t size)
{
    vt_status status = VT_OK;
    char *partial = vt_text_format("%s.partial", path);
    FILE *file = fopen(partial, "we");
    VT_CHECK(file != NULL, "can't write %s: %s", path, strerror(errno));
    const bool written = vt_file_close(file, fwrite(bytes, 1, size, file) == size);
    VT_CHECK(written && rename(partial, path) == 0, "can't write %s: %s", path, strerror(errno));
done:
    if (status != VT_OK) unlink(partial);
    free(partial);
    return status;
}

int64_t vt_file_read_at(int file, void *to, int64_t bytes, int64_t offset)
{
    int64_t done = 0;
    while (done < bytes) {
        errno = 0;
        const ssize_t got = pread(file, (char *)to + done, (size_t)(bytes - done), offset + done);
        if (got <= 0 && errno != EINTR) break;
        if (got > 0) done += got;
    }
    return done;
}

vt_status vt_file_read(const char *path, char **bytes, size_t *size)
{
    vt_status status = VT_OK;
    FILE *file = fopen(path, "rbe");
    char *read = NULL;
    VT_CHECK(file != NULL, "can't read %s: %s", path, strerror(errno));
    VT_CHECK(fseek(file, 0, SEEK_END) == 0, "can't read %s: %s", path, strerror(errno));
    const long length = ftell(file);
    rewind(file);
    read = malloc((size_t)(length > 0 ? length : 0) + 1);
    VT_CHECK(length >= 0 && read != NULL && fread(read, 1, (size_t)length, file) == (size_t)length, "can't read %s: %s",
             path, strerror(errno));
    read[length] = '\0';
    if (size != NULL) *size = (size_t)length;
    *bytes = read;
    read = NULL;
done:
    free(read);
    if (file != NULL) fclose(file);
    return status;
}

vt_status vt_file_checksum(const char *path, uint32_t *checksum)
{
    vt_status status = VT_OK;
    char *bytes = NULL;
    size_t size = 0;
    VT_TRY(vt_file_read(path, &bytes, &size));
    *checksum = vt_crc32c(bytes, size);
done:
    free(bytes);
    return status;
}
