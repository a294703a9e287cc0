/* What a machine can do, a row of config/hardware.yaml: the figures that the cost of a step is reckoned from. */
#ifndef VT_PLANNING_HARDWARE_H
#define VT_PLANNING_HARDWARE_H

#include "backend/backend.h"

/* Of one rank (one GPU, or one rank's share of the cores). Units are in the names: GB is 1e9 bytes, GiB 2^30. */
typedef struct {
    char name[64];
    bool host_memory;                         /* kind cpu: the readers' batches lie in the same memory */
    double memory_gib;                        /* in all */
    double reserved_gib;                      /* of it not the run's: driver, libraries, fragments */
    double ranks_per_node;                    /* 0: all ranks on one */
    double power_w;                           /* at full load, with its share of the node; 0: not known */
    double matrix_tflops[VT_TYPE_COUNT];      /* highest rate of matrix products */
    double matrix_fraction[VT_TYPE_COUNT];    /* of it reached by the products of linear layers */
    double attention_fraction[VT_TYPE_COUNT]; /* the same by attention; scores' second computation doesn't count */
    double head_multiple;                     /* attention computes on head sizes that are multiples of this */
    double memory_gb_s;                       /* highest rate of memory */
    double memory_fraction;                   /* of it reached */
    double work_fraction[VT_WORK_COUNT];      /* the same for each class of operation; 0: memory_fraction */
    double operation_us;                      /* one operation's start */
    double within_gb_s, within_us;   /* a rank to others of its node; an operation's latency per doubling of ranks */
    double between_gb_s, between_us; /* a rank's share of what its node sends to others */
    double overlap;                  /* of backward's time, the part that hides sums of gradients */
} vt_hardware;

/* `name` is an entry of config/hardware.yaml (here or beside the program), or the path of a file with one entry, or
 * PATH:ENTRY. Errors name file, line, column, and the nearest known name. */
vt_status vt_hardware_read(const char *name, vt_hardware *hardware);

/* A file with this one entry, and `comment`'s lines before it. */
vt_status vt_hardware_write(const vt_hardware *hardware, const char *comment, const char *path);

#endif
