#include "model/continuation.h"

#include <stdlib.h>

#include "base/memory.h"

struct vt_continuation {
    const vt_config *config;
    const vt_model *model;
    vt_backend *backend;
    vt_parallel parallel; /* the model's, of the words at hand alone */
    vt_saved *saved;
    vt_arena arena;    /* at its beginning words and caches, then what a pass pushes */
    size_t mark;       /* where that is */
    vt_matrix *caches; /* [units, 2] */
    int32_t *words;    /* [window] */
};

/* Memory that forward takes for a window: a layer's own, and what layers hand on. And words, and caches of so many
 * columns. */
static size_t arena_bytes(const vt_config *config, int64_t units, int64_t cached)
{
    enum { OWN = 24, PIECES = 64, ALIGNED = 256 }; /* matrices of a layer as wide as the stream; their gaps */
    const int64_t rows = config->seq_len, dim = config->embed_dim;
    const int64_t columns =
        (2 * units + OWN) * dim + 2 * config->ffn_dim + 2 * config->num_heads + 2 * units * cached + 1;
    return (size_t)(rows * columns + 3 * config->vocab_size) * sizeof(float) + (size_t)(3 * units + PIECES) * ALIGNED;
}

vt_status vt_continuation_open(const vt_config *config, const vt_model *model, vt_backend *backend,
                               vt_continuation **continuation)
{
    vt_status status = VT_OK;
    vt_continuation *c = vt_allocate(1, sizeof *c, "a text that is continued");
    const int64_t units = model->parameters->unit_count, window = config->seq_len;
    const int64_t heads = vt_parallel_share(model->parallel, config->num_heads).count;
    const int64_t columns = 2 * heads * (config->embed_dim / config->num_heads);
    *c = (vt_continuation){.config = config, .model = model, .backend = backend, .parallel = *model->parallel};
    c->parallel.sequence = c->parallel.ring = false;
    VT_CHECK(model->head != NULL, "model %s predicts no words", model->kind->name);
    VT_CHECK(config->causal, "the model was trained without `causal`: each place has seen the words behind it, so it "
                             "can't write; train it with --causal=true");
    VT_CHECK(model->parallel->context->size == 1, "a text can't be continued with context_parallel %d; use 1",
             model->parallel->context->size);
    c->caches = vt_allocate((size_t)(2 * units), sizeof *c->caches, "a text that is continued");
    VT_TRY(vt_arena_open(backend, arena_bytes(config, units, columns), &c->arena));
    c->words = vt_arena_push(&c->arena, (size_t)window * sizeof *c->words);
    for (int64_t i = 0; i < 2 * units; i++)
        c->caches[i] = vt_arena_push_matrix(&c->arena, model->parameters->type, window, columns);
    c->mark = c->arena.used;
    vt_saved_open(model, (vt_span){0, units}, &c->saved);
done:
    if (status != VT_OK) vt_continuation_close(&c);
    *continuation = c;
    return status;
}

void vt_continuation_close(vt_continuation **continuation)
{
    vt_continuation *c = *continuation;
    if (c == NULL) return;
    vt_saved_close(&c->saved);
    vt_arena_close(&c->arena);
    free(c->caches);
    free(c);
    *continuation = NULL;
}

/* Scores of all words for the last row of the prediction, from those of each rank's words. */
static void take_scores(const vt_continuation *c, const vt_pass *pass, vt_matrix prediction, float *scores)
{
    const vt_linear *head = pass->head;
    vt_group *group = c->parallel.tensor;
    const int64_t words = head->weight->shape[0];
    const vt_matrix last = vt_matrix_rows(prediction, prediction.rows - 1, 1);
    vt_matrix typed = vt_pass_push(pass, 1, last.columns), all = vt_pass_push_float32(pass, 1, words);
    size_t bytes[group->size];
    for (int i = 0; i < group->size; i++)
        bytes[i] = (size_t)vt_layout_span(words, group->size, i).count * sizeof(float);
    pass->backend->convert(pass->backend, last, typed);
    const vt_matrix own = vt_matrix_columns(all, head->weight->first, head->out);
    vt_linear_forward(head, pass, typed, own);
    vt_group_all_gather(group, all.data, bytes, NULL);
    pass->backend->copy_to_host(pass->backend, scores, all.data, (size_t)words * sizeof(float));
}

vt_status vt_continuation_feed(vt_continuation *c, int64_t fed, const int32_t *words, int64_t count, float *scores)
{
    vt_backend *backend = c->backend;
    const vt_model_tensor tensor = {.values = c->words};
    const vt_pass pass = {.backend = backend,
                          .arena = &c->arena,
                          .parallel = &c->parallel,
                          .batch = 1,
                          .type = c->model->parameters->type,
                          .fused = c->config->enable_jit,
                          .head = c->model->head,
                          .caches = c->caches};
    VT_ASSERT(count > 0 && fed + count <= c->config->seq_len);
    c->parallel.own = c->parallel.inner = (vt_span){fed, count};
    backend->copy_from_host(backend, c->words + fed, words, (size_t)count * sizeof *words);
    vt_matrix prediction = vt_model_forward(c->model, &pass, &tensor, (vt_matrix){0}, c->saved);
    take_scores(c, &pass, prediction, scores);
    vt_arena_pop(&c->arena, c->mark);
    return backend->check(backend);
}
