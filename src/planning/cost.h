/* The cost of an optimizer step on a machine: arithmetic on a plan's counts and the machine's table, nothing more.
 * docs/planning.md derives the formulas. */
#ifndef VT_PLANNING_COST_H
#define VT_PLANNING_COST_H

#include "planning/hardware.h"
#include "training/plan.h"

typedef enum {
    VT_COST_MATRIX, /* products of linear layers, each limited by the machine's rate or by its memory */
    VT_COST_ATTENTION,
    VT_COST_MEMORY,        /* operations that move bytes */
    VT_COST_START,         /* launching operations */
    VT_COST_COMMUNICATION, /* not hidden by anything */
    VT_COST_LINK,          /* waiting for activations on their way to the host's memory and back */
    VT_COST_BUBBLE,        /* of a pipeline: waiting for the other stages to fill and to empty it */
    VT_COST_COUNT
} vt_cost_part;

typedef struct {
    double seconds[VT_COST_COUNT];
    double step;        /* the sum of these */
    double hidden;      /* communication that backward or attention hides */
    vt_cost_part bound; /* the largest */
    double pass;        /* one micro-batch's passes, with what is sent in them; a part of the step */
    double hop;         /* one message to a neighbouring stage; in `step` only after vt_cost_add_stages */
} vt_cost;

/* `plan` is what vt_plan_make returned for the same configuration. */
void vt_cost_of(const vt_config *config, const vt_hardware *hardware, const vt_plan *plan, vt_cost *cost);

/* Of a pipeline's slowest stage: adds the bubble and the messages between stages to its step. passes: the sum of all
 * stages' `pass`. Of a rollout the longest is meant. */
void vt_cost_add_stages(const vt_config *config, const vt_hardware *hardware, double passes, vt_cost *cost);

/* "products", "attention", "memory", "starts", "messages", "link", "bubble" */
extern const char *const vt_cost_names[];

/* Seconds for `volume` over a group of `size` ranks, `in_node` of them on this rank's node. */
double vt_cost_messages(const vt_hardware *hardware, int size, int in_node, const vt_volume *volume);

/* Bytes that a run may take. */
double vt_cost_available(const vt_hardware *hardware);

#endif
