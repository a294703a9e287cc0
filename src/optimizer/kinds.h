/* The table of optimizers: what each keeps of every parameter, and how it changes the values; and what a kind provides
 * that updates whole tensors. */
#ifndef VT_OPTIMIZER_KINDS_H
#define VT_OPTIMIZER_KINDS_H

#include "model/parameters.h"

/* Beside its states an optimizer may keep the average of the values, as if it were one more. */
enum { VT_OPTIMIZER_STATES = 4, VT_KEPT_AVERAGE = VT_OPTIMIZER_STATES, VT_KEPT_PLACES };

/* How what is kept lies in memory, of the elements that a rank updates. */
typedef enum {
    VT_KEPT_NUMBERS,        /* a float32 for each */
    VT_KEPT_SIGNED_CODES,   /* a code of 8 bits for each, and a scale for each block (backend/codes.h) */
    VT_KEPT_UNSIGNED_CODES, /* the same of numbers that are not negative */
    VT_KEPT_ROWS,           /* a float32 for each row of the last two dimensions, of the whole tensor on every rank */
    VT_KEPT_COLUMNS,        /* the same of columns */
    VT_KEPT_NOTHING
} vt_kept_form;

/* What is kept beside parameters. */
typedef struct {
    const char *name;    /* in checkpoints, optimizer/<name>/<parameter> */
    const char *meaning; /* in messages */
} vt_optimizer_state_kind;

/* Where that is of some elements; NULL where nothing is kept in this form. */
typedef struct {
    float *numbers;
    uint8_t *codes;
    float *scales; /* of the codes' blocks */
} vt_kept_memory;

/* Neighbours among what a rank updates; all memory is the back end's. */
typedef struct {
    int64_t count;
    const float *gradients;
    float *values;
    uint16_t *rounded;                   /* where an update also rounds the values to; NULL: nowhere */
    vt_kept_memory kept[VT_KEPT_PLACES]; /* each place has one form for all of them */
} vt_optimizer_span;

typedef struct vt_whole_update vt_whole_update; /* below */
typedef struct {
    const char *name;
    vt_optimizer_state_kind states[VT_OPTIMIZER_STATES]; /* of which the last have no name */
    /* In which form a state of a parameter is kept, if it is trained. NULL: all are numbers. */
    vt_kept_form (*form)(const vt_config *config, int state, const vt_parameter *parameter);
    vt_update rule; /* of which the kind is set here */
    /* So many neighbours are updated together, a power of two: ZeRO's slices begin at its multiples. NULL: 1. */
    int64_t (*grain)(const vt_config *config);
    /* Adds to the rule what the configuration says for this kind alone; NULL: nothing. */
    void (*configure)(const vt_config *config, vt_update *rule);
    /* One update, none if the state's factor is NaN. Rounds values to rule->rounded where own->rounded is. */
    void (*update)(vt_backend *backend, const vt_update *rule, const vt_step_state *state,
                   const vt_optimizer_span *own);
    const vt_whole_update *whole; /* for the tensors that it takes, in place of `update`; NULL: for none */
} vt_optimizer_kind;

#define VT_OPTIMIZER_ROW(name, ...) extern const vt_optimizer_kind vt_optimizer_##name;
VT_OPTIMIZERS(VT_OPTIMIZER_ROW) /* each in a file of its own */
#undef VT_OPTIMIZER_ROW

/* adam.c's, for other kinds, too. The update hands the back end the first two states, in numbers; NULL for each that
 * isn't kept. */
void vt_adam_configure(const vt_config *config, vt_update *rule);
void vt_adam_update(vt_backend *backend, const vt_update *rule, const vt_step_state *state,
                    const vt_optimizer_span *own);

/* By the option `optimizer`. */
extern const vt_optimizer_kind *const vt_optimizer_kinds[];

/* In which form the configured optimizer keeps a state of a parameter. */
vt_kept_form vt_optimizer_form(const vt_config *config, int state, const vt_parameter *parameter);

/* Do both keep the same of a parameter, if in other forms (as Adam, AdamW and Adam8bit do)? */
bool vt_optimizers_keep_the_same(const vt_config *a, const vt_config *b, const vt_parameter *parameter);

/* ---- updates of whole tensors, of which a rank may have parts only: for kinds whose step of an element depends on
 * others of its tensor ---- */

typedef struct vt_optimizer vt_optimizer; /* optimizer.h */

/* What this rank updates of a tensor. */
typedef struct {
    const vt_parameter *parameter;
    int64_t first;         /* where `own` begins in this rank's part of the tensor */
    vt_optimizer_span own; /* the elements that this rank updates; its count may be 0 */
    bool counts;           /* of the ranks of the group that have the same elements, this is the first */
    double share;          /* 1 / the number of ranks, of all, that have the same elements */
} vt_whole_part;

typedef struct {
    vt_group *group; /* all ranks that share these tensors: along the kind's axes, and the shards of ZeRO */
    int64_t count;
    vt_whole_part *parts; /* [count], of the tensors that the kind takes; those of this rank's stage */
    void *memory;         /* the kind's own */
} vt_whole;

struct vt_whole_update {
    bool (*takes)(const vt_parameter *parameter); /* NULL: all */
    unsigned axes;                                /* over which tensors that the kind takes may be split */
    /* Takes the memory it needs, into `whole.memory`. */
    vt_status (*open)(vt_optimizer *optimizer);
    /* *result += this rank's share of the squares of all gradients, which begins a step; NULL: the kind's first pass
     * over the gradients has no use for their squares, or the kind doesn't take all tensors. */
    void (*squares)(const vt_optimizer *optimizer, double *result);
    /* Collective over the group: one update, none if the state's factor is NaN. */
    void (*step)(const vt_optimizer *optimizer);
    void (*close)(const vt_optimizer *optimizer);
};

#endif
