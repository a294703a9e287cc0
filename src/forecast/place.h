/* Where the files of an evaluation go: never over those of another one. A file made_from.txt beside them says which
 * checkpoint, flags and data they are of. */
#ifndef VT_FORECAST_PLACE_H
#define VT_FORECAST_PLACE_H

#include "base/text.h"
#include "data/source.h"

typedef struct {
    char *directory; /* that was asked for; then the one that is used */
    bool is_named;   /* by the user: no other one will do */
    bool replaces;   /* another evaluation that is there */
    vt_text of;      /* lines "what: value": checkpoint and flags */
} vt_place;

/* Collective. Makes the directory. If another evaluation is there: DIR-2, or the next number that is free or holds the
 * same evaluation. files: lines about the data, added to `of` on rank 0. Errors: is_named, and the directory holds
 * another evaluation. */
vt_status vt_place_take(vt_place *place, vt_world *world, const char *files);
void vt_place_close(vt_place *place);

#endif
