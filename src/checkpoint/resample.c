/* Position embeddings of another grid of tokens. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "checkpoint/inside.h"

/* Keys's cubic convolution with a = -1/2. */
static double kernel(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/* weights [old] of the places along a side that place `index` of the new side is made of; returns which. Where the side
 * gets shorter the kernel is as much wider; at the ends it is cut off, and its weights are those of the rest. */
static vt_span side_weights(int64_t old, int64_t new, int64_t index, double *weights)
{
    const double scale = (double)old / (double)new, wide = fmax(scale, 1), center = scale *((double)index + 0.5);
    const double begin = fmax(center - 2 * wide + 0.5, 0), end = fmin(center + 2 * wide + 0.5, (double)old);
    const vt_span places = {(int64_t)begin, (int64_t)end - (int64_t)begin};
    double sum = 0;
    for (int64_t j = 0; j < places.count; j++)
        sum += weights[j] = kernel(((double)(places.first + j) - center + 0.5) / wide);
    for (int64_t j = 0; j < places.count; j++) weights[j] /= sum;
    return places;
}

/* to [rows, new, columns] from [rows, old, columns] */
static void resample_side(const float *from, int64_t rows, int64_t old, int64_t columns, int64_t new, float *to)
{
    double *weights = vt_allocate((size_t)old + 1, sizeof *weights, "a position embedding");
    for (int64_t i = 0; i < new; i++) {
        const vt_span places = side_weights(old, new, i, weights);
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t c = 0; c < columns; c++) {
                double sum = 0;
                for (int64_t j = 0; j < places.count; j++)
                    sum += weights[j] * (double)from[(r * old + places.first + j) * columns + c];
                to[(r * new + i) * columns + c] = (float)sum;
            }
        }
    }
    free(weights);
}

void vt_positions_resample(const float *from, const int64_t old[2], int64_t dim, const int64_t new[2], float *to)
{
    float *wide = vt_allocate((size_t)(old[0] * new[1] * dim) + 1, sizeof *wide, "a position embedding");
    resample_side(from, old[0], old[1], dim, new[1], wide);
    resample_side(wide, 1, old[0], new[1] * dim, new[0], to);
    free(wide);
}
