/* Where samples come from. A source is one set of samples: for training, validation or test. Each kind of source is one
 * row of the table in config/kinds.def; the loader, the caches and the training loop know a source only by what stands
 * here. */
#ifndef VT_DATA_SOURCE_H
#define VT_DATA_SOURCE_H

#include "base/status.h"
#include "base/text.h"
#include "config/config.h"
#include "data/batch.h"
#include "parallel/world.h"
#include "storage/chunk_cache.h"
#include "storage/decode.h"

typedef struct vt_source_kind vt_source_kind;

typedef enum { VT_SET_TRAINING, VT_SET_VALIDATION, VT_SET_TEST } vt_set;

/* What every kind's own struct begins with; opening the source fills it in. */
struct vt_source {
    const vt_source_kind *kind;
    vt_set set;
    const char *option_name, *path; /* for messages: the option that names the set ("train_data_path"), and its value */
    int64_t sample_count;
    int64_t whole_count;      /* the same without limit_nsamples */
    int64_t crossing_samples; /* samples that reach from one file into the next */
    int tensor_count;
    vt_tensor_spec specs[VT_BATCH_TENSORS];
    bool is_drawn; /* at random: sample i of epoch e is number e · sample_count + i, and no other order is made */
    /* Sample i of every batch has the same values, whichever sample it is, so that the loader reads one batch only. */
    bool is_constant;
    /* What caches keep, see vt_source_kind.pieces; 0: nothing. */
    int64_t frame_count, pieces_per_sample;
    size_t frame_bytes;
    vt_chunk_cache *chunks; /* where its reading keeps decoded chunks; NULL: it has none to decode */
    const char *obstacle;   /* why some of it has to be read through a library ("2013.h5: …"); NULL: nothing has to */
};

/* What has to be read for one batch, as a list of items. A kind's own struct begins with it. */
typedef struct {
    vt_source *source;
    int64_t steps; /* of forecast whose targets are to be read, at most those of the source's specs; 0: 1 */
    int64_t item_count;
} vt_read_plan;

/* The bytes of a file that an item reads; descriptor -1: a library reads them, or nothing is read. `bench io` compares
 * the reader with plain preads of these, and with inflating them. */
typedef struct {
    int descriptor;
    int64_t offset, bytes;
    int64_t inflated; /* how many bytes gunzip makes of them; 0: they are not gzipped, or have a checksum */
} vt_file_extent;

/* How a source reads batches: a plan for each batch, whose items any number of threads do in any order. */
typedef struct {
    vt_read_plan *(*open)(vt_source *source);
    void (*close)(vt_read_plan *plan);
    /* tensors[t] is where tensor t of these samples goes, [count, shape…]; NULL: it is not read. What the items need,
     * such as open files, is held until `release` (NULL: nothing has to be). When it fails, nothing is held. `samples`
     * stays as it is until then. Any thread. */
    vt_status (*make)(vt_read_plan *plan, const int64_t *samples, int64_t count, void *const *tensors);
    void (*release)(vt_read_plan *plan);
    /* Does one item, with a thread's own decoder. Any thread, any order, each item once. */
    vt_status (*run)(vt_read_plan *plan, int64_t item, vt_decoder *decoder);
    /* After an item failed: reads what can be read of it, and marks each of the plan's samples that lacks something
     * (vt_mark_bad). */
    void (*retry)(const vt_read_plan *plan, int64_t item, vt_decoder *decoder, bool *bad);
    /* The index-th extent of an item; .bytes = -1 ends the list. NULL: no item reads a file. */
    vt_file_extent (*extent)(const vt_read_plan *plan, int64_t item, int64_t index);
} vt_reading;

/* bad [samples of a plan]: several threads may find the same sample bad. */
static inline void vt_mark_bad(bool *bad, int64_t sample)
{
    __atomic_store_n(&bad[sample], true, __ATOMIC_RELAXED);
}

/* A part of a sample that is kept in a cache: `bytes` of frame `frame`, from `offset` on. A sample's pieces of a
 * tensor, one behind another, are the beginning of that tensor, or all of it. */
typedef struct {
    int64_t frame;
    int tensor;
    size_t offset, bytes;
} vt_sample_piece;

struct vt_source_kind {
    const char *name;

    /* ---- of a configuration ---- */

    /* Sets options that follow from the data, such as img_size where ranges of degrees say how large the window is.
     * NULL: there are none. */
    vt_status (*complete)(vt_config *config);
    /* Is there a test set? NULL: no. The other sets have to be there. */
    bool (*has_test_set)(const vt_config *config);
    bool needs_test_set; /* a test set that is there, but can't be used, is an error, not a warning */
    /* The tensors of a sample as the configuration has them; returns how many. part: the rows that this rank reads, of
     * the second dimension. */
    int (*specs)(const vt_config *config, vt_span part, vt_tensor_spec *specs);
    /* Bytes of the host's memory that training and validation set take, once they are open, beside the loader's and the
     * caches', of which this rank reads the rows `part`. NULL: next to nothing. */
    size_t (*held_bytes)(const vt_config *config, vt_span part);
    /* One set, of which this rank reads the rows `part`. */
    vt_status (*open)(const vt_config *config, vt_set set, vt_span part, vt_source **source);

    /* ---- of a set ---- */

    /* Reads one sample, with a thread's own decoder; each sample of a batch then is an item. tensors[t] is the place of
     * this sample; NULL: it is not read. NULL if `reading` does more: it reads only once what samples share, or splits
     * a sample over threads. */
    vt_status (*read)(vt_source *source, int64_t sample, vt_decoder *decoder, void *const *tensors);
    /* The index-th extent of what `read` reads; .bytes = -1 ends the list. NULL: it reads no file. */
    vt_file_extent (*extent)(vt_source *source, int64_t sample, int64_t index);
    const vt_reading *reading;
    /* Makes a sample that counts in no loss. A partial last batch of training is filled up with such samples; NULL: it
     * is left out. */
    void (*blank)(const vt_source *source, void *const *tensors);

    void (*close)(vt_source *source);

    /* Fails when two sets do not go together: other channels, another grid. NULL: they always do. */
    vt_status (*agree)(const vt_source *training, const vt_source *other);
    /* A sentence that says which samples two sets share, malloc'd; NULL: they share none, or this is not known. */
    char *(*shared)(const vt_source *one, const vt_source *other);
    /* Says in the log what the sets are (test NULL: there is none), and how they are read by these threads
     * ("2 threads"); warns of samples that they share. NULL: nothing is said. */
    void (*log)(const vt_source *training, const vt_source *validation, const vt_source *test, const char *threads);

    /* Adds a line for each file, with its size; all ranks need the same. NULL: the file that is the set's path. */
    void (*list_files)(const vt_source *source, vt_text *lines);

    /* Where a sample comes from ("…/2013.h5, time 17"), for messages and logs. */
    void (*describe)(const vt_source *source, int64_t sample, char *buffer, int64_t size);

    /* The sample's loss is not finite: is it the data? Reads the sample again, looks at every value, and fails with the
     * place of the first that is not finite. NULL: reading has looked at all of them. One thread at a time. */
    vt_status (*check)(vt_source *source, int64_t sample);

    /* Frames are what samples share, the fields of one time: caches keep each once. NULL where there are none. pieces:
     * those of a sample with the targets of `steps` steps (0: 1); returns how many. */
    int64_t (*pieces)(const vt_source *source, int64_t sample, int64_t steps, vt_sample_piece *pieces);
    vt_status (*read_frame)(vt_source *source, int64_t frame, void *values);
    vt_status (*keep_frames)(vt_source *source); /* from here on in memory, once read; before any reading */
};

void vt_source_close(vt_source **source); /* *source may be NULL */

static inline double vt_source_frame_bytes(const vt_source *source)
{
    return (double)source->frame_count * (double)source->frame_bytes;
}

/* Batches of an epoch of training with so many of its samples. */
static inline int64_t vt_source_batches(const vt_source *source, int64_t samples, int64_t batch_size)
{
    return (samples + (source->kind->blank != NULL ? batch_size - 1 : 0)) / batch_size;
}

/* Fails if all data of a run are missing: the path `option` follows from data_dir, which isn't there. advice: which
 * command makes some that fit the configuration. */
vt_status vt_source_check_directory(const vt_config *config, vt_option_id option, const char *advice);

vt_status vt_source_agree(const vt_source *training, const vt_source *other);

/* Collective. Fails unless all ranks found the sets alike (their files with their sizes, and how many samples they
 * make), and these `more` lines: NULL, or "what: value" each. Otherwise they would train different models, or wait for
 * one another for ever. */
vt_status vt_source_check_same(vt_world *world, const vt_source *const *sources, int count, const char *more);

/* "FILE: 1234 bytes": for list_files; nothing of what isn't a file. And the lines of all files of a set. */
void vt_source_add_file(const char *path, vt_text *lines);
void vt_source_add_files(const vt_source *source, vt_text *lines);
void vt_source_warn_of_shared(const vt_source *one, const vt_source *other);

void vt_source_describe_noise(const vt_source *source, int64_t sample, char *buffer, int64_t size); /* a `describe` */

const vt_reading *vt_source_reading(const vt_source *source);
vt_status vt_source_check(vt_source *source, int64_t sample);

#endif
