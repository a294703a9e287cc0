/* Convolutions over cubes. Many points go by tiles (convolution_values.h). Where the points are so few that reading the
 * weight takes the time, they are gathered into rows in the weight's order, [channel, tap], and a linear layer's
 * products do the rest. */
#include "backend/cpu/vector/convolution_tiles.h"
#include "backend/cpu/vector/few_rows.h"

enum {
    LEAST_POINTS = 1024, /* of y that go by tiles */
    ENOUGH_POINTS = 512  /* gathered at once, in whole cubes */
};

/* Of a cube of y. */
static int64_t points_of(const vt_convolution *shape)
{
    return shape->side * shape->side * shape->side;
}

static bool goes_by_tiles(const vt_convolution *shape)
{
    return shape->side % 2 == 0 && shape->batch * points_of(shape) >= LEAST_POINTS;
}

/* Some cubes as a convolution of their own, and their rows of x, or dx, and of y, or dy. */
typedef struct {
    vt_convolution shape;
    int64_t cubes_before, points;
    vt_matrix x, y;
} portion;

static vt_matrix some_rows(vt_matrix matrix, int64_t first, int64_t rows)
{
    matrix = from_row(matrix, first);
    matrix.rows = rows;
    return matrix;
}

/* The first portion if *p is zero, else the next one; false: that was the last. */
static bool next_portion(const vt_convolution *shape, vt_matrix x, vt_matrix y, portion *p)
{
    const int64_t first = p->cubes_before + p->shape.batch, of_cube = points_of(shape);
    p->cubes_before = first;
    p->shape = *shape;
    p->shape.batch = smaller(pieces(ENOUGH_POINTS, of_cube), shape->batch - first);
    p->points = p->shape.batch * of_cube;
    p->x = some_rows(x, 8 * first * of_cube, 8 * p->points);
    p->y = some_rows(y, first * of_cube, p->points);
    return p->shape.batch > 0;
}

/* What each point of y sees of x, as a row: [points, in * 64]. Without data: no memory. */
static vt_matrix gather(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_type type)
{
    const int64_t columns = TAPS * shape->in, points = shape->batch * points_of(shape);
    void *memory = vt_cpu_stand_in_memory(backend, (size_t)(points * columns) * vt_type_size(type));
    const vt_matrix gathered = {.data = memory, .rows = points, .columns = columns, .stride = columns, .type = type};
    if (memory == NULL) return gathered;
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t point = 0; point < points; point++) {
        for (int64_t c = 0; c < shape->in; c += LANES) {
            const int64_t count = smaller(LANES, shape->in - c);
            int64_t at[4];
            point_place(shape->side, point, at);
            for (int64_t tap = 0; tap < TAPS; tap += LANES) {
                vector square[LANES];
                for (int64_t i = 0; i < LANES; i++) {
                    const int64_t row = row_of_x(shape->side, at, tap + i), index = row * x.stride + c;
                    square[i] = row < 0 ? (vector){0} : load_elements_up_to(&x, index, count);
                }
                transpose(square);
                for (int64_t i = 0; i < count; i++)
                    store_elements(&gathered, point * columns + (c + i) * TAPS + tap, square[i]);
            }
        }
    }
    return gathered;
}

static void convolution_forward(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix weight,
                                vt_matrix y)
{
    if (goes_by_tiles(shape)) {
        VT_KERNEL(vt_tiled_forward)(backend, shape, x, weight, y);
        return;
    }
    for (portion p = {0}; next_portion(shape, x, y, &p);) {
        const vt_matrix rows = gather(backend, &p.shape, p.x, x.type);
        if (rows.data == NULL) return;
        backend->linear_forward(backend, rows, weight, NULL, NULL, p.y);
    }
}

/* dx = the sums of all points' terms [points, in * 64]. A coordinate p gets from q = (p + 1) / 2 at tap p + 1 - 2 q,
 * and from q - 1. */
static void scatter(const vt_convolution *shape, const float *terms, vt_matrix dx)
{
    const int64_t side = 2 * shape->side, columns = TAPS * shape->in;
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < dx.rows; row++) {
        int64_t at[4];
        const float *from[8];
        int count = 0;
        point_place(side, row, at);
        for (int term = 0; term < 8; term++) {
            int64_t point = at[0], tap = 0;
            bool is_inside = true;
            for (int axis = 0; axis < 3; axis++) {
                const int64_t p = at[1 + axis], q = (p + 1) / 2 - (term >> (2 - axis) & 1);
                is_inside = is_inside && q >= 0 && q < shape->side;
                point = point * shape->side + q;
                tap = 4 * tap + p + 1 - 2 * q;
            }
            if (is_inside) from[count++] = terms + point * columns + tap;
        }
        for (int64_t c = 0; c < shape->in; c++) {
            float sum = 0;
            for (int i = 0; i < count; i++) sum += from[i][c * TAPS];
            store_some(&dx, row * dx.stride + c, splat(sum), 1);
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
    for (portion p = {0}; next_portion(shape, dx, dy, &p);) {
        float *terms = vt_cpu_stand_in_memory(backend, (size_t)(p.points * columns) * sizeof *terms);
        if (terms == NULL) return;
        backend->linear_backward_input(backend, p.y, weight, vt_matrix_make(terms, p.points, columns));
        scatter(&p.shape, terms, p.x);
    }
}

static void convolution_backward_weight(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix dy,
                                        float *dweight)
{
    if (goes_by_tiles(shape)) {
        if (shape->stores) backend->zero(backend, dweight, (size_t)(TAPS * shape->in * shape->out) * sizeof *dweight);
        VT_KERNEL(vt_tiled_backward_weight)(backend, shape, x, dy, dweight);
        return;
    }
    for (portion p = {0}; next_portion(shape, x, dy, &p);) {
        const vt_matrix rows = gather(backend, &p.shape, p.x, x.type);
        if (rows.data == NULL) return;
        ((vt_cpu_state *)backend->state)
            ->weight_gradient(backend, rows, p.y, dweight, NULL, shape->stores && p.cubes_before == 0,
                              p.shape.batch == shape->batch ? shape->squares : NULL);
    }
}

static void convolution_update(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix dy,
                               const vt_update *update, const vt_step_state *state, float *weight, uint16_t *rounded,
                               float *moment1, float *moment2)
{
    const vt_matrix rows = gather(backend, shape, x, VT_FLOAT32);
    if (rows.data == NULL) return;
    VT_KERNEL(vt_few_rows_update)(backend, rows, dy, update, state, weight, rounded, moment1, moment2);
}

void VT_KERNEL(vt_vector_convolution_fill)(vt_backend *backend)
{
    backend->convolution_forward = convolution_forward;
    backend->convolution_backward_input = convolution_backward_input;
    backend->convolution_backward_weight = convolution_backward_weight;
    backend->convolution_update = convolution_update;
}
