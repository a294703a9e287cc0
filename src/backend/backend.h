/* A back end is one table of functions: memory, copies, and every operation that a layer needs (operations.def). Layers
 * call nothing else, so they do not know which device they are on. Three implementations: cpu/ (whose plain loops are
 * the oracle for every other), dry/ (counts bytes and FLOPs, runs nothing) and ../cuda (NVIDIA GPUs).
 *
 * Conventions. Operations are asynchronous in principle and return nothing; the first failure is kept, and vt_backend's
 * `check` reports it at the end of a phase. Buffers do not overlap unless the comment allows it. Every pointer is the
 * back end's own memory ("device memory") unless it says host. */
#ifndef VT_BACKEND_BACKEND_H
#define VT_BACKEND_BACKEND_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/operations.h"
#include "base/random.h" /* VT_ON_DEVICE_TOO */
#include "base/status.h"
#include "config/config.h"

/* What memory is for; the ledger and the messages about memory count by these. */
typedef enum {
    VT_MEMORY_PARAMETERS,
    VT_MEMORY_GRADIENTS,
    VT_MEMORY_OPTIMIZER,
    VT_MEMORY_ACTIVATIONS,
    VT_MEMORY_DATA,
    VT_MEMORY_WORKSPACE, /* inside of operations */
    VT_MEMORY_CATEGORY_COUNT
} vt_memory_category;

const char *vt_memory_category_name(vt_memory_category category); /* "activations" */

/* How numbers are stored. bfloat16: the upper half of a float32; float16: IEEE half precision. Both are rounded to
 * nearest, ties to even. */
typedef enum { VT_FLOAT32, VT_BFLOAT16, VT_FLOAT16, VT_TYPE_COUNT } vt_type;

static inline bool vt_type_is_half(vt_type type)
{
    return type == VT_BFLOAT16 || type == VT_FLOAT16;
}

/* Bytes. */
static inline size_t vt_type_size(vt_type type)
{
    return vt_type_is_half(type) ? sizeof(uint16_t) : sizeof(float);
}

/* rows × columns numbers; row r begins r * stride elements after the first. */
typedef struct {
    union {
        float *data;    /* VT_FLOAT32 */
        uint16_t *half; /* VT_BFLOAT16, VT_FLOAT16 */
    };
    int64_t rows;
    int64_t columns;
    int64_t stride;
    vt_type type;
} vt_matrix;

static inline vt_matrix vt_matrix_make(float *data, int64_t rows, int64_t columns)
{
    return (vt_matrix){.data = data, .rows = rows, .columns = columns, .stride = columns};
}

/* 0 for a matrix without memory. */
static inline double vt_matrix_bytes(vt_matrix matrix)
{
    return matrix.data == NULL ? 0 : (double)matrix.rows * (double)matrix.columns * (double)vt_type_size(matrix.type);
}

/* Columns first … first + count - 1 of the same memory. */
static inline vt_matrix vt_matrix_columns(vt_matrix matrix, int64_t first, int64_t count)
{
    if (vt_type_is_half(matrix.type))
        matrix.half += first;
    else
        matrix.data += first;
    matrix.columns = count;
    return matrix;
}

/* Rows first … first + count - 1. */
static inline vt_matrix vt_matrix_rows(vt_matrix matrix, int64_t first, int64_t count)
{
    matrix = vt_matrix_columns(matrix, first * matrix.stride, matrix.columns);
    matrix.rows = count;
    return matrix;
}

/* How a loss measures the errors of a sample: loss_measure.h. */
typedef enum { VT_MEASURE_RELATIVE, VT_MEASURE_SQUARE, VT_MEASURE_ABSOLUTE } vt_loss_measure;

/* One stream of random numbers of a training step. The numbers depend only on these values and on the element's own
 * coordinates (see backend/dropout.h), so every layout and device draws the same. */
typedef struct {
    float rate; /* 0: off */
    uint64_t seed;
    const uint32_t *step; /* in the back end's memory; not read when the rate is 0 */
    uint32_t layer;
    uint32_t site;
    uint32_t first_sample; /* position in the global batch of the first sample of the buffers */
} vt_dropout;

/* Dropout of elements, then drop path (stochastic depth) of whole samples; rows / tokens samples. The matrix may be a
 * block of a larger tensor: row r of a sample, column c then draws the number of row first_token + r, column
 * first_column + c (any values, not only multiples of 4). */
typedef struct {
    vt_dropout elements;
    vt_dropout path;
    int64_t tokens;       /* rows of one sample */
    int64_t first_token;  /* of the whole sample's tokens, the first row's */
    int64_t first_column; /* of the whole tensor's columns, the first one's */
} vt_mask;

static inline bool vt_mask_is_active(const vt_mask *mask)
{
    return mask->elements.rate > 0 || mask->path.rate > 0;
}

/* q [batch * queries, heads * head_dim], k and v [batch * keys, heads * head_dim]; head h is columns
 * h * head_dim … (h + 1) * head_dim - 1. Scores are scaled by 1 / sqrt(head_dim), or not at all. `dropout` acts on the
 * weights; heads, queries and keys may be a block of a larger attention, whose weight (first_head + h, first_query + q,
 * first_key + k) then gives the random number (any values, not only multiples of 4), and whose places `causal`
 * compares: a key behind the query has weight 0. A query that sees no key has out = 0 and log_sum = -INFINITY. */
typedef struct {
    int64_t batch;
    int64_t heads;
    int64_t head_dim;
    int64_t queries;
    int64_t keys;
    int64_t first_head, first_query, first_key; /* of the whole attention's */
    bool causal, unscaled;
    vt_dropout dropout;
    const uint16_t *drawn; /* of dropout, where the back end `draws_ahead`: what attention_draw made */
} vt_attention_shape;

/* Which weights dropout keeps, as bits: [batch, heads, keys / 16 rounded up, queries rounded up to an even number] of
 * 16 keys each, the lowest bit for the first. Behind the last lies some memory that kernels may read, too: up to 8
 * times 16 keys, and 128 queries. */
VT_ON_DEVICE_TOO static inline int64_t vt_attention_drawn_stride(int64_t queries)
{
    return (queries + 1) / 2 * 2;
}
VT_ON_DEVICE_TOO static inline int64_t vt_attention_drawn_chunks(int64_t keys)
{
    return (keys + 15) / 16;
}
static inline int64_t vt_attention_drawn_count(const vt_attention_shape *shape)
{
    const int64_t chunks = shape->batch * shape->heads * vt_attention_drawn_chunks(shape->keys);
    return (chunks + 8) * vt_attention_drawn_stride(shape->queries) + 128;
}

/* What scores are multiplied by. */
static inline float vt_attention_scale(const vt_attention_shape *shape)
{
    return shape->unscaled ? 1.0f : 1.0f / sqrtf((float)shape->head_dim);
}

/* How many of the first keys query `query` sees. */
VT_ON_DEVICE_TOO static inline int64_t vt_attention_seen(const vt_attention_shape *shape, int64_t query)
{
    if (!shape->causal) return shape->keys;
    const int64_t seen = shape->first_query + query - shape->first_key + 1;
    return seen < 0 ? 0 : seen < shape->keys ? seen : shape->keys;
}

/* Samples are windows of `window` words, in memory as their numbers [samples, window]. All rows are the places first …
 * first + tokens - 1 of each sample, sample after sample; a matrix has those from first_row on. Of the vocabulary this
 * rank has the words first_word … first_word + count - 1. */
typedef struct {
    int64_t window, first, tokens;
    int64_t first_row, rows;
    int64_t first_word, count;
} vt_word_rows;

/* Where in the numbers the word of a row of the matrix stands. */
VT_ON_DEVICE_TOO static inline int64_t vt_word_place(const vt_word_rows *words, int64_t row)
{
    row += words->first_row;
    return row / words->tokens * words->window + words->first + row % words->tokens;
}

/* Which of this rank's words `number` is: its row of the table, its column of the scores; -1: it is not here. */
VT_ON_DEVICE_TOO static inline int64_t vt_word_here(const vt_word_rows *words, int32_t number)
{
    const int64_t here = number - words->first_word;
    return here >= 0 && here < words->count ? here : -1;
}

/* One behind the last number that is read, and the last sample. */
static inline int64_t vt_word_rows_end(const vt_word_rows *words)
{
    return vt_word_place(words, words->rows - 1) + 1;
}

static inline int64_t vt_word_rows_samples(const vt_word_rows *words)
{
    return (words->first_row + words->rows - 1) / words->tokens + 1;
}

/* A convolution of kernel 4, stride 2 and padding 1 over `batch` cubes, channels last: from x [batch * (2 side)³, in]
 * to y [batch * side³, out], with weight [out, in * 64] as PyTorch stores it: [out, in, 4, 4, 4]. */
typedef struct {
    int64_t batch, side, in, out;
} vt_convolution;

/* Of LeakyReLU the slope below 0 is 0.01. */
typedef enum { VT_ACTIVATION_LEAKY, VT_ACTIVATION_RELU, VT_ACTIVATION_TANH } vt_activation;

/* Order of the elements in one token's patch. */
typedef enum {
    VT_PATCH_CHANNEL_FIRST, /* [channel, patch row, patch column]: the input's, as a convolution's weight has it */
    VT_PATCH_CHANNEL_LAST   /* [patch row, patch column, channel]: the head's output, and the target beside it */
} vt_patch_order;

/* In predictions and targets: nothing is there, so loss and metrics leave the point out. No number that is normalised
 * comes near it, and unlike a NaN it can't come out of a file or a calculation. */
#define VT_NO_POINT FLT_MAX

/* What a missing point of the fields (NaN) becomes in the patches. */
typedef enum {
    VT_MISSING_STAYS,    /* NaN */
    VT_MISSING_MEAN,     /* 0, the channel's mean */
    VT_MISSING_LEFT_OUT, /* VT_NO_POINT */
    VT_MISSING_SHOWN     /* 0, and 1 in place of every value that is there: a mask */
} vt_missing;

/* What stands in patches beyond the fields' last row and column. */
typedef enum {
    VT_BEYOND_LEFT_OUT, /* VT_NO_POINT */
    VT_BEYOND_EDGE,     /* the last row, the last column */
    VT_BEYOND_WRAP      /* the last row, and the first columns */
} vt_beyond;

/* Fields [batch, field_channels, height, width] in memory, whose first `channels` are cut into ⌈height / patch⌉ ×
 * ⌈width / patch⌉ tokens a sample, row-major. The patches hold consecutive tokens: all, or those of one rank. */
typedef struct {
    int64_t batch;
    int64_t field_channels;
    int64_t channels;
    int64_t height;
    int64_t width;
    int64_t patch;
    vt_patch_order order;
    int64_t first_token; /* the patches hold tokens first_token … first_token + tokens - 1 of each sample */
    int64_t tokens;
    vt_missing missing;
    vt_beyond beyond;
} vt_patch_grid;

/* Tokens side by side, from west to east. */
VT_ON_DEVICE_TOO static inline int64_t vt_patch_grid_across(const vt_patch_grid *grid)
{
    return (grid->width + grid->patch - 1) / grid->patch;
}

/* Which point of a field [height, width] stands at (row, column) of the patches; -1: none. */
VT_ON_DEVICE_TOO static inline int64_t vt_patch_grid_point(const vt_patch_grid *grid, int64_t row, int64_t column)
{
    if (row < grid->height && column < grid->width) return row * grid->width + column;
    if (grid->beyond == VT_BEYOND_LEFT_OUT) return -1;
    if (row >= grid->height) row = grid->height - 1;
    if (column >= grid->width) column = grid->beyond == VT_BEYOND_WRAP ? column % grid->width : grid->width - 1;
    return row * grid->width + column;
}

/* The elements of patches that show a point of the fields: its own, and beyond the last row and column its copies. */
typedef struct {
    int64_t row, column;           /* of the point */
    int64_t next_row, next_column; /* where the next element is looked for, among the rows and columns of all patches */
    int64_t token;                 /* of the last element found, counted from the grid's first token */
} vt_patch_views;

VT_ON_DEVICE_TOO static inline vt_patch_views vt_patch_views_of(int64_t row, int64_t column)
{
    vt_patch_views views = {row, column, row, column, 0};
    return views;
}

/* Finds the next element; false: there is none. *place: its point in the patch, patch row * patch + patch column. */
VT_ON_DEVICE_TOO static inline bool vt_patch_views_next(const vt_patch_grid *grid, vt_patch_views *views,
                                                        int64_t *place)
{
    const int64_t patch = grid->patch, across = vt_patch_grid_across(grid), wide = across * patch;
    const int64_t high = (grid->height + patch - 1) / patch * patch;
    const bool copies = grid->beyond != VT_BEYOND_LEFT_OUT, last_row = views->row == grid->height - 1;
    const bool last_column = views->column == grid->width - 1, wraps = grid->beyond == VT_BEYOND_WRAP;
    while (views->next_row < high) {
        const int64_t row = views->next_row, column = views->next_column;
        views->next_column = !copies ? wide : wraps ? column + grid->width : last_column ? column + 1 : wide;
        if (views->next_column >= wide) {
            views->next_column = views->column;
            views->next_row = copies && last_row ? row + 1 : high;
        }
        views->token = row / patch * across + column / patch - grid->first_token;
        *place = row % patch * patch + column % patch;
        if (views->token >= 0 && views->token < grid->tokens) return true;
    }
    return false;
}

/* How training disturbs the fields of some samples: their sign, and noise on them. The numbers depend on seed, step,
 * sample, channel, row and column alone. */
typedef struct {
    uint64_t seed;
    uint32_t first_sample; /* position in the global batch of the first sample */
    bool flips;            /* a sample changes its sign with probability 1/2 */
    int64_t copies;        /* of each sample, at least 1 */
    int64_t samples, channels, rows, width;
    int64_t first_row;     /* of the whole field's, the first one's */
    int64_t sample_stride; /* numbers in memory from one sample's fields to the next one's */
} vt_disturbance;

static inline int64_t vt_disturbed_values(const vt_disturbance *how)
{
    return how->samples * how->copies * how->channels * how->rows * how->width;
}

/* One behind the last number that is read. */
static inline int64_t vt_disturbance_reads(const vt_disturbance *how)
{
    return (how->samples - 1) * how->sample_stride + how->channels * how->rows * how->width;
}

/* The random numbers of a forecast's noise, for `rows` rows of a batch, each of which is a member of a sample. They
 * depend on the seed, the row's key (two numbers, such as member and date), the step of a rollout, and some of them on
 * the token, too; on nothing else. */
typedef struct {
    uint64_t seed;
    uint32_t first_row; /* where keys are not given, those of row r are first_row + r and the step */
    uint32_t rollout_step;
    int64_t rows, first_token, tokens;
    int64_t numbers; /* of a row, and of each of its tokens */
} vt_noise;

/* What loss crps compares (crps_measure.h): the members of each sample, whose rows follow one another, in their means
 * over square blocks of some sizes, which divide the grid. grid: of predictions, one for each sample. */
typedef struct {
    vt_patch_grid grid;
    int64_t members;
    double alpha;
    int scale_count;
    int64_t sides[VT_MOST_SCALES]; /* of the blocks, in points */
} vt_crps;

/* Numbers in all the fields. */
static inline int64_t vt_patch_grid_values(const vt_patch_grid *grid)
{
    return grid->batch * grid->field_channels * grid->height * grid->width;
}

/* One behind the last index of ranges [count, 2], each a first index and a count. */
static inline int64_t vt_ranges_end(const int64_t *ranges, int64_t count)
{
    int64_t end = 0;
    for (int64_t i = 0; i < count; i++)
        if (ranges[2 * i] + ranges[2 * i + 1] > end) end = ranges[2 * i] + ranges[2 * i + 1];
    return end;
}

/* Adafactor's numbers. */
typedef struct {
    bool original; /* the paper's: eps[0] is added to squares; else as torch.optim.Adafactor has it */
    double beta1;  /* 0: it has no first moment */
    double decay, clip, eps[2];
} vt_adafactor;

/* A tensor whose last two dimensions are those of matrices, and what operands hold of it (factored.h). */
typedef struct {
    double elements;                               /* of the whole tensor */
    int64_t matrices, rows, columns;               /* of the whole tensor; 0: it has one dimension */
    int64_t first_matrix, first_row, first_column; /* where the rank's part begins, */
    int64_t part_rows, part_columns;               /* whose matrices have so many */
    int64_t first, count;                          /* the operands: elements of that part, in order */
} vt_factored;

/* The numbers in its `sums` and `scales`: of the rows of all matrices, and behind them of the columns. */
static inline int64_t vt_factored_sums(const vt_factored *shape)
{
    return shape->matrices * (shape->rows + shape->columns);
}

/* Updates by Adam, AdamW or SGD with momentum, as PyTorch defines them (torch.optim), and when they are made. */
typedef struct {
    vt_optimizer_name kind;
    double beta1, beta2; /* Adam, AdamW; of SGD beta1 is the momentum, and 0 means that it has no first moment */
    double epsilon;
    double weight_decay; /* AdamW: decoupled; the others: added to the gradient */
    bool nesterov;       /* SGD, Muon */
    double momentum;     /* Muon */
    int32_t block;       /* elements that share a scale where moments are kept in 8 bits */
    vt_type rounded;     /* of the values' copy in 16 bits, where there is one */
    vt_adafactor adafactor;
    double gradient_clip; /* the largest norm of all gradients together; INFINITY: no clipping */
    bool stops;           /* after a step whose figures are not finite no update is made any more */
    bool scales_loss;     /* the loss is scaled (fp16), see step_state.h; what follows is of this alone */
    bool fixed_scale;     /* its scale never changes */
    bool refills;         /* a clean step makes `tolerated` whole again */
    int32_t window;       /* clean steps in a row until the scale is doubled */
    int16_t hysteresis;   /* overflows until the scale is halved */
    double least_scale;   /* 0: no limit */
} vt_update;

static inline int64_t vt_update_blocks(const vt_update *update, int64_t count)
{
    return (count + update->block - 1) / update->block;
}

/* What changes from step to step, in the back end's memory: a recorded step can be replayed with new numbers, and the
 * device decides by itself whether there is an update (step_decide). */
typedef struct {
    /* set by the host before each step */
    double learning_rate;
    uint32_t step; /* its index: keys dropout */
    /* kept from step to step */
    int16_t stopped;     /* 1: a step before was not finite, and `stops` says that none comes after it */
    int16_t tolerated;   /* the last of so many overflows halves the loss scale */
    int64_t updates;     /* made so far: rule the bias correction */
    int32_t clean_steps; /* in a row since the loss scale last changed */
    int32_t averaged;    /* updates since the average of the values began */
    double loss_scale;   /* the loss is multiplied by it before backward; 1 without scales_loss */
    /* this step's: set to 0 as it begins */
    double squares; /* sum of the squares of all gradients, which are loss_scale times as large as they should be */
    double losses;  /* sum over the samples */
    /* what step_decide made of them */
    double gradient_norm;    /* of the gradients as they should be */
    double correction1;      /* 1 - beta1^updates */
    double correction2;      /* 1 - beta2^updates */
    float factor;            /* what the gradients are multiplied by for the update; NaN: there is none */
    int32_t first_nonfinite; /* see the operation of this name; of the gradients */
} vt_step_state;

/* How many places in a back end's work can be marked; see `mark`. */
enum { VT_MARKS = 4 };

/* Copies beside other work are waited for by their place, 0 … VT_BESIDE - 1; see `copy_beside`. */
enum { VT_BESIDE = 2 };

typedef struct vt_backend vt_backend;
struct vt_backend {
    char name[128];             /* "CPU, 2 threads, avx512" */
    void *state;                /* the implementation's own */
    void *stream;               /* the device's queue that operations go to (cudaStream_t), or NULL */
    struct vt_times *times;     /* where its operations are timed (times.h), or NULL */
    bool shares_host_memory;    /* host pointers may be used as the back end's own */
    int64_t most_head_columns;  /* the widest heads that attention takes; 0: any */
    bool draws_ahead;           /* attention's dropout needs `drawn`, because its random numbers take long */
    struct vt_choices *choices; /* what was chosen by timing (choices.h); NULL: this back end times nothing */

    /* For measurements: from now on the back end's engine of attention with this number (0, 1, …) runs wherever it can,
     * and its name is returned; NULL: there are no more. Below 0: the fastest again. NULL: there is one engine. */
    const char *(*prefer_attention)(vt_backend *backend, int number);
    /* The name of the engine that ran last. */
    const char *(*attention_ran)(vt_backend *backend);

    /* For measurements: the seconds that the device worked on what was asked for between the two calls, of which the
     * second waits until it is done. NULL: the host's clock tells. */
    void (*clock_start)(vt_backend *backend);
    double (*clock_stop)(vt_backend *backend);

    /* Bytes in use on the device, by this process and all others; NULL: the back end uses the host's memory. */
    double (*used_memory)(vt_backend *backend);

    void (*close)(vt_backend *backend);

    /* The first failure of any operation so far; waits until all have ended. */
    vt_status (*check)(vt_backend *backend);

    /* ---- memory ---- */

    /* Bytes that could be taken now, or -1 where that can't be known. */
    double (*available_memory)(vt_backend *backend);
    /* Zeroed, aligned to 256 bytes; *memory is NULL on failure, whose message names category, bytes and what is free.
     */
    vt_status (*allocate)(vt_backend *backend, vt_memory_category category, size_t bytes, void **memory);
    void (*release)(vt_backend *backend, void *memory);
    void (*zero)(vt_backend *backend, void *memory, size_t bytes);
    /* `host` may also be the back end's own memory. */
    void (*copy_from_host)(vt_backend *backend, void *memory, const void *host, size_t bytes);
    /* From the back end's memory to the back end's memory; they don't overlap. */
    void (*copy)(vt_backend *backend, void *to, const void *from, size_t bytes);
    /* Waits until the bytes are there. */
    void (*copy_to_host)(vt_backend *backend, void *host, const void *memory, size_t bytes);

    /* ---- working while a device does; on the CPU copies are made at once, and there is nothing to wait for
     * ---- */

    /* Host memory, zeroed, that the device reads and writes by itself (pinned). Errors: there is none. */
    vt_status (*allocate_host)(vt_backend *backend, size_t bytes, void **memory);
    void (*release_host)(vt_backend *backend, void *memory);
    /* As copy_to_host into memory of allocate_host, but doesn't wait: the bytes are there once a later mark is reached.
     */
    void (*copy_to_host_later)(vt_backend *backend, void *host, const void *memory, size_t bytes);
    /* Places a mark (number 0 … VT_MARKS - 1) after everything that was asked for so far. */
    void (*mark)(vt_backend *backend, int mark);
    /* Waits until everything before the mark is done. Returns the first failure so far, without waiting for more. */
    vt_status (*wait)(vt_backend *backend, int mark);
    /* Starts the copy staging = host [bytes], which runs while the device works on something else; it only waits for
     * the last upload_end. */
    void (*upload)(vt_backend *backend, void *staging, const void *host, size_t bytes);
    /* memory = staging, after all that was asked for, once all uploads so far have arrived; returns when their host
     * memory has been read. */
    void (*upload_end)(vt_backend *backend, void *memory, const void *staging, size_t bytes);
    /* Starts the copy to = from [bytes], one of which is memory of allocate_host: after all that was asked for so far,
     * and beside what is asked for next. These copies are made in their order. */
    void (*copy_beside)(vt_backend *backend, int place, void *to, const void *from, size_t bytes);
    /* What is asked for next waits until the copies of this place are made. */
    void (*copy_beside_end)(vt_backend *backend, int place);

    /* ---- recording: NULL where the back end can't ---- */

    /* What is asked for between the two calls is recorded instead of done, and replaces the last recording; it may
     * neither wait nor take memory. False: it can't be recorded, and nothing has been done. */
    bool (*record_begin)(vt_backend *backend);
    bool (*record_end)(vt_backend *backend);
    /* Does what was recorded, with the same memory. False: there is no recording, or memory that it uses has moved. */
    bool (*replay)(vt_backend *backend);

    /* ---- operations: operations.def says what each does, and names the shapes of its operands ---- */

#define OPERATION(name, work, ...) void (*name)(vt_backend * backend VT_PARAMETERS(__VA_ARGS__));
#include "backend/operations.def"
};

/* Where VT_TRY can be used: `pointer` becomes memory on the back end for `count` of what it points to. */
#define VT_TAKE(backend, category, count, pointer)                                                                     \
    do {                                                                                                               \
        void *taken = NULL;                                                                                            \
        VT_TRY((backend)->allocate(backend, category, (size_t)(count) * sizeof *(pointer), &taken));                   \
        (pointer) = taken;                                                                                             \
    } while (0)

/* sum = a + b, where sum may be a. */
static inline void vt_matrix_add(vt_backend *backend, vt_matrix a, vt_matrix b, vt_matrix sum)
{
    const vt_mask none = {.tokens = 1};
    backend->residual_add(backend, a, b, &none, sum);
}

/* All numbers of a float32 matrix without gaps between its rows = 0. */
static inline void vt_matrix_clear(vt_backend *backend, vt_matrix matrix)
{
    backend->zero(backend, matrix.data, (size_t)(matrix.rows * matrix.columns) * sizeof(float));
}

/* The CPU: threads (0: OMP_NUM_THREADS or one a core) and instruction set (auto: what VITRAIN_CPU_ISA in the
 * environment names, else the best of this processor). Errors: an instruction set that this processor or this build
 * lacks. */
vt_status vt_backend_open_cpu(vt_cpu_isa isa, int threads, vt_backend **backend);

/* Does nothing but multiply and add numbers of a type on registers, on all threads of a CPU back end, and returns the
 * FLOPs that were done: how many a second are the limit of products. 0 with cpu_isa plain. */
double vt_backend_cpu_multiply_adds(const vt_backend *backend, vt_type type, int64_t rounds);

/* The GPU that vt_backend_open_cuda would take is this thread's from here on, for libraries that want one earlier
 * (NCCL). Errors: built without CUDA; no driver; no GPU. */
vt_status vt_backend_choose_gpu(int local_rank);

/* An NVIDIA GPU: the local_rank-th of this machine, counted round. Deterministic: nothing whose sums' order may change
 * from run to run. Errors: built without CUDA; no driver, GPU or CUDA library. The sentence says which. */
vt_status vt_backend_open_cuda(int local_rank, bool deterministic, vt_backend **backend);

/* The one that config->device asks for; auto: a GPU if there is one that can be used, else the CPU. */
vt_status vt_backend_open(const vt_config *config, int threads, int local_rank, vt_backend **backend);

void vt_backend_close(vt_backend **backend);

/* For authors of a back end that does everything at once: fills the functions for working while a device does, from
 * its copy_from_host, copy_to_host and check. */
void vt_backend_fill_immediate(vt_backend *backend);

#endif
