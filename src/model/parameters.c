#include "model/parameters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

struct vt_parameters {
    vt_backend *backend;
    vt_parameter **list; /* each allocated by itself, so that layers may keep pointers */
    int64_t count;
    int64_t elements;
    float *values;
    float *gradients;
    uint16_t *halves; /* or NULL */
};

vt_status vt_parameters_open(vt_backend *backend, vt_parameters **parameters)
{
    *parameters = calloc(1, sizeof **parameters);
    VT_ASSERT(*parameters != NULL);
    (*parameters)->backend = backend;
    return VT_OK;
}

void vt_parameters_close(vt_parameters **parameters)
{
    vt_parameters *p = *parameters;
    if (p == NULL) return;
    p->backend->release(p->backend, p->values);
    p->backend->release(p->backend, p->gradients);
    p->backend->release(p->backend, p->halves);
    for (int64_t i = 0; i < p->count; i++) free(p->list[i]);
    free(p->list);
    free(p);
    *parameters = NULL;
}

vt_parameter *vt_parameters_add(vt_parameters *parameters, const char *prefix, const char *name, int dimensions,
                                const int64_t *shape, vt_start start, double spread)
{
    VT_ASSERT(parameters->values == NULL && dimensions <= VT_PARAMETER_DIMENSIONS);
    vt_parameter *parameter = calloc(1, sizeof *parameter);
    vt_parameter **list = realloc(parameters->list, (size_t)(parameters->count + 1) * sizeof *list);
    VT_ASSERT(parameter != NULL && list != NULL);
    snprintf(parameter->name, sizeof parameter->name, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", name);
    parameter->dimensions = dimensions;
    parameter->start = start;
    parameter->spread = spread;
    parameter->count = 1;
    for (int i = 0; i < dimensions; i++) {
        parameter->shape[i] = shape[i];
        parameter->count *= shape[i];
    }
    parameter->offset = parameters->elements;
    parameters->elements += parameter->count;
    parameters->list = list;
    list[parameters->count++] = parameter;
    return parameter;
}

vt_status vt_parameters_allocate(vt_parameters *parameters, vt_type type)
{
    vt_status status = VT_OK;
    vt_backend *backend = parameters->backend;
    size_t bytes = (size_t)parameters->elements * sizeof(float);
    void *values = NULL, *gradients = NULL, *halves = NULL;
    VT_TRY(backend->allocate(backend, VT_MEMORY_PARAMETERS, bytes, &values));
    parameters->values = values;
    VT_TRY(backend->allocate(backend, VT_MEMORY_GRADIENTS, bytes, &gradients));
    parameters->gradients = gradients;
    if (type == VT_BFLOAT16) {
        VT_TRY(backend->allocate(backend, VT_MEMORY_PARAMETERS, bytes / 2, &halves));
        parameters->halves = halves;
    }
    for (int64_t i = 0; i < parameters->count; i++) {
        vt_parameter *parameter = parameters->list[i];
        parameter->value = parameters->values + parameter->offset;
        parameter->gradient = parameters->gradients + parameter->offset;
        if (type == VT_BFLOAT16) parameter->half = parameters->halves + parameter->offset;
    }
done:
    return status;
}

/* The standard normal's distribution function. */
static double normal_cumulative(double x)
{
    return 0.5 * erfc(-x * M_SQRT1_2);
}

static void start_values(const vt_parameter *parameter, uint64_t seed, float *values)
{
    uint64_t key = vt_random_name_key(parameter->name);
    /* truncated normal: the quantile of a uniform number between the cuts' probabilities */
    double low = normal_cumulative(-2 / parameter->spread), high = normal_cumulative(2 / parameter->spread);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < parameter->count; i++) {
        double uniform = vt_random_element(seed, key, (uint64_t)i);
        switch (parameter->start) {
        case VT_START_ZERO:
            values[i] = 0;
            break;
        case VT_START_ONE:
            values[i] = 1;
            break;
        case VT_START_NORMAL:
            values[i] = (float)(parameter->spread * vt_random_normal_quantile(low + (high - low) * uniform));
            break;
        case VT_START_UNIFORM:
            values[i] = (float)(parameter->spread * (2 * uniform - 1));
            break;
        }
    }
}

void vt_parameters_start(vt_parameters *parameters, uint64_t seed)
{
    vt_backend *backend = parameters->backend;
    for (int64_t i = 0; i < parameters->count; i++) {
        const vt_parameter *parameter = parameters->list[i];
        size_t bytes = (size_t)parameter->count * sizeof(float);
        float *values = malloc(bytes);
        VT_ASSERT(values != NULL);
        start_values(parameter, seed, values);
        backend->copy_from_host(backend, parameter->value, values, bytes);
        free(values);
    }
    vt_parameters_refresh(parameters);
}

void vt_parameters_refresh(vt_parameters *parameters)
{
    if (parameters->halves == NULL) return;
    enum { COLUMNS = 1024 }; /* rows are what threads share */
    vt_backend *backend = parameters->backend;
    int64_t rows = parameters->elements / COLUMNS, rest = parameters->elements % COLUMNS;
    vt_matrix from = vt_matrix_make(parameters->values, rows, COLUMNS), to = from;
    to.half = parameters->halves;
    to.type = VT_BFLOAT16;
    backend->convert(backend, from, to);
    from = vt_matrix_make(parameters->values + rows * COLUMNS, 1, rest);
    to = from;
    to.half = parameters->halves + rows * COLUMNS;
    to.type = VT_BFLOAT16;
    backend->convert(backend, from, to);
    backend->weights_changed(backend);
}

vt_matrix vt_parameter_matrix(const vt_parameter *parameter)
{
    vt_matrix matrix = vt_matrix_make(parameter->value, 1, parameter->count);
    if (parameter->half == NULL) return matrix;
    matrix.half = parameter->half;
    matrix.type = VT_BFLOAT16;
    return matrix;
}

int64_t vt_parameters_count(const vt_parameters *parameters)
{
    return parameters->count;
}

vt_parameter *vt_parameters_at(const vt_parameters *parameters, int64_t index)
{
    VT_ASSERT(index >= 0 && index < parameters->count);
    return parameters->list[index];
}

int64_t vt_parameters_element_count(const vt_parameters *parameters)
{
    return parameters->elements;
}

float *vt_parameters_values(const vt_parameters *parameters)
{
    return parameters->values;
}

float *vt_parameters_gradients(const vt_parameters *parameters)
{
    return parameters->gradients;
}

vt_parameter *vt_parameters_find(const vt_parameters *parameters, const char *name)
{
    for (int64_t i = 0; i < parameters->count; i++)
        if (strcmp(parameters->list[i]->name, name) == 0) return parameters->list[i];
    return NULL;
}
