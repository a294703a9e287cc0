/* How batches of cubes are read: each cube's parts are the items. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "source/volumes/volumes.h"

/* One box's part of one sample. */
typedef struct {
    int64_t sample; /* of the batch */
    int tensor;
    vt_box_cube cube;
    const vt_turn *turn;
    vt_cube_fields fields;
    int64_t first_item;
    float *to;
} read_cube;

typedef struct {
    vt_read_plan plan;
    read_cube *cubes;
    int64_t count;
} volume_plan;

static vt_read_plan *open_plan(vt_source *source)
{
    volume_plan *own = vt_allocate(1, sizeof *own, "the plan of a batch");
    own->plan.source = source;
    return &own->plan;
}

static void close_plan(vt_read_plan *plan)
{
    free(((volume_plan *)plan)->cubes);
    free(plan);
}

static vt_status make_plan(vt_read_plan *plan, const int64_t *samples, int64_t count, void *const *tensors)
{
    volume_plan *own = (volume_plan *)plan;
    const vt_volumes *volumes = (const vt_volumes *)plan->source;
    own->count = plan->item_count = 0;
    for (int64_t i = 0; i < count; i++) {
        const vt_volume_draw draw = vt_volumes_draw(volumes, samples[i]);
        for (int t = 0; t < VT_VOLUME_BOXES; t++) {
            if (tensors[t] == NULL) continue;
            own->cubes = vt_grow(own->cubes, (size_t)own->count, sizeof *own->cubes, "the plan of a batch");
            read_cube *cube = &own->cubes[own->count++];
            *cube = (read_cube){.sample = i,
                                .tensor = t,
                                .cube = {.side = volumes->side, .channels = volumes->channels[t]},
                                .turn = &vt_turns[draw.turn],
                                .first_item = plan->item_count,
                                .to = (float *)tensors[t] + i * vt_tensor_values(&plan->source->specs[t])};
            memcpy(cube->cube.corner, draw.corner, sizeof draw.corner);
            cube->fields = vt_turn_fields(cube->turn, cube->cube.channels, volumes->rotate_vectors);
            plan->item_count += vt_box_parts(volumes->boxes[t], &cube->cube);
        }
    }
    return VT_OK;
}

/* The last cube whose items begin at or before this one. */
static const read_cube *cube_of(const vt_read_plan *plan, int64_t item)
{
    const volume_plan *own = (const volume_plan *)plan;
    int64_t low = 0, high = own->count;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (own->cubes[middle].first_item <= item)
            low = middle;
        else
            high = middle;
    }
    return &own->cubes[low];
}

static vt_status run_item(vt_read_plan *plan, int64_t item, vt_decoder *decoder)
{
    const vt_volumes *volumes = (const vt_volumes *)plan->source;
    const read_cube *c = cube_of(plan, item);
    return vt_box_read(volumes->boxes[c->tensor], &c->cube, item - c->first_item, c->turn, &c->fields, decoder, c->to);
}

static void retry_item(const vt_read_plan *plan, int64_t item, vt_decoder *decoder,
                       void (*mark)(int64_t sample, void *context), void *context)
{
    (void)decoder;
    mark(cube_of(plan, item)->sample, context);
}

static vt_file_extent extent_of(const vt_read_plan *plan, int64_t item, int64_t index)
{
    const vt_volumes *volumes = (const vt_volumes *)plan->source;
    const read_cube *c = cube_of(plan, item);
    return vt_box_extent(volumes->boxes[c->tensor], &c->cube, item - c->first_item, index);
}

const vt_reading vt_volumes_reading = {.open = open_plan,
                                       .close = close_plan,
                                       .make = make_plan,
                                       .release = vt_plain_plan_release,
                                       .run = run_item,
                                       .retry = retry_item,
                                       .extent = extent_of};
