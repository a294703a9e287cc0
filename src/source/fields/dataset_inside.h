/* What the files dataset_*.c and fields.c share. */
#ifndef VT_SOURCE_FIELDS_DATASET_INSIDE_H
#define VT_SOURCE_FIELDS_DATASET_INSIDE_H

#include "source/fields/dataset.h"

/* Channels of one time of the input. */
static inline int64_t vt_dataset_window_channels(const vt_dataset_options *options)
{
    return options->in_channels / (options->history + 1);
}

/* Where the forcings begin among the channels. */
static inline int64_t vt_dataset_first_forcing(const vt_dataset_options *options)
{
    const int64_t in = vt_dataset_window_channels(options), out = options->out_channels;
    return in > out ? in : out;
}

/* Forcings of a step of forecast: those that are known of its date, then those that files hold. */
static inline int64_t vt_dataset_forcings(const vt_dataset_options *options)
{
    return vt_known_count(&options->known) + options->forcing_channels;
}

extern const vt_source_kind vt_source_fields, vt_source_noise;

/* Functions of vt_source_kind and vt_reading, see data/source.h. Values that stay in memory are checked for missing
 * ones even if the dataset is `unchecked`. */
vt_status vt_dataset_agree(const vt_source *training, const vt_source *other);
void vt_dataset_list_files(const vt_source *source, vt_text *lines);
char *vt_dataset_shared_times(const vt_source *one, const vt_source *other);
void vt_dataset_describe(const vt_source *source, int64_t sample, char *buffer, int64_t size);
vt_status vt_dataset_check(vt_source *source, int64_t sample);
int64_t vt_dataset_pieces(const vt_source *source, int64_t sample, int64_t steps, vt_sample_piece *pieces);
vt_status vt_dataset_read_frame(vt_source *source, int64_t frame, void *values);
vt_status vt_dataset_keep_frames(vt_source *source);
vt_status vt_dataset_plan(vt_read_plan *plan, const int64_t *samples, int64_t count, void *const *tensors);
void vt_dataset_release(vt_read_plan *plan);

/* The tensors of a sample; how many. */
int vt_fields_specs(int64_t in_channels, int64_t out_channels, int64_t forcings, int64_t targets, int64_t rows,
                    int64_t width, vt_tensor_spec *specs);

/* After the last file: its pieces become stretches and samples. Warns of times that come twice and of files that are
 * too short. */
void vt_dataset_join(vt_dataset *dataset);

/* Once all files were looked at and joined: the description is that of the channels and times that samples use. */
void vt_dataset_settle_about(vt_dataset *dataset);

/* If the window is to go round the globe: that its longitudes do, as far as they are known. */
vt_status vt_dataset_check_round(const vt_dataset *dataset);

/* Coordinates of the window, and latitudes that weigh its rows, once all files were looked at. */
void vt_dataset_take_coordinates(vt_dataset *dataset);

#endif
