/* Boxes from HDF5 files to .npy files with the channels last, which dali-lowmem reads. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "source/volumes/box.h"
#include "storage/npy.h"
#include "storage/output_file.h"

vt_status vt_box_convert(const char *from, const char *name, const char *to)
{
    vt_status status = VT_OK;
    vt_box *box = NULL;
    FILE *file = NULL;
    float *layer = NULL, *turned = NULL;
    VT_TRY(vt_box_open(from, name, 1, VT_UNSET_INTEGER, false, &box));
    const vt_array *array = box->array;
    const int64_t n = box->extent, channels = box->channels, plane = n * n;
    int64_t deep = array->layout == VT_LAYOUT_CHUNKED ? array->chunk[1] : 1;
    const int64_t shape[] = {n, n, n, channels};
    layer = vt_allocate((size_t)(channels * deep * plane), sizeof *layer, "a layer of a box");
    turned = vt_allocate((size_t)(channels * plane), sizeof *turned, "a layer of a box");
    VT_TRY(vt_output_open(to, &file));
    vt_npy_write_header(file, shape, 4);
    for (int64_t x = 0; x < n; x += deep) {
        if (deep > n - x) deep = n - x;
        const int64_t start[] = {0, x, 0, 0}, count[] = {channels, deep, n, n};
        status = array->store->kind->read(array, start, count, false, layer);
        if (status != VT_OK) vt_error_context("%s: '%s' can't be read", from, name);
        VT_TRY(status);
        for (int64_t p = 0; p < deep; p++) {
            for (int64_t i = 0; i < plane; i++)
                for (int64_t c = 0; c < channels; c++) turned[i * channels + c] = layer[(c * deep + p) * plane + i];
            VT_CHECK(fwrite(turned, sizeof *turned, (size_t)(channels * plane), file) == (size_t)(channels * plane),
                     "can't write %s: %s", to, strerror(errno));
        }
    }
done:
    if (file != NULL && status == VT_OK) {
        status = vt_output_close(file, to);
    } else if (file != NULL) {
        char *partial = vt_output_partial_path(to);
        fclose(file);
        remove(partial);
        free(partial);
    }
    free(layer);
    free(turned);
    vt_box_close(&box);
    return status;
}
