/* What an optimizer keeps beside the values, on this rank: its states, and the average of the values behind them. Each
 * has a place; of a parameter there is a part at those places that its kind has a state of. */
#ifndef VT_OPTIMIZER_KEPT_H
#define VT_OPTIMIZER_KEPT_H

#include "optimizer/kinds.h"

/* Takes the memory, zeroed. averages: is there an average? */
vt_status vt_kept_open(const vt_optimizer_kind *kind, bool averages, int64_t code_block, vt_backend *backend,
                       const vt_parameters *parameters, vt_kept **kept);
void vt_kept_close(vt_kept **kept);

int vt_kept_count(const vt_kept *kept);
const vt_optimizer_state_kind *vt_kept_state(const vt_kept *kept, int place); /* of one parameter that has it */
int vt_kept_average(const vt_kept *kept);                                     /* its place; -1: there is none */

/* What is kept of a parameter at one place. In the host's memory it is float32, whatever its form is. */
typedef struct {
    vt_kept_form form;
    vt_piece piece; /* of the parameter; `offset` of the block VT_BLOCK_MOMENTS. Of rows and columns: all of them */
    float *numbers; /* back end's memory, of the piece */
    uint8_t *codes; /* in place of numbers, */
    float *scales;  /* of the piece's blocks */
} vt_kept_part;

/* At a place, or under its name. False: nothing is kept there. */
bool vt_kept_part_of(const vt_kept *kept, int place, const vt_parameter *parameter, vt_kept_part *part);
bool vt_kept_part_named(const vt_kept *kept, const char *name, const vt_parameter *parameter, vt_kept_part *part);

/* host [piece.count] = the part; and the part = host. */
void vt_kept_fetch(const vt_kept *kept, const vt_kept_part *part, float *host);
void vt_kept_put(const vt_kept *kept, const vt_kept_part *part, const float *host);

/* The part as it lies in memory, in `bytes`, a multiple of 4: a copy of it in host memory, which is whole once the back
 * end has done what was asked for so far; and later, in any thread, its numbers: in the copy itself, or decoded into
 * `room` [piece.count]. */
size_t vt_kept_raw_bytes(const vt_kept *kept, const vt_kept_part *part);
void vt_kept_copy_raw(const vt_kept *kept, const vt_kept_part *part, void *raw);
const float *vt_kept_decode(const vt_kept *kept, const vt_kept_part *part, const void *raw, float *room);

/* The numbers of a place, laid out as block VT_BLOCK_MOMENTS is; NULL: not every parameter has numbers there. */
float *vt_kept_block(const vt_kept *kept, int place);

/* The index of the first parameter that holds a NaN or Inf at this place, or the number of parameters. */
int32_t vt_kept_first_nonfinite(const vt_kept *kept, int place);

/* All states, but not the average, become 0. */
void vt_kept_clear(const vt_kept *kept);

#endif
