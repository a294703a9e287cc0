/* Reading tensors: those stored in the file, and virtual ones piece by piece out of their sources. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "storage/tensor_file_inside.h"

/* ---- what a dataset is ---- */

/* A dataset of a file. */
typedef struct {
    const char *path, *name; /* of the file, and of the dataset in it */
    hid_t dataset, storage;  /* and its creation properties */
    vt_tensor_shape shape;
    size_t part_count; /* 0: it is stored in the file itself */
    vt_tensor_part *parts;
} tensor;

/* The name of part `index`, malloc'd: of its file, or of its dataset there. NULL if it has none, or a longer one. */
static char *part_name(ssize_t (*get)(hid_t storage, size_t index, char *name, size_t size), hid_t storage,
                       size_t index, ssize_t longest)
{
    const ssize_t length = get(storage, index, NULL, 0);
    if (length < 1 || length > longest) return NULL;
    char *name = vt_allocate((size_t)length + 1, 1, "a tensor's parts");
    get(storage, index, name, (size_t)length + 1);
    return name;
}

/* Part `index`; a file whose name leads out of the directory is an error. */
static vt_status take_part(const tensor *t, size_t index, vt_tensor_part *p)
{
    vt_status status = VT_OK;
    const vt_tensor_shape *shape = &t->shape;
    hsize_t first[VT_TENSOR_DIMENSIONS] = {0}, last[VT_TENSOR_DIMENSIONS] = {0};
    hid_t space = H5Pget_virtual_vspace(t->storage, index);
    p->source = part_name(H5Pget_virtual_filename, t->storage, index, 255);
    p->name_in_source = part_name(H5Pget_virtual_dsetname, t->storage, index, 4095);
    VT_CHECK(p->source != NULL && p->name_in_source != NULL, "%s: dataset /%s is damaged: part %zu has no name",
             t->path, t->name, index);
    /* without '/' and '%' it can't lead out of the directory; the trial looked at files NAME.h5 alone */
    VT_CHECK(strpbrk(p->source, "/%") == NULL && vt_text_ends_with(p->source, ".h5"),
             "%s: dataset /%s has a part in '%s', expected a file NAME.h5 of its directory", t->path, t->name,
             p->source);
    bool sound = space >= 0 && H5Sget_simple_extent_ndims(space) == shape->dimensions &&
                 H5Sget_select_bounds(space, first, last) >= 0;
    p->box = (vt_tensor_box){.shape.dimensions = shape->dimensions};
    for (int i = 0; sound && i < shape->dimensions; i++) {
        sound = first[i] <= last[i] && last[i] < (hsize_t)shape->shape[i];
        p->box.first[i] = (int64_t)first[i];
        p->box.shape.shape[i] = (int64_t)(last[i] - first[i]) + 1;
    }
    VT_CHECK(sound && H5Sget_select_npoints(space) == vt_tensor_count(&p->box.shape),
             "%s: dataset /%s is damaged: part %zu is no box of it", t->path, t->name, index);
done:
    if (space >= 0) H5Sclose(space);
    return status;
}

static vt_status take_parts(tensor *t)
{
    vt_status status = VT_OK;
    size_t count = 0;
    VT_CHECK(H5Pget_virtual_count(t->storage, &count) >= 0 && count > 0, "%s: dataset /%s has no parts", t->path,
             t->name);
    t->parts = vt_allocate(count, sizeof *t->parts, "a tensor's parts");
    while (t->part_count < count) {
        const size_t next = t->part_count++; /* freed also if it can't be taken */
        VT_TRY(take_part(t, next, &t->parts[next]));
    }
done:
    return status;
}

/* Of a virtual tensor H5Dget_space would open the files that it names, before take_part can refuse them. */
static vt_status take_shape(tensor *t, bool is_virtual)
{
    vt_status status = VT_OK;
    hsize_t extent[VT_TENSOR_DIMENSIONS] = {0};
    int64_t count = 1;
    bool sound = true;
    vt_tensor_shape *shape = &t->shape;
    hid_t space = is_virtual ? H5Pget_virtual_vspace(t->storage, 0) : H5Dget_space(t->dataset);
    shape->dimensions = H5Sget_simple_extent_ndims(space);
    VT_CHECK(shape->dimensions > 0 && shape->dimensions <= VT_TENSOR_DIMENSIONS,
             "%s: dataset /%s has %d dimensions, expected 1 to %d", t->path, t->name, shape->dimensions,
             VT_TENSOR_DIMENSIONS);
    H5Sget_simple_extent_dims(space, extent, NULL);
    for (int i = 0; i < shape->dimensions; i++) {
        shape->shape[i] = (int64_t)extent[i];
        sound = sound && shape->shape[i] > 0 && !__builtin_mul_overflow(count, shape->shape[i], &count);
    }
    VT_CHECK(sound, "%s: dataset /%s is empty, or larger than can be", t->path, t->name);
done:
    if (space >= 0) H5Sclose(space);
    return status;
}

/* Is every chunk there, of the size that its numbers and its checksum have? HDF5 trusts what the file says. */
static bool has_all_chunks(const tensor *t, const hsize_t *chunk)
{
    bool all = true;
    hsize_t at[VT_TENSOR_DIMENSIONS] = {0}, wanted = sizeof(float), size = 0;
    const int dimensions = t->shape.dimensions;
    for (int i = 0; i < dimensions; i++) wanted *= chunk[i];
    wanted += sizeof(uint32_t);
    for (int moved = 0; all && moved >= 0;) {
        unsigned skipped = 0;
        haddr_t address = HADDR_UNDEF;
        all = H5Dget_chunk_info_by_coord(t->dataset, at, &skipped, &address, &size) >= 0 && address != HADDR_UNDEF &&
              skipped == 0 && size == wanted;
        for (moved = dimensions - 1; moved >= 0; moved--) { /* to the next one, the last dimension fastest */
            at[moved] += chunk[moved];
            if (at[moved] < (hsize_t)t->shape.shape[moved]) break;
            at[moved] = 0;
        }
    }
    return all;
}

/* Stored in any other way than vt_tensor_file_write's, it could make HDF5 do anything: filters, conversions. */
static vt_status check_storage(const tensor *t, int64_t file_bytes)
{
    vt_status status = VT_OK;
    hsize_t expected[VT_TENSOR_DIMENSIONS], chunk[VT_TENSOR_DIMENSIONS] = {0};
    unsigned flags = 0, config = 0;
    size_t count = 0;
    const int dimensions = t->shape.dimensions;
    hid_t type = H5Dget_type(t->dataset);
    vt_tensor_chunk(&t->shape, expected);
    bool sound = H5Tequal(type, H5T_IEEE_F32LE) > 0 && H5Pget_layout(t->storage) == H5D_CHUNKED &&
                 H5Pget_nfilters(t->storage) == 1 &&
                 H5Pget_filter2(t->storage, 0, &flags, &count, NULL, 0, NULL, &config) == H5Z_FILTER_FLETCHER32 &&
                 H5Pget_chunk(t->storage, VT_TENSOR_DIMENSIONS, chunk) == dimensions;
    for (int i = 0; i < dimensions; i++) sound = sound && chunk[i] == expected[i];
    VT_CHECK(sound, "%s: dataset /%s is not stored as vitrain stores tensors", t->path, t->name);
    VT_CHECK(vt_tensor_count(&t->shape) <= file_bytes / (int64_t)sizeof(float) && has_all_chunks(t, expected),
             "%s: dataset /%s is damaged: not all of its numbers are there", t->path, t->name);
done:
    if (type >= 0) H5Tclose(type);
    return status;
}

/* To be closed also on failure. Follows no links into other files. */
static vt_status open_tensor(const vt_tensor_file *file, const char *name, tensor *t)
{
    vt_status status = VT_OK;
    int depth = 1;
    hid_t access = vt_hdf5_link_access(H5P_DATASET_ACCESS);
    *t = (tensor){.path = file->path, .name = name, .dataset = H5I_INVALID_HID, .storage = H5I_INVALID_HID};
    for (const char *at = name; *at != '\0'; at++) depth += *at == '/';
    VT_CHECK(depth <= VT_TENSOR_DEPTH, "%s: dataset /%s lies more than %d names deep, which no tensor does", file->path,
             name, VT_TENSOR_DEPTH);
    t->dataset = H5Dopen2(file->file, name, access);
    VT_CHECK(t->dataset >= 0, "%s holds no dataset /%s", file->path, name);
    t->storage = H5Dget_create_plist(t->dataset);
    VT_CHECK(t->storage >= 0, "%s: dataset /%s is damaged: %s", file->path, name, vt_hdf5_reason());
    VT_CHECK(H5Pget_external_count(t->storage) <= 0, "%s: dataset /%s lies in another file", file->path, name);
    const bool is_virtual = H5Pget_layout(t->storage) == H5D_VIRTUAL;
    VT_TRY(take_shape(t, is_virtual));
    VT_TRY(is_virtual ? take_parts(t) : check_storage(t, file->bytes));
done:
    H5Pclose(access);
    return status;
}

static void close_tensor(const tensor *t)
{
    for (size_t i = 0; i < t->part_count; i++) {
        free((char *)(uintptr_t)t->parts[i].source);
        free((char *)(uintptr_t)t->parts[i].name_in_source);
    }
    free(t->parts);
    if (t->storage >= 0) H5Pclose(t->storage);
    if (t->dataset >= 0) H5Dclose(t->dataset);
}

vt_status vt_tensor_file_shape(vt_tensor_file *file, const char *name, vt_tensor_shape *shape)
{
    tensor t;
    vt_hdf5_enter();
    vt_status status = open_tensor(file, name, &t);
    *shape = t.shape;
    close_tensor(&t);
    vt_hdf5_leave();
    return status;
}

/* ---- reading ---- */

/* A space of the box `whole`, in which another box of the tensor is selected. */
static hid_t select_within(const vt_tensor_box *whole, const vt_tensor_box *box)
{
    const int dimensions = whole->shape.dimensions;
    int64_t start[VT_TENSOR_DIMENSIONS];
    for (int i = 0; i < dimensions; i++) start[i] = box->first[i] - whole->first[i];
    hid_t space = vt_hdf5_space(dimensions, whole->shape.shape);
    vt_hdf5_select(space, dimensions, start, box->shape.shape);
    return space;
}

/* Reads the box `common`, which lies in `stored` and in `wanted`, into its place in values [wanted]. */
static vt_status read_common(const tensor *t, const vt_tensor_box *stored, const vt_tensor_box *wanted,
                             const vt_tensor_box *common, float *values)
{
    vt_status status = VT_OK;
    hid_t from = select_within(stored, common), to = select_within(wanted, common);
    VT_CHECK(H5Dread(t->dataset, H5T_NATIVE_FLOAT, to, from, H5P_DEFAULT, values) >= 0,
             "%s: dataset /%s is damaged: %s", t->path, t->name, vt_hdf5_reason());
done:
    H5Sclose(from);
    H5Sclose(to);
    return status;
}

/* ---- sources ---- */

void vt_tensor_close_sources(vt_tensor_file *file)
{
    while (file->source_count > 0) vt_tensor_file_close(&file->sources[--file->source_count]);
}

/* An index with an id takes only sources with the same. */
static vt_status check_id(vt_tensor_file *file, vt_tensor_file *source)
{
    vt_status status = VT_OK;
    char *expected = NULL, *found = NULL;
    if (!vt_tensor_file_has(file, "id")) return VT_OK;
    VT_TRY(vt_tensor_file_get_text(file, "id", &expected));
    VT_TRY(vt_tensor_file_get_text(source, "id", &found));
    VT_CHECK(strcmp(found, expected) == 0, "%s is of another checkpoint: its id is %s, expected %s", source->path,
             found, expected);
done:
    free(expected);
    free(found);
    return status;
}

/* The file `name` in the directory of `file`; opens it, unless it is open. Closes all others if there are too many. */
static vt_status use_source(vt_tensor_file *file, const char *name, vt_tensor_file **result)
{
    vt_status status = VT_OK;
    vt_tensor_file *opened = NULL;
    VT_ASSERT(name != NULL);
    char *path = vt_text_format("%.*s%s", (int)(vt_file_name(file->path) - file->path), file->path, name);
    *result = NULL;
    for (int i = 0; i < file->source_count && *result == NULL; i++)
        if (strcmp(file->sources[i]->path, path) == 0) *result = file->sources[i];
    if (*result != NULL) goto done;
    VT_TRY(vt_tensor_file_open(path, &opened));
    VT_TRY(check_id(file, opened));
    if (file->source_count == VT_TENSOR_OPEN_SOURCES) vt_tensor_close_sources(file);
    *result = file->sources[file->source_count++] = opened;
    opened = NULL;
done:
    vt_tensor_file_close(&opened);
    free(path);
    return status;
}

/* Reads what part `p` holds of the wanted box. */
static vt_status read_part(vt_tensor_file *file, const vt_tensor_part *p, const vt_tensor_box *wanted, float *values)
{
    vt_status status = VT_OK;
    char found[128], expected[128];
    tensor t = {.dataset = H5I_INVALID_HID, .storage = H5I_INVALID_HID};
    vt_tensor_box common;
    vt_tensor_file *source = NULL;
    const char *name = p->name_in_source + (p->name_in_source[0] == '/');
    if (!vt_tensor_box_intersect(&p->box, wanted, &common)) return VT_OK;
    VT_TRY(use_source(file, p->source, &source));
    VT_TRY(open_tensor(source, name, &t));
    VT_CHECK(t.part_count == 0, "%s: dataset /%s is virtual, expected values", source->path, name);
    vt_tensor_shape_text(&t.shape, found);
    vt_tensor_shape_text(&p->box.shape, expected);
    VT_CHECK(strcmp(found, expected) == 0, "%s: dataset /%s is %s, expected %s", source->path, name, found, expected);
    VT_TRY(read_common(&t, &p->box, wanted, &common, values));
done:
    close_tensor(&t);
    return status;
}

/* Every wanted element comes from one part. */
static vt_status check_cover(const tensor *t, const vt_tensor_box *wanted)
{
    vt_status status = VT_OK;
    int64_t covered = 0, count = vt_tensor_count(&wanted->shape);
    vt_tensor_box common, both;
    for (size_t i = 0; i < t->part_count; i++) {
        if (!vt_tensor_box_intersect(&t->parts[i].box, wanted, &common)) continue;
        covered += vt_tensor_count(&common.shape);
        for (size_t k = 0; k < i; k++)
            VT_CHECK(!vt_tensor_box_intersect(&common, &t->parts[k].box, &both),
                     "%s: dataset /%s is damaged: parts of it overlap, in %s and %s", t->path, t->name,
                     t->parts[k].source, t->parts[i].source);
    }
    VT_CHECK(covered == count, "%s: dataset /%s is not whole: its parts hold %ld of %ld elements", t->path, t->name,
             covered, count);
done:
    return status;
}

static vt_status check_wanted(const tensor *t, const vt_tensor_box *wanted)
{
    vt_status status = VT_OK;
    char shape[128], box[128];
    bool within = wanted->shape.dimensions == t->shape.dimensions;
    for (int i = 0; within && i < t->shape.dimensions; i++)
        within = wanted->first[i] >= 0 && wanted->first[i] <= t->shape.shape[i] - wanted->shape.shape[i];
    vt_tensor_shape_text(&t->shape, shape);
    vt_tensor_shape_text(&wanted->shape, box);
    VT_CHECK(within, "%s: dataset /%s is %s, the box %s that is wanted reaches over its edge", t->path, t->name, shape,
             box);
done:
    return status;
}

vt_status vt_tensor_file_read_box(vt_tensor_file *file, const char *name, const vt_tensor_box *box, float *values)
{
    vt_status status = VT_OK;
    tensor t;
    if (vt_tensor_count(&box->shape) == 0) return VT_OK;
    vt_hdf5_enter();
    VT_TRY(open_tensor(file, name, &t));
    VT_TRY(check_wanted(&t, box));
    const vt_tensor_box whole = {.shape = t.shape};
    VT_TRY(t.part_count > 0 ? check_cover(&t, box) : read_common(&t, &whole, box, box, values));
    for (size_t i = 0; i < t.part_count; i++) VT_TRY(read_part(file, &t.parts[i], box, values));
done:
    close_tensor(&t);
    vt_hdf5_leave();
    return status;
}

void vt_tensor_visit(vt_tensor_file *file, const char *name)
{
    tensor t;
    float value;
    vt_hdf5_enter();
    const bool opened = open_tensor(file, name, &t) == VT_OK;
    const vt_tensor_box whole = {.shape = t.shape};
    for (int last = 0; last < 2 && opened && t.part_count == 0; last++) {
        vt_tensor_box one = whole;
        for (int i = 0; i < t.shape.dimensions; i++) {
            one.shape.shape[i] = 1;
            one.first[i] = last ? t.shape.shape[i] - 1 : 0;
        }
        (void)read_common(&t, &whole, &one, &one, &value);
    }
    vt_error_clear();
    close_tensor(&t);
    vt_hdf5_leave();
}

vt_status vt_tensor_file_read(vt_tensor_file *file, const char *name, const vt_tensor_shape *shape, float *values)
{
    vt_status status = VT_OK;
    vt_tensor_shape found = {0};
    VT_TRY(vt_tensor_file_shape(file, name, &found));
    VT_CHECK(vt_tensor_count(&found) == vt_tensor_count(shape), "%s: dataset /%s has %ld elements, expected %ld",
             file->path, name, vt_tensor_count(&found), vt_tensor_count(shape));
    const vt_tensor_box whole = {.shape = found};
    VT_TRY(vt_tensor_file_read_box(file, name, &whole, values));
done:
    return status;
}
