/* How the rows of operations.def are read. A row names an operation, says what it has to do, and lists its operands in
 * the order of the parameters:
 *
 *     OPERATION(linear_forward, PRODUCT(y.rows, y.columns, x.columns, matrices),
 *               IN(x), IN(weight), IN_ARRAY(float, bias, y.columns), IN_ARRAY(uint16_t, rounded, y.columns), OUT(y))
 *
 * Operands: a matrix is IN (read), OUT (written) or IN_OUT (both); IN_OUT_IF(matrix, condition) is read, and written
 * where the condition holds. IN_ARRAY, OUT_ARRAY, IN_OUT_ARRAY(type, name, count) are arrays of the back end's memory;
 * they may be NULL where the row's comment says so. MASK(name) is a vt_mask, ATTENTION(name) a vt_attention_shape: the
 * step of their dropout, and what it has drawn, lie in the back end's memory. VALUE(type, name) is everything else.
 *
 * Whoever includes operations.def defines OPERATION(name, work, ...), and may define OPTIONAL_OPERATION for those that
 * a back end may leave NULL. These macros make code of the operands, `...`:
 *
 *     VT_PARAMETERS(...)    , vt_matrix x, vt_matrix weight, const float *bias, const uint16_t *rounded, vt_matrix y
 *     VT_ARGUMENTS(...)     , x, weight, bias, rounded, y
 *     VT_EACH(DO, ...)      DO(IN(x)) DO(IN(weight)) …, in which DO joins a prefix to the operand: `MINE_##operand` */
#ifndef VT_BACKEND_OPERATIONS_H
#define VT_BACKEND_OPERATIONS_H

#define VT_EACH(DO, ...)                                                                                               \
    VT_EACH_COUNT(__VA_ARGS__, VT_EACH_12, VT_EACH_11, VT_EACH_10, VT_EACH_9, VT_EACH_8, VT_EACH_7, VT_EACH_6,         \
                  VT_EACH_5, VT_EACH_4, VT_EACH_3, VT_EACH_2, VT_EACH_1, 0)                                            \
    (DO, __VA_ARGS__)
#define VT_EACH_COUNT(a, b, c, d, e, f, g, h, i, j, k, l, each, ...) each
#define VT_EACH_1(DO, first) DO(first)
#define VT_EACH_2(DO, first, ...) DO(first) VT_EACH_1(DO, __VA_ARGS__)
#define VT_EACH_3(DO, first, ...) DO(first) VT_EACH_2(DO, __VA_ARGS__)
#define VT_EACH_4(DO, first, ...) DO(first) VT_EACH_3(DO, __VA_ARGS__)
#define VT_EACH_5(DO, first, ...) DO(first) VT_EACH_4(DO, __VA_ARGS__)
#define VT_EACH_6(DO, first, ...) DO(first) VT_EACH_5(DO, __VA_ARGS__)
#define VT_EACH_7(DO, first, ...) DO(first) VT_EACH_6(DO, __VA_ARGS__)
#define VT_EACH_8(DO, first, ...) DO(first) VT_EACH_7(DO, __VA_ARGS__)
#define VT_EACH_9(DO, first, ...) DO(first) VT_EACH_8(DO, __VA_ARGS__)
#define VT_EACH_10(DO, first, ...) DO(first) VT_EACH_9(DO, __VA_ARGS__)
#define VT_EACH_11(DO, first, ...) DO(first) VT_EACH_10(DO, __VA_ARGS__)
#define VT_EACH_12(DO, first, ...) DO(first) VT_EACH_11(DO, __VA_ARGS__)

#define VT_PARAMETERS(...) VT_EACH(VT_PARAMETER, __VA_ARGS__)
#define VT_PARAMETER(operand) VT_PARAMETER_##operand
#define VT_PARAMETER_IN(matrix) , vt_matrix matrix
#define VT_PARAMETER_OUT(matrix) , vt_matrix matrix
#define VT_PARAMETER_IN_OUT(matrix) , vt_matrix matrix
#define VT_PARAMETER_IN_OUT_IF(matrix, condition) , vt_matrix matrix
#define VT_PARAMETER_IN_ARRAY(type, array, count) , const type *array
#define VT_PARAMETER_OUT_ARRAY(type, array, count) , type *array
#define VT_PARAMETER_IN_OUT_ARRAY(type, array, count) , type *array
#define VT_PARAMETER_MASK(mask) , const vt_mask *mask
#define VT_PARAMETER_ATTENTION(shape) , const vt_attention_shape *shape
#define VT_PARAMETER_VALUE(type, value) , type value

#define VT_ARGUMENTS(...) VT_EACH(VT_ARGUMENT, __VA_ARGS__)
#define VT_ARGUMENT(operand) VT_ARGUMENT_##operand
#define VT_ARGUMENT_IN(matrix) , matrix
#define VT_ARGUMENT_OUT(matrix) , matrix
#define VT_ARGUMENT_IN_OUT(matrix) , matrix
#define VT_ARGUMENT_IN_OUT_IF(matrix, condition) , matrix
#define VT_ARGUMENT_IN_ARRAY(type, array, count) , array
#define VT_ARGUMENT_OUT_ARRAY(type, array, count) , array
#define VT_ARGUMENT_IN_OUT_ARRAY(type, array, count) , array
#define VT_ARGUMENT_MASK(mask) , mask
#define VT_ARGUMENT_ATTENTION(shape) , shape
#define VT_ARGUMENT_VALUE(type, value) , value

#endif
