/* The configuration of a run: one struct, made from the rows of options.def, filled from their defaults, then from a
 * named configuration of a YAML file, then from the command line; later wins. */
#ifndef VT_CONFIG_CONFIG_H
#define VT_CONFIG_CONFIG_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "base/text.h"
#include "config/kinds.def"
#include "config/rows.h"

#define VT_UNSET_INTEGER INT64_MIN
#define VT_SWITCH_ON "true" /* a VT_SWITCH_PATH that was given no path */

/* The words of kinds.def. */
#define VT_ENUMERATOR(enumerator, word, ...) enumerator,
typedef enum { VT_DEVICES(VT_ENUMERATOR) } vt_device;
typedef enum { VT_CPU_ISAS(VT_ENUMERATOR) } vt_cpu_isa;
typedef enum { VT_MODEL_BACKENDS(VT_ENUMERATOR) } vt_model_backend;
typedef enum { VT_GELUS(VT_ENUMERATOR) } vt_gelu;
typedef enum { VT_AMP_MODES(VT_ENUMERATOR) } vt_amp_mode;
typedef enum { VT_RECOMPUTES(VT_ENUMERATOR) } vt_recompute;
typedef enum { VT_KEEPS(VT_ENUMERATOR) } vt_keep;
typedef enum { VT_OFFLOADS(VT_ENUMERATOR) } vt_offload_place;
typedef enum { VT_ON_NONFINITES(VT_ENUMERATOR) } vt_on_nonfinite;
typedef enum { VT_WEIGHTS(VT_ENUMERATOR) } vt_weights;
typedef enum { VT_LR_SCHEDULES(VT_ENUMERATOR) } vt_schedule_kind;
typedef enum { VT_LR_SCALINGS(VT_ENUMERATOR) } vt_lr_scaling;
typedef enum { VT_CONV_INITS(VT_ENUMERATOR) } vt_conv_init;
typedef enum { VT_LOADERS(VT_ENUMERATOR) } vt_loader_kind;
typedef enum { VT_FORCINGS(VT_ENUMERATOR) VT_FORCING_COUNT } vt_forcing;
typedef enum { VT_ROLES(VT_ENUMERATOR) } vt_role;
typedef enum { VT_DIFFERENCES(VT_ENUMERATOR) VT_DIFFERENCE_COUNT } vt_difference;
typedef enum { VT_NORMALISES(VT_ENUMERATOR) } vt_normalise;
typedef enum { VT_CACHES(VT_ENUMERATOR) } vt_cache;
typedef enum { VT_OOVS(VT_ENUMERATOR) } vt_oov;
typedef enum { VT_SCALES(VT_ENUMERATOR) } vt_scale;
typedef enum { VT_EMBED_STARTS(VT_ENUMERATOR) } vt_embed_start;
typedef enum { VT_GAPS(VT_ENUMERATOR) } vt_gaps; /* missing */
typedef enum { VT_PADS(VT_ENUMERATOR) } vt_pad;
typedef enum { VT_PREDICTS(VT_ENUMERATOR) } vt_predicted;
typedef enum { VT_ROLLOUT_GRADIENTS(VT_ENUMERATOR) } vt_rollout_gradient;
typedef enum { VT_AUGMENTS(VT_ENUMERATOR) } vt_augment;
typedef enum { VT_CP_COMMS(VT_ENUMERATOR) } vt_cp_comm;
typedef enum { VT_MUON_ADJUSTS(VT_ENUMERATOR) } vt_muon_adjust;
typedef enum { VT_ADAFACTORS(VT_ENUMERATOR) } vt_adafactor_form;
typedef enum { VT_PIPELINE_SCHEDULES(VT_ENUMERATOR) } vt_pipeline_schedule;
typedef enum { VT_PIPELINE_COMMS(VT_ENUMERATOR) } vt_pipeline_comm;
typedef enum { VT_ZERO_GROUPS(VT_ENUMERATOR) } vt_zero_group;
typedef enum { VT_COMMS(VT_ENUMERATOR) } vt_comm;
typedef enum { VT_PROFILE_RANKS(VT_ENUMERATOR) } vt_profile_ranks;
#undef VT_ENUMERATOR

/* The kinds of kinds.def: an option's value is the index of its kind's row in that room's table. */
#define VT_ENUMERATOR(name, ...) VT_OPTIMIZER_##name,
typedef enum { VT_OPTIMIZERS(VT_ENUMERATOR) } vt_optimizer_name;
#undef VT_ENUMERATOR
#define VT_ENUMERATOR(name, ...) VT_MODEL_##name,
typedef enum { VT_MODEL_WORDS(VT_ENUMERATOR) } vt_model_name;
#undef VT_ENUMERATOR

enum { VT_MOST_MEMBERS = 16, VT_MOST_SCALES = 8 }; /* of ensemble_size, and values of crps_scales */

/* VT_OPTION_embed_dim, ...: which option. */
#define VT_OTHER_ROW(...)
#define VT_ROW(member, ...) VT_OPTION_##member,
typedef enum {
#include "config/options.def"
    VT_OPTION_COUNT
} vt_option_id;
#undef VT_ROW

typedef enum { VT_FROM_DEFAULT, VT_FROM_YAML, VT_FROM_COMMAND_LINE } vt_origin;

#define VT_ROW(member, name, type, size, ...) type member size;
typedef struct {
#include "config/options.def"
    vt_origin origin[VT_OPTION_COUNT];
    bool window_known; /* img_size is that of lat_range and lon_range in the files */
    const char *zero;  /* the option that a flag set to 0, which counts as not given; NULL: none */
    int64_t ranks;     /* of the run; no option: the launcher says how many */
    /* n_in_channels and n_out_channels of the YAML file if the count of `variables` replaced them; else 0. */
    int64_t replaced_channels[2];
    int64_t data_parallel; /* ranks / vt_config_model_ranks, over which a global batch is split */
} vt_config;
#undef VT_ROW
#undef VT_OTHER_ROW

/* The effective configuration of a command line (without program and subcommand): defaults, YAML, flags, then what
 * follows from them on `ranks` ranks (vt_config_resolve), all checked. *config is to be closed. Errors name the flag,
 * or file, line and column, and the nearest known name. */
vt_status vt_config_open(int argument_count, char *const *arguments, int64_t ranks, vt_config **config);
void vt_config_close(vt_config **config);

/* vt_config_open with the one configuration of a YAML text (from a checkpoint, for example) instead of the file, unless
 * `text` is NULL. text_name is what messages call the text. */
vt_status vt_config_open_text(const char *text, const char *text_name, int argument_count, char *const *arguments,
                              int64_t ranks, vt_config **config);

/* The same without vt_config_resolve: for a caller that changes something first. */
vt_status vt_config_read(const char *text, const char *text_name, int argument_count, char *const *arguments,
                         int64_t ranks, vt_config **config);

/* The path of a file that comes with the program, "config/ViT.yaml": in the current directory, else beside the program,
 * else in ../share/vitrain from the program's directory. malloc'd; NULL: nowhere. */
char *vt_config_find(const char *below);

/* Beside a Zarr store, not in it: era5.stats/global_means.npy of era5.zarr; malloc'd. */
char *vt_config_beside_store(const char *store, const char *below);

/* A switch as options take it: true, false, yes, no, on, off, 1 or 0 in any case. False when the whole text is none. */
bool vt_boolean_parse(const char *text, bool *value);

/* The value of an existing option, as it is written in a file; malloc'd. */
char *vt_config_value_text(const vt_config *config, const char *option);

/* Defaults only, already resolved, for one rank: for tests and tools that build a configuration in code. */
vt_status vt_config_open_default(vt_config **config);

/* Sets one option from text, as a flag would; vt_config_resolve is to follow. */
vt_status vt_config_set(vt_config *config, const char *name, const char *value);

/* Derives what follows from other options, and makes every check that needs more than one; called by vt_config_open,
 * and to be called after the last vt_config_set (or change of `ranks`). */
vt_status vt_config_resolve(vt_config *config);

/* Does img_size follow from lat_range and lon_range, and so from the grid of the files? Until vt_config_set_window
 * gives it, the checks that need it are left out. */
bool vt_config_awaits_window(const vt_config *config);
vt_status vt_config_set_window(vt_config *config, int64_t height, int64_t width);

/* The ranks that share a model: tensor_parallel · context_parallel · pipeline_parallel. */
int64_t vt_config_model_ranks(const vt_config *config);

/* Do they divide this number of ranks? The error names the nearest values that do. */
vt_status vt_config_check_ranks(const vt_config *config, int64_t ranks);

/* The part of vt_config_resolve that tensor_parallel, context_parallel, pipeline_parallel, zero_stage,
 * grad_accumulation and sequence_parallel need: sets data_parallel and checks that all divide. Touches nothing else. */
vt_status vt_config_check_layout(vt_config *config);

/* The highest learning rate: lr or lr_schedule.start_lr, times what the scaling makes of global_batch_size /
 * base_batch_size. */
double vt_config_learning_rate(const vt_config *config);

/* The same of another rate. */
double vt_config_scaled_rate(const vt_config *config, double rate);

/* Steps of warm-up at the beginning of the run. */
int64_t vt_config_warmup(const vt_config *config);

/* Channels of one of the times that the input holds. */
int64_t vt_config_channels_a_time(const vt_config *config);

/* max_time in seconds; INFINITY when it is not set. */
double vt_config_max_seconds(const vt_config *config);

/* The effective configuration as a YAML file with the one configuration config->config, which `--yaml_config` accepts
 * again and which gives the same configuration. */
vt_status vt_config_save(const vt_config *config, const char *path);

/* The same as text; malloc'd. */
char *vt_config_text(const vt_config *config);

/* " --lr=0.001 --num_epochs=2": what the command line set, as flags, but for the names of file, configuration and run;
 * malloc'd. */
char *vt_config_flags_text(const vt_config *config);

/* "name: value" for every option but those of kinds that are not chosen, in the order of the table; to be closed. */
vt_names vt_config_lines(const vt_config *config);

/* Every option with type, default, range and meaning; as text for a terminal or as docs/options.md. */
void vt_options_print(FILE *file, bool markdown);

/* Adds the names of all configurations of the YAML file; path NULL: of the files that --config is looked up in when no
 * --yaml_config is given. */
vt_status vt_config_names(const char *path, vt_names *names);

/* Appends to *yaml DeepSpeed's configuration (ds_config.json) as a YAML file with the configuration `base`, and to
 * *notes a line for each key that has no effect here, and for what the file leaves open. Errors, with
 * line and column: a key that could change results and has no counterpart. The texts are the caller's, to be closed in
 * either case. */
vt_status vt_deepspeed_convert(const char *path, vt_text *yaml, vt_text *notes);

#endif
