/* The table of optimizers: what each keeps of every parameter, and how it changes the values. */
#ifndef VT_OPTIMIZER_KINDS_H
#define VT_OPTIMIZER_KINDS_H

#include "model/parameters.h"

enum { VT_OPTIMIZER_STATES = 4 };

/* How what is kept lies in memory, of the elements that a rank updates. */
typedef enum {
    VT_KEPT_NUMBERS,        /* a float32 for each */
    VT_KEPT_SIGNED_CODES,   /* a code of 8 bits for each, and a scale for each block (backend/codes.h) */
    VT_KEPT_UNSIGNED_CODES, /* the same of numbers that are not negative */
    VT_KEPT_ROWS,           /* a float32 for each row of the last two dimensions, of the whole tensor on every rank */
    VT_KEPT_COLUMNS         /* the same of columns */
} vt_kept_form;

/* What is kept beside a parameter. */
typedef struct {
    const char *name;    /* in checkpoints, optimizer/<name>/<parameter> */
    const char *meaning; /* in messages */
    vt_kept_form form;
} vt_optimizer_state_kind;

typedef struct vt_optimizer_kind vt_optimizer_kind;
typedef struct vt_whole_update vt_whole_update; /* whole.h */
struct vt_optimizer_kind {
    const char *name;
    vt_optimizer_state_kind states[VT_OPTIMIZER_STATES]; /* of which the last have no name */
    vt_update rule;                                      /* of which the kind is set here */
    /* So many neighbours are updated together, a power of two: ZeRO's slices begin at its multiples. NULL: 1. */
    int64_t (*grain)(const vt_config *config);
    /* Which parameters this kind updates (NULL: all); `rest`, which must have the same rule, updates the others. */
    bool (*takes)(const vt_parameter *parameter);
    const vt_optimizer_kind *rest;
    /* Adds to the rule what the configuration says for this kind alone; NULL: nothing. */
    void (*configure)(const vt_config *config, vt_update *rule);
    /* The row in its place where the configuration changes what it keeps; NULL: always this one. */
    const vt_optimizer_kind *(*variant)(const vt_config *config);
    /* Changes `count` elements, and rounds them to rule->rounded unless `rounded` is NULL; states: the memory of those
     * above, in that order: of codes, and then of their scales. */
    void (*update)(vt_backend *backend, const vt_update *rule, const vt_step_state *state, const float *gradients,
                   float *values, uint16_t *rounded, void *const *states, int64_t count);
    const vt_whole_update *whole; /* in place of `update`, which then is NULL */
};

#define VT_OPTIMIZER_ROW(name, ...) extern const vt_optimizer_kind vt_optimizer_##name;
VT_OPTIMIZERS(VT_OPTIMIZER_ROW) /* each in a file of its own */
#undef VT_OPTIMIZER_ROW

/* adam.c's, for the kinds that are based on it. */
void vt_adam_configure(const vt_config *config, vt_update *rule);

/* By the option `optimizer`, before variants. */
extern const vt_optimizer_kind *const vt_optimizer_kinds[];

/* The one that the configuration chooses. */
const vt_optimizer_kind *vt_optimizer_chosen(const vt_config *config);

int vt_optimizer_state_count(const vt_optimizer_kind *kind);
int64_t vt_optimizer_grain(const vt_config *config);

/* The names of all that the kind and its `rest` keep, each once: the i-th, or NULL behind the last. */
enum { VT_OPTIMIZER_KEPT = 2 * VT_OPTIMIZER_STATES };
const char *vt_optimizer_kept_name(const vt_optimizer_kind *kind, int i);

/* The kind that updates a parameter: itself, or its `rest`. */
const vt_optimizer_kind *vt_optimizer_kind_for(const vt_optimizer_kind *kind, const vt_parameter *parameter);

#endif
