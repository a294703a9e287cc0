#include "data/slot.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

/* The most samples that one batch of this part has. */
static int64_t samples_of(const vt_loader_options *options)
{
    return options->global_batch_size / options->parts;
}

/* Is this tensor read? */
static bool is_read(const vt_loader_options *options, int tensor)
{
    return (options->unread & 1u << tensor) == 0;
}

/* Each tensor begins on a cache line of its own. The bytes of all, and where each begins. */
static size_t lay_out(const vt_loader_options *options, size_t offsets[VT_BATCH_TENSORS])
{
    enum { LINE = 64 };
    size_t bytes = 0;
    for (int t = 0; t < options->source->tensor_count; t++) {
        offsets[t] = (bytes + LINE - 1) / LINE * LINE;
        if (is_read(options, t))
            bytes = offsets[t] + (size_t)samples_of(options) * vt_tensor_bytes(&options->source->specs[t]);
    }
    return bytes > 0 ? bytes : LINE;
}

vt_status vt_slot_open(vt_slot *slot, const vt_loader_options *options, int64_t slots)
{
    vt_status status = VT_OK;
    size_t offsets[VT_BATCH_TENSORS] = {0};
    const size_t bytes = lay_out(options, offsets), samples = (size_t)samples_of(options);
    slot->options = options;
    if (!options->indices_only && options->backend != NULL)
        VT_TRY(options->backend->allocate_host(options->backend, bytes, &slot->memory));
    else if (!options->indices_only)
        slot->memory = vt_allocate_large(bytes);
    slot->samples = malloc(samples * sizeof *slot->samples);
    slot->bad = malloc(samples * sizeof *slot->bad);
    slot->plan = vt_source_reading(options->source)->open(options->source);
    VT_CHECK((slot->memory != NULL || options->indices_only) && slot->samples != NULL && slot->bad != NULL,
             "out of memory for batches read ahead: %ld of %.1f MB each; lower --prefetch or --global_batch_size",
             slots, (double)bytes * 1e-6);
    for (int t = 0; slot->memory != NULL && t < options->source->tensor_count; t++)
        slot->tensors[t] = is_read(options, t) ? (char *)slot->memory + offsets[t] : NULL;
done:
    return status;
}

static void release_plan(vt_slot *slot)
{
    const vt_reading *reading = vt_source_reading(slot->options->source);
    if (slot->planned && reading->release != NULL) reading->release(slot->plan);
    slot->planned = false;
}

void vt_slot_close(vt_slot *slot)
{
    const vt_loader_options *options = slot->options;
    if (options == NULL) return;
    if (options->backend != NULL)
        options->backend->release_host(options->backend, slot->memory);
    else
        free(slot->memory);
    release_plan(slot);
    if (slot->plan != NULL) vt_source_reading(options->source)->close(slot->plan);
    free(slot->samples);
    free(slot->bad);
}

/* Blank samples in the places behind the slice. */
static void fill(vt_slot *slot, int64_t count)
{
    const vt_source *source = slot->options->source;
    for (; count < samples_of(slot->options); count++) {
        void *places[VT_BATCH_TENSORS] = {NULL};
        for (int t = 0; t < source->tensor_count; t++)
            if (slot->tensors[t] != NULL)
                places[t] = (char *)slot->tensors[t] + (size_t)count * vt_tensor_bytes(&source->specs[t]);
        source->kind->blank(source, places);
        slot->samples[count] = -1;
    }
    slot->batch.sample_count = count;
}

vt_status vt_slot_plan(vt_slot *slot, const vt_batch *batch)
{
    vt_status status = VT_OK;
    const vt_loader_options *options = slot->options;
    const int64_t count = batch->sample_count;
    release_plan(slot);
    memcpy(slot->samples, batch->samples, (size_t)count * sizeof *slot->samples);
    memset(slot->bad, 0, (size_t)samples_of(options) * sizeof *slot->bad);
    slot->batch = *batch;
    slot->batch.samples = slot->samples;
    slot->batch.bad = options->skip_bad ? slot->bad : NULL;
    if (options->fill && slot->memory != NULL) fill(slot, count);
    for (int t = 0; slot->batch.sample_count > 0 && t < VT_BATCH_TENSORS; t++)
        slot->batch.tensors[t] = slot->tensors[t];
    slot->items = slot->next_item = slot->done_items = 0;
    slot->failed = false;
    if (options->source->is_constant || options->indices_only) goto done;
    slot->plan->steps = batch->steps;
    VT_TRY(vt_source_reading(options->source)->make(slot->plan, slot->samples, count, slot->tensors));
    slot->planned = true;
    slot->items = slot->plan->item_count;
done:
    if (status != VT_OK) vt_slot_note_failure(slot, -1);
    return status;
}

vt_status vt_slot_run(vt_slot *slot, int64_t item, vt_decoder *decoder)
{
    const vt_reading *reading = vt_source_reading(slot->options->source);
    const vt_status status = reading->run(slot->plan, item, decoder);
    if (status == VT_OK || !slot->options->skip_bad) return status;
    vt_log_warning("skipped: %s", vt_error_text());
    vt_error_clear();
    reading->retry(slot->plan, item, decoder, slot->bad);
    return VT_OK;
}

void vt_slot_note_failure(vt_slot *slot, int64_t item)
{
    vt_error error;
    vt_error_move_out(&error);
    if (slot->failed && slot->failed_item <= item) return;
    slot->failed = true;
    slot->failed_item = item;
    slot->error = error;
}

vt_status vt_slot_read_constant(vt_slot *slot)
{
    vt_status status = VT_OK;
    const vt_loader_options *options = slot->options;
    const vt_reading *reading = vt_source_reading(options->source);
    const int64_t count = samples_of(options);
    for (int64_t i = 0; i < count; i++) slot->samples[i] = options->part * count + i;
    VT_TRY(reading->make(slot->plan, slot->samples, count, slot->tensors));
    slot->planned = true;
    for (int64_t i = 0; i < slot->plan->item_count; i++) VT_TRY(reading->run(slot->plan, i, NULL));
done:
    return status;
}
