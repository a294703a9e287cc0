/* Memory that the ranks of a node share: a file without a name, which the system removes with the last of them, however
 * they end. */
#define _GNU_SOURCE /* memfd_create */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "parallel/world.h"

/* What the first rank of a node tells the others. */
typedef struct {
    int64_t process, file;   /* an open file of that process; file -1: there is none */
    uint64_t device, number; /* of the file: in a container the process's number may be another process's */
    uint64_t bytes;
} offer;

static void *map(int file, size_t bytes)
{
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return mapped != MAP_FAILED ? mapped : NULL;
}

/* The first rank's memory, and what it tells the others. The file is sealed: nobody can cut it short. */
static void *make(size_t bytes, offer *own)
{
    struct stat info;
    const int file = memfd_create("vitrain", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *memory = NULL;
    if (file >= 0 && ftruncate(file, (off_t)bytes) == 0 && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0 &&
        fstat(file, &info) == 0)
        memory = map(file, bytes);
    *own = (offer){getpid(), file, info.st_dev, info.st_ino, bytes};
    if (memory != NULL) return memory;
    if (file >= 0) close(file);
    own->file = -1;
    return NULL;
}

static void *open_offered(const offer *offered)
{
    char path[64];
    struct stat info;
    void *memory = NULL;
    snprintf(path, sizeof path, "/proc/%ld/fd/%ld", offered->process, offered->file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return NULL;
    if (fstat(file, &info) == 0 && info.st_dev == offered->device && info.st_ino == offered->number)
        memory = map(file, offered->bytes);
    close(file);
    return memory;
}

/* Collective. Whether `own` is true on all ranks of this rank's node. */
static bool node_agrees(vt_world *world, bool own)
{
    bool *all = vt_allocate((size_t)world->ranks, sizeof *all, "the table of ranks"), agrees = true;
    vt_group_all_gather_equal(world->everyone, &own, sizeof own, all);
    for (int rank = 0; rank < world->ranks; rank++)
        agrees = agrees && (all[rank] || world->node_of[rank] != world->node_of[world->rank]);
    free(all);
    return agrees;
}

void *vt_world_share_memory(vt_world *world, size_t *bytes, void (*prepare)(void *memory, size_t bytes))
{
    if (world->ranks == 1 || world->engine->counts_only) return NULL;
    offer *all = vt_allocate((size_t)world->ranks, sizeof *all, "the table of ranks"), own = {.file = -1};
    void *memory = NULL;
    int first = 0;
    while (world->node_of[first] != world->node_of[world->rank]) first++;
    if (first == world->rank && vt_world_ranks_of_memory(world, NULL) > 1) memory = make(*bytes, &own);
    if (memory != NULL) prepare(memory, *bytes);
    vt_group_all_gather_equal(world->everyone, &own, sizeof own, all);
    if (first != world->rank && all[first].file >= 0) memory = open_offered(&all[first]);
    if (all[first].file >= 0) *bytes = all[first].bytes;
    if (!node_agrees(world, memory != NULL) && memory != NULL) {
        munmap(memory, *bytes);
        memory = NULL;
    }
    if (own.file >= 0) close((int)own.file);
    free(all);
    return memory;
}
