/* What an optimizer keeps beside the values. */
#include <stdlib.h>
#include <string.h>

#include "backend/codes.h"
#include "base/memory.h"
#include "optimizer/optimizer.h"

enum { MOST_PLACES = VT_OPTIMIZER_KEPT + 1 /* the average */, ALIGNMENT = 16 };

static const vt_optimizer_state_kind average = {"average", "average of", VT_KEPT_NUMBERS};

/* What all parameters keep under one name: numbers of some, codes of others. */
typedef struct {
    const vt_optimizer_state_kind *state; /* for name and meaning; the form may differ by parameter */
    bool is_block;                        /* numbers of all, laid out as VT_BLOCK_MOMENTS */
    int64_t *first; /* [parameter] where its part begins among the numbers, or the codes; -1: it has none */
    int64_t number_count, code_count;
    float *numbers;
    uint8_t *codes;
    float *scales;
    int64_t *ranges[2]; /* [parameter, 2] in the back end's memory: its numbers, its scales */
} place_of;

struct vt_kept {
    const vt_optimizer_kind *kind;
    vt_backend *backend;
    const vt_parameters *parameters;
    int64_t code_block;
    bool averages;
    int count;
    place_of places[MOST_PLACES];
    int32_t *found; /* in the back end's memory */
};

static bool is_in_codes(vt_kept_form form)
{
    return form == VT_KEPT_SIGNED_CODES || form == VT_KEPT_UNSIGNED_CODES;
}

/* What the parameter's kind keeps under this name; NULL: nothing. */
static const vt_optimizer_state_kind *state_of(const vt_kept *kept, const char *name, const vt_parameter *parameter)
{
    const vt_optimizer_kind *kind = vt_optimizer_kind_for(kept->kind, parameter);
    if (parameter->frozen) return NULL;
    if (kept->averages && strcmp(name, average.name) == 0) return &average;
    for (int i = 0; i < vt_optimizer_state_count(kind); i++)
        if (strcmp(kind->states[i].name, name) == 0) return &kind->states[i];
    return NULL;
}

static int64_t blocks_of(const vt_kept *kept, int64_t count)
{
    return (count + kept->code_block - 1) / kept->code_block;
}

/* What this rank keeps in this form. */
static vt_piece piece_of(const vt_kept *kept, vt_kept_form form, const vt_parameter *parameter)
{
    const int left_out = parameter->dimensions - (form == VT_KEPT_ROWS ? 1 : 2);
    vt_piece piece = {.count = parameter->count > 0 ? 1 : 0}; /* 0: another stage has it */
    if (form != VT_KEPT_ROWS && form != VT_KEPT_COLUMNS)
        return vt_parameters_piece(kept->parameters, parameter, VT_BLOCK_MOMENTS);
    for (int i = 0; i < parameter->dimensions; i++) piece.count *= i == left_out ? 1 : parameter->shape[i];
    return piece;
}

/* Where each parameter's part begins. Those of codes begin with a block. */
static void lay_out(const vt_kept *kept, place_of *place)
{
    const vt_parameters *parameters = kept->parameters;
    place->first = vt_allocate((size_t)parameters->count + 1, sizeof *place->first, "the optimizer");
    place->is_block = true;
    for (int64_t i = 0; i < parameters->count; i++) {
        const vt_parameter *parameter = parameters->list[i];
        const vt_optimizer_state_kind *state = state_of(kept, place->state->name, parameter);
        const bool in_block = parameter->frozen || (state != NULL && state->form == VT_KEPT_NUMBERS);
        place->is_block = place->is_block && in_block;
    }
    for (int64_t i = 0; i < parameters->count; i++) {
        const vt_parameter *parameter = parameters->list[i];
        const vt_optimizer_state_kind *state = state_of(kept, place->state->name, parameter);
        place->first[i] = -1;
        if (state == NULL) continue;
        const vt_piece piece = piece_of(kept, state->form, parameter);
        const bool codes = is_in_codes(state->form);
        int64_t *next = codes ? &place->code_count : &place->number_count;
        place->first[i] = place->is_block ? piece.offset : *next;
        *next += codes ? blocks_of(kept, piece.count) * kept->code_block
                       : (piece.count + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    if (place->is_block) place->number_count = vt_parameters_block_elements(parameters, VT_BLOCK_MOMENTS);
}

/* Where vt_kept_first_nonfinite looks: a block of codes is finite if its scale is. */
static vt_status upload_ranges(vt_kept *kept, place_of *place, bool scales)
{
    vt_status status = VT_OK;
    vt_backend *backend = kept->backend;
    const int64_t count = kept->parameters->count;
    const int index = (int)(place - kept->places);
    int64_t *host = vt_allocate(2 * (size_t)count + 1, sizeof *host, "the optimizer");
    for (int64_t i = 0; i < count; i++) {
        vt_kept_part part;
        const bool has = vt_kept_part_of(kept, index, kept->parameters->list[i], &part);
        if (!has || is_in_codes(part.form) != scales) continue;
        host[2 * i] = scales ? place->first[i] / kept->code_block : place->first[i];
        host[2 * i + 1] = scales ? blocks_of(kept, part.piece.count) : part.piece.count;
    }
    VT_TAKE(backend, VT_MEMORY_WORKSPACE, 2 * count, place->ranges[scales]);
    backend->copy_from_host(backend, place->ranges[scales], host, 2 * (size_t)count * sizeof *host);
done:
    free(host);
    return status;
}

static vt_status take_memory(vt_kept *kept, place_of *place)
{
    vt_status status = VT_OK;
    lay_out(kept, place);
    if (place->number_count > 0) {
        VT_TAKE(kept->backend, VT_MEMORY_OPTIMIZER, place->number_count, place->numbers);
        VT_TRY(upload_ranges(kept, place, false));
    }
    if (place->code_count > 0) {
        VT_TAKE(kept->backend, VT_MEMORY_OPTIMIZER, place->code_count, place->codes);
        VT_TAKE(kept->backend, VT_MEMORY_OPTIMIZER, blocks_of(kept, place->code_count), place->scales);
        VT_TRY(upload_ranges(kept, place, true));
    }
done:
    return status;
}

vt_status vt_kept_open(const vt_optimizer_kind *kind, bool averages, int64_t code_block, vt_backend *backend,
                       const vt_parameters *parameters, vt_kept **result)
{
    vt_status status = VT_OK;
    vt_kept *kept = vt_allocate(1, sizeof *kept, "the optimizer");
    *kept = (vt_kept){kind, backend, parameters, code_block, averages, 0, {{0}}, NULL};
    for (const vt_optimizer_state_kind *state; (state = vt_optimizer_kept_state(kind, kept->count)) != NULL;)
        kept->places[kept->count++].state = state;
    if (averages) kept->places[kept->count++].state = &average;
    for (int i = 0; i < kept->count; i++) VT_TRY(take_memory(kept, &kept->places[i]));
    VT_TAKE(backend, VT_MEMORY_WORKSPACE, 1, kept->found);
done:
    if (status != VT_OK) vt_kept_close(&kept);
    *result = kept;
    return status;
}

void vt_kept_close(vt_kept **kept)
{
    vt_kept *k = *kept;
    if (k == NULL) return;
    for (int i = 0; i < k->count; i++) {
        place_of *place = &k->places[i];
        k->backend->release(k->backend, place->numbers);
        k->backend->release(k->backend, place->codes);
        k->backend->release(k->backend, place->scales);
        k->backend->release(k->backend, place->ranges[0]);
        k->backend->release(k->backend, place->ranges[1]);
        free(place->first);
    }
    k->backend->release(k->backend, k->found);
    free(k);
    *kept = NULL;
}

int vt_kept_count(const vt_kept *kept)
{
    return kept->count;
}

const vt_optimizer_state_kind *vt_kept_state(const vt_kept *kept, int place)
{
    return kept->places[place].state;
}

int vt_kept_average(const vt_kept *kept)
{
    return kept->averages ? kept->count - 1 : -1;
}

float *vt_kept_block(const vt_kept *kept, int place)
{
    return place < kept->count && kept->places[place].is_block ? kept->places[place].numbers : NULL;
}

bool vt_kept_part_of(const vt_kept *kept, int index, const vt_parameter *parameter, vt_kept_part *part)
{
    const place_of *place = &kept->places[index];
    const vt_optimizer_state_kind *state = state_of(kept, place->state->name, parameter);
    if (state == NULL) return false;
    const int64_t first = place->first[parameter->index];
    *part = (vt_kept_part){.form = state->form, .piece = piece_of(kept, state->form, parameter)};
    if (is_in_codes(state->form)) {
        part->codes = place->codes + first;
        part->scales = place->scales + first / kept->code_block;
    } else {
        part->numbers = place->numbers + first;
    }
    return true;
}

bool vt_kept_part_named(const vt_kept *kept, const char *name, const vt_parameter *parameter, vt_kept_part *part)
{
    for (int i = 0; i < kept->count; i++)
        if (strcmp(kept->places[i].state->name, name) == 0) return vt_kept_part_of(kept, i, parameter, part);
    return false;
}

static const vt_code_map *map_of(const vt_kept_part *part)
{
    return part->form == VT_KEPT_SIGNED_CODES ? vt_code_map_signed() : vt_code_map_unsigned();
}

/* Scales lie behind codes. */
static size_t code_bytes(const vt_kept_part *part)
{
    return ((size_t)part->piece.count + sizeof(float) - 1) / sizeof(float) * sizeof(float);
}

size_t vt_kept_raw_bytes(const vt_kept *kept, const vt_kept_part *part)
{
    if (!is_in_codes(part->form)) return (size_t)part->piece.count * sizeof(float);
    return code_bytes(part) + (size_t)blocks_of(kept, part->piece.count) * sizeof(float);
}

static void copy_raw(const vt_kept *kept, const vt_kept_part *part, void *raw,
                     void (*copy)(vt_backend *, void *, const void *, size_t))
{
    const bool codes = is_in_codes(part->form);
    const size_t count = (size_t)part->piece.count, scales = (size_t)blocks_of(kept, part->piece.count);
    copy(kept->backend, raw, codes ? (const void *)part->codes : part->numbers, count * (codes ? 1 : sizeof(float)));
    if (codes) copy(kept->backend, (char *)raw + code_bytes(part), part->scales, scales * sizeof(float));
}

void vt_kept_copy_raw(const vt_kept *kept, const vt_kept_part *part, void *raw)
{
    copy_raw(kept, part, raw, kept->backend->copy_to_host_later);
}

const float *vt_kept_decode(const vt_kept *kept, const vt_kept_part *part, const void *raw, float *room)
{
    if (!is_in_codes(part->form)) return raw;
    const float *scales = (const float *)(const void *)((const char *)raw + code_bytes(part));
    vt_codes_decode(map_of(part), raw, scales, part->piece.count, kept->code_block, room);
    return room;
}

void vt_kept_fetch(const vt_kept *kept, const vt_kept_part *part, float *host)
{
    void *raw = is_in_codes(part->form) ? vt_allocate(vt_kept_raw_bytes(kept, part) + 1, 1, "the optimizer") : NULL;
    copy_raw(kept, part, raw != NULL ? raw : host, kept->backend->copy_to_host);
    if (raw != NULL) vt_kept_decode(kept, part, raw, host);
    free(raw);
}

void vt_kept_put(const vt_kept *kept, const vt_kept_part *part, const float *host)
{
    vt_backend *backend = kept->backend;
    const int64_t count = part->piece.count, blocks = blocks_of(kept, count);
    if (!is_in_codes(part->form)) {
        backend->copy_from_host(backend, part->numbers, host, (size_t)count * sizeof *host);
        return;
    }
    uint8_t *codes = vt_allocate((size_t)count + 1, 1, "the optimizer");
    float *scales = vt_allocate((size_t)blocks + 1, sizeof *scales, "the optimizer");
    vt_codes_encode(map_of(part), host, count, kept->code_block, codes, scales);
    backend->copy_from_host(backend, part->codes, codes, (size_t)count);
    backend->copy_from_host(backend, part->scales, scales, (size_t)blocks * sizeof *scales);
    free(codes);
    free(scales);
}

int32_t vt_kept_first_nonfinite(const vt_kept *kept, int index)
{
    vt_backend *backend = kept->backend;
    const place_of *place = &kept->places[index];
    const float *const numbers[2] = {place->numbers, place->scales};
    const int64_t count = kept->parameters->count;
    int32_t least = (int32_t)count;
    for (int i = 0; i < 2; i++) {
        int32_t first = 0;
        if (numbers[i] == NULL) continue;
        backend->first_nonfinite(backend, numbers[i], place->ranges[i], count, NULL, kept->found);
        backend->copy_to_host(backend, &first, kept->found, sizeof first);
        if (first < least) least = first;
    }
    return least;
}

void vt_kept_clear(const vt_kept *kept)
{
    for (int i = 0; i < kept->count; i++) {
        const place_of *place = &kept->places[i];
        vt_backend *backend = kept->backend;
        if (i == vt_kept_average(kept)) continue;
        if (place->number_count > 0)
            backend->zero(backend, place->numbers, (size_t)place->number_count * sizeof(float));
        if (place->code_count == 0) continue; /* with a scale of 0 all codes are 0 */
        backend->zero(backend, place->scales, (size_t)blocks_of(kept, place->code_count) * sizeof(float));
    }
}
