/* The words of the second column of operations.def, which initialises a vt_operation_work from the operation's
 * parameters:
 *
 *     VT_MATRICES(...);
 *     const vt_operation_work own = {work};
 *
 * The column is made of these words:
 *
 *     PRODUCT(rows, columns, depth, bytes)   a matrix product: the size of its result, the length of its sums, the
 *                                            bytes of operands and result
 *
 *     ATTENDS(products, shape, bytes)        that many products of queries × keys × head_dim, for all heads of all
 *                                            samples; the bytes of operands and result
 *
 *     MOVES(kind, bytes)                     reads and writes memory, and computes next to nothing
 *
 *     STARTS                                 does next to nothing
 *
 * and of `matrices`, which VT_MATRICES declares: the bytes of all matrices among the operands, twice those of matrices
 * that are read and written. */
#ifndef VT_BACKEND_OPERATION_WORK_H
#define VT_BACKEND_OPERATION_WORK_H

#include "backend/work.h"

#define PRODUCT(rows_, columns_, depth_, bytes_)                                                                       \
    .is_product = true, .rows = rows_, .columns = columns_, .depth = depth_, .product_bytes = bytes_,
#define ATTENDS(products, shape, bytes_)                                                                               \
    .product_bytes = bytes_,                                                                                           \
    .attention_flops = 2.0 * (products) * (double)(shape->batch * shape->heads) * (double)shape->queries *             \
                       (double)shape->keys * (double)shape->head_dim,
#define MOVES(kind_, bytes_) .kind = VT_WORK_##kind_, .moved = bytes_,
#define STARTS .is_product = false,

#define VT_MATRICES(...) __attribute__((unused)) const double matrices = VT_EACH(VT_BYTES, __VA_ARGS__) 0
#define VT_BYTES(operand) VT_BYTES_##operand
#define VT_BYTES_IN(matrix) vt_matrix_bytes(matrix) +
#define VT_BYTES_OUT(matrix) vt_matrix_bytes(matrix) +
#define VT_BYTES_IN_OUT(matrix) 2 * vt_matrix_bytes(matrix) +
#define VT_BYTES_IN_OUT_IF(matrix, condition) ((condition) ? 2 : 1) * vt_matrix_bytes(matrix) +
#define VT_BYTES_IN_ARRAY(type, array, count)
#define VT_BYTES_OUT_ARRAY(type, array, count)
#define VT_BYTES_IN_OUT_ARRAY(type, array, count)
#define VT_BYTES_MASK(mask)
#define VT_BYTES_ATTENTION(shape)
#define VT_BYTES_VALUE(type, value)

#endif
