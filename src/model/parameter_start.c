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
    uint64_t key = vt_random_name_key(parameter->name);
    /* truncated normal: the quantile of a uniform number between the cuts' probabilities */
    double low = normal_cumulative(-2 / parameter->spread), high = normal_cumulative(2 / parameter->spread);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < piece->count; i++) {
        double uniform = vt_random_element(seed, key, (uint64_t)whole_index(parameter, piece->first + i));
        switch (parameter->start) {
        case VT_START_ZERO:
            values[i] = 0;
            break;
        case VT_START_ONE:
            values[i] = 1;
            break;
        case VT_START_VALUE:
            values[i] = (float)parameter->spread;
            break;
        case VT_START_NORMAL:
            values[i] = (float)(parameter->spread * vt_random_normal_quantile(low + (high - low) * uniform));
            break;
        case VT_START_UNCUT:
            values[i] = (float)(parameter->spread * vt_random_normal_quantile(uniform));
            break;
        case VT_START_UNIFORM:
            values[i] = (float)(parameter->spread * (2 * uniform - 1));
            break;
        }
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
