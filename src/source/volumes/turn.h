/* The 24 ways in which the 2022 tutorial turns a cube: 16 rotations and 8 reflections (its list is no group). */
#ifndef VT_SOURCE_VOLUMES_TURN_H
#define VT_SOURCE_VOLUMES_TURN_H

#include <stdbool.h>
#include <stdint.h>

enum { VT_TURNS = 24 };

/* Axis a of the result is axis from[a] of the cube, reversed where flipped[a]: point i of the result is point j with
 * j[from[a]] = flipped[a] ? side - 1 - i[a] : i[a]. */
typedef struct {
    int from[3];
    bool flipped[3];
} vt_turn;

/* turn 0 … 23: entry turn + 1 of the tutorial's list. The last one leaves the cube as it is. */
extern const vt_turn vt_turns[VT_TURNS];

/* A cube of `side` points along each axis from `corner` on, of the first `fields` fields, and how it is turned: with
 * rotate_vectors fields 1 to 3, the components of a velocity, turn with its points. */
enum { VT_CUBE_FIELDS = 64 };
typedef struct {
    int64_t corner[3], side, fields;
    const vt_turn *turn;
    bool rotate_vectors;
} vt_cube;

/* A part of a cube as it lies in memory: points [first, first + count) of each axis, and fields. */
typedef struct {
    const float *values; /* of the first point and field */
    int64_t first[3], count[3];
    int64_t stride[3]; /* between points along each axis */
    int64_t first_field, fields, field_stride;
} vt_cube_part;

/* Writes those points of the turned cube, to [side³, fields], that the part holds. */
void vt_turn_part(const vt_cube *cube, const vt_cube_part *part, float *to);

#endif
