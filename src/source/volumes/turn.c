#include "source/volumes/volumes.h"

const vt_turn vt_turns[VT_TURNS] = {
    {{0, 1, 2}, {1, 1, 0}}, {{0, 1, 2}, {1, 0, 1}}, {{0, 1, 2}, {0, 1, 1}}, {{1, 0, 2}, {1, 0, 0}},
    {{1, 0, 2}, {1, 0, 1}}, {{1, 0, 2}, {0, 1, 0}}, {{1, 0, 2}, {0, 1, 1}}, {{2, 1, 0}, {1, 0, 0}},
    {{2, 1, 0}, {1, 1, 0}}, {{2, 1, 0}, {0, 0, 1}}, {{2, 1, 0}, {0, 1, 1}}, {{0, 2, 1}, {0, 1, 0}},
    {{0, 2, 1}, {1, 1, 0}}, {{0, 2, 1}, {0, 0, 1}}, {{0, 2, 1}, {1, 0, 1}}, {{1, 2, 0}, {1, 1, 0}},
    {{1, 2, 0}, {0, 1, 1}}, {{1, 2, 0}, {1, 0, 1}}, {{1, 2, 0}, {1, 1, 1}}, {{2, 0, 1}, {1, 1, 0}},
    {{2, 0, 1}, {1, 0, 1}}, {{2, 0, 1}, {0, 1, 1}}, {{2, 0, 1}, {1, 1, 1}}, {{0, 1, 2}, {0, 0, 0}}};

/* A row of the result: `count` points, whose numbers lie `step` apart in the part. Called with a constant number of
 * fields, so that the compiler unrolls the inner loop. */
static inline __attribute__((always_inline)) void turn_row(const float *from, int64_t step, int64_t count, int fields,
                                                           const int64_t *offsets, const float *signs, int all,
                                                           float *restrict to)
{
    for (int64_t i = 0; i < count; i++, from += step, to += all)
#pragma GCC unroll 5
        for (int c = 0; c < fields; c++) to[c] = signs[c] * from[offsets[c]];
}

void vt_turn_part(const vt_cube *cube, const vt_cube_part *part, float *to)
{
    const vt_turn *turn = cube->turn;
    const int64_t side = cube->side, fields = cube->fields;
    int64_t first[3], count[3], step[3], offsets[VT_CUBE_FIELDS] = {0}, start = 0;
    int here[VT_CUBE_FIELDS], found = 0;
    float signs[VT_CUBE_FIELDS] = {0};
    for (int a = 0; a < 3; a++) {
        const int q = turn->from[a];
        count[a] = part->count[q];
        first[a] = turn->flipped[a] ? side - part->first[q] - count[a] : part->first[q];
        step[a] = turn->flipped[a] ? -part->stride[q] : part->stride[q];
        if (turn->flipped[a]) start += (count[a] - 1) * part->stride[q];
    }
    for (int c = 0; c < fields; c++) {
        const bool turns = cube->rotate_vectors && c >= 1 && c <= 3;
        const int64_t field = (turns ? 1 + turn->from[c - 1] : c) - part->first_field;
        if (field < 0 || field >= part->fields) continue;
        offsets[found] = field * part->field_stride;
        signs[found] = turns && turn->flipped[c - 1] ? -1 : 1;
        here[found++] = c;
    }
    for (int64_t x = 0; x < count[0]; x++)
        for (int64_t y = 0; y < count[1]; y++) {
            const float *from = part->values + start + x * step[0] + y * step[1];
            float *row = to + (((first[0] + x) * side + first[1] + y) * side + first[2]) * fields;
            if (found == 4 && fields == 4)
                turn_row(from, step[2], count[2], 4, offsets, signs, 4, row);
            else if (found == 5 && fields == 5)
                turn_row(from, step[2], count[2], 5, offsets, signs, 5, row);
            else
                for (int c = 0; c < found; c++)
                    turn_row(from, step[2], count[2], 1, &offsets[c], &signs[c], (int)fields, row + here[c]);
        }
}
