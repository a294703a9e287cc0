#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "base/text.h"

vt_status vt_file_open(const char *path, FILE **file, int64_t *size)
{
    vt_status status = VT_OK;
    struct stat info;
    int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    *file = NULL;
    VT_CHECK(descriptor >= 0 && fstat(descriptor, &info) == 0, "can't open %s: %s", path, strerror(errno));
    VT_CHECK(S_ISREG(info.st_mode), "%s is no regular file", path);
    *file = fdopen(descriptor, "rb");
    VT_CHECK(*file != NULL, "can't open %s: %s", path, strerror(errno));
    descriptor = -1;
    if (size != NULL) *size = info.st_size;
done:
    if (descriptor >= 0) close(descriptor);
    return status;
}

size_t vt_file_line(FILE *file, char **line, size_t *size)
{
    size_t length = 0;
    for (int c; length < VT_FILE_LONGEST_LINE && (c = getc_unlocked(file)) != EOF;) {
        if (length + 2 > *size) {
            *size = 2 * *size + 128;
            *line = vt_reallocate(*line, *size, 1, "a line of a file");
        }
        (*line)[length++] = (char)c;
        (*line)[length] = '\0';
        if (c == '\n') break;
    }
    return length;
}

const char *vt_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

char *vt_file_directory(const char *path)
{
    const int length = (int)(vt_file_name(path) - path);
    return length == 0 ? vt_text_copy(".") : vt_text_format("%.*s", length > 1 ? length - 1 : 1, path);
}

vt_names vt_file_matching(const char *directory, const char *pattern)
{
    vt_names paths = {0};
    DIR *opened = opendir(directory);
    for (const struct dirent *entry; opened != NULL && (entry = readdir(opened)) != NULL;)
        if (fnmatch(pattern, entry->d_name, FNM_PERIOD) == 0)
            vt_names_take(&paths, vt_text_format("%s/%s", directory, entry->d_name));
    if (opened != NULL) closedir(opened);
    vt_names_sort(&paths);
    return paths;
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

vt_status vt_file_read(const char *path, int64_t most, char **text, int64_t *size)
{
    vt_status status = VT_OK;
    FILE *file = NULL;
    int64_t bytes = 0;
    char *read = NULL;
    VT_TRY(vt_file_open(path, &file, &bytes));
    VT_CHECK(bytes <= most, "%s has %ld bytes, expected at most %ld", path, bytes, most);
    read = vt_allocate((size_t)bytes + 1, 1, "a file");
    VT_CHECK(fread(read, 1, (size_t)bytes, file) == (size_t)bytes, "can't read %s: %s", path,
             ferror(file) ? strerror(errno) : "it was cut short");
    *text = read;
    if (size != NULL) *size = bytes;
    read = NULL;
done:
    free(read);
    if (file != NULL) fclose(file);
    return status;
}

vt_status vt_file_checksum(const char *path, uint32_t *checksum)
{
    enum { PIECE = 1 << 16 };
    vt_status status = VT_OK;
    FILE *file = NULL;
    char *piece = NULL;
    uint32_t sum = 0;
    VT_TRY(vt_file_open(path, &file, NULL));
    piece = vt_allocate(PIECE, 1, "a file");
    for (size_t count; (count = fread(piece, 1, PIECE, file)) > 0;) sum = vt_crc32c_more(sum, piece, count);
    VT_CHECK(!ferror(file), "can't read %s: %s", path, strerror(errno));
    *checksum = sum;
done:
    free(piece);
    if (file != NULL) fclose(file);
    return status;
}
