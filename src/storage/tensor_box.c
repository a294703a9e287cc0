#include "storage/tensor_box.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/whole.h"

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
        used += (size_t)snprintf(buffer + used, 128 - used, "%s%ld", i > 0 ? ", " : "", shape->shape[i]);
    if (used < 128) snprintf(buffer + used, 128 - used, "]");
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

int vt_tensor_boxes(const vt_tensor_shape *shape, int64_t first_element, int64_t count,
                    vt_tensor_box boxes[VT_TENSOR_BOXES])
{
    int made = 0;
    VT_ASSERT(shape->dimensions > 0 && shape->dimensions <= VT_TENSOR_BOX_DIMENSIONS);
    VT_ASSERT(first_element >= 0 && count >= 0 && first_element + count <= vt_tensor_count(shape));
    for (int64_t next = first_element, end = first_element + count; next < end;) {
        vt_tensor_box *box = &boxes[made++];
        int64_t step = vt_tensor_count(shape), steps = 0;
        *box = (vt_tensor_box){.shape = *shape};
        /* a place in each dimension, up to the first along which whole steps begin here */
        for (int d = 0; steps == 0; d++) {
            const int64_t size = shape->shape[d];
            step /= size; /* its elements */
            box->first[d] = next / step % size;
            if (next % step == 0) steps = vt_smaller((end - next) / step, size - box->first[d]);
            box->shape.shape[d] = steps > 0 ? steps : 1;
        }
        next += steps * step;
    }
    return made;
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
