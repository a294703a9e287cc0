/* Two transformers on text, which give each place of a window the scores of the word behind it: `transformer`, an
 * encoder and a decoder that both read the window (torch.nn.Transformer), and `encoder`, an encoder alone. Names and
 * shapes of the parameters are those of the courses' PyTorch state_dict.
 *
 * The units are the embedding (0), each layer, the encoder's before the decoder's, and the head. The stream is x, and
 * from the first encoder layer of `transformer` to its last decoder layer two matrices side by side: in the encoder the
 * embedding, which the decoder begins with, and x; in the decoder x and the memory, which is the encoder's output.
 *
 * The prediction is what the last linear layer reads: the loss runs that layer over a few rows at a time. */
#include <stdio.h>

#include "base/memory.h"
#include "base/profile.h"
#include "base/text.h"
#include "model/model.h"
#include "model/transformer_layer.h"

typedef struct {
    vt_model model;
    bool decodes;       /* has a decoder */
    int64_t dim, count; /* of layers */
    vt_parameter *embedding;
    vt_layer_norm encoder_norm, norm; /* the first one with a decoder only */
    vt_linear head;
    vt_transformer_layer layers[]; /* [count] */
} transformer;

typedef struct {
    vt_matrix in, out; /* the stream in front of the layer, and behind it */
    vt_matrix x;       /* of the last encoder layer: in front of encoder_norm */
    vt_layer_norm_saved norm;
    vt_transformer_layer_saved layer;
} layer_saved;

typedef struct {
    vt_saved saved;
    vt_matrix stream; /* in front of the head */
    vt_matrix head_gradient,
        decoder_gradient; /* room for the stream's, in front of the head and the last decoder layer */
    vt_layer_norm_saved norm;
    layer_saved layers[];
} transformer_saved;

/* ---- the configuration ---- */

static bool decodes(const vt_config *config)
{
    return config->model == VT_MODEL_transformer;
}

static int64_t layers_of(const vt_config *config)
{
    return config->depth * (decodes(config) ? 2 : 1);
}

static vt_status check(const vt_config *config, const vt_backend *backend)
{
    vt_status status = VT_OK;
    const int64_t dim = config->embed_dim, words = config->vocab_size;
    VT_CHECK(dim % 2 == 0, "embed_dim %ld is odd, but half of the columns take sines, half cosines; use %ld", dim,
             dim + 1);
    VT_CHECK(config->tensor_parallel <= words,
             "tensor_parallel %ld is more than the %ld words of the vocabulary, which it shares out; use %ld",
             config->tensor_parallel, words, words);
    VT_CHECK(config->ffn_dim >= config->tensor_parallel, "tensor_parallel %ld is more than ffn_dim %ld; use %ld",
             config->tensor_parallel, config->ffn_dim, config->ffn_dim);
    VT_TRY(vt_model_check_heads(config, backend));
done:
    return status;
}

static char *describe(const vt_config *config)
{
    return vt_text_format("embed_dim %ld, %ld %slayers%s, %ld heads, ffn_dim %ld, windows of %ld of %ld words%s",
                          config->embed_dim, config->depth, decodes(config) ? "encoder " : "",
                          decodes(config) ? " and as many decoder layers" : "", config->num_heads, config->ffn_dim,
                          config->seq_len, config->vocab_size, config->causal ? ", causal" : "");
}

static char *describe_shares(const vt_config *config)
{
    const int ranks = (int)config->tensor_parallel;
    return vt_text_format("heads    %ld, %ld on each rank (of width %ld; %ld of ffn_dim %ld, %ld of %ld words)",
                          config->num_heads, config->num_heads / ranks, config->embed_dim / config->num_heads,
                          vt_layout_span(config->ffn_dim, ranks, 0).count, config->ffn_dim,
                          vt_layout_span(config->vocab_size, ranks, 0).count, config->vocab_size);
}

static int64_t tokens(const vt_config *config)
{
    return config->seq_len;
}

/* Every rank has whole windows, which are small. */
static vt_span part_needed(const vt_config *config, vt_span needed)
{
    (void)needed;
    return (vt_span){0, config->seq_len};
}

/* ---- parameters ---- */

static void build_embedding(transformer *model, const vt_config *config, vt_parameters *parameters)
{
    const int64_t words = config->vocab_size, dim = model->dim;
    const bool normal = config->embed_start == VT_EMBED_NORMAL;
    model->embedding =
        vt_parameters_add(parameters, "embed", "weight", 2, (const int64_t[]){words, dim},
                          normal ? VT_START_UNCUT : VT_START_UNIFORM, normal ? 1 : vt_xavier_bound(words, dim));
    vt_parameter_split(model->embedding, 0, VT_AXES(VT_AXIS_TENSOR), vt_parallel_share(parameters->parallel, words));
}

static void build_layer(transformer *model, const vt_config *config, vt_parameters *parameters, int64_t i)
{
    char name[VT_PARAMETER_NAME];
    const int64_t depth = config->depth;
    const bool in_decoder = i >= depth;
    if (model->decodes)
        snprintf(name, sizeof name, "transformer.%s.layers.%ld", in_decoder ? "decoder" : "encoder",
                 in_decoder ? i - depth : i);
    else
        snprintf(name, sizeof name, "layers.%ld", i);
    vt_parameters_next_unit(parameters);
    vt_transformer_layer_build(&model->layers[i], parameters, name, config, i);
    if (model->decodes && i == depth - 1)
        vt_layer_norm_build(&model->encoder_norm, parameters, "transformer.encoder.norm", model->dim, 1e-5f);
}

static vt_status transformer_open(const vt_config *config, vt_parameters *parameters, vt_model **result)
{
    const size_t count = (size_t)layers_of(config);
    transformer *model = vt_allocate(1, sizeof *model + count * sizeof model->layers[0], "the model");
    const int64_t dim = config->embed_dim, words = config->vocab_size;
    const double bound = 1 / sqrt((double)dim); /* of torch.nn.Linear */
    model->model.saved_bytes = sizeof(transformer_saved) + count * sizeof(layer_saved);
    model->model.head = &model->head;
    model->decodes = decodes(config);
    model->dim = dim;
    model->count = layers_of(config);
    build_embedding(model, config, parameters);
    for (int64_t i = 0; i < model->count; i++) build_layer(model, config, parameters, i);
    vt_parameters_next_unit(parameters);
    vt_layer_norm_build(&model->norm, parameters, model->decodes ? "transformer.decoder.norm" : "norm", dim, 1e-5f);
    vt_linear_build(&model->head, parameters, "fc", dim, words, VT_LINEAR_BY_OUTPUT, true);
    vt_linear_start(&model->head, model->decodes ? bound : vt_xavier_bound(words, dim), bound);
    *result = &model->model;
    return VT_OK;
}

/* ---- the embedding ---- */

static vt_word_rows words_of(const transformer *model, const vt_pass *pass, vt_span span)
{
    return (vt_word_rows){.window = pass->parallel->token_count,
                          .first = span.first,
                          .tokens = span.count,
                          .rows = pass->batch * span.count,
                          .first_word = model->embedding->first,
                          .count = model->embedding->local[0]};
}

static vt_matrix forward_embedding(const transformer *model, const vt_pass *pass, const vt_model_tensor *tensors)
{
    vt_backend *backend = pass->backend;
    const vt_parallel *parallel = pass->parallel;
    const vt_word_rows inner = words_of(model, pass, parallel->inner), own = words_of(model, pass, parallel->own);
    vt_matrix x = vt_pass_push_stream(pass, 0, vt_pass_rows(pass), model->dim);
    const size_t mark = pass->arena->used;
    vt_matrix part = vt_region_room(parallel, pass->arena, pass->batch, x);
    backend->embedding_forward(backend, &inner, tensors[0].values,
                               vt_matrix_make(model->embedding->value, inner.count, model->dim), part);
    vt_region_leave(parallel, pass->arena, pass->batch, part, x);
    vt_arena_pop(pass->arena, mark);
    backend->sinusoid_add(backend, &own, x);
    return x;
}

static void backward_embedding(const transformer *model, const vt_pass *pass, const vt_model_tensor *tensors,
                               vt_matrix dx)
{
    const vt_word_rows inner = words_of(model, pass, pass->parallel->inner);
    vt_matrix whole = vt_region_enter(pass->parallel, pass->arena, pass->batch, dx);
    if (model->embedding->frozen) return;
    pass->backend->embedding_backward(pass->backend, &inner, tensors[0].values, whole, model->embedding->gradient);
}

/* ---- layers ---- */

static vt_matrix half_of(const transformer *model, vt_matrix stream, int half)
{
    return vt_matrix_columns(stream, half * model->dim, model->dim);
}

static void copy(const vt_pass *pass, vt_matrix from, vt_matrix to)
{
    pass->backend->convert(pass->backend, from, to);
}

/* Is the stream in front of, or behind, layer i two matrices? */
static bool is_pair(const transformer *model, int64_t i)
{
    return model->decodes && i > 0 && i < model->count;
}

static bool is_last_encoder(const transformer *model, int64_t i)
{
    return model->decodes && i == model->model.config->depth - 1;
}

/* Pushes what backward needs. */
static void reserve_layer(const transformer *model, const vt_pass *pass, int64_t i, layer_saved *saved)
{
    if (is_last_encoder(model, i)) {
        saved->x = vt_pass_push_float32(pass, saved->in.rows, model->dim);
        saved->norm = vt_layer_norm_reserve(pass);
    }
    vt_transformer_layer_reserve(&model->layers[i], pass, saved->in.rows, &saved->layer);
}

/* Makes the stream behind layer i. */
static void run_layer(const transformer *model, const vt_pass *pass, int64_t i, layer_saved *saved)
{
    const bool in_decoder = i >= model->model.config->depth, from_pair = is_pair(model, i),
               to_pair = is_pair(model, i + 1);
    const vt_matrix in = saved->in, x = from_pair ? half_of(model, in, !in_decoder) : in;
    const vt_matrix memory = in_decoder ? half_of(model, in, 1) : (vt_matrix){0};
    const vt_matrix own = to_pair ? half_of(model, saved->out, !in_decoder) : saved->out;
    const vt_matrix made = is_last_encoder(model, i) ? saved->x : own;
    vt_transformer_layer_forward(&model->layers[i], pass, x, memory, made,
                                 pass->caches != NULL ? pass->caches + 2 * (i + 1) : NULL, &saved->layer);
    if (is_last_encoder(model, i)) vt_layer_norm_forward(&model->encoder_norm, pass, made, own, &saved->norm);
    if (to_pair) /* what is handed on */
        copy(pass, in_decoder ? memory : half_of(model, in, 0), half_of(model, saved->out, in_decoder));
}

static vt_matrix forward_layer(const transformer *model, const vt_pass *pass, int64_t i, vt_matrix in,
                               layer_saved *saved)
{
    saved->in = in;
    saved->out = vt_pass_push_stream(pass, i + 1, in.rows, (is_pair(model, i + 1) ? 2 : 1) * model->dim);
    const vt_pass keeping = vt_pass_keeping(pass, i + 1);
    const bool runs_back = vt_model_keeps(&model->model, pass, i + 1);
    vt_transformer_layer_begin(&model->layers[i], &keeping,
                               runs_back && model->model.config->recompute == VT_RECOMPUTE_LINEAR, &saved->layer);
    const size_t mark = pass->arena->used;
    vt_range_begin("layer %ld", i);
    reserve_layer(model, vt_model_recomputes(model->model.config) ? pass : &keeping, i, saved);
    run_layer(model, pass, i, saved);
    vt_range_end();
    if (!runs_back || vt_model_recomputes(model->model.config)) vt_arena_pop(pass->arena, mark);
    return saved->out;
}

static void backward_encoder_norm(const transformer *model, const vt_pass *pass, vt_matrix dx, const layer_saved *saved)
{
    const size_t mark = pass->arena->used;
    vt_matrix gradient = vt_pass_push_float32(pass, dx.rows, model->dim);
    vt_matrix_clear(pass->backend, gradient);
    vt_layer_norm_backward(&model->encoder_norm, pass, saved->x, dx, gradient, (vt_matrix){0}, &saved->norm);
    copy(pass, gradient, dx);
    vt_arena_pop(pass->arena, mark);
}

static vt_matrix backward_layer(const transformer *model, const vt_pass *pass, int64_t i, vt_matrix dout,
                                transformer_saved *units)
{
    layer_saved *saved = &units->layers[i];
    const bool in_decoder = i >= model->model.config->depth;
    vt_range_begin("layer %ld backward", i);
    saved->layer.attention.made = saved->layer.cross.made = saved->layer.attention.kept;
    if (vt_model_recomputes(model->model.config)) { /* the output is overwritten with the same bits */
        reserve_layer(model, pass, i, saved);
        run_layer(model, pass, i, saved);
    }
    if (in_decoder && !is_pair(model, i + 1)) { /* the last one: the gradient of the memory, 0, comes beside dout */
        vt_matrix_clear(pass->backend, units->decoder_gradient);
        copy(pass, dout, half_of(model, units->decoder_gradient, 0));
        dout = units->decoder_gradient;
    }
    const vt_matrix dx = model->decodes ? half_of(model, dout, !in_decoder) : dout;
    const vt_matrix memory = in_decoder ? half_of(model, saved->in, 1) : (vt_matrix){0};
    if (is_last_encoder(model, i)) backward_encoder_norm(model, pass, dx, saved);
    vt_transformer_layer_backward(&model->layers[i], pass, memory, dx,
                                  in_decoder ? half_of(model, dout, 1) : (vt_matrix){0}, &saved->layer);
    if (model->decodes && i == 0) { /* the embedding is read twice */
        const vt_matrix both = half_of(model, dout, 0);
        vt_matrix_add(pass->backend, both, dx, both);
        dout = both;
    }
    vt_range_end();
    return dout;
}

/* ---- the head, whose linear layer is the loss's to run ---- */

static vt_matrix forward_head(const transformer *model, const vt_pass *pass, vt_matrix x, transformer_saved *saved)
{
    saved->stream = x;
    saved->norm = vt_layer_norm_reserve(pass);
    vt_matrix prediction = vt_pass_push_float32(pass, x.rows, model->dim);
    vt_layer_norm_forward(&model->norm, pass, x, prediction, &saved->norm);
    return prediction;
}

static vt_matrix backward_head(const transformer *model, const vt_pass *pass, vt_matrix dprediction,
                               transformer_saved *saved)
{
    vt_matrix dx = saved->head_gradient, wide = dprediction;
    if (wide.type != VT_FLOAT32) {
        wide = vt_pass_push_float32(pass, dx.rows, dx.columns);
        copy(pass, dprediction, wide);
    }
    vt_matrix_clear(pass->backend, dx);
    vt_layer_norm_backward(&model->norm, pass, saved->stream, wide, dx, (vt_matrix){0}, &saved->norm);
    return dx;
}

/* ---- the units ---- */

/* Pushes the gradients that backward returns of these units. */
static void reserve_gradients(const transformer *model, const vt_pass *pass, transformer_saved *saved)
{
    const vt_span units = saved->saved.units;
    const int64_t last = units.first + units.count - 1, rows = vt_pass_rows(pass);
    if (last > model->count) saved->head_gradient = vt_pass_push_float32(pass, rows, model->dim);
    if (model->decodes && units.first <= model->count && last >= model->count)
        saved->decoder_gradient = vt_pass_push_float32(pass, rows, 2 * model->dim);
}

static vt_matrix forward(const vt_model *base, const vt_pass *pass, int64_t unit, const vt_model_tensor *tensors,
                         vt_matrix in, vt_saved *units)
{
    const transformer *model = (const transformer *)base;
    transformer_saved *saved = (transformer_saved *)units;
    if (unit == units->units.first && pass->has_backward) reserve_gradients(model, pass, saved);
    if (unit == 0) return forward_embedding(model, pass, tensors);
    if (unit > model->count) return forward_head(model, pass, in, saved);
    return forward_layer(model, pass, unit - 1, in, &saved->layers[unit - 1]);
}

static vt_matrix backward(const vt_model *base, const vt_pass *pass, int64_t unit, const vt_model_tensor *tensors,
                          vt_matrix dout, vt_saved *units)
{
    const transformer *model = (const transformer *)base;
    transformer_saved *saved = (transformer_saved *)units;
    if (unit > model->count) return backward_head(model, pass, dout, saved);
    if (unit > 0) return backward_layer(model, pass, unit - 1, dout, saved);
    backward_embedding(model, pass, tensors, dout);
    return (vt_matrix){0};
}

/* The words' numbers as they are, [batch, window]: integers in the memory of a matrix. */
static vt_matrix lay_out(const vt_model *base, const vt_pass *pass, const vt_model_tensor *tensor)
{
    (void)base;
    return vt_matrix_make((float *)(uintptr_t)tensor->values, pass->batch, pass->parallel->token_count);
}

static const char *const identity[] = {"num_heads", "causal", "attention_scale", NULL};

#define KIND(name_)                                                                                                    \
    {                                                                                                                  \
        .name = name_, .identity = identity,                                                                           \
        .axes = VT_AXES(VT_AXIS_TENSOR) | VT_AXES(VT_AXIS_CONTEXT) | VT_AXES(VT_AXIS_PIPELINE), .check = check,        \
        .describe = describe, .describe_shares = describe_shares, .blocks = layers_of, .tokens = tokens,               \
        .part_needed = part_needed, .open = transformer_open, .forward = forward, .backward = backward,                \
        .lay_out = lay_out                                                                                             \
    }

const vt_model_kind vt_model_transformer = KIND("transformer");
const vt_model_kind vt_model_encoder = KIND("encoder");
