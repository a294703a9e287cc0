/* The table of optimizers: what each keeps of every parameter, and how it changes the values. */
#ifndef VT_OPTIMIZER_KINDS_H
#define VT_OPTIMIZER_KINDS_H

#include "model/parameters.h"

enum { VT_OPTIMIZER_STATES = 4 };

/* A number that is kept beside each element of the values. */
typedef struct {
    const char *name;    /* in checkpoints, optimizer/<name>/<parameter> */
    const char *meaning; /* in messages */
    vt_type type;
    vt_block_kind block; /* how it is laid out and sliced */
} vt_optimizer_state_kind;

typedef struct vt_optimizer_kind vt_optimizer_kind;
struct vt_optimizer_kind {
    const char *name;
    vt_optimizer_state_kind states[VT_OPTIMIZER_STATES]; /* of which the last have no name */
    int64_t grain;  /* so many neighbours are updated together, a power of two; ZeRO's slices begin at its multiples */
    vt_update rule; /* of which the kind is set here */
    /* Adds to the rule what the configuration says for this kind alone; NULL: nothing. */
    void (*configure)(const vt_config *config, vt_update *rule);
    /* The row in its place where the configuration changes what it keeps; NULL: always this one. */
    const vt_optimizer_kind *(*variant)(const vt_config *config);
    /* Changes `count` elements; states: those above, in that order. */
    void (*update)(vt_backend *backend, const vt_update *rule, const vt_step_state *state, const float *gradients,
                   float *values, void *const *states, int64_t count);
};

#define VT_OPTIMIZER_ROW(name, ...) extern const vt_optimizer_kind vt_optimizer_##name;
VT_OPTIMIZERS(VT_OPTIMIZER_ROW) /* each in a file of its own */
#undef VT_OPTIMIZER_ROW

/* By the option `optimizer`, before variants. */
extern const vt_optimizer_kind *const vt_optimizer_kinds[];

/* The one that the configuration chooses. */
const vt_optimizer_kind *vt_optimizer_chosen(const vt_config *config);

int vt_optimizer_state_count(const vt_optimizer_kind *kind);

#endif
