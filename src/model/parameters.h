/* The registry of parameters: each is described once (name, shape, how it starts), and initialisation, optimizer,
 * norms, tables and checkpoints all read that description. Values and gradients are one block each. */
#ifndef VT_MODEL_PARAMETERS_H
#define VT_MODEL_PARAMETERS_H

#include "backend/backend.h"

typedef enum {
    VT_START_ZERO,
    VT_START_ONE,
    VT_START_NORMAL, /* normal with standard deviation `spread`, cut at ±2 (absolute) */
    VT_START_UNIFORM /* uniform in ±spread */
} vt_start;

enum { VT_PARAMETER_DIMENSIONS = 4, VT_PARAMETER_NAME = 96 };

typedef struct {
    char name[VT_PARAMETER_NAME]; /* as in the PyTorch state_dict */
    int dimensions;
    int64_t shape[VT_PARAMETER_DIMENSIONS];
    vt_start start;
    double spread;
    int64_t count;  /* elements */
    int64_t offset; /* of the first element in the block */
    float *value;   /* set by vt_parameters_allocate */
    uint16_t *half; /* the value in bfloat16, of the last vt_parameters_refresh; NULL: not kept */
    float *gradient;
} vt_parameter;

typedef struct vt_parameters vt_parameters;

vt_status vt_parameters_open(vt_backend *backend, vt_parameters **parameters);
void vt_parameters_close(vt_parameters **parameters);

/* Registers "prefix.name" behind the one before it, without a gap: a layer that registers three weights one after
 * another may use them as one. The description lives as long as the registry. */
vt_parameter *vt_parameters_add(vt_parameters *parameters, const char *prefix, const char *name, int dimensions,
                                const int64_t *shape, vt_start start, double spread);

/* Takes the blocks (values, gradients and, for VT_BFLOAT16, rounded values), zeroed; no more parameters after this. */
vt_status vt_parameters_allocate(vt_parameters *parameters, vt_type type);

/* Rounds all values anew where they are kept in bfloat16, too: after every change of the values. */
void vt_parameters_refresh(vt_parameters *parameters);

/* The value, one row, as matrix products take it: in bfloat16 where that is kept. */
vt_matrix vt_parameter_matrix(const vt_parameter *parameter);

/* Starts every parameter from (seed, name, index of the element) alone. */
void vt_parameters_start(vt_parameters *parameters, uint64_t seed);

int64_t vt_parameters_count(const vt_parameters *parameters); /* how many tensors */
vt_parameter *vt_parameters_at(const vt_parameters *parameters, int64_t index);
int64_t vt_parameters_element_count(const vt_parameters *parameters); /* elements of a whole block */
float *vt_parameters_values(const vt_parameters *parameters);
float *vt_parameters_gradients(const vt_parameters *parameters);

/* The one with this name, or NULL. */
vt_parameter *vt_parameters_find(const vt_parameters *parameters, const char *name);

#endif
