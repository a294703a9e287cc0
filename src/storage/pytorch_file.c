#define _GNU_SOURCE /* memmem */
#include "storage/pytorch_file.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/text.h"
#include "storage/output_file.h"

enum { LOOKED_AT = 64 << 10 }; /* bytes at either end of a file: a zip archive lists its files at the end */

/* The first and the last bytes, with zeros behind them; false when the file can't be read. */
static bool read_ends(const char *path, unsigned char ends[2 * LOOKED_AT])
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) return false;
    (void)!fread(ends, 1, LOOKED_AT, file);
    const bool longer = fseek(file, 0, SEEK_END) == 0 && ftell(file) > LOOKED_AT;
    if (longer && fseek(file, -LOOKED_AT, SEEK_END) == 0) (void)!fread(ends + LOOKED_AT, 1, LOOKED_AT, file);
    const bool good = !ferror(file);
    fclose(file);
    return good;
}

static const char *kind_by_name(const char *path)
{
    static const char *const ends[] = {".pt", ".pth", ".tar", ".ckpt"};
    for (int i = 0; i < 4; i++)
        if (vt_text_ends_with(path, ends[i])) return "a PyTorch file by its name";
    return NULL;
}

static const char *kind_by_content(const unsigned char ends[2 * LOOKED_AT])
{
    /* torch.save without a zip archive: the pickle (protocol 2) of the number 0x1950a86a20f9469cfc6c */
    static const unsigned char magic[] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c,
                                          0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
    enum { TAR_MAGIC = 257 };
    if (memcmp(ends, "PK\3\4", 4) == 0)
        return memmem(ends, 2 * LOOKED_AT, "data.pkl", 8) != NULL ? "a PyTorch file (a zip archive with data.pkl)"
                                                                  : NULL;
    if (memcmp(ends, magic, sizeof magic) == 0) return "a PyTorch file of the old form (a pickle)";
    /* a .safetensors file may begin with these two bytes, too: a length, behind which its header opens with a brace */
    if (ends[0] == 0x80 && ends[1] >= 2 && ends[1] <= 5 && ends[8] != '{') return "a Python pickle";
    if (memcmp(ends + TAR_MAGIC, "ustar", 5) == 0) return "a PyTorch file of the oldest form (a tar archive)";
    return NULL;
}

const char *vt_pytorch_file_kind(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) return NULL;
    if (S_ISDIR(info.st_mode)) {
        char *metadata = vt_text_format("%s/.metadata", path);
        const bool sharded = vt_output_exists(metadata);
        free(metadata);
        return sharded ? "a directory of torch.distributed.checkpoint" : NULL;
    }
    if (!S_ISREG(info.st_mode)) return NULL;
    unsigned char *ends = vt_allocate(2, LOOKED_AT, "the ends of a file");
    const char *kind = read_ends(path, ends) ? kind_by_content(ends) : NULL;
    free(ends);
    return kind != NULL ? kind : kind_by_name(path);
}
