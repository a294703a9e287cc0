/* The grid of ranks: which coordinates on the axes each rank has, and which ranks form a group along some of them.
 * Nothing here communicates. Axes: tensor (tp), context (cp), pipeline (pp), data (dp); dp follows from the number of
 * ranks. */
#ifndef VT_PARALLEL_LAYOUT_H
#define VT_PARALLEL_LAYOUT_H

#include <stdint.h>

#include "config/config.h"

typedef enum { VT_AXIS_TENSOR, VT_AXIS_CONTEXT, VT_AXIS_PIPELINE, VT_AXIS_DATA, VT_AXIS_COUNT } vt_axis;

/* A set of axes: VT_AXES(VT_AXIS_TENSOR) | VT_AXES(VT_AXIS_DATA). */
#define VT_AXES(axis) (1u << (axis))
#define VT_AXES_ALL ((1u << VT_AXIS_COUNT) - 1)

typedef struct {
    int ranks;
    int size[VT_AXIS_COUNT];
    vt_axis order[VT_AXIS_COUNT]; /* first the axis whose neighbours are neighbouring ranks, last the one whose
                                     neighbours are farthest apart */
} vt_layout;

/* config->tensor_parallel, context_parallel, pipeline_parallel and parallel_order over `ranks` ranks. An axis that the
 * order does not name comes last; only pp and axes of one rank may be left out. Errors name the numbers and the nearest
 * ones that work: tp · cp · pp does not divide the ranks; an order that is not names of axes (tp, cp, pp, dp, in either
 * case) joined by '-', each once. */
vt_status vt_layout_make(const vt_config *config, int ranks, vt_layout *layout);

/* Names joined by '-': "dp", "tp-cp-pp". order: begins with them as they are named; *axes: the same as a set. `what`
 * names the text in errors. */
vt_status vt_layout_parse_axes(const char *text, size_t length, const char *what, vt_axis order[VT_AXIS_COUNT],
                               unsigned *axes);

/* "tp", "cp", "pp", "dp"; of several "tp-cp", in the layout's order; "world" for all. */
void vt_layout_axes_name(const vt_layout *layout, unsigned axes, char name[32]);

/* Where a rank stands on an axis, 0 … size - 1. */
int vt_layout_coordinate(const vt_layout *layout, int rank, vt_axis axis);

/* The lowest rank of a stage, its place on the pipeline axis. */
int vt_layout_first(const vt_layout *layout, int stage);

/* The ranks that share all coordinates of `rank` but those of `axes`, ascending along the layout's order (the axis that
 * stands first in `order` varies fastest); returns how many. members: room for layout->ranks. */
int vt_layout_members(const vt_layout *layout, int rank, unsigned axes, int *members);

/* Part `index` of `count` things in spans: ceil(total / parts) each and the last takes the rest; if the rest
 * would be none, spans of floor(total / parts) and the last takes what is left. 4050 over 4: 1013, 1013, 1013, 1011. */
typedef struct {
    int64_t first, count;
} vt_span;
vt_span vt_layout_span(int64_t total, int parts, int index);

#endif
