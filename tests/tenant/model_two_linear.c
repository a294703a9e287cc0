/* The tests' own model: two linear layers over a flattened sample, each a unit. */
#include "base/memory.h"
#include "base/text.h"
#include "model/linear.h"
#include "model/model.h"

enum { HIDDEN = 16 }; /* the width between the layers */

typedef struct {
    vt_model model;
    vt_linear layers[2];
    int64_t height, width, in_channels, out_channels;
} two_linear;

typedef struct {
    vt_saved saved;
    vt_matrix hidden, dhidden; /* [batch, HIDDEN], float32 */
} two_linear_saved;

static vt_status check(const vt_config *config, const vt_backend *backend)
{
    vt_status status = VT_OK;
    (void)backend;
    VT_CHECK(config->missing != VT_GAPS_MASK, "model two_linear takes fields without gaps; use --missing=refuse");
done:
    return status;
}

static char *describe(const vt_config *config)
{
    return vt_text_format("two linear layers, %ld × %ld points to %d to as many", config->img_size[0],
                          config->img_size[1], HIDDEN);
}

static int64_t tokens(const vt_config *config)
{
    (void)config;
    return 1;
}

static vt_span part_needed(const vt_config *config, vt_span needed)
{
    (void)needed;
    return (vt_span){0, config->img_size[0]};
}

static vt_status two_linear_open(const vt_config *config, vt_parameters *parameters, vt_model **result)
{
    two_linear *model = vt_allocate(1, sizeof *model, "the model");
    model->height = config->img_size[0];
    model->width = config->img_size[1];
    model->in_channels = config->n_in_channels;
    model->out_channels = config->n_out_channels;
    const int64_t points = model->height * model->width;
    vt_linear_build(&model->layers[0], parameters, "first", model->in_channels * points, HIDDEN, VT_LINEAR_WHOLE, true);
    vt_parameters_next_unit(parameters);
    vt_linear_build(&model->layers[1], parameters, "second", HIDDEN, model->out_channels * points, VT_LINEAR_WHOLE,
                    true);
    model->model.saved_bytes = sizeof(two_linear_saved);
    *result = &model->model;
    return VT_OK;
}

/* ---- a row a sample: [batch, points * channels], a patch of one point after another; the prediction has a row for
 * each point ---- */

static vt_patch_grid grid_of(const two_linear *model, int64_t batch, int64_t channels)
{
    return (vt_patch_grid){.batch = batch,
                           .field_channels = channels,
                           .channels = channels,
                           .height = model->height,
                           .width = model->width,
                           .patch = 1,
                           .order = VT_PATCH_CHANNEL_LAST,
                           .tokens = model->height * model->width};
}

static vt_matrix with_rows(vt_matrix matrix, int64_t rows)
{
    matrix.columns = matrix.stride = matrix.rows * matrix.columns / rows;
    matrix.rows = rows;
    return matrix;
}

static vt_matrix load_input(const two_linear *model, const vt_pass *pass, const vt_model_tensor *input)
{
    const vt_patch_grid grid = grid_of(model, pass->batch, model->in_channels);
    vt_matrix rows = vt_pass_push(pass, pass->batch, model->layers[0].in);
    pass->backend->patches_load(pass->backend, &grid, input->values, input->mean, input->inverse_std,
                                with_rows(rows, grid.batch * grid.tokens));
    return rows;
}

static vt_patch_grid prediction_grid(const vt_model *base, int64_t batch)
{
    const two_linear *model = (const two_linear *)base;
    return grid_of(model, batch, model->out_channels);
}

/* ---- the units ---- */

/* A float32 matrix in the pass's type. */
static vt_matrix in_type(const vt_pass *pass, vt_matrix matrix)
{
    if (pass->type == VT_FLOAT32) return matrix;
    vt_matrix converted = vt_pass_push(pass, matrix.rows, matrix.columns);
    pass->backend->convert(pass->backend, matrix, converted);
    return converted;
}

static vt_matrix forward(const vt_model *base, const vt_pass *pass, int64_t unit, const vt_model_tensor *tensors,
                         vt_matrix in, vt_saved *units)
{
    const two_linear *model = (const two_linear *)base;
    two_linear_saved *saved = (two_linear_saved *)units;
    vt_matrix out = vt_pass_push_float32(pass, pass->batch, model->layers[unit].out);
    if (unit == 1) {
        saved->hidden = in;
        saved->dhidden = vt_pass_push_float32(pass, in.rows, in.columns);
    }
    size_t mark = pass->arena->used;
    vt_matrix x = unit == 0 ? load_input(model, pass, &tensors[0]) : in_type(pass, in);
    vt_linear_forward(&model->layers[unit], pass, x, out);
    vt_arena_pop(pass->arena, mark);
    return unit == 0 ? out : with_rows(out, pass->batch * model->height * model->width);
}

static vt_matrix backward(const vt_model *base, const vt_pass *pass, int64_t unit, const vt_model_tensor *tensors,
                          vt_matrix dout, vt_saved *units)
{
    const two_linear *model = (const two_linear *)base;
    const two_linear_saved *saved = (const two_linear_saved *)units;
    const vt_matrix none = {0};
    if (unit == 0) {
        vt_linear_backward(&model->layers[0], pass, load_input(model, pass, &tensors[0]), in_type(pass, dout), none);
        return none;
    }
    vt_linear_backward(&model->layers[1], pass, in_type(pass, saved->hidden), with_rows(dout, pass->batch),
                       saved->dhidden);
    return saved->dhidden;
}

static const char *const identity[] = {"img_size", NULL};

const vt_model_kind vt_model_two_linear = {.name = "two_linear",
                                           .identity = identity,
                                           .check = check,
                                           .describe = describe,
                                           .tokens = tokens,
                                           .part_needed = part_needed,
                                           .open = two_linear_open,
                                           .forward = forward,
                                           .backward = backward,
                                           .prediction_grid = prediction_grid};
