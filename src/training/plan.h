/* What a run will need, learnt from the same step over the dry back end and the dry engine: nothing is taken, and
 * nothing of the data has to be known. And whether the memory that is free is enough for it. */
#ifndef VT_TRAINING_PLAN_H
#define VT_TRAINING_PLAN_H

#include "backend/work.h"
#include "parallel/world.h"
#include "training/step.h"

/* What a group of ranks sends in one optimizer step. */
typedef struct {
    char name[64];
    int size, in_node; /* members (1: it sends nothing), and those on this rank's node, itself included */
    vt_volume volume;
} vt_plan_group;

/* Of one rank: bytes by category, and the work and messages of one optimizer step. The category of data has the batches
 * that the readers keep ready. */
enum { VT_PLAN_GROUPS = 24 };
typedef struct {
    size_t bytes[VT_MEMORY_CATEGORY_COUNT];
    size_t arena_bytes;       /* the part of the activations that is the arena of one micro-batch in flight */
    size_t shared_bytes;      /* that which all steps of forecast of one micro-batch share */
    vt_offload_sizes offload; /* of one micro-batch in flight; its rooms on the device are in the activations */
    int64_t in_flight;        /* micro-batches */
    double offloaded_bytes;   /* that leave for the host's memory in one optimizer step, and as many return */
    size_t pinned_bytes;      /* of the host, for a GPU's activations and checkpoints; not in `bytes` */
    size_t ring_bytes;        /* the part of the data that is the readers' and the sets', in the host's memory */
    size_t held_bytes;        /* the part of those that is the sets' */
    size_t chunk_bytes;       /* the part of those that decoded chunks may come to take */
    size_t message_bytes; /* not in `bytes`: MPI's own copies of sums over ranks, and the hole they leave; 0 on a GPU */
    vt_volume communication[VT_TRAFFIC_COUNT]; /* of one optimizer step */
    vt_dry_count step;                         /* its `bytes` are those after the step, without arena and readers */
    vt_plan_group groups[VT_PLAN_GROUPS];
    int group_count;
} vt_plan;

/* Which rank is planned, and where it runs. */
typedef struct {
    int rank;
    const int *node_of; /* [config->ranks]: the node that each rank runs on, 0, 1, …; NULL: all run on one */
    bool device_memory; /* the back end has memory of its own */
    bool draws_ahead;   /* … and draws ahead what attention's dropout keeps */
    size_t chunk_bytes; /* decoded chunks that the open sets may come to keep */
    bool gpipe;         /* as in vt_trainer_options */
} vt_plan_options;

/* This rank of a run; backend NULL: in the host's memory. */
vt_plan_options vt_plan_options_of(const vt_world *world, const vt_backend *backend);

vt_status vt_plan_make(const vt_config *config, const vt_plan_options *options, vt_plan *plan);

/* Bytes of a category, where MPI's own copies count as workspace; and of all categories together. */
double vt_plan_bytes(const vt_plan *plan, vt_memory_category category);
double vt_plan_total(const vt_plan *plan);

/* "parameters 1.85 MB, gradients 1.85 MB, …": what is not 0. */
void vt_plan_describe(const vt_plan *plan, char *buffer, size_t size);

/* ---- whether it fits, before anything is taken (budget.c) ---- */

/* Fails when `plan` needs more than `available` bytes; the message holds the total by category and the three settings
 * that would save most, each with how much. Of a model that has been trained (`trains` is false) only the number of
 * samples can change. */
vt_status vt_budget_check(const vt_config *config, const vt_plan_options *options, const vt_plan *plan,
                          double available, bool trains);

/* With keep_outputs: auto, `config` keeps them where device memory of `available` bytes then holds the run beside
 * `taken` bytes, with a tenth to spare for what libraries take; *plan is then the plan with them. The bits of the run
 * are the same. */
vt_status vt_budget_keep_outputs(vt_config *config, const vt_plan_options *options, double taken, double available,
                                 vt_plan *plan);

/* Fails when a run on a device needs more than `available` bytes of the host's memory: for the readers' batches, for
 * activations that wait there, and for the copy that checkpoints are written from. */
vt_status vt_budget_check_host(const vt_config *config, const vt_plan *plan, double available);

/* The least number from `least` on that divides `whole`, or 0: of micro-batches, say, into which a batch can be cut. */
int64_t vt_plan_divisor(int64_t whole, int64_t least);

#endif
