/* Cross entropy of the scores that the model's head makes of each row of the prediction, and the word that stands there
 * in the target: the mean over a sample's places of -log softmax(scores)[word]. The scores of all rows together would
 * be large, so they are made of a few rows at a time; in training forward and backward at once. With tensor parallelism
 * each rank has the scores of its own words, and three numbers a row go between the ranks (Shoeybi et al. 2019). */
#include "loss/loss.h"
#include "model/linear.h"

/* On a GPU so many that its products are large, and the head's gradient is added to a few times only. */
enum { MOST_BYTES = 64 << 20, MOST_BYTES_ON_GPU = 512 << 20, TILE = 128 };

/* One pass over the rows. */
typedef struct {
    const vt_compared *what;
    vt_matrix prediction; /* [inner rows, dim] float32 */
    /* in training */
    vt_matrix dprediction; /* as prediction, whose place it may have; without memory: no gradient is wanted */
    float scale;
    const double *loss_scale;
} work;

static const int32_t *targets_of(const work *w)
{
    return (const int32_t *)(const void *)w->what->target.data;
}

/* How many rows are taken at once: the same on all ranks. */
static int64_t rows_at_once(const vt_pass *pass)
{
    const int64_t ranks = pass->parallel->tensor->size, words = pass->head->weight->shape[0];
    const size_t rounded = pass->type != VT_FLOAT32 ? vt_type_size(pass->type) : 0; /* a copy of the gradients */
    const int64_t bytes = (words + ranks - 1) / ranks * (int64_t)(sizeof(float) + rounded);
    const bool on_gpu = !pass->backend->shares_host_memory;
    const int64_t rows = (on_gpu ? MOST_BYTES_ON_GPU : MOST_BYTES) / bytes;
    if (on_gpu && rows > TILE) return rows / TILE * TILE;
    return rows > 1 ? rows : 1;
}

/* The three numbers of each row, of all ranks. */
static const float *gather_parts(const work *w, const vt_word_rows *words, vt_matrix scores)
{
    const vt_pass *pass = w->what->pass;
    vt_group *group = pass->parallel->tensor;
    const size_t own = (size_t)(3 * scores.rows), bytes = own * sizeof(float);
    float *parts = vt_arena_push(pass->arena, (size_t)group->size * bytes);
    size_t each[group->size];
    for (int i = 0; i < group->size; i++) each[i] = bytes;
    pass->backend->cross_entropy_parts(pass->backend, words, targets_of(w), scores, parts + (size_t)group->rank * own);
    vt_group_all_gather(group, parts, each, NULL);
    return parts;
}

static void run_rows(const work *w, int64_t first, int64_t count)
{
    const vt_pass *pass = w->what->pass;
    vt_backend *backend = pass->backend;
    const vt_linear *head = pass->head;
    const size_t mark = pass->arena->used;
    const vt_word_rows words = {.window = pass->parallel->token_count,
                                .first = pass->parallel->inner.first,
                                .tokens = pass->parallel->inner.count,
                                .first_row = first,
                                .rows = count,
                                .first_word = head->weight->first,
                                .count = head->out};
    vt_matrix x = vt_matrix_rows(w->prediction, first, count);
    if (pass->type != VT_FLOAT32) {
        vt_matrix typed = vt_pass_push(pass, count, x.columns);
        backend->convert(backend, x, typed);
        x = typed;
    }
    vt_matrix scores = vt_pass_push_float32(pass, count, head->out), dscores = scores;
    vt_linear_forward(head, pass, x, scores);
    const float *parts = gather_parts(w, &words, scores);
    float *log_sum = vt_arena_push(pass->arena, (size_t)count * sizeof(float));
    backend->cross_entropy_sums(backend, &words, pass->parallel->tensor->size, targets_of(w), parts, w->what->sums,
                                log_sum);
    if (w->dprediction.data != NULL) {
        if (pass->type != VT_FLOAT32) dscores = vt_pass_push(pass, count, head->out);
        backend->cross_entropy_backward(backend, &words, targets_of(w), scores, log_sum, w->scale, w->loss_scale,
                                        dscores);
        vt_linear_backward(head, pass, x, dscores, vt_matrix_rows(w->dprediction, first, count));
    }
    vt_arena_pop(pass->arena, mark);
}

static void run(const work *w)
{
    const vt_pass *pass = w->what->pass;
    const int64_t rows = vt_pass_inner_rows(pass), most = rows_at_once(pass);
    pass->backend->zero(pass->backend, w->what->sums, (size_t)(2 * pass->batch) * sizeof *w->what->sums);
    for (int64_t first = 0; first < rows; first += most) run_rows(w, first, rows - first < most ? rows - first : most);
}

static void partials(const vt_compared *what)
{
    const vt_pass *pass = what->pass;
    const size_t mark = pass->arena->used;
    const vt_matrix inner = vt_region_enter(pass->parallel, pass->arena, pass->batch, what->prediction);
    run(&(work){.what = what, .prediction = inner});
    vt_arena_pop(pass->arena, mark);
}

static void backward(const vt_compared *what, float scale, const double *loss_scale, vt_matrix dprediction)
{
    const vt_pass *pass = what->pass;
    const vt_parallel *parallel = pass->parallel;
    vt_arena *arena = pass->arena;
    const size_t mark = arena->used;
    vt_matrix own = dprediction;
    if (own.type != VT_FLOAT32) own = vt_pass_push_float32(pass, own.rows, own.columns);
    const vt_matrix inner = vt_region_enter(parallel, arena, pass->batch, what->prediction);
    const vt_matrix dinner = vt_region_room(parallel, arena, pass->batch, own);
    run(&(work){.what = what,
                .prediction = inner,
                .dprediction = dinner,
                .scale = scale / (float)parallel->token_count,
                .loss_scale = loss_scale});
    vt_region_leave(parallel, arena, pass->batch, dinner, own);
    if (own.data != dprediction.data) pass->backend->convert(pass->backend, own, dprediction);
    vt_arena_pop(arena, mark);
}

const vt_loss_kind vt_loss_cross_entropy = {
    .measure = VT_MEASURE_ABSOLUTE, .sums_in_backward = true, .partials = partials, .backward = backward};
