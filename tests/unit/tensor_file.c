#define _GNU_SOURCE /* memmem */
/* Tensors cut into boxes come back whole, in any other cut; what is missing, damaged, foreign or hostile is told. */
#include "storage/tensor_file.h"

#include <fcntl.h>
#include <hdf5.h>
#include <unistd.h>

#include "base/random.h"
#include "base/text.h"
#include "settings.h"
#include "test.h"
#include "unit/data_files.h"

/* ---- boxes ---- */

/* The element that lies at `place` of a tensor. */
static int64_t flat_index(const vt_tensor_shape *shape, const int64_t *place)
{
    int64_t index = 0;
    for (int d = 0; d < shape->dimensions; d++) index = index * shape->shape[d] + place[d];
    return index;
}

/* The flat indices of a box's elements, in the order of its own values. */
static void list_elements(const vt_tensor_shape *shape, const vt_tensor_box *box, int64_t *indices)
{
    int64_t count = vt_tensor_count(&box->shape);
    for (int64_t i = 0; i < count; i++) {
        int64_t place[VT_TENSOR_DIMENSIONS], rest = i;
        for (int d = shape->dimensions - 1; d >= 0; d--) {
            place[d] = box->first[d] + rest % box->shape.shape[d];
            rest /= box->shape.shape[d];
        }
        indices[i] = flat_index(shape, place);
    }
}

/* Every range of small tensors of 1 to 5 dimensions: boxes hold exactly its elements, one after another. */
TEST(boxes_of_every_range)
{
    static const vt_tensor_shape shapes[] = {{1, {1}},
                                             {1, {13}},
                                             {2, {5, 7}},
                                             {2, {1, 6}},
                                             {2, {6, 1}},
                                             {3, {3, 4, 5}},
                                             {3, {1, 1, 9}},
                                             {3, {2, 1, 3}},
                                             {4, {3, 3, 3, 3}},
                                             {4, {2, 1, 4, 3}},
                                             {4, {4, 3, 1, 2}},
                                             {5, {3, 2, 3, 3, 2}},
                                             {5, {2, 3, 1, 2, 3}},
                                             {5, {3, 3, 3, 3, 1}},
                                             {5, {3, 3, 3, 3, 3}}};
    int most = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const vt_tensor_shape *shape = &shapes[s];
        const int64_t total = vt_tensor_count(shape);
        for (int64_t begin = 0; begin <= total; begin++)
            for (int64_t end = begin; end <= total; end++) {
                vt_tensor_box boxes[VT_TENSOR_BOXES + 1];
                memset(&boxes[VT_TENSOR_BOXES], 0x5a, sizeof boxes[0]);
                int count = vt_tensor_boxes(shape, begin, end - begin, boxes);
                EXPECT(count <= 2 * shape->dimensions - 1 && (count == 0) == (begin == end));
                const char *guard = (const char *)&boxes[VT_TENSOR_BOXES];
                for (size_t i = 0; i < sizeof boxes[0]; i++) EXPECT(guard[i] == 0x5a);
                int64_t next = begin, wrong = 0;
                for (int b = 0; b < count; b++) {
                    int64_t indices[243];
                    EXPECT(boxes[b].shape.dimensions == shape->dimensions);
                    list_elements(shape, &boxes[b], indices);
                    for (int64_t i = 0; i < vt_tensor_count(&boxes[b].shape); i++) wrong += indices[i] != next++;
                }
                EXPECT(wrong == 0 && next == end, "shape %zu, %ld to %ld", s, begin, end);
                most = count > most ? count : most;
            }
    }
    EXPECT(most == VT_TENSOR_BOXES, "%d", most);
}

TEST(intersections)
{
    const vt_tensor_box a = {{1, 2}, {2, {3, 4}}}, b = {{3, 0}, {2, {5, 3}}}, c = {{4, 2}, {2, {1, 1}}};
    vt_tensor_box common = {.first = {-7}};
    EXPECT(vt_tensor_box_intersect(&a, &b, &common) && common.first[0] == 3 && common.first[1] == 2);
    EXPECT(common.shape.dimensions == 2 && common.shape.shape[0] == 1 && common.shape.shape[1] == 1);
    common.first[0] = -7;
    EXPECT(!vt_tensor_box_intersect(&a, &c, &common) && common.first[0] == -7); /* they only touch */
}

/* ---- shards and an index ---- */

enum { SHARDS = 5 };
static const char *const shard_names[SHARDS] = {"a.h5", "b.h5", "c.h5", "d.h5", "e.h5"};
static const vt_tensor_shape shape5 = {5, {5, 3, 2, 2, 7}}; /* 420 elements */
enum { ELEMENTS = 420 };

static float value_of(int64_t element)
{
    return (float)element * 0.5F + 1;
}

/* The tensor "group/w" cut into SHARDS ranges of uneven lengths (one is empty), and "group/small" whole in d.h5. Shard
 * `left_out` isn't linked (-1: all are). */
static const char *write_set(int left_out)
{
    static const int64_t cuts[SHARDS + 1] = {0, 101, 101, 233, 418, 420};
    static char names[SHARDS * VT_TENSOR_BOXES][32];
    vt_tensor_part parts[SHARDS * VT_TENSOR_BOXES];
    const vt_tensor_shape small = {1, {3}};
    const vt_tensor_part whole = {"d.h5", "group/small", {.shape = small}};
    int64_t part_count = 0;
    for (int s = 0; s < SHARDS; s++) {
        vt_tensor_file *file = NULL;
        vt_tensor_box boxes[VT_TENSOR_BOXES];
        int count = vt_tensor_boxes(&shape5, cuts[s], cuts[s + 1] - cuts[s], boxes);
        int64_t next = cuts[s];
        EXPECT_OK(vt_tensor_file_create(test_path(shard_names[s]), &file));
        EXPECT_OK(vt_tensor_file_set_text(file, "id", "one"));
        for (int b = 0; b < count; b++) {
            float values[ELEMENTS];
            char *name = names[s * VT_TENSOR_BOXES + b];
            for (int64_t i = 0; i < vt_tensor_count(&boxes[b].shape); i++) values[i] = value_of(next++);
            snprintf(name, sizeof names[0], "group/w@%d", b);
            EXPECT_OK(vt_tensor_file_write(file, name, &boxes[b].shape, values));
            if (s != left_out) parts[part_count++] = (vt_tensor_part){shard_names[s], name, boxes[b]};
        }
        if (s == 3) EXPECT_OK(vt_tensor_file_write(file, "group/small", &small, (float[]){7, 8, 9}));
        EXPECT_OK(vt_tensor_file_finish(&file));
    }
    const char *path = test_path("index.h5");
    vt_tensor_file *index = NULL;
    EXPECT_OK(vt_tensor_file_create(path, &index));
    EXPECT_OK(vt_tensor_file_set_text(index, "id", "one"));
    EXPECT_OK(vt_tensor_file_link(index, "group/w", &shape5, part_count, parts));
    EXPECT_OK(vt_tensor_file_link(index, "group/small", &small, 1, &whole));
    EXPECT_OK(vt_tensor_file_finish(&index));
    return path;
}

static vt_tensor_file *open_file(const char *path)
{
    vt_tensor_file *file = NULL;
    EXPECT_OK(vt_tensor_file_open(path, &file));
    VT_ASSERT(file != NULL);
    return file;
}

/* A file of this tensor alone. */
static void write_tensor(const char *name, const char *tensor, const vt_tensor_shape *shape, const float *values)
{
    vt_tensor_file *file = NULL;
    EXPECT_OK(vt_tensor_file_create(test_path(name), &file));
    EXPECT_OK(vt_tensor_file_write(file, tensor, shape, values));
    EXPECT_OK(vt_tensor_file_finish(&file));
}

/* index.h5 of "w" alone, which consists of these parts. */
static vt_tensor_file *open_index(const vt_tensor_shape *shape, int64_t part_count, const vt_tensor_part *parts)
{
    vt_tensor_file *file = NULL;
    EXPECT_OK(vt_tensor_file_create(test_path("index.h5"), &file));
    EXPECT_OK(vt_tensor_file_link(file, "w", shape, part_count, parts));
    EXPECT_OK(vt_tensor_file_finish(&file));
    return open_file(test_path("index.h5"));
}

/* Reads a box into a guarded buffer and compares. */
static void expect_box(vt_tensor_file *file, const vt_tensor_box *box)
{
    float values[ELEMENTS + 1];
    int64_t indices[ELEMENTS], count = vt_tensor_count(&box->shape), wrong = 0;
    for (int i = 0; i <= ELEMENTS; i++) values[i] = -1;
    EXPECT_OK(vt_tensor_file_read_box(file, "group/w", box, values));
    list_elements(&shape5, box, indices);
    for (int64_t i = 0; i < count; i++) wrong += values[i] != value_of(indices[i]);
    EXPECT(wrong == 0 && values[count] == -1, "%ld of %ld", wrong, count);
}

static const vt_tensor_box whole5 = {{0}, {5, {5, 3, 2, 2, 7}}}, last_row = {{4, 2, 1, 1, 0}, {5, {1, 1, 1, 1, 7}}};

TEST(boxes_come_back_in_any_other_cut)
{
    SCOPED(vt_tensor_file) *index = open_file(write_set(-1));
    float values[ELEMENTS];
    vt_tensor_shape shape;
    EXPECT_OK(vt_tensor_file_shape(index, "group/w", &shape));
    EXPECT(shape.dimensions == 5 && vt_tensor_count(&shape) == ELEMENTS);
    expect_box(index, &whole5);
    expect_box(index, &last_row);
    for (uint64_t round = 0; round < 200; round++) { /* 200 boxes of any place and size */
        int64_t choices[60];
        vt_tensor_box box = {.shape.dimensions = 5};
        vt_random_permutation(1, round, 60, choices);
        for (int d = 0; d < 5; d++) {
            box.first[d] = choices[d] % shape5.shape[d];
            box.shape.shape[d] = 1 + choices[5 + d] % (shape5.shape[d] - box.first[d]);
        }
        expect_box(index, &box);
    }
    for (int64_t begin = 0; begin < ELEMENTS; begin += 61) { /* slices of a layout with more ranks */
        vt_tensor_box boxes[VT_TENSOR_BOXES];
        int count = vt_tensor_boxes(&shape5, begin, begin + 61 < ELEMENTS ? 61 : ELEMENTS - begin, boxes);
        for (int b = 0; b < count; b++) expect_box(index, &boxes[b]);
    }
    EXPECT_OK(vt_tensor_file_read(index, "group/w", &shape5, values));
    EXPECT(values[0] == value_of(0) && values[419] == value_of(419));
    EXPECT_OK(vt_tensor_file_read(index, "group/small", &(vt_tensor_shape){1, {3}}, values));
    EXPECT(values[0] == 7 && values[2] == 9);
    const vt_tensor_box nothing = {{0}, {5, {5, 0, 2, 2, 7}}};
    EXPECT_OK(vt_tensor_file_read_box(index, "group/w", &nothing, NULL));
}

/* A reader of HDF5 that knows nothing of us sees whole tensors. */
TEST(other_readers_see_whole_tensors)
{
    hid_t file = H5Fopen(write_set(-1), H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t dataset = H5Dopen2(file, "group/w", H5P_DEFAULT);
    float values[ELEMENTS];
    int64_t wrong = 0;
    EXPECT(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    for (int i = 0; i < ELEMENTS; i++) wrong += values[i] != value_of(i);
    EXPECT(wrong == 0);
    H5Dclose(dataset);
    H5Fclose(file);
}

/* Many chunks: boxes across their edges, out of a tensor that is stored in the file itself. */
TEST(boxes_of_a_large_tensor)
{
    const vt_tensor_shape shape = {2, {1013, 1031}}; /* about 4 MiB */
    float *values = vt_test_owned(malloc((size_t)vt_tensor_count(&shape) * sizeof *values)),
          *found = vt_test_owned(malloc(600 * 500 * sizeof *found));
    for (int64_t i = 0; i < vt_tensor_count(&shape); i++) values[i] = (float)i;
    write_tensor("large.h5", "w", &shape, values);
    SCOPED(vt_tensor_file) *file = open_file(test_path("large.h5"));
    const vt_tensor_box box = {{200, 401}, {2, {600, 500}}};
    EXPECT_OK(vt_tensor_file_read_box(file, "w", &box, found));
    int64_t wrong = 0;
    for (int64_t i = 0; i < 600; i++)
        wrong += memcmp(found + i * 500, values + (200 + i) * 1031 + 401, 500 * sizeof *found) != 0;
    EXPECT(wrong == 0);
}

/* More sources than stay open. */
TEST(more_shards_than_stay_open)
{
    enum { COUNT = 150 };
    static char names[COUNT][32];
    static vt_tensor_part parts[COUNT];
    const vt_tensor_shape shape = {1, {COUNT}};
    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "shard-%d.h5", i);
        write_tensor(names[i], "w", &(vt_tensor_shape){1, {1}}, &(float){(float)i});
        parts[i] = (vt_tensor_part){names[i], "w", {{i}, {1, {1}}}};
    }
    SCOPED(vt_tensor_file) *file = open_index(&shape, COUNT, parts);
    for (int round = 0; round < 2; round++) {
        float values[COUNT] = {0};
        EXPECT_OK(vt_tensor_file_read(file, "w", &shape, values));
        for (int i = 0; i < COUNT; i++) EXPECT(values[i] == (float)i);
    }
}

/* ---- what is wrong ---- */

static void expect_unreadable(const char *path, const vt_tensor_box *box, const char *message)
{
    float values[ELEMENTS];
    SCOPED(vt_tensor_file) *file = open_file(path);
    EXPECT_ERROR(vt_tensor_file_read_box(file, "group/w", box, values), message);
}

static void expect_readable(const char *path, const vt_tensor_box *box)
{
    SCOPED(vt_tensor_file) *file = open_file(path);
    expect_box(file, box);
}

static const vt_tensor_box first_row = {{0}, {5, {1, 1, 1, 1, 7}}};

TEST(a_missing_shard)
{
    const char *path = write_set(-1);
    unlink(test_path("d.h5"));
    expect_unreadable(path, &whole5, "d.h5");
    expect_readable(path, &first_row); /* in a.h5 alone */
}

TEST(a_foreign_shard)
{
    const char *path = write_set(-1);
    vt_tensor_file *file = NULL;
    EXPECT_OK(vt_tensor_file_create(test_path("a.h5"), &file));
    EXPECT_OK(vt_tensor_file_set_text(file, "id", "another"));
    EXPECT_OK(vt_tensor_file_finish(&file));
    expect_unreadable(path, &first_row, "a.h5 is of another checkpoint: its id is another, expected one");
    EXPECT_OK(vt_tensor_file_create(test_path("a.h5"), &file)); /* the same id, but not the boxes */
    EXPECT_OK(vt_tensor_file_set_text(file, "id", "one"));
    EXPECT_OK(vt_tensor_file_write(file, "group/w@0", &(vt_tensor_shape){5, {1, 3, 2, 2, 6}}, (float[72]){0}));
    EXPECT_OK(vt_tensor_file_finish(&file));
    expect_unreadable(path, &first_row, "a.h5: dataset /group/w@0 is [1, 3, 2, 2, 6], expected [1, 3, 2, 2, 7]");
    expect_readable(path, &last_row);
}

TEST(a_damaged_shard)
{
    const char *path = write_set(-1), *shard = test_path("c.h5");
    const float value = value_of(150);
    char all[1 << 16];
    int file = open(shard, O_RDWR);
    ssize_t size = pread(file, all, sizeof all, 0);
    const char *found = memmem(all, (size_t)size, &value, sizeof value);
    EXPECT(found != NULL);
    if (found == NULL) return;
    char byte = (char)(*found ^ 4);
    EXPECT(pwrite(file, &byte, 1, found - all) == 1);
    close(file);
    expect_unreadable(path, &whole5, "is damaged");
    expect_readable(path, &first_row);
    expect_readable(path, &last_row);
}

TEST(boxes_that_are_not_there)
{
    const char *path = write_set(2);
    expect_unreadable(path, &whole5, "dataset /group/w is not whole: its parts hold 288 of 420 elements");
    expect_readable(path, &first_row);
    const vt_tensor_box over = {{0, 0, 0, 0, 1}, {5, {1, 1, 1, 1, 7}}}, flat = {{0}, {1, {7}}};
    expect_unreadable(path, &over, "is [5, 3, 2, 2, 7], the box [1, 1, 1, 1, 7] that is wanted reaches over its edge");
    expect_unreadable(path, &flat, "reaches over its edge");
}

TEST(parts_that_overlap)
{
    const vt_tensor_shape shape = {1, {4}}, half = {1, {2}};
    const vt_tensor_part parts[3] = {
        {"a.h5", "w", {{0}, half}}, {"b.h5", "w", {{1}, half}}, {"c.h5", "w", {{2}, half}}};
    float values[4];
    SCOPED(vt_tensor_file) *file = open_index(&shape, 3, parts);
    EXPECT_ERROR(vt_tensor_file_read(file, "w", &shape, values), "parts of it overlap, in a.h5 and b.h5");
}

/* An index made by others: all of /w is in `source`, as version 1 of the checkpoints had it too. */
static const char *write_plain_index(const char *source)
{
    const char *path = test_path("plain.h5");
    hid_t file = test_create(path), storage = H5Pcreate(H5P_DATASET_CREATE);
    hid_t space = H5Screate_simple(1, (hsize_t[]){3}, NULL);
    EXPECT(H5Pset_virtual(storage, space, source, "/w", space) >= 0);
    test_dataset_with(storage, file, "w", H5T_IEEE_F32LE, 1, (hsize_t[]){3}, 0, NULL);
    H5Sclose(space);
    H5Fclose(file);
    return path;
}

static void expect_refused_source(const char *path, const char *message)
{
    float values[3];
    vt_tensor_shape shape = {1, {3}};
    SCOPED(vt_tensor_file) *file = open_file(path);
    EXPECT_ERROR(vt_tensor_file_read(file, "w", &shape, values), message);
    EXPECT_ERROR(vt_tensor_file_shape(file, "w", &shape), message);
}

TEST(sources_lead_nowhere_else)
{
    const vt_tensor_shape shape = {1, {3}};
    float values[3] = {0};
    write_tensor("shard.h5", "w", &shape, (float[]){1, 2, 3});
    SCOPED(vt_tensor_file) *file = open_file(write_plain_index("shard.h5")); /* all of it, without a selected box */
    EXPECT_OK(vt_tensor_file_read(file, "w", &shape, values));
    EXPECT(values[0] == 1 && values[2] == 3);
    vt_tensor_file_close(&file);

    const char *const hostile[] = {test_path("shard.h5"), "../shard.h5", "x/shard.h5", "..", ".", "shard%%.h5"};
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++)
        expect_refused_source(write_plain_index(hostile[i]), "expected a file NAME.h5 of its directory");

    /* a chain of virtual tensors, also one that ends in itself */
    const vt_tensor_part itself = {"index.h5", "w", {.shape = shape}};
    file = open_index(&shape, 1, &itself);
    EXPECT_ERROR(vt_tensor_file_read(file, "w", &shape, values), "dataset /w is virtual, expected values");
    vt_tensor_file_close(&file);

    /* a link into another file, and values in another file */
    const char *path = test_path("links.h5");
    hid_t links = test_create(path), storage = H5Pcreate(H5P_DATASET_CREATE);
    EXPECT(H5Lcreate_external(test_path("shard.h5"), "/w", links, "linked", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    EXPECT(H5Lcreate_external(test_path("shard.h5"), "/", links, "group", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    EXPECT(H5Pset_external(storage, "/etc/hostname", 0, 12) >= 0);
    test_dataset_with(storage, links, "external", H5T_IEEE_F32LE, 1, (hsize_t[]){3}, 0, NULL);
    H5Fclose(links);
    file = open_file(path);
    EXPECT_ERROR(vt_tensor_file_read(file, "linked", &shape, values), "holds no dataset /linked");
    EXPECT_ERROR(vt_tensor_file_read(file, "external", &shape, values), "dataset /external lies in another file");
    SCOPED(vt_names) names = {0};
    EXPECT_ERROR(vt_tensor_file_list(file, "group", &names), "has no group 'group'");
}

/* ---- files that vitrain has not written ---- */

/* How somebody else stores /w [1000]. */
typedef struct {
    const char *name; /* "w", if it is NULL */
    hid_t type;
    hsize_t chunk; /* 0: contiguous */
    bool checksum, compressed, unwritten;
    const char *message;
} foreign;

static void expect_foreign(const foreign *f)
{
    static float values[1000];
    const vt_tensor_shape shape = {1, {1000}};
    const char *name = f->name != NULL ? f->name : "w", *path = test_path("foreign.h5");
    hid_t file = test_create(path), storage = H5Pcreate(H5P_DATASET_CREATE);
    if (f->chunk > 0) EXPECT(H5Pset_chunk(storage, 1, &f->chunk) >= 0);
    if (f->compressed) EXPECT(H5Pset_deflate(storage, 1) >= 0);
    if (f->checksum) EXPECT(H5Pset_fletcher32(storage) >= 0);
    for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/'))
        H5Gclose(H5Gcreate2(file, SETTINGS("%.*s", (int)(slash - name), name), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    test_dataset_with(storage, file, name, f->type, 1, (hsize_t[]){1000}, H5T_NATIVE_FLOAT,
                      f->unwritten ? NULL : values);
    H5Fclose(file);
    SCOPED(vt_tensor_file) *opened = open_file(path);
    if (f->message != NULL)
        EXPECT_ERROR(vt_tensor_file_read(opened, name, &shape, values), f->message);
    else
        EXPECT_OK(vt_tensor_file_read(opened, name, &shape, values));
}

TEST(tensors_of_others)
{
    const char *const otherwise = "foreign.h5: dataset /w is not stored as vitrain stores tensors";
    const foreign all[] = {
        {NULL, H5T_IEEE_F32LE, 1000, true, false, false, NULL},
        {NULL, H5T_IEEE_F32LE, 0, false, false, false, otherwise},
        {NULL, H5T_IEEE_F32LE, 1000, false, false, false, otherwise},
        {NULL, H5T_IEEE_F32LE, 1000, true, true, false, otherwise},
        {NULL, H5T_IEEE_F64LE, 1000, true, false, false, otherwise},
        {NULL, H5T_IEEE_F32LE, 1, true, false, false,
         otherwise}, /* each number in a chunk of its own would take long */
        {NULL, H5T_IEEE_F32LE, 1000, true, false, true, "dataset /w is damaged: not all of its numbers are there"},
        {"a/b/w", H5T_IEEE_F32LE, 1000, true, false, false, NULL},
        {"a/b/c/w", H5T_IEEE_F32LE, 1000, true, false, false, "dataset /a/b/c/w lies more than 3 names deep"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) expect_foreign(&all[i]);
    expect_refused_source(write_plain_index("shard.bin"), "has a part in 'shard.bin', expected a file NAME.h5");
}

TEST(more_names_than_any_checkpoint_has)
{
    const char *path = test_path("names.h5");
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_LATEST);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    hid_t group = H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    for (int i = 0; i < 131073; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        EXPECT(H5Lcreate_soft("/w", group, name, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    }
    H5Gclose(group);
    H5Fclose(file);
    H5Pclose(access);
    SCOPED(vt_names) names = {0};
    SCOPED(vt_tensor_file) *opened = open_file(path);
    EXPECT_ERROR(vt_tensor_file_list(opened, "group", &names),
                 "the group 'group' holds more than 131072 names, which no checkpoint does");
}
