/* Where the files of an evaluation go, so that they never replace those of another evaluation. A file made_from.txt
 * beside them names the checkpoint, the flags and the data that they were made from. */
#ifndef VT_FORECAST_PLACE_H
#define VT_FORECAST_PLACE_H

#include "base/text.h"
#include "data/source.h"

typedef struct {
    char *directory;   /* before vt_place_take the wanted one, then the one that is used */
    bool is_named;     /* the user named it, so no other directory will do */
    bool replaces;     /* another evaluation in it may be replaced */
    vt_text made_from; /* the text of made_from.txt: lines "what: value" */
} vt_place;

/* Collective. Makes the directory. If another evaluation is there: DIR-2, or the next number that is free or holds the
 * same evaluation. Error: the directory is_named and holds another evaluation. */
vt_status vt_place_take(vt_place *place, vt_world *world);
void vt_place_close(vt_place *place);

#endif
