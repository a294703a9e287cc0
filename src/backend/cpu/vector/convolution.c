/* Convolutions over cubes as products of linear layers: what each point of y sees of x is gathered into a row; for dx,
 * products are such rows, which are scattered and added up. It is done some planes of y at a time, counted through all
 * cubes, so that the rows need little memory.
 *
 * x holds a point's channels together, the weight a channel's taps. So either rows are turned from [tap, channel] to
 * the weight's order, or the weight, or its gradient, is turned once: whichever are fewer. */
#include "backend/cpu/vector/elements.h"

enum {
    TAPS = 64,
    ENOUGH_POINTS = 1024,
    PADDING = 64 /* numbers between rows: in the caches, rows a power of two apart would push each other out */
};

/* at: the cube, and the place in it. */
static void point_place(int64_t side, int64_t row, int64_t at[4])
{
    for (int axis = 3; axis > 0; axis--, row /= side) at[axis] = row % side;
    at[0] = row;
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

/* What a point sees of x, [64, in], to row `point` of `seen`; neighbours in memory together. rows: of x. */
static void gather_point(vt_matrix x, const int64_t rows[TAPS], int64_t in, vt_matrix seen, int64_t point)
{
    const size_t bytes = (size_t)in * vt_type_size(x.type);
    char *to = (char *)from_row(seen, point).data;
    for (int64_t tap = 0, count; tap < TAPS; tap += count, to += (size_t)count * bytes)
        if (rows[tap] < 0) {
            count = 1;
            memset(to, 0, bytes);
        } else {
            for (count = 1; x.stride == in && tap + count < TAPS && rows[tap + count] == rows[tap] + count;) count++;
            memcpy(to, from_row(x, rows[tap]).data, (size_t)count * bytes);
        }
}

/* Row `row` of `from`, which is [height, from.columns / height], turned to row `row` of `to`. type: a constant. */
INLINE void turn_row(vt_type type, vt_matrix from, int64_t height, vt_matrix to, int64_t row, bool adds)
{
    const int64_t width = from.columns / height, begin = row * from.stride;
    from.type = to.type = type;
    for (int64_t y = 0; y < height; y += LANES) {
        for (int64_t x = 0; x < width; x += LANES) {
            const int64_t tall = smaller(LANES, height - y), wide = smaller(LANES, width - x);
            vector square[LANES];
            for (int64_t i = 0; i < LANES; i++)
                square[i] = i < tall ? load_elements_up_to(&from, begin + (y + i) * width + x, wide) : (vector){0};
            transpose(square);
            for (int64_t i = 0; i < wide; i++) {
                const int64_t at = row * to.stride + (x + i) * height + y;
                if (adds) square[i] += load_elements_up_to(&to, at, tall);
                store_elements_up_to(&to, at, square[i], tall);
            }
        }
    }
}

/* to = (adds: plus) each row of `from`, [height, columns / height], turned; both of one type. */
static void turn_rows(vt_matrix from, int64_t height, vt_matrix to, bool adds)
{
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < from.rows; row++) FOR_EACH_TYPE(from.type, turn_row, from, height, to, row, adds);
}

/* Memory of a call. */
typedef struct {
    bool turns_weight;
    int64_t points;   /* of y at once: whole planes */
    vt_matrix rows;   /* [points, 64 * in], in x's order */
    vt_matrix turned; /* in the other order: the rows, or the weight [out, 64 * in] */
} turning;

static size_t bytes_of(const vt_matrix *matrix)
{
    return (size_t)(matrix->rows * matrix->stride) * vt_type_size(matrix->type);
}

/* before: rows in front of `rows`. False: there is no memory. */
static bool open_turning(vt_backend *backend, const vt_convolution *shape, int64_t before, vt_type of_rows,
                         vt_type of_weight, turning *t)
{
    const int64_t columns = TAPS * shape->in, plane = shape->side * shape->side, planes = shape->batch * shape->side;
    const vt_matrix none = vt_matrix_make(NULL, 0, columns);
    *t = (turning){.turns_weight = planes * plane > shape->out, .rows = none, .turned = none};
    t->points = smaller(pieces(ENOUGH_POINTS, plane), planes) * plane;
    t->rows.rows = before + t->points;
    t->rows.type = of_rows;
    t->rows.stride += PADDING;
    t->turned.rows = t->turns_weight ? shape->out : t->points;
    t->turned.type = t->turns_weight ? of_weight : of_rows;
    t->turned.stride += t->turns_weight ? 0 : PADDING;
    char *memory = vt_cpu_stand_in_memory(backend, bytes_of(&t->rows) + bytes_of(&t->turned));
    if (memory == NULL) return false;
    t->rows.data = (float *)(void *)memory;
    t->turned.data = (float *)(void *)(memory + bytes_of(&t->rows));
    t->rows = from_row(t->rows, before);
    return true;
}

/* What points first … of y see of x, in the order that the product takes. */
static vt_matrix gather(const turning *t, const vt_convolution *shape, vt_matrix x, int64_t first, int64_t points)
{
    const vt_matrix seen = vt_matrix_rows(t->rows, 0, points), turned = vt_matrix_rows(t->turned, 0, points);
#pragma omp parallel for schedule(static)
    for (int64_t point = 0; point < points; point++) {
        int64_t at[4], rows[TAPS]; /* rows of x */
        point_place(shape->side, first + point, at);
        for (int64_t tap = 0; tap < TAPS; tap++) rows[tap] = row_of_x(shape->side, at, tap);
        gather_point(x, rows, shape->in, seen, point);
    }
    if (t->turns_weight) return seen;
    turn_rows(seen, TAPS, turned, false);
    return turned;
}

void VT_VECTOR(convolution_forward)(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix weight,
                                    vt_matrix y)
{
    turning t;
    if (!open_turning(backend, shape, 0, x.type, weight.type, &t)) return;
    if (t.turns_weight) turn_rows(weight, shape->in, t.turned, false);
    for (int64_t first = 0, points; first < y.rows; first += points) {
        points = smaller(t.points, y.rows - first);
        backend->linear_forward(backend, gather(&t, shape, x, first, points), t.turns_weight ? t.turned : weight, NULL,
                                NULL, vt_matrix_rows(y, first, points));
    }
}

void VT_VECTOR(convolution_backward_weight)(vt_backend *backend, const vt_convolution *shape, vt_matrix x, vt_matrix dy,
                                            float *dweight)
{
    turning t;
    if (!open_turning(backend, shape, 0, x.type, VT_FLOAT32, &t)) return;
    float *const sums = t.turns_weight ? t.turned.data : dweight;
    if (t.turns_weight) backend->zero(backend, sums, bytes_of(&t.turned));
    for (int64_t first = 0, points; first < dy.rows; first += points) {
        points = smaller(t.points, dy.rows - first);
        backend->linear_backward_weight(backend, gather(&t, shape, x, first, points), vt_matrix_rows(dy, first, points),
                                        sums, NULL);
    }
    if (t.turns_weight) turn_rows(t.turned, TAPS, vt_matrix_make(dweight, shape->out, t.turned.columns), true);
}

/* Lines of points first … end - 1 of dx = the sums of their terms. terms: those of the points of y from point `begin`
 * on, [64, in] each. A coordinate p gets from q = (p + 1) / 2 at tap p + 1 - 2 q, and from q - 1. */
static void scatter(const vt_convolution *shape, vt_matrix terms, int64_t begin, vt_matrix dx, int64_t first,
                    int64_t end)
{
    const int64_t side = shape->side, in = shape->in;
#pragma omp parallel for schedule(static)
    for (int64_t line = first; line < end; line++) {
        const int64_t z = line / (2 * side) % (2 * side), y = line % (2 * side), cube = line / (4 * side * side);
        const float *lines[4]; /* of terms: of q = 0 on the last axis, at tap 0 of it */
        int count = 0;
        for (int64_t qz = (z + 1) / 2 - 1; qz <= (z + 1) / 2; qz++)
            for (int64_t qy = (y + 1) / 2 - 1; qy <= (y + 1) / 2; qy++)
                if (qz >= 0 && qz < side && qy >= 0 && qy < side)
                    lines[count++] = terms.data + (((cube * side + qz) * side + qy) * side - begin) * terms.stride +
                                     (16 * (z + 1 - 2 * qz) + 4 * (y + 1 - 2 * qy)) * in;
        for (int64_t p = 0; p < 2 * side; p++) {
            const int64_t low = p == 0 ? 0 : (p + 1) / 2 - 1, high = smaller((p + 1) / 2, side - 1);
            for (int64_t c = 0; c < in; c += LANES) {
                const int64_t channels = smaller(LANES, in - c);
                vector sum = {0};
                for (int i = 0; i < count; i++)
                    for (int64_t q = low; q <= high; q++)
                        sum += load_up_to(lines[i] + q * terms.stride + (p + 1 - 2 * q) * in + c, channels);
                store_elements_up_to(&dx, (line * 2 * side + p) * dx.stride + c, sum, channels);
            }
        }
    }
}

/* Before the terms lies the last plane of those before, because two planes of y have a part in most planes of dx. */
void VT_VECTOR(convolution_backward_input)(vt_backend *backend, const vt_convolution *shape, vt_matrix dy,
                                           vt_matrix weight, vt_matrix dx)
{
    const int64_t plane = shape->side * shape->side, planes = shape->batch * shape->side;
    turning t;
    if (!open_turning(backend, shape, plane, VT_FLOAT32, weight.type, &t)) return;
    if (t.turns_weight) turn_rows(weight, shape->in, t.turned, false);
    vt_matrix before = from_row(t.rows, -plane), last = before;
    for (int64_t begin = 0, end, lines = 0; begin < planes; begin = end) {
        end = smaller(begin + t.points / plane, planes);
        const int64_t points = (end - begin) * plane;
        const vt_matrix terms = vt_matrix_rows(t.rows, 0, points),
                        made = t.turns_weight ? terms : vt_matrix_rows(t.turned, 0, points);
        memmove(before.data, last.data, (size_t)(plane * terms.stride) * sizeof(float));
        last = from_row(before, points);
        backend->linear_backward_input(backend, vt_matrix_rows(dy, begin * plane, points),
                                       t.turns_weight ? t.turned : weight, made);
        if (!t.turns_weight) turn_rows(made, shape->in, terms, false);
        /* a plane of dx whose second plane of y is still to come waits; none does at the end of a cube */
        const int64_t complete = 2 * shape->side * (end % shape->side == 0 ? 2 * end : 2 * end - 1);
        scatter(shape, before, (begin - 1) * plane, dx, lines, complete);
        lines = complete;
    }
}
