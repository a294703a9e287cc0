#include "storage/tensor_box.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"

int64_t vt_tensor_count(const vt_tensor_shape *shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape->dimensions; i++) count *= shape->shape[i];
    return count;
}

void vt_tensor_shape_text(const vt_tensor_shape *shape, char buffer[128])
{
    size_t used = (size_t)snprintf(buffer, 128, "[");
    for (int i = 0; i < shape->dimensions && used < 128; i++)
        used += (size_t)snprintf(buffer + used, 128 - used, "%s%lld", i > 0 ? ", " : "", (long long)shape->shape[i]);
    if (used < 128) snprintf(buffer + used, 128 - used, "]");
}

vt_tensor_box vt_tensor_whole(const vt_tensor_shape *shape)
{
    return (vt_tensor_box){.shape = *shape};
}

bool vt_tensor_box_intersect(const vt_tensor_box *a, const vt_tensor_box *b, vt_tensor_box *common)
{
    vt_tensor_box box = {.shape.dimensions = a->shape.dimensions};
    VT_ASSERT(a->shape.dimensions == b->shape.dimensions);
    for (int i = 0; i < a->shape.dimensions; i++) {
        int64_t first = a->first[i] > b->first[i] ? a->first[i] : b->first[i];
        int64_t end_a = a->first[i] + a->shape.shape[i], end_b = b->first[i] + b->shape.shape[i];
        int64_t end = end_a < end_b ? end_a : end_b;
        if (end <= first) return false;
        box.first[i] = first;
        box.shape.shape[i] = end - first;
    }
    *common = box;
    return true;
}

/* Elements begin … end - 1 of the part of the tensor whose first `fixed` coordinates are those of `place`: the rest of
 * a row that was begun, whole rows, the begin of the next row. */
static vt_tensor_box *cut(const vt_tensor_shape *shape, int fixed, vt_tensor_box place, int64_t begin, int64_t end,
                          vt_tensor_box *next)
{
    int64_t row = 1; /* elements of one step along dimension `fixed` */
    for (int i = fixed + 1; i < shape->dimensions; i++) row *= shape->shape[i];
    int64_t first = begin / row, last = end / row;
    place.shape.shape[fixed] = 1;
    if (begin % row != 0) {
        int64_t stop = first == last ? end : (first + 1) * row;
        place.first[fixed] = first;
        next = cut(shape, fixed + 1, place, begin - first * row, stop - first * row, next);
        if (first == last) return next;
        first++;
    }
    if (first < last) {
        *next = place;
        next->first[fixed] = first;
        next->shape.shape[fixed] = last - first;
        for (int i = fixed + 1; i < shape->dimensions; i++) {
            next->first[i] = 0;
            next->shape.shape[i] = shape->shape[i];
        }
        next++;
    }
    if (end % row != 0) {
        place.first[fixed] = last;
        next = cut(shape, fixed + 1, place, 0, end - last * row, next);
    }
    return next;
}

int vt_tensor_boxes(const vt_tensor_shape *shape, int64_t first_element, int64_t count,
                    vt_tensor_box boxes[VT_TENSOR_BOXES])
{
    VT_ASSERT(shape->dimensions > 0 && shape->dimensions <= VT_TENSOR_BOX_DIMENSIONS);
    VT_ASSERT(first_element >= 0 && count >= 0 && first_element + count <= vt_tensor_count(shape));
    if (count == 0) return 0;
    vt_tensor_box place = {.shape.dimensions = shape->dimensions};
    return (int)(cut(shape, 0, place, first_element, first_element + count, boxes) - boxes);
}

void vt_tensor_box_copy(const vt_tensor_shape *whole, const float *values, const vt_tensor_box *box, float *to)
{
    int last = box->shape.dimensions - 1;
    int64_t row = box->shape.shape[last], rows = row > 0 ? vt_tensor_count(&box->shape) / row : 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t rest = r, place = box->first[last], step = whole->shape[last];
        for (int d = last - 1; d >= 0; d--) {
            place += (box->first[d] + rest % box->shape.shape[d]) * step;
            rest /= box->shape.shape[d];
            step *= whole->shape[d];
        }
        memcpy(to + r * row, values + place, (size_t)row * sizeof *to);
    }
}
