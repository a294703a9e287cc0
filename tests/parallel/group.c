/* Every operation of a group, over as many ranks as the launcher started. */
#include "parallel/group.h"

#include "backend/backend.h"
#include "test.h"

/* The groups that each test uses: all ranks, pairs of neighbours, every other rank, and backwards. */
typedef enum { ALL, NEIGHBOURS, EVERY_OTHER, BACKWARDS, ARRANGEMENTS } arrangement;

static vt_group *open_group(arrangement which, vt_backend *backend)
{
    int ranks = vt_test_engine->size, own = vt_test_engine->rank, count = 0, place = 0;
    int *members = vt_test_owned(malloc((size_t)ranks * sizeof *members));
    for (int i = 0; i < ranks; i++) {
        int rank = which == BACKWARDS ? ranks - 1 - i : i;
        bool in = which == NEIGHBOURS ? rank / 2 == own / 2 : which == EVERY_OTHER ? rank % 2 == own % 2 : true;
        if (!in) continue;
        if (rank == own) place = count;
        members[count++] = rank;
    }
    int color = which == NEIGHBOURS ? own / 2 : which == EVERY_OTHER ? own % 2 : 0;
    vt_group *group = NULL;
    EXPECT_OK(vt_group_open(vt_test_engine, "group", members, count, place, color, backend, &group));
    return group;
}

/* A number in [-1, 1) that depends only on (seed, index). */
static float number(int seed, int64_t index)
{
    uint32_t x = (uint32_t)index * 2654435761u + (uint32_t)seed * 40503u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (float)((double)x / 2147483648.0 - 1);
}

static void fill(float *data, int64_t count, int seed)
{
    for (int64_t i = 0; i < count; i++) data[i] = number(seed, i);
}

static void *take(size_t bytes)
{
    void *memory = calloc(bytes + 8, 1);
    VT_ASSERT(memory != NULL);
    return memory;
}

static double exact_sum(const vt_group *group, int64_t index)
{
    double sum = 0;
    for (int i = 0; i < group->size; i++) sum += number(group->members[i], index);
    return sum;
}

/* found [count] has the sums of the group's numbers from `first` on; says so once if not. */
static void expect_sums(const vt_group *group, const float *found, int64_t first, int64_t count)
{
    const double allowed = 1e-6 * group->size * group->size;
    int64_t i = 0;
    while (i < count && fabs((double)found[i] - exact_sum(group, first + i)) <= allowed) i++;
    if (i < count) EXPECT_NEAR((double)found[i], exact_sum(group, first + i), allowed);
}

typedef void operation(vt_group *group, int64_t count);

/* Each operation of these counts (0 ends them, and is tried) in groups of every arrangement. */
static void in_every_group(operation *run, const int64_t *counts)
{
    for (int which = 0; which < ARRANGEMENTS; which++) {
        SCOPED(vt_group) *group = open_group((arrangement)which, NULL);
        for (int i = 0; i == 0 || counts[i - 1] > 0; i++) run(group, counts[i]);
    }
}
#define IN_EVERY_GROUP(run, ...) in_every_group(run, (const int64_t[]){__VA_ARGS__, 0})

static void all_reduce(vt_group *group, int64_t count)
{
    float *data = take((size_t)count * sizeof *data), *again = take((size_t)count * sizeof *data),
          *first = take((size_t)count * sizeof *data);
    double *wide = vt_test_owned(take((size_t)count * sizeof *wide));
    for (int64_t i = 0; i < count; i++) wide[i] = number(group->members[group->rank], i) + 1e-10;
    fill(data, count, group->members[group->rank]);
    fill(again, count, group->members[group->rank]);
    data[count] = 7;
    vt_group_all_reduce(group, VT_SUM_FLOAT32, data, count, NULL);
    vt_group_all_reduce(group, VT_SUM_FLOAT64, wide, count, NULL);
    vt_group_all_reduce(group, VT_SUM_FLOAT32, again, count, NULL);
    expect_sums(group, data, 0, count);
    for (int64_t i = 0; i < count; i++) {
        const double sum = exact_sum(group, i) + 1e-10 * group->size;
        if (fabs(wide[i] - sum) <= 1e-14 * group->size) continue;
        EXPECT_NEAR(wide[i], sum, 1e-14 * group->size);
        break;
    }
    EXPECT(data[count] == 7, "wrote past the end of %ld", count);
    EXPECT(memcmp(data, again, (size_t)count * sizeof *data) == 0, "other bits the second time");
    if (group->rank == 0) memcpy(first, data, (size_t)count * sizeof *data);
    vt_group_broadcast(group, first, (size_t)count * sizeof *data, 0);
    EXPECT(memcmp(data, first, (size_t)count * sizeof *data) == 0, "other bits than on the first rank");
    free(data);
    free(again);
    free(first);
}

TEST(all_reduce)
{
    IN_EVERY_GROUP(all_reduce, 1, 7, 97, 1013, 100003);
}

TEST(all_reduce_large)
{
    SCOPED(vt_group) *group = open_group(ALL, NULL);
    all_reduce(group, 3 * 1024 * 1024 + 5);
}

/* Uneven: rank r's part is base * (r + 1) % 5 long, some parts are empty. */
static int64_t part_of(int place, int64_t base)
{
    return base * ((place + 1) % 5 == 0 ? 0 : (place + 1) % 5);
}

static void reduce_scatter(vt_group *group, int64_t base)
{
    int64_t total = 0, first = 0, *counts = take((size_t)group->size * sizeof *counts);
    for (int i = 0; i < group->size; i++) {
        if (i < group->rank) first += part_of(i, base);
        counts[i] = part_of(i, base);
        total += counts[i];
    }
    int64_t own = counts[group->rank];
    float *data = take((size_t)total * sizeof *data);
    fill(data, total, group->members[group->rank]);
    vt_request request = {0};
    vt_group_reduce_scatter(group, data, counts, &request);
    memset(counts, 255, (size_t)group->size * sizeof *counts); /* may be freed once it has started */
    vt_request_wait(&request);
    expect_sums(group, data + first, first, own);
    EXPECT(data[total] == 0, "wrote past the end");
    free(data);
    free(counts);
}

TEST(reduce_scatter)
{
    IN_EVERY_GROUP(reduce_scatter, 1, 97, 20011);
}

static void all_gather(vt_group *group, int64_t base)
{
    size_t total = 0, first = 0, *bytes = take((size_t)group->size * sizeof *bytes);
    for (int i = 0; i < group->size; i++) {
        if (i < group->rank) first += (size_t)part_of(i, base);
        bytes[i] = (size_t)part_of(i, base);
        total += bytes[i];
    }
    size_t own = bytes[group->rank];
    unsigned char *data = take(total);
    for (size_t i = 0; i < own; i++) data[first + i] = (unsigned char)(group->rank * 31 + (int)i);
    vt_request request = {0};
    vt_group_all_gather(group, data, bytes, &request);
    memset(bytes, 255, (size_t)group->size * sizeof *bytes);
    while (!vt_request_test(&request)) continue;
    size_t place = 0;
    for (int i = 0; i < group->size; i++) {
        size_t wrong = 0, count = (size_t)part_of(i, base);
        for (size_t j = 0; j < count; j++) wrong += data[place + j] != (unsigned char)(i * 31 + (int)j);
        EXPECT(wrong == 0, "%zu of the %zu bytes of rank %d", wrong, count, i);
        place += count;
    }
    EXPECT(data[total] == 0, "wrote past the end");
    free(data);
    free(bytes);
}

TEST(all_gather)
{
    IN_EVERY_GROUP(all_gather, 1, 97, 100003);
}

/* Each rank's block goes around the ring once; blocks differ in size, by 8 bytes. */
static void ring(vt_group *group, int64_t count)
{
    const size_t base = (size_t)count;
    int size = group->size, rank = group->rank;
    size_t room = base + 8 * (size_t)size;
    unsigned char *now = take(room), *coming = take(room);
    memset(now, rank + 1, base + 8 * (size_t)rank);
    for (int turn = 0; turn < size; turn++) {
        int owner = (rank - turn + size) % size, next = (owner - 1 + size) % size;
        vt_request request = {0};
        vt_group_exchange(group, now, base + 8 * (size_t)owner, (rank + 1) % size, coming, base + 8 * (size_t)next,
                          (rank - 1 + size) % size, &request);
        vt_request_wait(&request);
        unsigned char *swap = now;
        now = coming;
        coming = swap;
        size_t wrong = 0;
        for (size_t i = 0; i < base + 8 * (size_t)next; i++) wrong += now[i] != next + 1;
        EXPECT(wrong == 0, "turn %d: %zu wrong bytes of rank %d's", turn, wrong, next);
    }
    free(now);
    free(coming);
}

TEST(exchange_ring)
{
    IN_EVERY_GROUP(ring, 13, 300007);
}

TEST(exchange_one_way)
{
    SCOPED(vt_group) *group = open_group(ALL, NULL);
    int last = group->size - 1;
    int value = group->rank == 0 ? 42 : 0;
    size_t send = group->rank == 0 && last > 0 ? sizeof value : 0;
    size_t receive = group->rank == last && last > 0 ? sizeof value : 0;
    vt_group_exchange(group, &value, send, last, &value, receive, 0, NULL);
    EXPECT(value == (group->rank == 0 || group->rank == last ? 42 : 0), "%d", value);
}

TEST(broadcast)
{
    SCOPED(vt_group) *group = open_group(ALL, NULL);
    for (int root = 0; root < group->size; root++) {
        char text[40] = "";
        if (group->rank == root) snprintf(text, sizeof text, "rank %d says", root);
        vt_group_broadcast(group, text, sizeof text, root);
        char expected[40];
        snprintf(expected, sizeof expected, "rank %d says", root);
        EXPECT_TEXT(text, expected);
    }
}

/* Many at once, on two groups, completed in another order. */
TEST(overlap)
{
    enum { COUNT = 8, LENGTH = 5003 };
    vt_group *groups[2] = {open_group(ALL, NULL), open_group(NEIGHBOURS, NULL)};
    float *data[COUNT];
    vt_request requests[COUNT] = {{0}};
    for (int i = 0; i < COUNT; i++) {
        vt_group *group = groups[i % 2];
        data[i] = take(LENGTH * sizeof(float));
        fill(data[i], LENGTH, group->members[group->rank]);
        vt_group_all_reduce(group, VT_SUM_FLOAT32, data[i], LENGTH, &requests[i]);
    }
    vt_request_test(&requests[5]);
    for (int i = COUNT - 1; i >= 0; i--) {
        vt_group *group = groups[i % 2];
        vt_request_wait(&requests[i]);
        vt_request_wait(&requests[i]); /* a second time: nothing */
        EXPECT(vt_request_test(&requests[i]));
        for (int64_t j = 0; j < LENGTH; j += 1000)
            EXPECT_NEAR(data[i][j], exact_sum(group, j), 1e-6 * group->size * group->size);
        free(data[i]);
    }
    vt_group_close(&groups[0]);
    vt_group_close(&groups[1]);
}

TEST(volume)
{
    SCOPED(vt_group) *group = open_group(ALL, NULL);
    int ranks = group->size;
    float data[64] = {0};
    int64_t counts[64] = {0};
    size_t bytes[64] = {0};
    counts[0] = 60;
    bytes[ranks - 1] = 120;
    vt_group_all_reduce(group, VT_SUM_FLOAT32, data, 10, NULL);
    double expected = 2.0 * 40 * (ranks - 1) / ranks;
    EXPECT_NEAR(group->volume.bytes, expected, 1e-9);
    vt_group_reduce_scatter(group, data, counts, NULL);
    vt_group_all_gather(group, data, bytes, NULL);
    expected += (240.0 + 120) * (ranks - 1) / ranks;
    EXPECT_NEAR(group->volume.bytes, expected, 1e-9);
    EXPECT(group->volume.operations == (ranks > 1 ? 3 : 0), "%ld", group->volume.operations);
    EXPECT(group->volume.seconds >= 0);
}

/* ---- a device's memory ---- */

/* Memory that the host can't access at its address: the real memory lies OFFSET further. */
static const uintptr_t OFFSET = (uintptr_t)1 << 60;

static void *device_of(void *host)
{
    return (void *)((uintptr_t)host ^ OFFSET);
}

static void copy_from_host(vt_backend *backend, void *memory, const void *host, size_t bytes)
{
    (void)backend;
    memcpy(device_of(memory), host, bytes);
}

static void copy(vt_backend *backend, void *to, const void *from, size_t bytes)
{
    (void)backend;
    memcpy(device_of(to), (const void *)((uintptr_t)from ^ OFFSET), bytes);
}

static void copy_to_host(vt_backend *backend, void *host, const void *memory, size_t bytes)
{
    (void)backend;
    memcpy(host, (void *)((uintptr_t)memory ^ OFFSET), bytes);
}

TEST(staging)
{
    vt_backend device = {.copy_from_host = copy_from_host, .copy = copy, .copy_to_host = copy_to_host};
    for (int which = 0; which < ARRANGEMENTS; which++) {
        SCOPED(vt_group) *group = open_group((arrangement)which, &device);
        int size = group->size, rank = group->rank;
        enum { LENGTH = 1013, MOST = 64 };
        float data[LENGTH], out[LENGTH * 4], ringed[LENGTH] = {0};
        int64_t counts[MOST];
        size_t bytes[MOST];
        VT_ASSERT(size <= MOST);
        for (int i = 0; i < size; i++) {
            counts[i] = i == size - 1 ? LENGTH - (size - 1) * (LENGTH / size) : LENGTH / size;
            bytes[i] = (size_t)counts[i] * sizeof(float);
        }
        /* reduce-scatter, then all-gather: an all-reduce */
        fill(data, LENGTH, group->members[rank]);
        memcpy(out, data, sizeof data);
        float *on_device = device_of(data);
        vt_request requests[2] = {{0}};
        vt_group_reduce_scatter(group, on_device, counts, &requests[0]);
        vt_group_all_reduce(group, VT_SUM_FLOAT32, device_of(out), LENGTH, &requests[1]);
        vt_request_wait(&requests[1]);
        vt_request_wait(&requests[0]);
        vt_group_all_gather(group, on_device, bytes, NULL);
        expect_sums(group, data, 0, LENGTH);
        expect_sums(group, out, 0, LENGTH);
        fill(data, LENGTH, group->members[rank]);
        vt_group_exchange(group, on_device, sizeof data, (rank + 1) % size, device_of(ringed), sizeof ringed,
                          (rank - 1 + size) % size, NULL);
        for (int i = 0; i < LENGTH; i += 100)
            EXPECT_NEAR(ringed[i], number(group->members[(rank - 1 + size) % size], i), 0);
        vt_group_broadcast(group, on_device, sizeof data, size - 1);
        for (int i = 0; i < LENGTH; i += 100) EXPECT_NEAR(data[i], number(group->members[size - 1], i), 0);
    }
}

/* As if counts exceeded what MPI takes at once. */
TEST(counts_beyond_int)
{
    vt_engine *usual = vt_test_engine;
    setenv("VITRAIN_MPI_LARGEST", "1000", 1);
    const vt_launch launch = {.rank = usual->rank, .world_size = usual->size};
    EXPECT_OK(vt_engine_open_mpi(&launch, 60, &vt_test_engine));
    unsetenv("VITRAIN_MPI_LARGEST");
    vt_group *group = open_group(ALL, NULL);
    all_reduce(group, 10007);
    reduce_scatter(group, 4001);
    all_gather(group, 7001);
    ring(group, 10001);
    vt_group_close(&group);
    vt_engine_close(&vt_test_engine);
    vt_test_engine = usual;
}
