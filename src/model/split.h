/* How a model's units are dealt out to the stages of a pipeline: a run of at least one unit to each stage. */
#ifndef VT_MODEL_SPLIT_H
#define VT_MODEL_SPLIT_H

#include "model/model.h"

typedef struct {
    int64_t stages;
    vt_span *units;   /* [stages] */
    int64_t *columns; /* [stages]: of the stream behind the stage's last unit, whose rows are a pass's */
    double *work;     /* [stages]: parts of the model's floating-point operations, 1 in all */
} vt_split;

/* As pipeline_split says, else with the least work for the stage that has most. Errors: more stages than units; a
 * pipeline_split that is not the blocks of each stage. */
vt_status vt_split_open(const vt_config *config, vt_split *split);
void vt_split_close(vt_split *split);

/* "embedding, blocks 0-2", "blocks 3-5, head" */
char *vt_split_describe(const vt_split *split, int64_t stage);

/* Of the splits of `units` units, of which all but the first and the last are blocks, over `stages` stages: those with
 * the least largest cost of a stage; of these, those with the least max over s of blocks(s) (stages - s), which 1F1B
 * keeps the activations of; of these, the one with the lexicographically least numbers of units. costs: whole numbers.
 * spans [stages]. */
void vt_split_balance(const double *costs, int64_t units, int64_t stages, vt_span *spans);

#endif
