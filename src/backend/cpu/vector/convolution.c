/* Convolutions over cubes. Many points go by tiles (convolution_values.h). Where the points are so few that reading the
 * weight takes the time, they are gathered into rows in the weight's order, [channel, tap], and the products are a
 * linear layer's, which read the weight as it lies. */
#include "backend/cpu/vector/convolution_tiles.h"
#include "backend/cpu/vector/elements.h"

enum {
    TAPS = 64,
    LEAST_POINTS = 256, /* of y that go by tiles: these take 3.4 times the weight's memory */
    MOST_POINTS = 256   /* gathered at once */
};

static bool goes_by_tiles(const vt_convolution *shape)
{
    return shape->side % 2 == 0 && shape->batch * shape->side * shape->side * shape->side >= LEAST_POINTS;
}

static int64_t points_of(const vt_convolution *shape)
{
    return shape->batch * shape->side * shape->side * shape->side;
}

/* A coordinate q of y meets p of x at tap p + 1 - 2 q. at: of y; the row of x at a tap, -1: padding. */
static int64_t row_of_x(int64_t side, const int64_t at[4], int64_t tap)
{
    int64_t row = at[0];
    for (int axis = 0; axis < 3; axis++) {
        const int64_t p = 2 * at[1 + axis] - 1 + (tap >> (4 - 2 * axis) & 3);
        if (p < 0 || p >= 2 * side) return -1;
        row = row * 2 * side + p;
    }
    return row;
}

static void place_of(int64_t side, int64_t row, int64_t at[4])
{
    for (int axis = 3; axis > 0; axis--, row /= side) at[axis] = row % side;
    at[0] = row;
}

/* Points first … of y as rows [points, in * 64] of what they see of x. NULL: no memory. */
static float *gather(vt_backend *backend, const vt_convolution *shape, vt_matrix x, int64_t first, int64_t points)
{
    const int64_t columns = TAPS * shape->in;
    float *rows = vt_cpu_stand_in_memory(backend, (size_t)(points * columns) * sizeof *rows);
    if (rows == NULL) return NULL;
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t point = 0; point < points; point++) {
        for (int64_t c = 0; c < shape->in; c += LANES) {
            const int64_t count = smaller(LANES, shape->in - c);
            int64_t at[4];
            place_of(shape->side, first + point, at);
            for (int64_t tap = 0; tap < TAPS; tap += LANES) {
                vector square[LANES];
                for (int64_t i = 0; i < LANES; i++) {
                    const int64_t row = row_of_x(shape->side, at, tap + i), index = row * x.stride + c;
                    if (row < 0)
                        square[i] = (vector){0};
                    else
                        square[i] = count == LANES ? load_elements(&x, index) : load_some(&x, index, count);
                }
                transpose(square);
                for (int64_t i = 0; i < count; i++) store(rows + point * columns + (c + i) * TAPS + tap, square[i]);
            }
        }
    }
    return rows;
}

/* Points first … of y as a matrix of their own. */
static vt_matrix some_rows(vt_matrix matrix, int64_t first, int64_t rows)
{
    matrix = from_row(matrix, first);
    matrix.rows = rows;
    return matrix;
}

static void convolution_forward(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix weight,
                                vt_matrix y)
{
    if (goes_by_tiles(shape)) {
        VT_KERNEL(vt_tiled_forward)(backend, shape, x, weight, y);
        return;
    }
    for (int64_t first = 0; first < points_of(shape); first += MOST_POINTS) {
        const int64_t points = smaller(MOST_POINTS, points_of(shape) - first);
        float *rows = gather(backend, shape, x, first, points);
        if (rows == NULL) return;
        backend->linear_forward(backend, vt_matrix_make(rows, points, TAPS * shape->in), weight, NULL,
                                some_rows(y, first, points));
    }
}

/* dx (+)= what points first … of y give, whose terms are [points, in * 64]. A coordinate p gets from q = (p + 1) / 2 at
 * tap p + 1 - 2 q, and from q - 1. */
static void scatter(const vt_convolution *shape, const float *terms, int64_t first, int64_t points, vt_matrix dx)
{
    const int64_t side = 2 * shape->side, columns = TAPS * shape->in;
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < shape->batch * side * side * side; row++) {
        int64_t at[4];
        const float *from[8];
        int count = 0;
        place_of(side, row, at);
        for (int term = 0; term < 8; term++) {
            int64_t point = at[0], tap = 0;
            bool is_inside = true;
            for (int axis = 0; axis < 3; axis++) {
                const int64_t p = at[1 + axis], q = (p + 1) / 2 - (term >> (2 - axis) & 1);
                is_inside = is_inside && q >= 0 && q < shape->side;
                point = point * shape->side + q;
                tap = 4 * tap + p + 1 - 2 * q;
            }
            if (is_inside && point >= first && point < first + points)
                from[count++] = terms + (point - first) * columns + tap;
        }
        for (int64_t c = 0; c < shape->in; c++) {
            float sum = 0;
            for (int i = 0; i < count; i++) sum += from[i][c * TAPS];
            const int64_t to = row * dx.stride + c;
            if (first > 0) sum += load_some(&dx, to, 1)[0];
            store_some(&dx, to, splat(sum), 1);
        }
    }
}

static void convolution_backward_input(vt_backend *backend, const vt_convolution *shape, vt_matrix dy, vt_matrix weight,
                                       vt_matrix dx)
{
    const int64_t columns = TAPS * shape->in;
    if (goes_by_tiles(shape)) {
        VT_KERNEL(vt_tiled_backward_input)(backend, shape, dy, weight, dx);
        return;
    }
    for (int64_t first = 0; first < points_of(shape); first += MOST_POINTS) {
        const int64_t points = smaller(MOST_POINTS, points_of(shape) - first);
        float *terms = vt_cpu_stand_in_memory(backend, (size_t)(points * columns) * sizeof *terms);
        if (terms == NULL) return;
        backend->linear_backward_input(backend, some_rows(dy, first, points), weight,
                                       vt_matrix_make(terms, points, columns));
        scatter(shape, terms, first, points, dx);
    }
}

static void convolution_backward_weight(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix dy,
                                        float *dweight)
{
    if (goes_by_tiles(shape)) {
        VT_KERNEL(vt_tiled_backward_weight)(backend, shape, x, dy, dweight);
        return;
    }
    for (int64_t first = 0; first < points_of(shape); first += MOST_POINTS) {
        const int64_t points = smaller(MOST_POINTS, points_of(shape) - first);
        float *rows = gather(backend, shape, x, first, points);
        if (rows == NULL) return;
        backend->linear_backward_weight(backend, vt_matrix_make(rows, points, TAPS * shape->in),
                                        some_rows(dy, first, points), dweight, NULL);
    }
}

void VT_KERNEL(vt_vector_convolution_fill)(vt_backend *backend)
{
    backend->convolution_forward = convolution_forward;
    backend->convolution_backward_input = convolution_backward_input;
    backend->convolution_backward_weight = convolution_backward_weight;
}
