/* Parameters from a .safetensors file that PyTorch's side wrote. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/inside.h"
#include "checkpoint/parts.h"
#include "storage/safetensors.h"

/* ---- names ---- */

/* The length of what DistributedDataParallel and torch.compile have put before a name, nested in any order. */
static size_t prefix_length(const char *name)
{
    static const char *const prefixes[] = {"module.", "_orig_mod."};
    size_t length = 0, before;
    do {
        before = length;
        for (int i = 0; i < 2; i++)
            if (strncmp(name + length, prefixes[i], strlen(prefixes[i])) == 0) length += strlen(prefixes[i]);
    } while (length > before);
    return length;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Fails if two tensors have one name now: the model's and its running mean, say, which had different prefixes. */
static vt_status check_distinct(const vt_safetensors *file, const char *path)
{
    vt_status status = VT_OK;
    int64_t count = 0;
    while (vt_safetensors_name(file, count) != NULL) count++;
    const char **names = vt_allocate((size_t)count + 1, sizeof *names, "a .safetensors file");
    for (int64_t i = 0; i < count; i++) names[i] = vt_safetensors_name(file, i);
    qsort(names, (size_t)count, sizeof *names, by_text);
    for (int64_t i = 1; i < count; i++)
        VT_CHECK(strcmp(names[i - 1], names[i]) != 0,
                 "%s: two of its tensors are '%s' once 'module.' and '_orig_mod.' are taken off the names; leave one "
                 "in the file",
                 path, names[i]);
done:
    free(names);
    return status;
}

static vt_status take_off_prefixes(vt_safetensors *file, const char *path, vt_text *changes)
{
    vt_status status = VT_OK;
    char *first = NULL;
    const char *name;
    for (int64_t i = 0; (name = vt_safetensors_name(file, i)) != NULL; i++) {
        const size_t length = prefix_length(name);
        if (length == 0) continue;
        if (first == NULL) first = vt_text_format("%.*s", (int)length, name);
        vt_safetensors_rename(file, i, name + length);
    }
    if (first == NULL) return VT_OK;
    vt_text_append(changes, "; '%s' was taken off its names", first);
    VT_TRY(check_distinct(file, path));
done:
    free(first);
    return status;
}

/* ---- where a parameter stands in the file ---- */

/* One of `parts` runs of rows. */
typedef struct {
    char *name;
    int part, parts;
} source;

/* "blocks.3.attn.qkv.weight" of a parameter "blocks.3.attn.k.weight", *part 1; NULL of all others. */
static char *fused_name(const char *parameter, int *part)
{
    static const char *const parts[] = {".attn.q.", ".attn.k.", ".attn.v."};
    for (int i = 0; i < 3; i++) {
        const char *at = strstr(parameter, parts[i]);
        if (at == NULL) continue;
        *part = i;
        return vt_text_format("%.*s.attn.qkv.%s", (int)(at - parameter), parameter, at + strlen(parts[i]));
    }
    return NULL;
}

/* Where the file has no q, k and v, but all three in one tensor (2023's tutorial, timm), rows of q come first, then k's
 * and v's, as its model takes them apart by reshape(B, N, 3, heads, d). */
static source find_source(const vt_safetensors *file, const char *parameter)
{
    int part = 0;
    char *fused = vt_safetensors_type(file, parameter) == NULL ? fused_name(parameter, &part) : NULL;
    if (fused != NULL && vt_safetensors_type(file, fused) != NULL) return (source){fused, part, 3};
    free(fused);
    return (source){vt_text_copy(parameter), 0, 1};
}

static bool is_source_of(const vt_safetensors *file, const char *name, const char *parameter)
{
    source from = find_source(file, parameter);
    const bool same = strcmp(from.name, name) == 0;
    free(from.name);
    return same;
}

/* Does the model have parameters whose names begin as this one, up to the first point? */
static bool has_part(const vt_parameters *parameters, const char *name)
{
    const size_t length = strcspn(name, ".");
    bool found = false;
    for (int64_t i = 0; i < vt_parameters_count(parameters); i++) {
        const char *other = vt_parameters_at(parameters, i)->name;
        found = found || (strcspn(other, ".") == length && strncmp(other, name, length) == 0);
    }
    return found;
}

static bool is_used(const vt_safetensors *file, const vt_parameters *parameters, const char *name)
{
    for (int64_t i = 0; i < vt_parameters_count(parameters); i++)
        if (strcmp(vt_stored_name(vt_parameters_at(parameters, i)), name) == 0) return true;
    if (strstr(name, ".attn.qkv.") == NULL) return false;
    for (int64_t i = 0; i < vt_parameters_count(parameters); i++)
        if (is_source_of(file, name, vt_parameters_at(parameters, i)->name)) return true;
    return false;
}

/* An additional tensor in a part that the model has belongs to another model: a further block, say, or a head's bias.
 * Tensors beside a model in such files (an optimizer's state) have names that begin differently. */
static vt_status check_all_used(const vt_safetensors *file, const char *path, const vt_parameters *parameters)
{
    vt_status status = VT_OK;
    const char *name;
    for (int64_t i = 0; (name = vt_safetensors_name(file, i)) != NULL; i++)
        VT_CHECK(is_used(file, parameters, name) || !has_part(parameters, name),
                 "%s: its tensor '%s' is not in the model that the configuration asks for; is it of another depth?",
                 path, name);
done:
    return status;
}

/* ---- reading ---- */

static vt_status read_whole(const vt_safetensors *file, const char *parameter, const vt_tensor_shape *shape,
                            float *values, int64_t *rounded, bool *split)
{
    source from = find_source(file, parameter);
    const char *type = vt_safetensors_type(file, from.name);
    *rounded += type != NULL && strcmp(type, "F64") == 0;
    *split = *split || from.parts > 1;
    vt_status status = vt_safetensors_read_part(file, from.name, from.part, from.parts, shape, values);
    free(from.name);
    return status;
}

vt_status vt_checkpoint_import(const char *path, const vt_checkpoint_subject *subject, vt_text *changes)
{
    vt_status status = VT_OK;
    vt_backend *backend = subject->backend;
    vt_safetensors *file = NULL;
    int64_t rounded = 0;
    bool split = false;
    float *whole = NULL, *room = vt_stored_room(subject);
    VT_TRY(vt_safetensors_open(path, &file));
    VT_TRY(take_off_prefixes(file, path, changes));
    VT_TRY(check_all_used(file, path, subject->parameters));
    for (int64_t i = 0; i < vt_parameters_count(subject->parameters); i++) {
        vt_tensor_box boxes[VT_TENSOR_BOXES];
        vt_stored_tensor tensor = vt_stored_at(subject, i);
        vt_tensor_shape shape = tensor.shape;
        free(whole);
        whole = vt_allocate((size_t)vt_tensor_count(&shape), sizeof *whole, "a checkpoint");
        VT_TRY(read_whole(file, vt_stored_name(tensor.parameter), &shape, whole, &rounded, &split));
        float *next = room;
        int number = vt_stored_boxes(&tensor, boxes);
        for (int j = 0; j < number; j++) {
            vt_tensor_box_copy(&shape, whole, &boxes[j], next);
            next += vt_tensor_count(&boxes[j].shape);
        }
        if (number > 0)
            backend->copy_from_host(backend, tensor.part.numbers, room, (size_t)tensor.part.piece.count * sizeof *room);
    }
    if (split) vt_text_append(changes, "; its attn.qkv was split into q, k and v");
    if (rounded > 0)
        vt_text_append(changes, "; %lld parameters were rounded from float64 to float32", (long long)rounded);
done:
    vt_safetensors_close(&file);
    free(whole);
    free(room);
    return status;
}
