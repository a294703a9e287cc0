/* Reading tensors: those stored in the file, and virtual ones piece by piece out of their sources. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "storage/tensor_file_inside.h"

/* ---- what a dataset is ---- */

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

/* The file of part `index`, malloc'd; a name that leads out of the directory is an error. */
static vt_status take_source_name(const vt_tensor_file *file, const char *name, hid_t storage, size_t index,
                                  char **source)
{
    vt_status status = VT_OK;
    *source = part_name(H5Pget_virtual_filename, storage, index, 255);
    VT_CHECK(*source != NULL, "%s: dataset /%s is damaged: a part in no file", file->path, name);
    VT_CHECK(strpbrk(*source, "/%") == NULL && strcmp(*source, ".") != 0 && strstr(*source, "..") == NULL,
             "%s: dataset /%s has a part in '%s', which is no file name of its directory", file->path, name, *source);
done:
    return status;
}

/* Before the shape is asked for, which may open sources. */
static vt_status check_sources(const vt_tensor_file *file, const char *name, hid_t storage)
{
    vt_status status = VT_OK;
    size_t count = 0;
    char *source = NULL;
    VT_CHECK(H5Pget_external_count(storage) <= 0, "%s: dataset /%s lies in another file", file->path, name);
    if (H5Pget_layout(storage) != H5D_VIRTUAL) goto done;
    VT_CHECK(H5Pget_virtual_count(storage, &count) >= 0 && count > 0, "%s: dataset /%s has no parts", file->path, name);
    for (size_t i = 0; i < count; i++) {
        free(source);
        VT_TRY(take_source_name(file, name, storage, i, &source));
    }
done:
    free(source);
    return status;
}

static vt_status take_shape(const vt_tensor_file *file, const char *name, hid_t dataset, vt_tensor_shape *shape)
{
    vt_status status = VT_OK;
    hsize_t extent[VT_TENSOR_DIMENSIONS] = {0};
    int64_t count = 1;
    bool sound = true;
    hid_t space = H5Dget_space(dataset);
    shape->dimensions = H5Sget_simple_extent_ndims(space);
    VT_CHECK(shape->dimensions > 0 && shape->dimensions <= VT_TENSOR_DIMENSIONS,
             "%s: dataset /%s has %d dimensions, expected 1 to %d", file->path, name, shape->dimensions,
             VT_TENSOR_DIMENSIONS);
    H5Sget_simple_extent_dims(space, extent, NULL);
    for (int i = 0; i < shape->dimensions; i++) {
        shape->shape[i] = (int64_t)extent[i];
        sound = sound && shape->shape[i] > 0 && !__builtin_mul_overflow(count, shape->shape[i], &count);
    }
    VT_CHECK(sound, "%s: dataset /%s is empty, or larger than can be", file->path, name);
done:
    if (space >= 0) H5Sclose(space);
    return status;
}

/* Both *dataset and *storage (its creation properties) are to be closed when they aren't negative, also on failure. */
static vt_status open_dataset(const vt_tensor_file *file, const char *name, hid_t *dataset, hid_t *storage,
                              vt_tensor_shape *shape)
{
    vt_status status = VT_OK;
    hid_t access = vt_hdf5_link_access(H5P_DATASET_ACCESS); /* follows no links into other files */
    *storage = H5I_INVALID_HID;
    *dataset = H5Dopen2(file->file, name, access);
    VT_CHECK(*dataset >= 0, "%s holds no dataset /%s", file->path, name);
    *storage = H5Dget_create_plist(*dataset);
    VT_CHECK(*storage >= 0, "%s: dataset /%s is damaged: %s", file->path, name, vt_hdf5_reason());
    VT_TRY(check_sources(file, name, *storage));
    VT_TRY(take_shape(file, name, *dataset, shape));
done:
    H5Pclose(access);
    return status;
}

static void close_dataset(hid_t dataset, hid_t storage)
{
    if (storage >= 0) H5Pclose(storage);
    if (dataset >= 0) H5Dclose(dataset);
}

vt_status vt_tensor_file_shape(vt_tensor_file *file, const char *name, vt_tensor_shape *shape)
{
    hid_t dataset, storage;
    vt_hdf5_enter();
    vt_status status = open_dataset(file, name, &dataset, &storage, shape);
    close_dataset(dataset, storage);
    vt_hdf5_leave();
    return status;
}

/* ---- reading what is stored in a file ---- */

/* A space of `shape` with the box `common`, whose coordinates count from `origin`, selected. */
static hid_t select_box(const vt_tensor_shape *shape, const int64_t *origin, const vt_tensor_box *common)
{
    hsize_t extent[VT_TENSOR_DIMENSIONS], start[VT_TENSOR_DIMENSIONS], block[VT_TENSOR_DIMENSIONS];
    for (int i = 0; i < shape->dimensions; i++) {
        extent[i] = (hsize_t)shape->shape[i];
        start[i] = (hsize_t)(common->first[i] - origin[i]);
        block[i] = (hsize_t)common->shape.shape[i];
    }
    hid_t space = H5Screate_simple(shape->dimensions, extent, NULL);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, block, NULL);
    return space;
}

/* Where numbers are read from: a box of the tensor, all of a dataset. */
typedef struct {
    char *source, *name_in_source;
    vt_tensor_box box;    /* of the tensor */
    vt_tensor_box common; /* what is wanted of it */
} piece;

/* common (of the tensor), which lies in `stored` and in `wanted`, into its place in values [wanted]. */
static vt_status read_common(const vt_tensor_file *file, const char *name, hid_t dataset, const vt_tensor_box *stored,
                             const vt_tensor_box *wanted, const vt_tensor_box *common, float *values)
{
    vt_status status = VT_OK;
    hid_t from = select_box(&stored->shape, stored->first, common);
    hid_t to = select_box(&wanted->shape, wanted->first, common);
    VT_CHECK(H5Dread(dataset, H5T_NATIVE_FLOAT, to, from, H5P_DEFAULT, values) >= 0, "%s: dataset /%s is damaged: %s",
             file->path, name, vt_hdf5_reason());
done:
    H5Sclose(from);
    H5Sclose(to);
    return status;
}

static vt_status read_piece(const vt_tensor_file *source, const piece *p, const vt_tensor_box *wanted, float *values)
{
    vt_status status = VT_OK;
    vt_tensor_shape found = {0};
    char found_text[128], expected_text[128];
    hid_t dataset, storage;
    const char *name = p->name_in_source + (p->name_in_source[0] == '/');
    vt_hdf5_enter();
    VT_TRY(open_dataset(source, name, &dataset, &storage, &found));
    VT_CHECK(H5Pget_layout(storage) != H5D_VIRTUAL, "%s: dataset /%s is virtual, expected values", source->path, name);
    bool same = found.dimensions == p->box.shape.dimensions;
    for (int i = 0; same && i < found.dimensions; i++) same = found.shape[i] == p->box.shape.shape[i];
    vt_tensor_shape_text(&found, found_text);
    vt_tensor_shape_text(&p->box.shape, expected_text);
    VT_CHECK(same, "%s: dataset /%s is %s, expected %s", source->path, name, found_text, expected_text);
    VT_TRY(read_common(source, name, dataset, &p->box, wanted, &p->common, values));
done:
    close_dataset(dataset, storage);
    vt_hdf5_leave();
    return status;
}

/* ---- sources ---- */

void vt_tensor_close_source(vt_tensor_source *source)
{
    vt_tensor_file_close(&source->file);
    free(source->name);
    *source = (vt_tensor_source){0};
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

/* Opens the file `name` in the directory of `file`, unless it is open. Closes the one unused for longest if there are
 * too many. */
static vt_status use_source(vt_tensor_file *file, const char *name, vt_tensor_file **result)
{
    vt_status status = VT_OK;
    vt_tensor_file *opened = NULL;
    vt_tensor_source *place = &file->sources[0];
    VT_ASSERT(name != NULL);
    const char *slash = strrchr(file->path, '/');
    char *path = vt_text_format("%.*s%s", slash == NULL ? 0 : (int)(slash + 1 - file->path), file->path, name);
    for (int i = 0; i < VT_TENSOR_OPEN_SOURCES; i++) {
        vt_tensor_source *source = &file->sources[i];
        if (source->name != NULL && strcmp(source->name, name) == 0) {
            place = source;
            goto done;
        }
        if (source->last_use < place->last_use) place = source; /* 0: free */
    }
    VT_TRY(vt_tensor_file_open(path, &opened));
    VT_TRY(check_id(file, opened));
    vt_tensor_close_source(place);
    place->name = vt_text_copy(name);
    place->file = opened;
    opened = NULL;
done:
    if (status == VT_OK) {
        place->last_use = ++file->use_clock;
        *result = place->file;
    }
    vt_tensor_file_close(&opened);
    free(path);
    return status;
}

/* ---- virtual tensors ---- */

typedef struct {
    piece *pieces;
    size_t count;
} piece_list;

static void free_pieces(piece_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->pieces[i].source);
        free(list->pieces[i].name_in_source);
    }
    free(list->pieces);
}

/* The box of the virtual tensor that part `index` fills. */
static vt_status take_box(const vt_tensor_file *file, const char *name, hid_t storage, size_t index,
                          const vt_tensor_shape *shape, vt_tensor_box *box)
{
    vt_status status = VT_OK;
    hsize_t first[VT_TENSOR_DIMENSIONS] = {0}, last[VT_TENSOR_DIMENSIONS] = {0};
    hid_t space = H5Pget_virtual_vspace(storage, index);
    bool sound = space >= 0 && H5Sget_simple_extent_ndims(space) == shape->dimensions &&
                 H5Sget_select_bounds(space, first, last) >= 0;
    *box = (vt_tensor_box){.shape.dimensions = shape->dimensions};
    for (int i = 0; sound && i < shape->dimensions; i++) {
        sound = first[i] <= last[i] && last[i] < (hsize_t)shape->shape[i];
        box->first[i] = (int64_t)first[i];
        box->shape.shape[i] = (int64_t)(last[i] - first[i]) + 1;
    }
    VT_CHECK(sound && H5Sget_select_npoints(space) == vt_tensor_count(&box->shape),
             "%s: dataset /%s is damaged: part %zu is no box of it", file->path, name, index);
done:
    if (space >= 0) H5Sclose(space);
    return status;
}

/* The parts that the wanted box touches. */
static vt_status find_pieces(const vt_tensor_file *file, const char *name, hid_t storage, const vt_tensor_shape *shape,
                             const vt_tensor_box *wanted, piece_list *list)
{
    vt_status status = VT_OK;
    size_t count = 0;
    H5Pget_virtual_count(storage, &count);
    list->pieces = vt_allocate(count + 1, sizeof *list->pieces, "a tensor's parts");
    for (size_t i = 0; i < count; i++) {
        piece *p = &list->pieces[list->count];
        VT_TRY(take_box(file, name, storage, i, shape, &p->box));
        if (!vt_tensor_box_intersect(&p->box, wanted, &p->common)) continue;
        list->count++;
        VT_TRY(take_source_name(file, name, storage, i, &p->source));
        p->name_in_source = part_name(H5Pget_virtual_dsetname, storage, i, 4095);
        VT_CHECK(p->name_in_source != NULL, "%s: dataset /%s is damaged: part %zu has no name", file->path, name, i);
    }
done:
    return status;
}

/* Every wanted element comes from one piece. */
static vt_status check_cover(const vt_tensor_file *file, const char *name, const vt_tensor_box *wanted,
                             const piece_list *list)
{
    vt_status status = VT_OK;
    int64_t covered = 0, count = vt_tensor_count(&wanted->shape);
    vt_tensor_box common;
    for (size_t i = 0; i < list->count; i++) {
        covered += vt_tensor_count(&list->pieces[i].common.shape);
        for (size_t k = 0; k < i; k++)
            VT_CHECK(!vt_tensor_box_intersect(&list->pieces[i].common, &list->pieces[k].common, &common),
                     "%s: dataset /%s is damaged: parts of it overlap, in %s and %s", file->path, name,
                     list->pieces[k].source, list->pieces[i].source);
    }
    VT_CHECK(covered == count, "%s: dataset /%s is not whole: its parts hold %lld of %lld elements", file->path, name,
             (long long)covered, (long long)count);
done:
    return status;
}

static vt_status check_wanted(const vt_tensor_file *file, const char *name, const vt_tensor_shape *shape,
                              const vt_tensor_box *wanted)
{
    vt_status status = VT_OK;
    char shape_text[128], wanted_text[128];
    bool within = wanted->shape.dimensions == shape->dimensions;
    for (int i = 0; within && i < shape->dimensions; i++)
        within = wanted->first[i] >= 0 && wanted->first[i] <= shape->shape[i] - wanted->shape.shape[i];
    vt_tensor_shape_text(shape, shape_text);
    vt_tensor_shape_text(&wanted->shape, wanted_text);
    VT_CHECK(within, "%s: dataset /%s is %s, the box %s that is wanted reaches over its edge", file->path, name,
             shape_text, wanted_text);
done:
    return status;
}

/* Reads what is stored in the file itself; of a virtual tensor, finds the pieces. */
static vt_status read_or_find(const vt_tensor_file *file, const char *name, const vt_tensor_box *wanted, float *values,
                              piece_list *list)
{
    vt_status status = VT_OK;
    vt_tensor_shape shape = {0};
    hid_t dataset, storage;
    vt_hdf5_enter();
    VT_TRY(open_dataset(file, name, &dataset, &storage, &shape));
    VT_TRY(check_wanted(file, name, &shape, wanted));
    if (H5Pget_layout(storage) == H5D_VIRTUAL) {
        VT_TRY(find_pieces(file, name, storage, &shape, wanted, list));
        VT_TRY(check_cover(file, name, wanted, list));
    } else {
        const vt_tensor_box whole = vt_tensor_whole(&shape);
        VT_TRY(read_common(file, name, dataset, &whole, wanted, wanted, values));
    }
done:
    close_dataset(dataset, storage);
    vt_hdf5_leave();
    return status;
}

vt_status vt_tensor_file_read_box(vt_tensor_file *file, const char *name, const vt_tensor_box *box, float *values)
{
    vt_status status = VT_OK;
    piece_list list = {0};
    if (vt_tensor_count(&box->shape) == 0) return VT_OK;
    VT_TRY(read_or_find(file, name, box, values, &list));
    for (size_t i = 0; i < list.count; i++) {
        const piece *p = &list.pieces[i];
        vt_tensor_file *source = NULL;
        VT_TRY(use_source(file, p->source, &source));
        VT_TRY(read_piece(source, p, box, values));
    }
done:
    free_pieces(&list);
    return status;
}

static void visit_stored(const vt_tensor_file *file, const char *name, hid_t dataset, const vt_tensor_shape *shape)
{
    const vt_tensor_box whole = vt_tensor_whole(shape);
    vt_tensor_box one = whole;
    float value;
#if H5_VERSION_GE(1, 10, 5)
    hsize_t chunks = 0;
    hid_t space = H5Dget_space(dataset);
    H5Dget_num_chunks(dataset, space, &chunks); /* goes through the whole index of them */
    H5Sclose(space);
#endif
    for (int last = 0; last < 2; last++) {
        for (int i = 0; i < shape->dimensions; i++) {
            one.shape.shape[i] = 1;
            one.first[i] = last ? shape->shape[i] - 1 : 0;
        }
        if (read_common(file, name, dataset, &whole, &one, &one, &value) != VT_OK) vt_error_clear();
    }
}

void vt_tensor_visit(vt_tensor_file *file, const char *name)
{
    vt_status status = VT_OK;
    vt_tensor_shape shape = {0};
    piece_list list = {0};
    hid_t dataset, storage;
    vt_hdf5_enter();
    VT_TRY(open_dataset(file, name, &dataset, &storage, &shape));
    const vt_tensor_box whole = vt_tensor_whole(&shape);
    if (H5Pget_layout(storage) == H5D_VIRTUAL)
        VT_TRY(find_pieces(file, name, storage, &shape, &whole, &list));
    else
        visit_stored(file, name, dataset, &shape);
done:
    if (status != VT_OK) vt_error_clear();
    close_dataset(dataset, storage);
    free_pieces(&list);
    vt_hdf5_leave();
}

vt_status vt_tensor_file_read(vt_tensor_file *file, const char *name, const vt_tensor_shape *shape, float *values)
{
    vt_status status = VT_OK;
    vt_tensor_shape found = {0};
    VT_TRY(vt_tensor_file_shape(file, name, &found));
    VT_CHECK(vt_tensor_count(&found) == vt_tensor_count(shape), "%s: dataset /%s has %lld elements, expected %lld",
             file->path, name, (long long)vt_tensor_count(&found), (long long)vt_tensor_count(shape));
    const vt_tensor_box whole = vt_tensor_whole(&found);
    VT_TRY(vt_tensor_file_read_box(file, name, &whole, values));
done:
    return status;
}
