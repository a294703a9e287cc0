#include "model/parameters.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/whole.h"

/* Parameters and buckets begin at multiples of this many elements: 64 bytes, as vector loads like it. */
enum { ALIGNMENT = 16 };

vt_status vt_parameters_open(vt_backend *backend, const vt_parallel *parallel, vt_parameters **parameters)
{
    *parameters = vt_allocate(1, sizeof **parameters, "the list of parameters");
    (*parameters)->backend = backend;
    (*parameters)->parallel = parallel;
    (*parameters)->units.count = (*parameters)->unit_count = 1;
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
    free(p->stored);
    free(p->buckets);
    free(p);
    *parameters = NULL;
}

/* ---- registering ---- */

static void count_elements(vt_parameter *parameter)
{
    parameter->count = 1;
    for (int i = 0; i < parameter->dimensions; i++) parameter->count *= parameter->local[i];
}

vt_parameter *vt_parameters_add(vt_parameters *parameters, const char *prefix, const char *name, int dimensions,
                                const int64_t *shape, vt_start start, double spread)
{
    VT_ASSERT(parameters->values == NULL && dimensions <= VT_PARAMETER_DIMENSIONS);
    vt_parameter *parameter = vt_allocate(1, sizeof *parameter, "the list of parameters");
    snprintf(parameter->name, sizeof parameter->name, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", name);
    parameter->index = parameters->count;
    parameter->dimensions = dimensions;
    parameter->split = -1;
    parameter->sum_axes = parameters->parallel->token_axes;
    parameter->unit = parameters->unit_count - 1;
    parameter->start = start;
    parameter->spread = spread;
    for (int i = 0; i < dimensions; i++) parameter->shape[i] = parameter->local[i] = shape[i];
    count_elements(parameter);
    parameter->whole_count = parameter->count;
    parameters->whole_count += parameter->count;
    parameters->list =
        vt_grow(parameters->list, (size_t)parameters->count, sizeof(vt_parameter *), "the list of parameters");
    parameters->list[parameters->count++] = parameter;
    return parameter;
}

void vt_parameter_split(vt_parameter *parameter, int dimension, unsigned axes, vt_span part)
{
    VT_ASSERT(dimension < parameter->dimensions && part.first + part.count <= parameter->shape[dimension]);
    parameter->split = dimension;
    parameter->split_axes = axes;
    parameter->sum_axes &= ~axes;
    parameter->first = part.first;
    parameter->local[dimension] = part.count;
    count_elements(parameter);
}

void vt_parameters_next_unit(vt_parameters *parameters)
{
    parameters->units.count = ++parameters->unit_count;
}

void vt_parameters_keep_units(vt_parameters *parameters, vt_span units)
{
    VT_ASSERT(parameters->values == NULL);
    parameters->units = units;
    for (int64_t i = 0; i < parameters->count; i++) {
        vt_parameter *parameter = parameters->list[i];
        if (parameter->unit >= units.first && parameter->unit < units.first + units.count) continue;
        parameter->local[0] = parameter->count = 0;
    }
}

/* ---- laying out ---- */

static bool same_class(const vt_parameter *a, const vt_parameter *b)
{
    return a->frozen == b->frozen && a->split_axes == b->split_axes && a->sum_axes == b->sum_axes;
}

/* Parameters that are reduced over the same ranks lie together, else in the order of registration; frozen ones last. */
static void order_parameters(vt_parameters *parameters)
{
    parameters->stored =
        vt_allocate((size_t)parameters->count + 1, sizeof *parameters->stored, "the list of parameters");
    bool *taken = vt_allocate((size_t)parameters->count + 1, sizeof *taken, "the list of parameters");
    for (int64_t turn = 0; turn < 2 * parameters->count; turn++) {
        const int64_t i = turn % parameters->count;
        if (taken[i] || parameters->list[i]->count == 0) continue;
        if (parameters->list[i]->frozen && turn < parameters->count) continue;
        for (int64_t j = i; j < parameters->count; j++) {
            const vt_parameter *next = parameters->list[j];
            if (taken[j] || next->count == 0 || !same_class(parameters->list[i], next)) continue;
            taken[j] = true;
            parameters->stored[parameters->stored_count++] = parameters->list[j];
        }
    }
    free(taken);
}

/* Does a bucket have to begin with parameter `index`? Buckets fill from the end, as backward goes: `bytes` are those
 * of the parameters behind it that would share its bucket, itself included. */
static bool begins_bucket(const vt_parameters *parameters, int64_t index, double bytes)
{
    const vt_parameter *parameter = parameters->stored[index];
    if (index == 0) return true;
    const vt_parameter *before = parameters->stored[index - 1];
    if (!same_class(parameter, before)) return true;
    if (parameter->joined) return false;
    if (parameters->storage.zero_stage >= 2) return parameter->unit != before->unit;
    return bytes >= parameters->storage.bucket_bytes;
}

static void cut_buckets(vt_parameters *parameters)
{
    bool *begins = vt_allocate((size_t)parameters->count + 1, sizeof *begins, "the list of parameters");
    parameters->buckets =
        vt_allocate((size_t)parameters->count + 1, sizeof *parameters->buckets, "the list of parameters");
    const int64_t grain = parameters->storage.grain, multiple = grain > ALIGNMENT ? grain : ALIGNMENT;
    const int64_t whole = multiple * parameters->storage.shards; /* what buckets are multiples of */
    double bytes = 0, elements = 0;                              /* of the bucket so far */
    for (int64_t i = parameters->stored_count - 1; i >= 0; i--) {
        bytes += (double)parameters->stored[i]->count * sizeof(float);
        begins[i] = begins_bucket(parameters, i, bytes);
        if (begins[i]) bytes = 0;
    }
    int64_t offset = 0;
    vt_bucket *bucket = NULL;
    for (int64_t i = 0; i < parameters->stored_count; i++) {
        vt_parameter *parameter = parameters->stored[i];
        if (begins[i]) {
            bucket = &parameters->buckets[parameters->bucket_count++];
            *bucket = (vt_bucket){.first = offset,
                                  .first_parameter = i,
                                  .first_unit = parameter->unit,
                                  .split_axes = parameter->split_axes,
                                  .sum_axes = parameter->sum_axes};
        }
        if (!parameter->joined) offset = vt_quotient_up(offset, multiple) * multiple;
        parameter->offset = offset;
        parameter->bucket = parameters->bucket_count - 1;
        offset += parameter->count;
        elements += (double)parameter->count;
        bucket->parameter_count++;
        bucket->last_unit = parameter->unit;
        if (i + 1 == parameters->stored_count || begins[i + 1]) {
            bucket->count = vt_quotient_up(offset - bucket->first, whole) * whole;
            bucket->slice = bucket->count / parameters->storage.shards;
            offset = bucket->first + bucket->count;
            bucket->padding = 1 - elements / (double)bucket->count;
            elements = 0;
        }
        if (parameter->frozen) continue;
        parameters->trained = offset;
        parameters->trained_buckets = parameters->bucket_count;
    }
    parameters->elements = offset;
    free(begins);
}

vt_status vt_parameters_allocate(vt_parameters *parameters, vt_type type, const vt_parameters_storage *storage)
{
    vt_status status = VT_OK;
    vt_backend *backend = parameters->backend;
    parameters->storage = *storage;
    parameters->type = type;
    order_parameters(parameters);
    cut_buckets(parameters);
    const int64_t values = vt_parameters_block_elements(parameters, VT_BLOCK_VALUES);
    const int64_t gradients = vt_parameters_block_elements(parameters, VT_BLOCK_GRADIENTS);
    VT_TAKE(backend, VT_MEMORY_PARAMETERS, values, parameters->values);
    VT_TAKE(backend, VT_MEMORY_GRADIENTS, gradients, parameters->gradients);
    bool values_whole = !vt_parameters_is_sliced(parameters, VT_BLOCK_VALUES);
    if (vt_type_is_half(type) && values_whole) VT_TAKE(backend, VT_MEMORY_PARAMETERS, values, parameters->halves);
    for (int64_t i = 0; i < parameters->bucket_count; i++) {
        const vt_bucket *bucket = &parameters->buckets[i];
        uint16_t *half = parameters->halves != NULL ? parameters->halves + bucket->first : NULL;
        if (values_whole) vt_parameters_place_values(parameters, bucket, parameters->values + bucket->first, half);
        if (!vt_parameters_is_sliced(parameters, VT_BLOCK_GRADIENTS) && i < parameters->trained_buckets)
            vt_parameters_place_gradients(parameters, bucket, parameters->gradients + bucket->first);
    }
done:
    return status;
}

void vt_parameters_place_values(vt_parameters *parameters, const vt_bucket *bucket, float *memory, uint16_t *half)
{
    for (int64_t i = 0; i < bucket->parameter_count; i++) {
        vt_parameter *parameter = parameters->stored[bucket->first_parameter + i];
        parameter->value = memory + (parameter->offset - bucket->first);
        parameter->half = half != NULL ? half + (parameter->offset - bucket->first) : NULL;
        parameter->half_type = parameters->type;
    }
}

void vt_parameters_place_gradients(vt_parameters *parameters, const vt_bucket *bucket, float *memory)
{
    for (int64_t i = 0; i < bucket->parameter_count; i++) {
        vt_parameter *parameter = parameters->stored[bucket->first_parameter + i];
        parameter->gradient = memory + (parameter->offset - bucket->first);
    }
}

void vt_parameters_clear_gradients(vt_parameters *parameters)
{
    const int64_t elements = vt_parameters_block_elements(parameters, VT_BLOCK_GRADIENTS);
    parameters->backend->zero(parameters->backend, parameters->gradients, (size_t)elements * sizeof(float));
}

/* ---- while a pass runs ---- */

void vt_parameters_round(const vt_parameters *parameters, vt_matrix values, uint16_t *half)
{
    vt_matrix rounded = values;
    rounded.half = half;
    rounded.type = parameters->type;
    parameters->backend->convert(parameters->backend, values, rounded);
}

void vt_parameters_refresh(vt_parameters *parameters)
{
    if (parameters->halves == NULL) return;
    enum { COLUMNS = 1024 }; /* rows are what threads share */
    int64_t rows = parameters->elements / COLUMNS, rest = parameters->elements % COLUMNS;
    vt_parameters_round(parameters, vt_matrix_make(parameters->values, rows, COLUMNS), parameters->halves);
    vt_parameters_round(parameters, vt_matrix_make(parameters->values + rows * COLUMNS, 1, rest),
                        parameters->halves + rows * COLUMNS);
}

uint16_t *vt_parameters_rounded(const vt_parameters *parameters, int64_t offset)
{
    const bool sent = vt_parameters_is_sliced(parameters, VT_BLOCK_MOMENTS);
    return parameters->halves != NULL && !sent ? parameters->halves + offset : NULL;
}

vt_matrix vt_parameter_matrix(const vt_parameter *parameter)
{
    vt_matrix matrix = vt_matrix_make(parameter->value, 1, parameter->count);
    if (parameter->half == NULL) return matrix;
    matrix.half = parameter->half;
    matrix.type = parameter->half_type;
    return matrix;
}

/* ---- looking up ---- */

bool vt_parameters_is_sliced(const vt_parameters *parameters, vt_block_kind block)
{
    static const int first_stage[] = {[VT_BLOCK_VALUES] = 3, [VT_BLOCK_GRADIENTS] = 2, [VT_BLOCK_MOMENTS] = 1};
    return parameters->storage.shards > 1 && parameters->storage.zero_stage >= first_stage[block];
}

int64_t vt_parameters_block_elements(const vt_parameters *parameters, vt_block_kind block)
{
    const int64_t elements = block == VT_BLOCK_VALUES ? parameters->elements : parameters->trained;
    return vt_parameters_is_sliced(parameters, block) ? elements / parameters->storage.shards : elements;
}

int64_t vt_parameters_slice_offset(const vt_parameters *parameters, const vt_bucket *bucket, vt_block_kind block)
{
    const vt_parameters_storage *storage = &parameters->storage;
    if (vt_parameters_is_sliced(parameters, block)) return bucket->first / storage->shards;
    return bucket->first + storage->shard * bucket->slice;
}

vt_piece vt_parameters_piece(const vt_parameters *parameters, const vt_parameter *parameter, vt_block_kind block)
{
    if (parameter->frozen && block != VT_BLOCK_VALUES) return (vt_piece){0};
    if (!vt_parameters_is_sliced(parameters, block)) return (vt_piece){0, parameter->count, parameter->offset};
    const vt_bucket *bucket = &parameters->buckets[parameter->bucket];
    const int64_t slice = bucket->first + parameters->storage.shard * bucket->slice, slice_end = slice + bucket->slice;
    const int64_t own_end = parameter->offset + parameter->count;
    const int64_t begin = slice > parameter->offset ? slice : parameter->offset;
    const int64_t end = slice_end < own_end ? slice_end : own_end;
    if (end <= begin) return (vt_piece){0};
    return (vt_piece){begin - parameter->offset, end - begin,
                      vt_parameters_slice_offset(parameters, bucket, block) + (begin - slice)};
}

int64_t vt_parameters_copies(const vt_parameters *parameters, const vt_bucket *bucket, bool sliced)
{
    const vt_layout *layout = &parameters->parallel->world->layout;
    int64_t copies = layout->ranks / layout->size[VT_AXIS_PIPELINE]; /* one stage has it */
    for (int axis = 0; axis < VT_AXIS_COUNT; axis++)
        if ((bucket->split_axes & VT_AXES(axis)) != 0) copies /= layout->size[axis];
    return sliced ? copies / parameters->storage.shards : copies;
}
