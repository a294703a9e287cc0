/* Damages a checkpoint as someone would who means harm: within HDF5's own structures, whose checksums then fit again.
 */
#include <stdint.h>

#include "base/crc32c.h"
#include "test.h"

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

/* Bob Jenkins's lookup3 (hashlittle), as HDF5 has it. */
static uint32_t lookup3(const unsigned char *bytes, size_t size)
{
#define TURN(x, k) ((x) << (k) | (x) >> (32 - (k)))
    uint32_t a = 0xdeadbeef + (uint32_t)size, b = a, c = a;
    for (; size > 12; size -= 12, bytes += 12) {
        uint32_t w[3];
        memcpy(w, bytes, 12);
        a += w[0], b += w[1], c += w[2];
        a -= c, a ^= TURN(c, 4), c += b, b -= a, b ^= TURN(a, 6), a += c, c -= b, c ^= TURN(b, 8), b += a;
        a -= c, a ^= TURN(c, 16), c += b, b -= a, b ^= TURN(a, 19), a += c, c -= b, c ^= TURN(b, 4), b += a;
    }
    if (size == 0) return c;
    uint32_t w[3] = {0};
    memcpy(w, bytes, size);
    a += w[0], b += w[1], c += w[2];
    c ^= b, c -= TURN(b, 14), a ^= c, a -= TURN(c, 11), b ^= a, b -= TURN(a, 25), c ^= b, c -= TURN(b, 16);
    a ^= c, a -= TURN(c, 4), b ^= a, b -= TURN(a, 14), c ^= b, c -= TURN(b, 24);
    return c;
#undef TURN
}

/* A stretch of the file, and where the checksum of it lies; 0: nowhere. Within it, it counts as zeros. */
typedef struct {
    size_t first, size, checksum;
} block;

static uint32_t sum(unsigned char *bytes, const block *b)
{
    if (b->checksum > b->first && b->checksum < b->first + b->size) memset(bytes + b->checksum, 0, 4);
    return lookup3(bytes + b->first, b->size);
}

static bool has_checksum(unsigned char *bytes, const block *b)
{
    uint32_t stored;
    memcpy(&stored, bytes + b->checksum, sizeof stored);
    const bool has = stored != 0 && sum(bytes, b) == stored;
    memcpy(bytes + b->checksum, &stored, sizeof stored);
    return has;
}

/* The structure that begins with a signature at `first`: its checksum follows it somewhere, or in a block of a heap is
 * behind an offset of 4 or 5 bytes. */
static block block_at(unsigned char *bytes, size_t size, size_t first)
{
    enum { LONGEST = 8192, SMALLEST_HEAP = 512 };
    const size_t most = size - first < LONGEST ? size - first : LONGEST;
    for (size_t length = 8; length + 4 <= most; length++) {
        const block found = {first, length, first + length};
        if (has_checksum(bytes, &found)) return found;
    }
    for (size_t length = SMALLEST_HEAP; length <= size - first; length *= 2)
        for (size_t offset = 4; offset < 6; offset++) {
            const block found = {first, length, first + 13 + offset};
            if (has_checksum(bytes, &found)) return found;
        }
    return (block){first, most < 64 ? most : 64, 0};
}

/* An object of a global heap, where the parts of virtual datasets are listed: its last four bytes are its checksum. */
static block object_at(const unsigned char *bytes, size_t size, size_t heap)
{
    enum { HEADER = 16 };
    size_t count = 0;
    block chosen = {heap, HEADER, 0};
    for (size_t at = heap + HEADER; at + HEADER < size;) {
        uint64_t length;
        memcpy(&length, bytes + at + 8, sizeof length);
        if (bytes[at] == 0 || length < 8 || length > size - at - HEADER) break;
        if (draw(++count) == 0) chosen = (block){at + HEADER, length - 4, at + HEADER + length - 4};
        at += HEADER + (length + 7) / 8 * 8;
    }
    return chosen;
}

static block choose(unsigned char *bytes, size_t size)
{
    static const char *const signatures[] = {"\211HDF", "OHDR", "OCHK", "FRHP", "FHDB", "FHIB", "BTHD", "BTLF",
                                             "BTIN",    "FAHD", "FADB", "EAHD", "EAIB", "SNOD", "TREE", "GCOL"};
    const size_t begin = draw(size);
    if (draw(8) == 0) return (block){begin, size - begin < 64 ? size - begin : 64, 0};
    for (size_t i = 0; i + 4 <= size; i++) { /* the next one */
        const size_t at = (begin + i) % (size - 3);
        for (size_t s = 0; s < sizeof signatures / sizeof *signatures; s++)
            if (memcmp(bytes + at, signatures[s], 4) == 0)
                return memcmp(bytes + at, "GCOL", 4) == 0 ? object_at(bytes, size, at) : block_at(bytes, size, at);
    }
    return (block){0, size, 0};
}

static void damage(unsigned char *bytes, size_t size)
{
    static const unsigned char odd[] = {0, 1, 2, 4, 8, 16, 32, 64, 127, 128, 254, 255};
    const block found = choose(bytes, size);
    for (uint64_t changes = 1 + draw(3); changes > 0; changes--) {
        unsigned char *at = bytes + found.first + draw(found.size);
        switch (draw(4)) {
        case 0:
            *at ^= (unsigned char)(1u << draw(8));
            break;
        case 1:
            *at = odd[draw(sizeof odd)];
            break;
        case 2:
            *at = (unsigned char)draw(256);
            break;
        default:
            memset(at, draw(2) == 0 ? 0 : 255, found.first + found.size - (size_t)(at - bytes) < 8 ? 1 : 1 + draw(8));
        }
    }
    const uint32_t checksum = sum(bytes, &found);
    if (found.checksum != 0) memcpy(bytes + found.checksum, &checksum, sizeof checksum);
}

int vt_test_damage(int count, char *const *words)
{
    static const char *const names[] = {"checkpoint.h5", "shard-00000-of-00001.h5"};
    if (count != 2) return 2;
    state = (uint64_t)atoll(words[1]) * 0x9E3779B97F4A7C15u;
    draw(1);
    for (uint64_t times = 1 + draw(2); times > 0; times--) {
        char path[4096];
        const bool of_index = draw(3) > 0;
        snprintf(path, sizeof path, "%s/%s", words[0], names[of_index ? 0 : 1]);
        FILE *file = fopen(path, "r+b");
        if (file == NULL || fseek(file, 0, SEEK_END) != 0) return 2;
        const size_t size = (size_t)ftell(file);
        unsigned char *bytes = malloc(size + 1);
        rewind(file);
        if (bytes == NULL || size < 64 || fread(bytes, 1, size, file) != size) return 2;
        damage(bytes, size);
        rewind(file);
        if (fwrite(bytes, 1, size, file) != size || fclose(file) != 0) return 2;
        const uint32_t checksum = vt_crc32c(bytes, size);
        free(bytes);
        if (!of_index) continue;
        snprintf(path, sizeof path, "%s/checkpoint.crc32c", words[0]);
        file = fopen(path, "w");
        if (file == NULL || fprintf(file, "%08x  checkpoint.h5\n", checksum) < 0 || fclose(file) != 0) return 2;
    }
    return 0;
}
