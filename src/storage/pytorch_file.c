#define _GNU_SOURCE /* memmem */
#include "storage/pytorch_file.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "storage/output_file.h"

enum { LOOKED_AT = 64 << 10 }; /* bytes at either end of a file: a zip archive lists its files at the end */

typedef struct {
    unsigned char bytes[LOOKED_AT];
    size_t count;
} piece;

static bool holds(const piece *p, const char *word)
{
    return memmem(p->bytes, p->count, word, strlen(word)) != NULL;
}

static bool begins(const piece *p, const void *bytes, size_t count)
{
    return p->count >= count && memcmp(p->bytes, bytes, count) == 0;
}

/* The first and the last bytes; false when the file can't be read. */
static bool read_ends(const char *path, piece *first, piece *last)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) return false;
    first->count = fread(first->bytes, 1, LOOKED_AT, file);
    const bool longer = fseek(file, 0, SEEK_END) == 0 && ftell(file) > LOOKED_AT;
    if (longer && fseek(file, -LOOKED_AT, SEEK_END) == 0) last->count = fread(last->bytes, 1, LOOKED_AT, file);
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

static const char *kind_by_content(const piece *first, const piece *last)
{
    /* torch.save without a zip archive: the pickle (protocol 2) of the number 0x1950a86a20f9469cfc6c */
    static const unsigned char magic[] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c,
                                          0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
    enum { TAR_MAGIC = 257 };
    if (begins(first, "PK\3\4", 4))
        return holds(first, "data.pkl") || holds(last, "data.pkl") ? "a PyTorch file (a zip archive with data.pkl)"
                                                                   : NULL;
    if (begins(first, magic, sizeof magic)) return "a PyTorch file of the old form (a pickle)";
    /* a .safetensors file may begin with these two bytes, too: a length, behind which its header opens with a brace */
    if (first->count > 8 && first->bytes[0] == 0x80 && first->bytes[1] >= 2 && first->bytes[1] <= 5 &&
        first->bytes[8] != '{')
        return "a Python pickle";
    if (first->count > TAR_MAGIC + 5 && memcmp(first->bytes + TAR_MAGIC, "ustar", 5) == 0)
        return "a PyTorch file of the oldest form (a tar archive)";
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
    piece *pieces = calloc(2, sizeof *pieces);
    const char *kind =
        pieces != NULL && read_ends(path, &pieces[0], &pieces[1]) ? kind_by_content(&pieces[0], &pieces[1]) : NULL;
    free(pieces);
    return kind != NULL ? kind : kind_by_name(path);
}
