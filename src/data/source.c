#include "data/source.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/memory.h"

void vt_source_close(vt_source **source)
{
    if (*source != NULL) (*source)->kind->close(*source);
    *source = NULL;
}

vt_status vt_source_check_directory(const vt_config *config, vt_option_id option, const char *advice)
{
    vt_status status = VT_OK;
    struct stat info;
    VT_CHECK(config->origin[option] != VT_FROM_DEFAULT || stat(config->data_dir, &info) == 0 || errno != ENOENT,
             "data_dir '%s': no such directory. --data_dir=DIR names another one; %s (docs/data.md)", config->data_dir,
             advice);
done:
    return status;
}

vt_status vt_source_agree(const vt_source *training, const vt_source *other)
{
    return training->kind->agree != NULL ? training->kind->agree(training, other) : VT_OK;
}

void vt_source_add_file(const char *path, vt_text *lines)
{
    struct stat info;
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode)) vt_text_append(lines, "%s: %ld bytes\n", path, info.st_size);
}

void vt_source_add_files(const vt_source *source, vt_text *lines)
{
    if (source->kind->list_files != NULL)
        source->kind->list_files(source, lines);
    else if (source->path != NULL)
        vt_source_add_file(source->path, lines);
}

vt_status vt_source_check_same(vt_world *world, const vt_source *const *sources, int count, const char *more)
{
    vt_text own = {0};
    for (int i = 0; i < count; i++) {
        const vt_source *source = sources[i];
        vt_source_add_files(source, &own);
        vt_text_append(&own, "%s %s: %ld samples\n", source->option_name, source->path, source->sample_count);
    }
    vt_text_append(&own, "%s", more != NULL ? more : "");
    const vt_status status = vt_world_same(world, own.characters, "all ranks need the same data");
    vt_text_close(&own);
    return vt_world_agree(world, status);
}

void vt_source_warn_of_shared(const vt_source *one, const vt_source *other)
{
    char *sentence = one->kind->shared != NULL ? one->kind->shared(one, other) : NULL;
    if (sentence != NULL) vt_log_warning("%s", sentence);
    free(sentence);
}

vt_status vt_source_check(vt_source *source, int64_t sample)
{
    return source->kind->check != NULL ? source->kind->check(source, sample) : VT_OK;
}

/* ---- samples read one by one ---- */

typedef struct {
    vt_read_plan plan;
    const int64_t *samples;
    void *tensors[VT_BATCH_TENSORS];
} sample_plan;

static vt_read_plan *open_plan(vt_source *source)
{
    sample_plan *own = vt_allocate(1, sizeof *own, "the plan of a batch");
    own->plan.source = source;
    return &own->plan;
}

static void close_plan(vt_read_plan *plan)
{
    free(plan);
}

static vt_status make_plan(vt_read_plan *plan, const int64_t *samples, int64_t count, void *const *tensors)
{
    sample_plan *own = (sample_plan *)plan;
    own->samples = samples;
    plan->item_count = count;
    for (int t = 0; t < plan->source->tensor_count; t++) own->tensors[t] = tensors[t];
    return VT_OK;
}

static vt_status read_sample(vt_read_plan *plan, int64_t item, vt_decoder *decoder)
{
    vt_source *source = plan->source;
    const sample_plan *own = (const sample_plan *)plan;
    void *places[VT_BATCH_TENSORS] = {NULL};
    for (int t = 0; t < source->tensor_count; t++)
        if (own->tensors[t] != NULL)
            places[t] = (char *)own->tensors[t] + (size_t)item * vt_tensor_bytes(&source->specs[t]);
    return source->kind->read(source, own->samples[item], decoder, places);
}

static void mark_sample(const vt_read_plan *plan, int64_t item, vt_decoder *decoder, bool *bad)
{
    (void)plan, (void)decoder;
    vt_mark_bad(bad, item);
}

static vt_file_extent extent_of(const vt_read_plan *plan, int64_t item, int64_t index)
{
    vt_source *source = plan->source;
    if (source->kind->extent == NULL) return (vt_file_extent){.bytes = -1};
    return source->kind->extent(source, ((const sample_plan *)plan)->samples[item], index);
}

void vt_source_describe_noise(const vt_source *source, int64_t sample, char *buffer, int64_t size)
{
    (void)source;
    snprintf(buffer, (size_t)size, "synthetic sample %ld", sample);
}

const vt_reading *vt_source_reading(const vt_source *source)
{
    static const vt_reading by_sample = {.open = open_plan,
                                         .close = close_plan,
                                         .make = make_plan,
                                         .run = read_sample,
                                         .retry = mark_sample,
                                         .extent = extent_of};
    return source->kind->reading != NULL ? source->kind->reading : &by_sample;
}
