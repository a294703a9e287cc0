#include "training/reader.h"

#include <stdlib.h>

#include "base/memory.h"
#include "parallel/region.h"
#include "report/log.h"
#include "training/trainer.h"

enum { MOST_WORKERS = 16 }; /* of those that are chosen here: no memory keeps up with more */

static bool is_direct(const vt_config *config)
{
    int kind = config->data_loader_config;
    return kind == VT_LOADER_AUTO || kind == VT_LOADER_DALI || kind == VT_LOADER_DIRECT;
}

/* This rank reads only the rows of the fields that its tokens touch. */
vt_status vt_reader_open_dataset(const vt_config *config, const vt_world *world, bool training, vt_dataset **dataset)
{
    vt_vit_options model = vt_trainer_model_options(config);
    int64_t tokens = (model.height / model.patch) * (model.width / model.patch);
    vt_run_of own = vt_parallel_tokens(&world->layout, world->rank, config->sequence_parallel, tokens);
    vt_run_of rows = vt_vit_rows(&model, own);
    vt_dataset_options options = {.directory = training ? config->train_data_path : config->valid_data_path,
                                  .option_name = training ? "train_data_path" : "valid_data_path",
                                  .height = config->img_size[0],
                                  .width = config->img_size[1],
                                  .first_row = rows.first,
                                  .rows = rows.count,
                                  .in_channels = config->n_in_channels,
                                  .out_channels = config->n_out_channels,
                                  .history = config->n_history,
                                  .dt = config->dt,
                                  .sample_limit = training ? config->limit_nsamples : config->limit_nsamples_val,
                                  .variables = config->variables,
                                  .direct = is_direct(config),
                                  .tolerant = config->skip_bad_samples,
                                  .synthetic = config->data_loader_config == VT_LOADER_SYNTHETIC,
                                  .seed = (uint64_t)config->seed};
    return vt_dataset_open(&options, dataset);
}

int64_t vt_reader_workers(const vt_config *config, const vt_world *world)
{
    if (config->num_data_workers != VT_UNSET_INTEGER) return config->num_data_workers;
    int64_t computing = config->num_threads != VT_UNSET_INTEGER ? config->num_threads : world->threads;
    int64_t spare = world->threads - computing;
    return spare < 1 ? 1 : spare > MOST_WORKERS ? MOST_WORKERS : spare;
}

vt_status vt_reader_open_loader(const vt_config *config, const vt_world *world, bool training, vt_dataset *dataset,
                                vt_loader **loader)
{
    vt_loader_options options = {.dataset = dataset,
                                 .global_batch_size = config->global_batch_size,
                                 .part = world->coordinate[VT_AXIS_DATA],
                                 .parts = world->layout.size[VT_AXIS_DATA],
                                 .drop_last = training,
                                 .shuffle = training && config->shuffle,
                                 .seed = (uint64_t)config->seed,
                                 .prefetch = training ? config->prefetch : VT_VALIDATION_PREFETCH,
                                 .workers = vt_reader_workers(config, world),
                                 .skip_bad = config->skip_bad_samples};
    return vt_loader_open(&options, loader);
}

void vt_reader_log(const vt_config *config, const vt_world *world, const vt_dataset *dataset)
{
    const char *obstacle = vt_dataset_obstacle(dataset);
    const long long workers = (long long)vt_reader_workers(config, world);
    if (config->data_loader_config == VT_LOADER_SYNTHETIC) {
        vt_log_info("reading: nothing; every batch is the same noise");
        return;
    }
    vt_log_info("reading: %s, %lld thread%s%s", is_direct(config) && obstacle == NULL ? "past HDF5" : "through HDF5",
                workers, workers == 1 ? "" : "s",
                workers == 0                                   ? ": each step waits for its batch"
                : config->num_data_workers == VT_UNSET_INTEGER ? " (num_data_workers is not set: the cores to spare)"
                                                               : "");
    if (!is_direct(config) || obstacle == NULL) return;
    if (config->data_loader_config == VT_LOADER_AUTO)
        vt_log_info("HDF5 reads what can't be read past it: %s", obstacle);
    else
        vt_log_warning("data_loader_config asks to read past HDF5, but HDF5 has to read some files: %s", obstacle);
}

/* What any rank that has a part of a sample couldn't read is bad for all of them. */
static vt_status replace_bad(const vt_config *config, vt_world *world, vt_loader *loader, const vt_batch *batch,
                             int64_t *replaced)
{
    vt_status status = VT_OK;
    const size_t size = (size_t)config->global_batch_size;
    double *counts = vt_allocate(size, sizeof *counts, "a batch's bad samples");
    bool *bad = vt_allocate(size, sizeof *bad, "a batch's bad samples");
    for (int64_t i = 0; i < batch->sample_count; i++) counts[batch->first_in_batch + i] = batch->bad[i];
    vt_world_sum(world, counts, config->global_batch_size);
    for (size_t i = 0; i < size; i++) *replaced += counts[i] > 0;
    for (int64_t i = 0; i < batch->sample_count; i++) bad[i] = counts[batch->first_in_batch + i] > 0;
    status = vt_world_agree(world, vt_loader_replace_bad(loader, batch, bad));
    free(counts);
    free(bad);
    return status;
}

vt_status vt_reader_next(const vt_config *config, vt_world *world, vt_loader *loader, const vt_batch **batch,
                         double *waited, int64_t *replaced)
{
    vt_status status = vt_loader_next(loader, batch, waited);
    VT_TRY(vt_world_agree(world, status));
    if (config->skip_bad_samples && *batch != NULL && (*batch)->bad != NULL)
        VT_TRY(replace_bad(config, world, loader, *batch, replaced));
done:
    return status;
}
