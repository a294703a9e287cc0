/* Shapes of tensors, and boxes of them: the parts that ranks hold. */
#ifndef VT_STORAGE_TENSOR_BOX_H
#define VT_STORAGE_TENSOR_BOX_H

#include <stdbool.h>
#include <stdint.h>

enum { VT_TENSOR_DIMENSIONS = 8 };

typedef struct {
    int dimensions;
    int64_t shape[VT_TENSOR_DIMENSIONS];
} vt_tensor_shape;

int64_t vt_tensor_count(const vt_tensor_shape *shape);                     /* elements */
void vt_tensor_shape_text(const vt_tensor_shape *shape, char buffer[128]); /* "[16, 3, 4, 4]" */

/* Elements first[d] … first[d] + shape.shape[d] - 1 along each dimension. */
typedef struct {
    int64_t first[VT_TENSOR_DIMENSIONS];
    vt_tensor_shape shape;
} vt_tensor_box;

/* What two boxes of one tensor have in common; false, and nothing in *common, when that is nothing. */
bool vt_tensor_box_intersect(const vt_tensor_box *a, const vt_tensor_box *b, vt_tensor_box *common);

/* Cuts the elements first_element … first_element + count - 1 of a tensor of 1 to 5 dimensions, in the order in which
 * they lie in memory (the last dimension fastest), into boxes; returns how many: 0 for no elements, at most 9. The
 * boxes are in that order, too: the values of each follow those of the one before in the range. */
enum { VT_TENSOR_BOX_DIMENSIONS = 5, VT_TENSOR_BOXES = 2 * VT_TENSOR_BOX_DIMENSIONS - 1 };
int vt_tensor_boxes(const vt_tensor_shape *shape, int64_t first_element, int64_t count,
                    vt_tensor_box boxes[VT_TENSOR_BOXES]);

/* The values of a box out of the whole tensor's. */
void vt_tensor_box_copy(const vt_tensor_shape *whole, const float *values, const vt_tensor_box *box, float *to);

#endif
