/* What an optimizer keeps beside the values. */
#include <stdlib.h>

#include "backend/codes.h"
#include "base/memory.h"
#include "base/whole.h"
#include "optimizer/optimizer.h"

enum { ALIGNMENT = 16 };

static const vt_optimizer_state_kind average = {"average", "average of"};

static bool is_in_codes(vt_kept_form form)
{
    return form == VT_KEPT_SIGNED_CODES || form == VT_KEPT_UNSIGNED_CODES;
}

static int64_t blocks_of(const vt_kept *kept, int64_t count)
{
    return vt_quotient_up(count, kept->code_block);
}

/* What this rank keeps in this form. */
static vt_piece piece_of(const vt_kept *kept, vt_kept_form form, const vt_parameter *parameter)
{
    const int left_out = parameter->dimensions - (form == VT_KEPT_ROWS ? 1 : 2);
    vt_piece piece = {.count = parameter->count > 0 ? 1 : 0}; /* 0: another stage has it */
    if (form == VT_KEPT_NOTHING) return (vt_piece){0};
    if (form != VT_KEPT_ROWS && form != VT_KEPT_COLUMNS)
        return vt_parameters_piece(kept->parameters, parameter, VT_BLOCK_MOMENTS);
    for (int i = 0; i < parameter->dimensions; i++) piece.count *= i == left_out ? 1 : parameter->shape[i];
    return piece;
}

/* Where parts begin among the numbers, or the codes; those of codes begin with a block. */
static void lay_out(const vt_kept *kept, vt_kept_place *place, int64_t *first)
{
    const vt_parameters *parameters = kept->parameters;
    for (int64_t i = 0; i < parameters->count; i++) {
        const vt_kept_part *part = &place->parts[i];
        const bool codes = is_in_codes(part->form);
        int64_t *next = codes ? &place->code_count : &place->number_count;
        first[i] = place->is_block ? part->piece.offset : *next;
        *next += codes ? blocks_of(kept, part->piece.count) * kept->code_block
                       : vt_quotient_up(part->piece.count, ALIGNMENT) * ALIGNMENT;
    }
    if (place->is_block) place->number_count = vt_parameters_block_elements(parameters, VT_BLOCK_MOMENTS);
}

static vt_status open_place(vt_kept *kept, vt_kept_place *place)
{
    vt_status status = VT_OK;
    const int64_t count = kept->parameters->count;
    vt_kept_memory *all = &place->memory;
    int64_t *first = vt_allocate((size_t)count + 1, sizeof *first, "the optimizer");
    lay_out(kept, place, first);
    if (place->number_count > 0) VT_TAKE(kept->backend, VT_MEMORY_OPTIMIZER, place->number_count, all->numbers);
    if (place->code_count > 0) {
        VT_TAKE(kept->backend, VT_MEMORY_OPTIMIZER, place->code_count, all->codes);
        VT_TAKE(kept->backend, VT_MEMORY_OPTIMIZER, blocks_of(kept, place->code_count), all->scales);
    }
    for (int64_t i = 0; i < count; i++) {
        vt_kept_part *part = &place->parts[i];
        if (is_in_codes(part->form))
            part->memory =
                (vt_kept_memory){.codes = all->codes + first[i], .scales = all->scales + first[i] / kept->code_block};
        else if (part->form != VT_KEPT_NOTHING)
            part->memory.numbers = all->numbers + first[i];
    }
done:
    free(first);
    return status;
}

/* The forms of all parts at a place. */
static void look_at_place(vt_kept *kept, const vt_config *config, int index)
{
    const vt_parameters *parameters = kept->parameters;
    vt_kept_place *place = &kept->places[index];
    place->parts = vt_allocate((size_t)parameters->count + 1, sizeof *place->parts, "the optimizer");
    place->is_block = true;
    for (int64_t i = 0; i < parameters->count; i++) {
        const vt_parameter *parameter = parameters->list[i];
        const vt_kept_form form = vt_optimizer_form(config, index, parameter);
        place->parts[i] = (vt_kept_part){.form = form, .piece = piece_of(kept, form, parameter)};
        place->is_block = place->is_block && (parameter->frozen || form == VT_KEPT_NUMBERS);
        if (form != VT_KEPT_NOTHING)
            place->state = index == VT_KEPT_AVERAGE ? &average : &vt_optimizer_kinds[config->optimizer]->states[index];
    }
}

vt_status vt_kept_open(const vt_config *config, vt_backend *backend, const vt_parameters *parameters, vt_kept **result)
{
    vt_status status = VT_OK;
    vt_kept *kept = vt_allocate(1, sizeof *kept, "the optimizer");
    *kept = (vt_kept){.backend = backend, .parameters = parameters, .code_block = config->optimizer_block};
    for (int i = 0; i < VT_KEPT_PLACES; i++) {
        look_at_place(kept, config, i);
        if (kept->places[i].state != NULL) VT_TRY(open_place(kept, &kept->places[i]));
    }
    VT_TAKE(backend, VT_MEMORY_WORKSPACE, 2 * parameters->count, kept->ranges);
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
    for (int i = 0; i < VT_KEPT_PLACES; i++) {
        const vt_kept_place *place = &k->places[i];
        k->backend->release(k->backend, place->memory.numbers);
        k->backend->release(k->backend, place->memory.codes);
        k->backend->release(k->backend, place->memory.scales);
        free(place->parts);
    }
    k->backend->release(k->backend, k->ranges);
    k->backend->release(k->backend, k->found);
    free(k);
    *kept = NULL;
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
    copy(kept->backend, raw, codes ? (const void *)part->memory.codes : part->memory.numbers,
         count * (codes ? 1 : sizeof(float)));
    if (codes) copy(kept->backend, (char *)raw + code_bytes(part), part->memory.scales, scales * sizeof(float));
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

const float *vt_kept_fetch(const vt_kept *kept, const vt_kept_part *part, float *host)
{
    void *raw = is_in_codes(part->form) ? vt_allocate(vt_kept_raw_bytes(kept, part) + 1, 1, "the optimizer") : NULL;
    copy_raw(kept, part, raw != NULL ? raw : host, kept->backend->copy_to_host);
    if (raw != NULL) vt_kept_decode(kept, part, raw, host);
    free(raw);
    return host;
}

void vt_kept_put(const vt_kept *kept, const vt_kept_part *part, const float *host)
{
    vt_backend *backend = kept->backend;
    const int64_t count = part->piece.count, blocks = blocks_of(kept, count);
    if (!is_in_codes(part->form)) {
        backend->copy_from_host(backend, part->memory.numbers, host, (size_t)count * sizeof *host);
        return;
    }
    uint8_t *codes = vt_allocate((size_t)count + 1, 1, "the optimizer");
    float *scales = vt_allocate((size_t)blocks + 1, sizeof *scales, "the optimizer");
    vt_codes_encode(map_of(part), host, count, kept->code_block, codes, scales);
    backend->copy_from_host(backend, part->memory.codes, codes, (size_t)count);
    backend->copy_from_host(backend, part->memory.scales, scales, (size_t)blocks * sizeof *scales);
    free(codes);
    free(scales);
}

/* ranges [parameter, 2]: offset and length of what each parameter has among a place's numbers, or with `scales` among
 * the scales of its codes, a block of which is finite if its scale is. place NULL: among the values. */
static void find_ranges(const vt_kept *kept, const vt_kept_place *place, bool scales, int64_t *ranges)
{
    for (int64_t i = 0; i < kept->parameters->count; i++) {
        const vt_kept_part *part = place != NULL ? &place->parts[i] : NULL;
        vt_piece piece = {0};
        if (part == NULL)
            piece = vt_parameters_piece(kept->parameters, kept->parameters->list[i], VT_BLOCK_VALUES);
        else if (scales && part->memory.scales != NULL)
            piece = (vt_piece){.count = blocks_of(kept, part->piece.count),
                               .offset = part->memory.scales - place->memory.scales};
        else if (!scales && part->memory.numbers != NULL)
            piece = (vt_piece){.count = part->piece.count, .offset = part->memory.numbers - place->memory.numbers};
        ranges[2 * i] = piece.offset;
        ranges[2 * i + 1] = piece.count;
    }
}

int32_t vt_kept_first_nonfinite(const vt_kept *kept, int index)
{
    vt_backend *backend = kept->backend;
    const vt_kept_place *place = index >= 0 ? &kept->places[index] : NULL;
    const int64_t count = kept->parameters->count;
    const size_t bytes = 2 * (size_t)count * sizeof *kept->ranges;
    int64_t *ranges = vt_allocate(1, bytes + 1, "the optimizer");
    int32_t least = (int32_t)count;
    for (int scales = 0; scales < 2; scales++) {
        const float *numbers = scales && place != NULL ? place->memory.scales : NULL;
        int32_t first = 0;
        if (!scales) numbers = place != NULL ? place->memory.numbers : kept->parameters->values;
        if (numbers == NULL) continue;
        find_ranges(kept, place, scales, ranges);
        backend->copy_from_host(backend, kept->ranges, ranges, bytes);
        backend->first_nonfinite(backend, numbers, kept->ranges, count, NULL, kept->found);
        backend->copy_to_host(backend, &first, kept->found, sizeof first);
        if (first < least) least = first;
    }
    free(ranges);
    return least;
}

void vt_kept_clear(const vt_kept *kept)
{
    vt_backend *backend = kept->backend;
    for (int i = 0; i < VT_OPTIMIZER_STATES; i++) {
        const vt_kept_place *place = &kept->places[i];
        if (place->number_count > 0)
            backend->zero(backend, place->memory.numbers, (size_t)place->number_count * sizeof(float));
        if (place->code_count > 0) /* with a scale of 0 all codes are 0 */
            backend->zero(backend, place->memory.scales, (size_t)blocks_of(kept, place->code_count) * sizeof(float));
    }
}
