/* A trained model at hand: a checkpoint, what it says of itself, and the configuration that it is used with. */
#ifndef VT_FORECAST_TRAINED_H
#define VT_FORECAST_TRAINED_H

#include "config/config.h"
#include "source/fields/about.h"
#include "storage/tensor_file.h"

typedef struct {
    char *checkpoint; /* its directory */
    uint32_t checksum;
    vt_config *config;      /* that it was made with, changed by flags */
    vt_fields_about *about; /* what it says of its data; NULL: they are no fields */
    int64_t step, epoch;    /* how far it was trained: steps, and the last epoch, from 0 on */
    char *how_far;          /* "step 360, epoch 4", and if it has averages, which of its weights are used */
} vt_trained;

/* The checkpoint of that name (vt_checkpoint_find). The configuration is for a model that each rank has whole, or a
 * stage of it if a flag says pipeline_parallel. Of fields local_batch_size, the samples forecast at once, is 8 unless a
 * flag says else, or global_batch_size for all ranks together; the words of a language model are the checkpoint's,
 * unless a flag names others. *trained is to be closed, also after an error. Errors of fields: tensor_parallel or
 * context_parallel other than 1, flags that don't go with the model's parameters. */
vt_status vt_trained_open(const char *name, int flag_count, char *const *flags, int64_t ranks, vt_trained *trained);
void vt_trained_close(vt_trained *trained);

/* Was the model trained on cubes of cosmological fields, or on text? Otherwise on fields of the weather. */
bool vt_trained_on_cubes(const vt_config *config);
bool vt_trained_on_text(const vt_config *config);

/* Opens the index of a checkpoint, which may be a stranger's, after a look at it. */
vt_status vt_trained_open_index(const char *checkpoint, vt_tensor_file **index);

#endif
