/* The data of a run as its configuration has them: which datasets, read how, and the next batch on all ranks. */
#ifndef VT_TRAINING_READER_H
#define VT_TRAINING_READER_H

#include "config/config.h"
#include "data/loader.h"
#include "parallel/world.h"
#include "source/fields/dataset.h"

/* What a sample of this configuration is: window, channels, times. Whose samples, and how they are read, the caller
 * adds. */
vt_dataset_options vt_reader_samples(const vt_config *config);

/* Where lat_range and lon_range say how large the window is: img_size, from the first training file's coordinates. */
vt_status vt_reader_find_window(vt_config *config);

/* This rank's rows of the training or the validation set. */
vt_status vt_reader_open_dataset(const vt_config *config, const vt_world *world, bool training, vt_dataset **dataset);

/* Are there files of a test set in inf_data_path, or does a flag say so? And this rank's rows of it. */
bool vt_reader_has_test_set(const vt_config *config);
vt_status vt_reader_open_test_set(const vt_config *config, const vt_world *world, vt_dataset **dataset);

/* Reader threads: num_data_workers to the letter, else one for each core of this rank that does not compute, and at
 * least one. */
int64_t vt_reader_workers(const vt_config *config, const vt_world *world);

/* The ring of batches lies in memory that the back end's device reaches by itself; NULL: in the host's. Close the
 * loader before the back end. */
vt_status vt_reader_open_loader(const vt_config *config, const vt_world *world, vt_backend *backend, bool training,
                                bool indices_only, vt_dataset *dataset, vt_loader **loader);

/* With `cache: host`: has the sets stay in memory once they were read, as far as they fit beside the `needed` bytes
 * that this rank is going to take; the log says what, or why not. Before anything is read. */
void vt_reader_open_cache(const vt_config *config, const vt_world *world, double needed, vt_dataset *training,
                          vt_dataset *validation);

/* Of all of a set's frames. */
double vt_reader_frame_bytes(const vt_dataset *dataset);

/* Says in the log how the training set is read, and why not otherwise; warns of times that are in both sets. */
void vt_reader_log(const vt_config *config, const vt_world *world, const vt_dataset *dataset,
                   const vt_dataset *validation);

/* Warns of times that two sets share, which are called by these names ("training", "test"). */
void vt_reader_warn_of_shared(const vt_dataset *one, const char *one_name, const vt_dataset *other,
                              const char *other_name);

/* Collective: fails on all ranks when one can't read. *batch is NULL after the
 * epoch's last. With skip_bad_samples what could not be read is replaced, alike on all ranks that share a sample, and
 * the samples of all ranks that were are added to *replaced. */
vt_status vt_reader_next(const vt_config *config, vt_world *world, vt_loader *loader, const vt_batch **batch,
                         double *waited, int64_t *replaced);

#endif
