#include "storage/output_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

char *vt_output_partial_path(const char *path)
{
    const char *name = vt_file_name(path);
    return vt_text_format("%.*s.%s.partial", (int)(name - path), path, name);
}

vt_status vt_output_synchronise(const char *path)
{
    vt_status status = VT_OK;
    int descriptor = open(path, O_RDWR | O_CLOEXEC); /* some file systems flush only what is open for writing */
    if (descriptor < 0) descriptor = open(path, O_RDONLY | O_CLOEXEC); /* a directory */
    VT_CHECK(descriptor >= 0, "can't open %s: %s", path, strerror(errno));
    /* some file systems don't synchronise directories, and say EINVAL */
    VT_CHECK(fsync(descriptor) == 0 || errno == EINVAL, "can't write %s to the disk: %s", path, strerror(errno));
done:
    if (descriptor >= 0) close(descriptor);
    return status;
}

vt_status vt_output_publish(const char *partial, const char *path)
{
    vt_status status = VT_OK;
    struct stat info;
    char *directory = vt_file_directory(path);
    VT_TRY(vt_output_synchronise(partial));
    VT_CHECK(lstat(path, &info) != 0 || S_ISREG(info.st_mode) || S_ISLNK(info.st_mode),
             "can't give %s its name: a directory or a device has it", path);
    VT_CHECK(rename(partial, path) == 0, "can't rename %s to %s: %s", partial, path, strerror(errno));
    VT_TRY(vt_output_synchronise(directory));
done:
    if (status != VT_OK) unlink(partial);
    free(directory);
    return status;
}

vt_status vt_output_open(const char *path, FILE **file)
{
    vt_status status = VT_OK;
    char *partial = vt_output_partial_path(path);
    *file = fopen(partial, "wbe");
    VT_CHECK(*file != NULL, "can't write %s: %s", path, strerror(errno));
done:
    free(partial);
    return status;
}

vt_status vt_output_close(FILE *file, const char *path)
{
    vt_status status = VT_OK;
    char *partial = vt_output_partial_path(path);
    const bool written = vt_file_close(file, true);
    const int error = errno;
    if (!written) unlink(partial);
    VT_CHECK(written, "can't write %s: %s", path, strerror(error));
    VT_TRY(vt_output_publish(partial, path));
done:
    free(partial);
    return status;
}

vt_status vt_output_open_own(const char *path, char **partial, int *file)
{
    vt_status status = VT_OK;
    char *common = vt_output_partial_path(path);
    *partial = vt_text_format("%s.XXXXXX", common);
    *file = mkstemp(*partial);
    VT_CHECK(*file >= 0, "can't write %s: %s", path, strerror(errno));
    flock(*file, LOCK_EX | LOCK_NB);
done:
    free(common);
    return status;
}

void vt_output_remove_leftovers(const char *path)
{
    enum { ENDING = sizeof ".XXXXXX" - 1 };
    char *common = vt_output_partial_path(path), *directory = vt_file_directory(path);
    const char *name = vt_file_name(common);
    DIR *opened = opendir(directory);
    for (const struct dirent *entry; opened != NULL && (entry = readdir(opened)) != NULL;) {
        if (strncmp(entry->d_name, name, strlen(name)) != 0) continue;
        const char *ending = entry->d_name + strlen(name);
        if (ending[0] != '.' || strlen(ending) != ENDING) continue;
        char *other = vt_text_format("%s/%s", directory, entry->d_name);
        const int file = open(other, O_RDWR | O_NOFOLLOW | O_CLOEXEC); /* NFS locks what is open for writing */
        if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0) unlink(other);
        if (file >= 0) close(file);
        free(other);
    }
    if (opened != NULL) closedir(opened);
    free(directory);
    free(common);
}

vt_status vt_output_make_directory(const char *path)
{
    vt_status status = VT_OK;
    char *part = vt_text_copy(path);
    for (char *end = part; end != NULL;) {
        end = strchr(end + 1, '/');
        if (end != NULL) *end = '\0';
        const bool made = mkdir(part, 0777) == 0;
        VT_CHECK(made || errno == EEXIST || errno == EISDIR, "can't make the directory %s: %s", part, strerror(errno));
        struct stat info;
        VT_CHECK(stat(part, &info) == 0 && S_ISDIR(info.st_mode), "can't make the directory %s: a file is there", part);
        char *above = vt_file_directory(part);
        if (made) status = vt_output_synchronise(above);
        free(above);
        if (status != VT_OK) goto done;
        if (end != NULL) *end = '/';
    }
done:
    free(part);
    return status;
}

bool vt_output_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

bool vt_output_holds(const char *directory, const char *name)
{
    char *path = vt_text_format("%s/%s", directory, name);
    const bool there = vt_output_exists(path);
    free(path);
    return there;
}

vt_status vt_output_check_absent(const char *path, bool force)
{
    vt_status status = VT_OK;
    VT_CHECK(force || !vt_output_exists(path), "%s exists already; give --force to replace it, or another name", path);
done:
    return status;
}

vt_status vt_output_check_file(const char *option, const char *path)
{
    vt_status status = VT_OK;
    struct stat info;
    char *directory = vt_file_directory(path);
    VT_CHECK(vt_file_name(path)[0] != '\0', "%s=%s: expected the name of a file, found that of a directory", option,
             path);
    VT_CHECK(stat(directory, &info) == 0, "%s=%s: %s: %s; make the directory first", option, path, directory,
             strerror(errno));
    VT_CHECK(S_ISDIR(info.st_mode), "%s=%s: %s is no directory", option, path, directory);
    VT_CHECK(access(directory, W_OK) == 0, "%s=%s: %s: %s", option, path, directory, strerror(errno));
    VT_CHECK(stat(path, &info) != 0 || S_ISREG(info.st_mode), "%s=%s: that is %s; expected the name of a file", option,
             path, S_ISDIR(info.st_mode) ? "a directory" : "a device or a pipe");
done:
    free(directory);
    return status;
}

/* ---- memory that the disk backs ---- */

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
