/* The values that parameters start with. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "model/parameters.h"

/* The standard normal's distribution function. */
static double normal_cumulative(double x)
{
    return 0.5 * erfc(-x * M_SQRT1_2);
}

/* The index in the whole tensor of element `index` of this rank's part. */
static int64_t whole_index(const vt_parameter *parameter, int64_t index)
{
    int64_t result = 0, step = 1;
    for (int d = parameter->dimensions - 1; d >= 0; d--) {
        int64_t coordinate = index % parameter->local[d] + (d == parameter->split ? parameter->first : 0);
        index /= parameter->local[d];
        result += coordinate * step;
        step *= parameter->shape[d];
    }
    return result;
}

/* values [piece->count], in the host's memory: what these elements of a parameter start with. */
static void start(const vt_parameter *parameter, uint64_t seed, const vt_piece *piece, float *values)
{
    const uint64_t key = vt_random_name_key(parameter->name);
    const vt_start kind = parameter->start;
    const double spread = parameter->spread;
    /* the quantile of a uniform number, of a truncated normal between the cuts' probabilities */
    const double low = kind == VT_START_NORMAL ? normal_cumulative(-2 / spread) : 0;
    const double high = kind == VT_START_NORMAL ? normal_cumulative(2 / spread) : 1;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < piece->count; i++) {
        const double uniform = vt_random_element(seed, key, (uint64_t)whole_index(parameter, piece->first + i));
        if (kind == VT_START_VALUE)
            values[i] = (float)spread;
        else if (kind == VT_START_UNIFORM)
            values[i] = (float)(spread * (2 * uniform - 1));
        else
            values[i] = (float)(spread * vt_random_normal_quantile(low + (high - low) * uniform));
    }
}

void vt_parameters_start(vt_parameters *parameters, uint64_t seed, const char *prefix)
{
    vt_backend *backend = parameters->backend;
    for (int64_t i = 0; i < parameters->count; i++) {
        const vt_parameter *parameter = parameters->list[i];
        if (strncmp(parameter->name, prefix, strlen(prefix)) != 0) continue;
        vt_piece piece = vt_parameters_piece(parameters, parameter, VT_BLOCK_VALUES);
        size_t bytes = (size_t)piece.count * sizeof(float);
        float *values = vt_allocate(1, bytes + 1, "the list of parameters");
        start(parameter, seed, &piece, values);
        if (bytes > 0) backend->copy_from_host(backend, parameters->values + piece.offset, values, bytes);
        free(values);
    }
    vt_parameters_refresh(parameters);
}
