/* What a machine can do: an entry of config/hardware.yaml, with the figures from which the cost of a step is
 * estimated. */
#ifndef VT_PLANNING_HARDWARE_H
#define VT_PLANNING_HARDWARE_H

#include "backend/work.h"
#include "config/config.h"

/* CPU: the readers' batches lie in the same memory. */
typedef enum { VT_MACHINE_GPU, VT_MACHINE_CPU } vt_machine;

/* Of one rank (one GPU, or one rank's share of the cores). Units are in the names: GB is 1e9 bytes, GiB 2^30. */
typedef struct {
    char name[64];
    vt_machine kind;
    double memory_gib;                        /* in all */
    double reserved_gib;                      /* of this, not available to the run: driver, libraries, fragmentation */
    double ranks_per_node;                    /* 0: all ranks on one node */
    double power_w;                           /* at full load, with its part of the node; 0: unknown */
    double matrix_tflops[VT_TYPE_COUNT];      /* highest rate of matrix products */
    double matrix_fraction[VT_TYPE_COUNT];    /* fraction that products of linear layers reach */
    double attention_fraction[VT_TYPE_COUNT]; /* the same for attention; scores computed again don't count */
    double head_multiple;                     /* attention computes on head sizes that are multiples of this */
    double memory_gb_s;                       /* highest rate of memory */
    double memory_fraction;                   /* fraction that is reached */
    double work_fraction[VT_WORK_COUNT];      /* the same for each class of operation; 0: memory_fraction */
    double operation_us;                      /* launching one operation */
    double within_gb_s, within_us;   /* from a rank to others on its node; latency for each doubling of ranks */
    double between_gb_s, between_us; /* a rank's part of its node's bandwidth to other nodes */
    double host_gb_s;                /* between a GPU's memory and the host's, each way; 0: not known */
    double overlap;                  /* fraction of backward's time that hides sums of gradients */
    vt_origin origin;                /* of the figure that was read last */
} vt_hardware;

/* `name` is an entry of config/hardware.yaml (here or beside the program), or the path of a file with one entry, or
 * PATH:ENTRY. Errors name file, line, column, and the nearest known name. */
vt_status vt_hardware_read(const char *name, vt_hardware *hardware);

/* A file with this one entry, and `comment`'s lines before it. */
vt_status vt_hardware_write(const vt_hardware *hardware, const char *comment, const char *path);

#endif
