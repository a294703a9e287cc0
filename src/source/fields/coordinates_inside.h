/* The inside of vt_coordinates, for coordinates.c, which lists and chooses, and coordinates_grid.c, which reads grids.
 */
#ifndef VT_SOURCE_FIELDS_COORDINATES_INSIDE_H
#define VT_SOURCE_FIELDS_COORDINATES_INSIDE_H

#include "source/fields/coordinates.h"

enum { VT_COORDINATE_KINDS = 4, VT_COORDINATE_TEXT = 64, VT_COORDINATE_LIST = 1024 };

/* How a dataset says that it is of a kind, in order of certainty. WEAK: it belongs to that dimension, or has a name
 * that other things have, too. */
typedef enum {
    VT_IDENTITY_NONE,
    VT_IDENTITY_WEAK,
    VT_IDENTITY_BY_NAME,
    VT_IDENTITY_BY_AXIS,
    VT_IDENTITY_BY_UNITS
} vt_identity;

/* A dataset that may be a coordinate. */
typedef struct {
    char *path;       /* from the root on, without the first slash */
    const char *name; /* within its group */
    int rank;
    int64_t extent[3];
    char units[VT_COORDINATE_TEXT], standard_name[VT_COORDINATE_TEXT], axis[VT_COORDINATE_TEXT];
    bool is_vertical;                  /* by the attribute `positive` */
    bool is_scale, is_listed, is_near; /* named by the attribute `coordinates`; in the variable's own group */
    bool along[4];                     /* the scale of this dimension of the variable, as [time, level, lat, lon] */
} vt_candidate;

struct vt_coordinates {
    const vt_field_source *source;
    vt_candidate *candidates;
    int64_t count;
    bool has_scale[4];                /* dimensions of the variable */
    char *given[VT_COORDINATE_KINDS]; /* by the option; "none": there is none */
    char list[VT_COORDINATE_LIST];    /* the attribute `coordinates` of the variable */
};

vt_identity vt_candidate_identity(const vt_candidate *candidate, vt_coordinate_kind kind);

/* The candidate's place in the list of names that mean the kind, or -1. */
int vt_candidate_place_of_name(const vt_candidate *candidate, vt_coordinate_kind kind);

/* *result NULL: there is none; if there are several, *doubt says so. */
vt_status vt_coordinates_choose(const vt_coordinates *coordinates, vt_coordinate_kind kind, const vt_candidate **result,
                                char **doubt);

#endif
