#define _GNU_SOURCE /* strverscmp */
/* What a run begins with (init_from): the parameters of a checkpoint or a .safetensors file that fit by name and shape,
 * and a position embedding of another grid. The log tells what doesn't. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "checkpoint/inside.h"
#include "model/model.h"

/* A parameter that begins anew, or a tensor that nothing uses. */
typedef struct {
    const char *name;
    char *why; /* "not there"; NULL of a tensor */
} item;

typedef struct {
    const char *path;
    const vt_checkpoint_subject *subject;
    vt_tensor_file *index; /* of a checkpoint; or NULL */
    vt_safetensors *file;  /* or this, from PyTorch's side */
    const char *group;     /* that a checkpoint has the tensors in */
    vt_names list;         /* of its tensors, in their natural order */
    bool *used;            /* [list.count] */
    int64_t taken, rounded;
    bool split;
    int64_t grid[2]; /* of its tokens; 0: not known */
    item *left;      /* [left_count], parameters */
    int64_t left_count;
    float *room;
    vt_text told; /* lines for the log, each after a newline; those that begin with '!' are warnings */
} source;

/* ---- names that PyTorch's side wrote ---- */

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

/* "blocks.3.attn.qkv.weight" of a parameter "blocks.3.attn.k.weight", *part 1; NULL of all others. malloc'd. */
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

/* Opens a .safetensors file, and takes what PyTorch's wrappers put there off the names. */
static vt_status open_safetensors(const char *path, vt_safetensors **file, vt_text *changes)
{
    vt_status status = VT_OK;
    bool any = false;
    VT_TRY(vt_safetensors_open(path, file));
    for (int64_t i = 0; i < (*file)->count; i++) {
        char *name = (*file)->entries[i].name;
        const size_t length = prefix_length(name);
        if (length == 0) continue;
        if (!any) vt_text_append(changes, "; '%.*s' was taken off its names", (int)length, name);
        any = true;
        memmove(name, name + length, strlen(name + length) + 1);
    }
done:
    return status;
}

/* ---- what is there ---- */

static int by_number(const void *a, const void *b)
{
    return strverscmp(*(const char *const *)a, *(const char *const *)b);
}

static vt_status list_names(source *from)
{
    vt_status status = VT_OK;
    vt_names *list = &from->list;
    if (from->index != NULL) VT_TRY(vt_tensor_file_list(from->index, from->group, list));
    for (int64_t i = 0; from->file != NULL && i < from->file->count; i++)
        vt_names_add(list, from->file->entries[i].name);
    if (list->count > 0) qsort(list->names, (size_t)list->count, sizeof *list->names, by_number);
    from->used = vt_allocate((size_t)list->count + 1, sizeof *from->used, "a checkpoint");
    for (int64_t i = 1; i < list->count; i++) /* the model's and its running mean, say, which had different prefixes */
        VT_CHECK(strcmp(list->names[i - 1], list->names[i]) != 0,
                 "%s: two of its tensors are '%s' once 'module.' and '_orig_mod.' are taken off the names; leave one "
                 "in the file",
                 from->path, from->list.names[i]);
done:
    return status;
}

/* One of `parts` runs of rows of a tensor. */
typedef struct {
    const char *name;          /* NULL: it isn't there */
    char full[VT_STORED_NAME]; /* the same in a checkpoint */
    int part, parts;
    vt_tensor_shape shape; /* of the part */
} place;

static bool find_name(const source *from, const char *name, place *at)
{
    char **found = from->list.count > 0
                       ? bsearch(&name, from->list.names, (size_t)from->list.count, sizeof *from->list.names, by_number)
                       : NULL;
    if (found == NULL) return false;
    at->name = *found;
    from->used[found - from->list.names] = true;
    return true;
}

/* Where the file has no q, k and v, but all three in one tensor (2023's tutorial, timm), rows of q come first, then k's
 * and v's, as its model takes them apart by reshape(B, N, 3, heads, d). */
static vt_status find(const source *from, const vt_parameter *parameter, place *at)
{
    vt_status status = VT_OK;
    *at = (place){.parts = 1};
    char *fused = from->file != NULL ? fused_name(parameter->name, &at->part) : NULL;
    if (find_name(from, vt_stored_name(parameter), at))
        at->part = 0;
    else if (fused != NULL && find_name(from, fused, at))
        at->parts = 3;
    if (at->name == NULL) goto done;
    snprintf(at->full, sizeof at->full, "%s/%s", from->group, at->name);
    if (from->file != NULL)
        at->shape = vt_safetensors_find(from->file, at->name)->shape;
    else
        VT_TRY(vt_tensor_file_shape(from->index, at->full, &at->shape));
    if (at->parts > 1 && at->shape.dimensions > 0 && at->shape.shape[0] % at->parts == 0)
        at->shape.shape[0] /= at->parts;
done:
    free(fused);
    return status;
}

/* ---- taking ---- */

static vt_status read_whole(source *from, const place *at, float *values)
{
    if (from->file == NULL) return vt_tensor_file_read(from->index, at->full, &at->shape, values);
    from->rounded += vt_safetensors_find(from->file, at->name)->type == VT_SAFETENSORS_F64;
    from->split = from->split || at->parts > 1;
    return vt_safetensors_read_part(from->file, at->name, at->part, at->parts, &at->shape, values);
}

/* The grid of so many tokens there. Of a file, which doesn't say it: the one of the same form as the model's. */
static bool find_grid(const source *from, int64_t tokens, const int64_t here[2], int64_t there[2])
{
    memcpy(there, from->grid, sizeof from->grid);
    if (from->file != NULL) {
        there[0] = llround(sqrt((double)tokens * (double)here[0] / (double)here[1]));
        there[1] = there[0] > 0 ? tokens / there[0] : 0;
        if (there[0] * here[1] != there[1] * here[0]) return false;
    }
    return there[0] * there[1] == tokens;
}

/* Is it a position embedding on a grid of tokens, with as many numbers for each? */
static bool on_grid(const source *from, const vt_stored_tensor *tensor, const place *at)
{
    return vt_model_kind_of(from->subject->config)->grid != NULL && at->shape.dimensions == 3 &&
           strcmp(tensor->parameter->name, "pos_embed") == 0 && at->shape.shape[0] == 1 &&
           at->shape.shape[2] == tensor->shape.shape[2];
}

/* Takes a parameter that is there, as it is or, a position embedding, from another grid. *takes: could it? */
static vt_status take(source *from, const vt_stored_tensor *tensor, const place *at, bool *takes)
{
    vt_status status = VT_OK;
    const vt_model_kind *kind = vt_model_kind_of(from->subject->config);
    const vt_tensor_shape *here = &tensor->shape;
    const bool same = here->dimensions == at->shape.dimensions &&
                      memcmp(here->shape, at->shape.shape, (size_t)here->dimensions * sizeof(int64_t)) == 0;
    const bool has_grid = on_grid(from, tensor, at);
    int64_t grid[2] = {0}, old[2] = {0};
    if (has_grid) kind->grid(from->subject->config, grid);
    const bool known = has_grid && find_grid(from, at->shape.shape[1], grid, old);
    const bool resamples = known && memcmp(grid, old, sizeof grid) != 0 && !(same && from->file != NULL);
    float *values = NULL, *made = NULL;
    *takes = same || resamples;
    if (!*takes) return VT_OK;
    if (same && !resamples && from->index != NULL)
        return vt_checkpoint_read_part(from->index, at->full, NULL, tensor, from->subject, from->room);
    values = vt_allocate((size_t)vt_tensor_count(&at->shape) + 1, sizeof *values, "a checkpoint");
    VT_TRY(read_whole(from, at, values));
    if (resamples) {
        made = vt_allocate((size_t)vt_tensor_count(here) + 1, sizeof *made, "a checkpoint");
        vt_positions_resample(values, old, here->shape[2], grid, made);
        vt_text_append(&from->told, "\ninit_from: pos_embed is interpolated from %ld×%ld tokens to %ld×%ld", old[0],
                       old[1], grid[0], grid[1]);
    }
    VT_TRY(vt_checkpoint_read_part(NULL, NULL, resamples ? made : values, tensor, from->subject, from->room));
done:
    free(values);
    free(made);
    return status;
}

static vt_status take_all(source *from)
{
    vt_status status = VT_OK;
    const int64_t count = from->subject->parameters->count;
    char here[128], there[128];
    from->left = vt_allocate((size_t)count + 1, sizeof *from->left, "a checkpoint");
    for (int64_t i = 0; i < count; i++) {
        const vt_stored_tensor tensor = vt_stored_at(from->subject, i);
        place at;
        bool takes = false;
        VT_TRY(find(from, tensor.parameter, &at));
        if (at.name != NULL) VT_TRY(take(from, &tensor, &at, &takes));
        from->taken += takes;
        if (takes) continue;
        vt_tensor_shape_text(&tensor.shape, here);
        vt_tensor_shape_text(&at.shape, there);
        const char *grid = on_grid(from, &tensor, &at) ? ", and on a grid of tokens that is not known" : "";
        char *why = vt_text_format(at.name != NULL ? "%s there, %s here%s" : "not there", there, here, grid);
        from->left[from->left_count++] = (item){tensor.parameter->name, why};
    }
done:
    return status;
}

/* ---- what is told ---- */

/* The layer of a parameter: "blocks." and 12 of "blocks.12.norm1.bias". Returns the characters before the number; 0: it
 * is in no numbered layer. */
static int layer_of(const char *name, int64_t *number)
{
    for (const char *at = strchr(name, '.'); at != NULL; at = strchr(at + 1, '.')) {
        const size_t digits = strspn(at + 1, "0123456789");
        if (digits == 0 || digits > 9 || at[1 + digits] != '.') continue;
        *number = atoi(at + 1);
        return (int)(at + 1 - name);
    }
    return 0;
}

/* How many items, from the first on, are of layers that follow one another; 1 where they are few. */
static int64_t run_length(const item *items, int64_t count)
{
    enum { FEW = 3 };
    int64_t length = 1, last = 0, next = 0;
    const int root = layer_of(items[0].name, &last);
    for (; root > 0 && length < count && layer_of(items[length].name, &next) == root; length++, last = next)
        if (strncmp(items[0].name, items[length].name, (size_t)root) != 0 || next < last || next > last + 1) break;
    return length > FEW ? length : 1;
}

static void tell(source *from, const item *items, int64_t count, const char *what)
{
    enum { MOST_LINES = 40 };
    int64_t lines = 0, first = 0, last = 0;
    for (int64_t i = 0, length; i < count; i += length) {
        const char *name = items[i].name;
        const int root = layer_of(name, &first);
        length = run_length(&items[i], count - i);
        layer_of(items[i + length - 1].name, &last);
        vt_text_append(&from->told, "\ninit_from: %s: ", what);
        if (lines++ == MOST_LINES) {
            vt_text_append(&from->told, "%ld more", count - i);
            return;
        }
        if (length > 1) vt_text_append(&from->told, "%ld of %.*s%ld", length, root, name, first);
        if (last > first && length > 1) vt_text_append(&from->told, " to %.*s%ld", root, name, last);
        if (length > 1) vt_text_append(&from->told, ", such as ");
        vt_text_append(&from->told, items[i].why != NULL ? "%s (%s)" : "%s", name, items[i].why);
    }
}

static void tell_all(source *from)
{
    item *unused = vt_allocate((size_t)from->list.count + 1, sizeof *unused, "a checkpoint");
    int64_t count = 0;
    for (int64_t i = 0; i < from->list.count; i++)
        if (!from->used[i]) unused[count++].name = from->list.names[i];
    if (from->left_count > 0)
        vt_text_append(&from->told, "\ninit_from: %ld of %ld parameters are taken", from->taken,
                       from->subject->parameters->count);
    tell(from, from->left, from->left_count, "begins anew");
    tell(from, unused, count, "not used");
    free(unused);
}

/* What makes parameters of the same shape mean something else. */
static vt_status tell_meanings(source *from, const vt_config *stored)
{
    vt_status status = VT_OK;
    const vt_checkpoint_subject *subject = from->subject;
    const vt_config *config = subject->config;
    static const char *const model[] = {"model", NULL};
    const char *const *const lists[] = {model, vt_model_kind_of(config)->identity, vt_task_kind_of(config)->identity};
    const vt_fields_about *own = subject->task->about;
    vt_fields_about *about = NULL;
    vt_text line = {0};
    for (int i = 0; i < 3; i++) vt_checkpoint_compare_options(stored, config, lists[i], &line);
    if (line.length > 0)
        vt_text_append(&from->told, "\n!init_from: it was made with %s: what is taken may mean something else here",
                       line.characters);
    VT_TRY(vt_checkpoint_about(from->index, from->path, &about));
    if (about != NULL && own != NULL && about->channels == own->channels && !vt_fields_same_channels(own, about))
        vt_text_append(&from->told, "\n!init_from: its channels are others, or in another order, although as many: "
                                    "what is taken of the first and the last layer was learnt for those");
    vt_text_close(&line);
    VT_TRY(vt_checkpoint_compare_vocabulary(from->path, subject->task, &line));
    if (line.length > 0) vt_text_append(&from->told, "\n!init_from: %s", line.characters);
done:
    vt_fields_about_close(&about);
    vt_text_close(&line);
    return status;
}

/* ---- the whole ---- */

static vt_status open_checkpoint(source *from, vt_text *changes)
{
    vt_status status = VT_OK;
    vt_config *stored = NULL;
    VT_TRY(vt_checkpoint_open(from->path, from->subject->world, &from->index, NULL));
    VT_TRY(vt_checkpoint_join_data(from->index, from->path, from->subject, VT_INITIAL_AND_DATA));
    if (from->subject->config->weights == VT_WEIGHTS_AVERAGE && vt_checkpoint_has_average(from->index)) {
        from->group = "average";
        vt_text_append(changes, "; the average of its weights (--weights=live: not)");
    }
    VT_TRY(vt_checkpoint_configuration(from->index, from->path, &stored));
    const vt_model_kind *kind = vt_model_kind_of(stored);
    if (kind->grid != NULL) kind->grid(stored, from->grid);
    VT_TRY(tell_meanings(from, stored));
done:
    vt_config_close(&stored);
    return status;
}

static void close_source(source *from)
{
    for (int64_t i = 0; i < from->left_count; i++) free(from->left[i].why);
    vt_names_close(&from->list);
    vt_tensor_file_close(&from->index);
    vt_safetensors_close(&from->file);
    vt_text_close(&from->told);
    free(from->used);
    free(from->left);
    free(from->room);
}

vt_status vt_checkpoint_read_initial(const char *path, const vt_checkpoint_subject *subject, vt_text *changes)
{
    vt_status status = VT_OK;
    source from = {.path = path, .subject = subject, .group = "parameters", .room = vt_stored_room(subject)};
    if (vt_safetensors_is_name(path))
        VT_TRY(open_safetensors(path, &from.file, changes));
    else
        VT_TRY(open_checkpoint(&from, changes));
    VT_TRY(list_names(&from));
    VT_TRY(take_all(&from));
    tell_all(&from);
    if (from.split) vt_text_append(changes, "; its attn.qkv was split into q, k and v");
    if (from.rounded > 0)
        vt_text_append(changes, "; %ld parameters were rounded from float64 to float32", from.rounded);
    VT_CHECK(from.taken > 0, "%s: none of its %ld tensors fits a parameter of the model by name and shape: %s is %s",
             path, from.list.count, from.left[0].name, from.left[0].why);
    if (from.told.length > 0) vt_text_append(changes, "%s", from.told.characters);
done:
    close_source(&from);
    return status;
}
