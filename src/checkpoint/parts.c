/* Which tensors a checkpoint has, and who writes which boxes of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "checkpoint/inside.h"

const char *vt_stored_name(const vt_parameter *parameter)
{
    return parameter->file_rows > 0 ? parameter->file_name : parameter->name;
}

static vt_tensor_shape shape_of(const int64_t *shape, int dimensions)
{
    vt_tensor_shape result = {.dimensions = dimensions};
    memcpy(result.shape, shape, (size_t)dimensions * sizeof *shape);
    return result;
}

/* Is there one of these for all rows of a matrix, whichever tensor of files they are rows of? */
static bool is_by_column(const vt_stored_tensor *tensor)
{
    return tensor->part.form == VT_KEPT_COLUMNS && tensor->parameter->dimensions == 2;
}

/* Rows and columns: without the dimension that their means are over. */
static vt_tensor_shape whole_shape(const vt_stored_tensor *tensor)
{
    const vt_parameter *parameter = tensor->parameter;
    vt_tensor_shape shape = shape_of(parameter->shape, parameter->dimensions);
    if (parameter->file_rows > 0) shape.shape[0] = parameter->file_rows;
    if (tensor->part.form == VT_KEPT_COLUMNS) shape.shape[shape.dimensions - 2] = shape.shape[shape.dimensions - 1];
    if (tensor->part.form == VT_KEPT_ROWS || tensor->part.form == VT_KEPT_COLUMNS) shape.dimensions--;
    return shape;
}

int64_t vt_stored_count(const vt_checkpoint_subject *subject)
{
    return (1 + VT_KEPT_PLACES) * subject->parameters->count;
}

vt_stored_tensor vt_stored_at(const vt_checkpoint_subject *subject, int64_t index)
{
    vt_stored_tensor tensor = {.parameter = NULL};
    char prefix[VT_STORED_NAME - VT_PARAMETER_NAME] = "parameters";
    const vt_parameters *parameters = subject->parameters;
    const vt_kept *kept = subject->optimizer->kept;
    const int64_t count = parameters->count;
    const int place = (int)(index / count) - 1; /* of what is kept; -1: the parameters themselves */
    const vt_parameter *parameter = parameters->list[index % count];
    if (place < 0) {
        tensor.part.piece = vt_parameters_piece(parameters, parameter, VT_BLOCK_VALUES);
        tensor.part.memory.numbers = parameters->values + tensor.part.piece.offset;
    } else {
        if (kept->places[place].state == NULL) return tensor;
        tensor.part = kept->places[place].parts[parameter->index];
        if (tensor.part.form == VT_KEPT_NOTHING) return tensor;
        snprintf(prefix, sizeof prefix, "%s%s", place == VT_KEPT_AVERAGE ? "" : "optimizer/",
                 kept->places[place].state->name);
    }
    tensor.parameter = parameter;
    tensor.shape = whole_shape(&tensor);
    snprintf(tensor.name, sizeof tensor.name, "%s/%s", prefix,
             is_by_column(&tensor) ? parameter->name : vt_stored_name(parameter));
    snprintf(tensor.own, sizeof tensor.own, "%s/%s", prefix, parameter->name);
    tensor.is_whole = tensor.part.form == VT_KEPT_ROWS || tensor.part.form == VT_KEPT_COLUMNS;
    tensor.sliced =
        !tensor.is_whole && vt_parameters_is_sliced(parameters, place < 0 ? VT_BLOCK_VALUES : VT_BLOCK_MOMENTS);
    return tensor;
}

int vt_stored_boxes(const vt_stored_tensor *tensor, vt_tensor_box boxes[VT_TENSOR_BOXES])
{
    const vt_parameter *parameter = tensor->parameter;
    vt_tensor_shape local = shape_of(parameter->local, parameter->dimensions);
    if (tensor->is_whole) {
        local = tensor->shape;
        if (parameter->file_rows > 0 && !is_by_column(tensor)) local.shape[0] = parameter->shape[0];
    }
    int count = vt_tensor_boxes(&local, tensor->part.piece.first, tensor->part.piece.count, boxes);
    for (int i = 0; i < count; i++) {
        if (!is_by_column(tensor)) boxes[i].first[0] += parameter->file_row;
        if (parameter->split >= 0 && !tensor->is_whole) boxes[i].first[parameter->split] += parameter->first;
    }
    return count;
}

float *vt_stored_room(const vt_checkpoint_subject *subject)
{
    int64_t largest = 1;
    for (int64_t i = 0; i < vt_stored_count(subject); i++) {
        vt_stored_tensor tensor = vt_stored_at(subject, i);
        if (tensor.part.piece.count > largest) largest = tensor.part.piece.count;
    }
    float *room = vt_allocate((size_t)largest, sizeof *room, "a checkpoint's tensors");
    return room;
}

void vt_written_name(const vt_written_box *box, const char *tensor, char name[VT_STORED_NAME + 8])
{
    if (box->count == 1)
        snprintf(name, VT_STORED_NAME + 8, "%s", tensor);
    else
        snprintf(name, VT_STORED_NAME + 8, "%s@%d", tensor, (int)box->number);
}

/* Do two ranks hold the same part of a parameter, of whose stage one of them is? */
static bool is_copy(const vt_layout *layout, const vt_stored_tensor *tensor, const int *shards, int a, int b)
{
    for (int axis = 0; axis < VT_AXIS_COUNT; axis++) {
        bool split =
            axis == VT_AXIS_PIPELINE || (!tensor->is_whole && (tensor->parameter->split_axes & VT_AXES(axis)) != 0);
        if (split && vt_layout_coordinate(layout, a, (vt_axis)axis) != vt_layout_coordinate(layout, b, (vt_axis)axis))
            return false;
    }
    return !tensor->sliced || shards[a] == shards[b];
}

/* Which of ZeRO's slices a rank keeps: its place among those that share it. */
static int shard_of(const vt_world *world, bool within_node, int rank)
{
    const vt_layout *layout = &world->layout;
    const int *node_of = world->node_of;
    int *members = vt_allocate((size_t)layout->ranks, sizeof *members, "a checkpoint's tensors"), shard = 0;
    vt_layout_members(layout, rank, VT_AXES(VT_AXIS_DATA), members);
    for (int i = 0; members[i] != rank; i++) shard += !within_node || node_of[members[i]] == node_of[rank];
    free(members);
    return shard;
}

void vt_stored_own_boxes(const vt_checkpoint_subject *subject, vt_written_box **result, int64_t *count)
{
    const vt_world *world = subject->world;
    int64_t tensors = vt_stored_count(subject);
    int *shards = vt_allocate((size_t)world->ranks, sizeof *shards, "a checkpoint's tensors");
    for (int rank = 0; rank < world->ranks; rank++)
        shards[rank] = shard_of(world, subject->config->zero_group == VT_ZERO_NODE, rank);
    vt_written_box *boxes =
        vt_allocate((size_t)(tensors * VT_TENSOR_BOXES + 1), sizeof *boxes, "a checkpoint's tensors");
    *count = 0;
    for (int64_t i = 0; i < tensors; i++) {
        vt_stored_tensor tensor = vt_stored_at(subject, i);
        int copies = 0, place = 0;
        if (tensor.parameter == NULL || tensor.parameter->count == 0) continue; /* another stage's */
        for (int rank = 0; rank < world->ranks; rank++) {
            if (!is_copy(&world->layout, &tensor, shards, rank, world->rank)) continue;
            if (rank == world->rank) place = copies;
            copies++;
        }
        VT_ASSERT(copies > 0); /* this rank's own */
        /* with noddp the copies differ: those of data coordinate 0 are written, so that all are of one model */
        const int64_t turn = subject->config->noddp ? 0 : i % copies;
        if (turn != place) continue;
        vt_tensor_box cut[VT_TENSOR_BOXES];
        int number = vt_stored_boxes(&tensor, cut);
        for (int j = 0; j < number; j++)
            boxes[(*count)++] = (vt_written_box){(int32_t)i, world->rank, j, number, cut[j]};
    }
    free(shards);
    *result = boxes;
}

static int by_tensor(const void *a, const void *b)
{
    const vt_written_box *left = a, *right = b;
    if (left->tensor != right->tensor) return left->tensor < right->tensor ? -1 : 1;
    if (left->rank != right->rank) return left->rank < right->rank ? -1 : 1;
    return left->number - right->number;
}

void vt_stored_all_boxes(const vt_world *world, const vt_written_box *own, int64_t own_count, vt_written_box **boxes,
                         int64_t *count)
{
    int64_t *counts = vt_allocate((size_t)world->ranks, sizeof *counts, "a checkpoint's tensors");
    vt_group_all_gather_equal(world->everyone, &own_count, sizeof own_count, counts);
    size_t *bytes = vt_allocate((size_t)world->ranks, sizeof *bytes, "a checkpoint's tensors");
    int64_t before = 0;
    *count = 0;
    for (int rank = 0; rank < world->ranks; rank++) {
        if (rank == world->rank) before = *count;
        bytes[rank] = (size_t)counts[rank] * sizeof *own;
        *count += counts[rank];
    }
    *boxes = vt_allocate((size_t)(*count + 1), sizeof **boxes, "a checkpoint's tensors");
    memcpy(*boxes + before, own, bytes[world->rank]);
    vt_group_all_gather(world->everyone, *boxes, bytes, NULL);
    qsort(*boxes, (size_t)*count, sizeof **boxes, by_tensor);
    free(bytes);
    free(counts);
}
