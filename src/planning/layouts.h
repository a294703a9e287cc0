/* Every way to lay a run out over a number of ranks, each with its memory and cost; fastest first. */
#ifndef VT_PLANNING_LAYOUTS_H
#define VT_PLANNING_LAYOUTS_H

#include "planning/cost.h"

typedef struct {
    int64_t tensor, context, pipeline, data, zero, micro_batch, accumulation;
    int64_t stage; /* of a pipeline: that which needs most memory */
    bool sequence;
    vt_recompute recompute;
    double bytes[VT_MEMORY_CATEGORY_COUNT]; /* of the rank that needs most */
    double total;
    bool fits;
    vt_cost cost;         /* of the slowest rank, with the bubble */
    double flops;         /* of that rank */
    double waiting, sent; /* offload_activations: bytes in the host's memory, and bytes that go there in a step */
} vt_option_cost;

typedef struct {
    vt_option_cost *options;
    int64_t count;
} vt_layouts;

/* All layouts that divide config->ranks ranks of `hardware`; what the command line sets (tensor_parallel, zero_stage,
 * …) stays as it is. Each with micro-batches up to the first that does not fit. Of equal times the smaller memory comes
 * first. Layouts that zero_group node can't split evenly over the nodes are left out. Errors: none divides, none is
 * left. */
vt_status vt_layouts_plan(const vt_config *config, const vt_hardware *hardware, vt_layouts *layouts);
void vt_layouts_close(vt_layouts *layouts);

/* Words of recompute, by its value. */
extern const char *const vt_recompute_words[];

/* Optimizer steps of the run; 0: only the data could tell. */
int64_t vt_layouts_steps(const vt_config *config);

/* The first layout that fits, or, if none does, the first of all; only of those with the grid of `grid`, unless that is
 * NULL. */
const vt_option_cost *vt_layouts_fastest(const vt_layouts *layouts, const vt_option_cost *grid);

/* One layout, that of `config` itself (data_parallel set): the worst of each stage's first rank and of its rank with
 * most tokens. */
vt_status vt_layouts_cost(const vt_config *config, const vt_hardware *hardware, vt_option_cost *option);

#endif
