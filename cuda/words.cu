/* Words: the embedding, the places' sines, and cross entropy. */
#include "elements.h"

/* ---- the embedding ---- */

VT_KERNEL void embedding_kernel(vt_word_rows words, const int32_t *numbers, vt_matrix table, vt_matrix x, bool wide)
{
    vt_each_group(x.rows, x.columns, [&](int64_t row, int64_t column, int count) {
        const int64_t from = vt_word_here(&words, numbers[vt_word_place(&words, row)]);
        float values[VT_GROUP] = {};
        if (from >= 0) vt_load(table, from * table.stride + column, count, wide, values);
        vt_store(x, row * x.stride + column, count, wide, values);
    });
}

void VT_CUDA_NAME(embedding_forward)(vt_backend *backend, const vt_word_rows *words, const int32_t *numbers,
                                     vt_matrix table, vt_matrix x)
{
    VT_SPREAD(embedding_kernel, x.rows * vt_groups(x.columns), backend, *words, numbers, table, x,
              vt_is_wide(table, x));
}

/* Backward adds to no sum from two threads. A block has RUN words and COLUMNS columns of the table, and looks through
 * all places, CHUNK at a time, for those where its words stand. Its warps take these in turn, each with sums of its
 * own, which are added in order at the end. So the order of every sum depends on the words alone. */
enum {
    RUN = 32,
    COLUMNS = 64,
    RUN_WARPS = 4,
    RUN_THREADS = 32 * RUN_WARPS,
    EACH = 8,
    CHUNK = EACH * RUN_THREADS,
    AHEAD = 4
};

/* places: each row's place in the table, found once, because it takes a division; -1 behind the last row. */
VT_KERNEL void table_places_kernel(vt_word_rows words, const int32_t *numbers, int64_t rows, int64_t count,
                                   int32_t *places)
{
    for (int64_t i = vt_thread(); i < count; i += vt_thread_count())
        places[i] = i < rows ? (int32_t)vt_word_here(&words, numbers[vt_word_place(&words, i)]) : -1;
}

/* list = the places of a chunk with words first_word … + RUN - 1, in their order, as index in the chunk * RUN + word of
 * the run. Returns their number. All threads must call. */
__device__ static inline int list_places(const int32_t *places, int64_t first_word, int warp_counts[RUN_WARPS],
                                         uint16_t list[CHUNK])
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, first = EACH * (int)threadIdx.x;
    int32_t own[EACH];
    int count = 0, all = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) own[i] = places[first + i];
#pragma unroll
    for (int i = 0; i < EACH; i++) count += own[i] >= first_word && own[i] < first_word + RUN;
    int end = count; /* of this thread's in the list, first among the warp's */
    for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_sync(0xffffffffu, end, max(lane - step, 0));
        if (lane >= step) end += other;
    }
    if (lane == 31) warp_counts[warp] = end;
    __syncthreads();
    for (int w = 0; w < RUN_WARPS; w++) {
        if (w < warp) end += warp_counts[w];
        all += warp_counts[w];
    }
    int at = end - count;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (own[i] >= first_word && own[i] < first_word + RUN)
            list[at++] = (uint16_t)((first + i) * RUN + (own[i] - first_word));
    __syncthreads();
    return all;
}

/* sums += the rows of dx from `row` on that the list names; AHEAD of a warp's are fetched before the first is added. */
__device__ static inline void add_listed(const vt_matrix &dx, int64_t row, int64_t column, const uint16_t *list,
                                         int count, float sums[RUN][COLUMNS])
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const bool has_first = column + lane < dx.columns, has_second = column + 32 + lane < dx.columns;
    for (int i = warp; i < count; i += AHEAD * RUN_WARPS) {
        float values[AHEAD][2] = {};
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            const int at = i + a * RUN_WARPS;
            if (at >= count) break;
            const float *from = dx.data + (row + list[at] / RUN) * dx.stride + column + lane;
            if (has_first) values[a][0] = from[0];
            if (has_second) values[a][1] = from[32];
        }
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            const int at = i + a * RUN_WARPS;
            if (at >= count) break;
            sums[list[at] % RUN][lane] += values[a][0];
            sums[list[at] % RUN][32 + lane] += values[a][1];
        }
    }
}

VT_KERNEL void __launch_bounds__(RUN_THREADS)
    embedding_backward_kernel(const int32_t *places, vt_matrix dx, int64_t words, float *dtable)
{
    __shared__ float sums[RUN_WARPS][RUN][COLUMNS];
    __shared__ uint16_t list[CHUNK];
    __shared__ int warp_counts[RUN_WARPS];
    const int64_t first_word = (int64_t)blockIdx.x * RUN, first_column = (int64_t)blockIdx.y * COLUMNS;
    for (int i = (int)threadIdx.x; i < RUN_WARPS * RUN * COLUMNS; i += RUN_THREADS)
        sums[i / (RUN * COLUMNS)][i / COLUMNS % RUN][i % COLUMNS] = 0;
    for (int64_t row = 0; row < dx.rows; row += CHUNK) {
        const int count = list_places(places + row, first_word, warp_counts, list);
        add_listed(dx, row, first_column, list, count, sums[threadIdx.x / 32]);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < RUN * COLUMNS; i += RUN_THREADS) {
        const int64_t word = first_word + i / COLUMNS, column = first_column + i % COLUMNS;
        float sum = 0;
        for (int w = 0; w < RUN_WARPS; w++) sum += sums[w][i / COLUMNS][i % COLUMNS];
        if (word < words && column < dx.columns && sum != 0) dtable[word * dx.columns + column] += sum;
    }
}

void VT_CUDA_NAME(embedding_backward)(vt_backend *backend, const vt_word_rows *words, const int32_t *numbers,
                                      vt_matrix dx, float *dtable)
{
    const int64_t count = (dx.rows + CHUNK - 1) / CHUNK * CHUNK;
    int32_t *places = (int32_t *)vt_common(backend)->workspace(backend, (size_t)count * sizeof *places);
    if (places == NULL) return;
    const dim3 blocks((unsigned)((words->count + RUN - 1) / RUN), (unsigned)((dx.columns + COLUMNS - 1) / COLUMNS));
    VT_SPREAD(table_places_kernel, count, backend, *words, numbers, dx.rows, count, places);
    VT_LAUNCH(embedding_backward_kernel, blocks, RUN_THREADS, 0, backend, places, dx, words->count, dtable);
}

/* ---- the places' sines ---- */

/* The exponential is rounded to float32 once, because places multiply its error. */
VT_KERNEL void sinusoid_kernel(vt_word_rows words, float slope, vt_matrix x)
{
    int64_t row, column;
    for (int64_t i = vt_thread(); i < x.rows * x.columns; i += vt_thread_count()) {
        vt_split(i, x.columns, &row, &column);
        const float exponent = (float)(column / 2 * 2) * slope;
        const float angle = (float)(words.first + row % words.tokens) * (float)exp((double)exponent);
        x.data[row * x.stride + column] += column % 2 == 0 ? sinf(angle) : cosf(angle);
    }
}

void VT_CUDA_NAME(sinusoid_add)(vt_backend *backend, const vt_word_rows *words, vt_matrix x)
{
    VT_SPREAD(sinusoid_kernel, x.rows * x.columns, backend, *words, (float)(-log(10000.0) / (double)x.columns), x);
}

/* ---- cross entropy: a block has a row ---- */

/* A row of few words needs few warps. */
static unsigned threads_of(int64_t columns)
{
    const int64_t groups = vt_groups(columns);
    return groups >= VT_BLOCK_THREADS ? (unsigned)VT_BLOCK_THREADS : (unsigned)((groups + 31) / 32 * 32);
}

VT_KERNEL void __launch_bounds__(VT_BLOCK_THREADS)
    parts_kernel(vt_word_rows words, const int32_t *targets, vt_matrix scores, float *parts, bool wide)
{
    __shared__ float shared[32];
    const int64_t row = blockIdx.x;
    const float *own = scores.data + row * scores.stride;
    float values[VT_GROUP], largest = -INFINITY, sum = 0;
    for (int64_t c = (int64_t)threadIdx.x * VT_GROUP; c < scores.columns; c += (int64_t)blockDim.x * VT_GROUP) {
        const int count = vt_count(scores.columns, c);
        vt_load_floats(own + c, count, wide, values);
        for (int j = 0; j < VT_GROUP; j++)
            if (j < count) largest = fmaxf(largest, values[j]);
    }
    largest = vt_block_max(largest, shared);
    for (int64_t c = (int64_t)threadIdx.x * VT_GROUP; c < scores.columns; c += (int64_t)blockDim.x * VT_GROUP) {
        const int count = vt_count(scores.columns, c);
        vt_load_floats(own + c, count, wide, values);
        for (int j = 0; j < VT_GROUP; j++)
            if (j < count) sum += expf(values[j] - largest);
    }
    sum = vt_block_sum(sum, shared);
    if (threadIdx.x != 0) return;
    const int64_t target = vt_word_here(&words, targets[vt_word_place(&words, row)]);
    parts[3 * row] = largest;
    parts[3 * row + 1] = sum;
    parts[3 * row + 2] = target >= 0 ? own[target] : -INFINITY;
}

void VT_CUDA_NAME(cross_entropy_parts)(vt_backend *backend, const vt_word_rows *words, const int32_t *targets,
                                       vt_matrix scores, float *parts)
{
    VT_LAUNCH(parts_kernel, dim3((unsigned)scores.rows), threads_of(scores.columns), 0, backend, *words, targets,
              scores, parts, vt_is_wide(scores));
}

/* A block has a sample. */
VT_KERNEL void sums_kernel(vt_word_rows words, int64_t ranks, const int32_t *targets, const float *parts, double *sums,
                           float *log_sums)
{
    __shared__ double shared[32];
    const int64_t sample = words.first_row / words.tokens + blockIdx.x;
    const int64_t begin = max(sample * words.tokens - words.first_row, (int64_t)0);
    const int64_t end = min((sample + 1) * words.tokens - words.first_row, words.rows);
    double losses = 0;
    for (int64_t row = begin + threadIdx.x; row < end; row += blockDim.x) {
        float largest = -INFINITY, target = -INFINITY;
        double sum = 0;
        for (int64_t rank = 0; rank < ranks; rank++) {
            largest = fmaxf(largest, parts[3 * (rank * words.rows + row)]);
            target = fmaxf(target, parts[3 * (rank * words.rows + row) + 2]);
        }
        for (int64_t rank = 0; rank < ranks; rank++) {
            const float *part = parts + 3 * (rank * words.rows + row);
            sum += (double)part[1] * exp((double)part[0] - (double)largest);
        }
        const double log_sum = (double)largest + log(sum);
        log_sums[row] = (float)log_sum;
        if (targets[vt_word_place(&words, row)] >= 0) losses += log_sum - (double)target;
    }
    losses = vt_block_sum(losses, shared);
    if (threadIdx.x != 0) return;
    sums[2 * sample] += losses;
    sums[2 * sample + 1] += (double)(end - begin);
}

void VT_CUDA_NAME(cross_entropy_sums)(vt_backend *backend, const vt_word_rows *words, int64_t ranks,
                                      const int32_t *targets, const float *parts, double *sums, float *log_sum)
{
    const int64_t samples = vt_word_rows_samples(words) - words->first_row / words->tokens;
    VT_LAUNCH(sums_kernel, dim3((unsigned)samples), 64, 0, backend, *words, ranks, targets, parts, sums, log_sum);
}

/* The target's gradient would lose its digits as exp(…) - 1. */
VT_KERNEL void __launch_bounds__(VT_BLOCK_THREADS)
    cross_entropy_backward_kernel(vt_word_rows words, const int32_t *targets, vt_matrix scores, const float *log_sums,
                                  double scale, const double *loss_scale, vt_matrix dscores, bool wide)
{
    const int64_t row = blockIdx.x;
    const int32_t number = targets[vt_word_place(&words, row)];
    const int64_t target = vt_word_here(&words, number);
    const float factor = number >= 0 ? (float)(scale * (loss_scale != NULL ? *loss_scale : 1.0)) : 0.0f;
    const float log_sum = log_sums[row];
    float values[VT_GROUP];
    for (int64_t c = (int64_t)threadIdx.x * VT_GROUP; c < scores.columns; c += (int64_t)blockDim.x * VT_GROUP) {
        const int count = vt_count(scores.columns, c);
        vt_load_floats(scores.data + row * scores.stride + c, count, wide, values);
        for (int j = 0; j < VT_GROUP; j++) {
            const float power = values[j] - log_sum;
            values[j] = factor * (c + j == target ? expm1f(power) : expf(power));
        }
        vt_store(dscores, row * dscores.stride + c, count, wide, values);
    }
}

void VT_CUDA_NAME(cross_entropy_backward)(vt_backend *backend, const vt_word_rows *words, const int32_t *targets,
                                          vt_matrix scores, const float *log_sum, float scale, const double *loss_scale,
                                          vt_matrix dscores)
{
    VT_LAUNCH(cross_entropy_backward_kernel, dim3((unsigned)scores.rows), threads_of(scores.columns), 0, backend,
              *words, targets, scores, log_sum, (double)scale, loss_scale, dscores, vt_is_wide(scores, dscores));
}
