/* Adafactor (Shazeer, Stern 2018, arXiv 1804.04235; torch.optim.Adafactor). Of a matrix's second moments only the means
 * of rows and of columns are kept, whole on every rank. A step of a tensor needs sums over all of it, twice: ranks that
 * have parts of tensors add them up together. */
#include <stdlib.h>

#include "base/memory.h"
#include "optimizer/optimizer.h"

/* Of one tensor. */
typedef struct {
    vt_factored shape;
    double *sums; /* of squared gradients by rows and columns; in the memory of all tensors, as the others are */
    float *scales;
    double *sizes; /* [2], sums of squares: of its values, and of its gradients divided by the roots of their means */
} tensor_of;

typedef struct {
    tensor_of *tensors; /* [count] */
    int64_t count;      /* numbers in `sums`: those of all tensors, then the sizes of each */
    double *sums;
    float *scales;
} adafactor;

static bool is_factored(const vt_parameter *parameter)
{
    return parameter->dimensions > 1;
}

enum { ROW, COLUMN, MOMENT2, MOMENT1 };

static vt_kept_form form(const vt_config *config, int state, const vt_parameter *parameter)
{
    if (state == MOMENT1) return config->adafactor_beta1 > 0 ? VT_KEPT_NUMBERS : VT_KEPT_NOTHING;
    if (!is_factored(parameter)) return state == MOMENT2 ? VT_KEPT_NUMBERS : VT_KEPT_NOTHING;
    return state == ROW ? VT_KEPT_ROWS : state == COLUMN ? VT_KEPT_COLUMNS : VT_KEPT_NOTHING;
}

static void configure(const vt_config *config, vt_update *rule)
{
    rule->adafactor = (vt_adafactor){.original = config->adafactor == VT_ADAFACTOR_ORIGINAL,
                                     .beta1 = config->adafactor_beta1,
                                     .decay = config->adafactor_decay,
                                     .clip = config->adafactor_clip,
                                     .eps = {config->adafactor_eps[0], config->adafactor_eps[1]}};
}

/* The parameter's part begins at `first` of the dimension that is split, if one is: one of the last two, or the first,
 * whose matrices lie one behind another. */
static vt_factored shape_of(const vt_whole_part *part)
{
    const vt_parameter *p = part->parameter;
    const int last = p->dimensions - 1;
    vt_factored shape = {.elements = (double)p->whole_count, .first = part->first, .count = part->own.count};
    if (!is_factored(p)) return shape;
    shape.matrices = 1;
    for (int i = 0; i < last - 1; i++) shape.matrices *= p->shape[i];
    shape.rows = p->shape[last - 1];
    shape.columns = p->shape[last];
    shape.part_rows = p->local[last - 1];
    shape.part_columns = p->local[last];
    if (p->split == last)
        shape.first_column = p->first;
    else if (p->split == last - 1)
        shape.first_row = p->first;
    else if (p->split == 0)
        shape.first_matrix = p->first * (shape.matrices / p->shape[0]);
    else
        VT_ASSERT(p->split < 0);
    return shape;
}

static void close_adafactor(const vt_optimizer *optimizer)
{
    adafactor *a = optimizer->whole.memory;
    optimizer->backend->release(optimizer->backend, a->sums);
    optimizer->backend->release(optimizer->backend, a->scales);
    free(a->tensors);
    free(a);
}

static vt_status open_adafactor(vt_optimizer *optimizer)
{
    vt_status status = VT_OK;
    vt_backend *backend = optimizer->backend;
    adafactor *a = vt_allocate(1, sizeof *a, "the optimizer");
    int64_t sums = 0;
    optimizer->whole.memory = a;
    a->tensors = vt_allocate((size_t)optimizer->whole.count + 1, sizeof *a->tensors, "the optimizer");
    for (int64_t i = 0; i < optimizer->whole.count; i++) {
        a->tensors[i].shape = shape_of(&optimizer->whole.parts[i]);
        sums += vt_factored_sums(&a->tensors[i].shape);
    }
    a->count = sums + 2 * optimizer->whole.count;
    VT_TAKE(backend, VT_MEMORY_WORKSPACE, a->count, a->sums);
    VT_TAKE(backend, VT_MEMORY_WORKSPACE, sums, a->scales);
    int64_t next = 0;
    for (int64_t i = 0; i < optimizer->whole.count; i++) {
        tensor_of *t = &a->tensors[i];
        t->sums = a->sums + next;
        t->scales = a->scales + next;
        next += vt_factored_sums(&t->shape);
        t->sizes = a->sums + sums + 2 * i;
    }
done:
    return status;
}

/* The three phases of a step. Between them the ranks add up what each has of the sums. The first, whose sums contain
 * the norm of all gradients, comes before it is decided what they are multiplied by. */
static void add_squares(const vt_optimizer *optimizer, double *result)
{
    const adafactor *a = optimizer->whole.memory;
    vt_backend *backend = optimizer->backend;
    backend->zero(backend, a->sums, (size_t)a->count * sizeof(double));
    for (int64_t i = 0; i < optimizer->whole.count; i++) {
        const tensor_of *t = &a->tensors[i];
        const vt_whole_part *part = &optimizer->whole.parts[i];
        if (t->shape.rows > 0 && part->counts)
            backend->factored_squares(backend, &t->shape, part->own.gradients, t->sums, part->share, result);
        else
            backend->sum_of_squares(backend, part->own.gradients, part->own.count, part->share, result);
    }
}

static void find_scales(const vt_optimizer *optimizer, const vt_whole_part *part, const tensor_of *t, bool counts)
{
    vt_backend *backend = optimizer->backend;
    const vt_optimizer_span *own = &part->own;
    if (t->shape.rows > 0)
        backend->adafactor_means(backend, &optimizer->rule, optimizer->state, &t->shape, t->sums,
                                 own->kept[ROW].numbers, own->kept[COLUMN].numbers, t->scales);
    if (own->count > 0)
        backend->adafactor_norm(backend, &optimizer->rule, optimizer->state, &t->shape, own->gradients, own->values,
                                t->scales, own->kept[MOMENT2].numbers, counts ? t->sizes : NULL);
}

static void apply(const vt_optimizer *optimizer, const vt_whole_part *part, const tensor_of *t)
{
    vt_backend *backend = optimizer->backend;
    const vt_optimizer_span *own = &part->own;
    if (own->count > 0)
        backend->adafactor_apply(backend, &optimizer->rule, optimizer->state, &t->shape, own->gradients, t->scales,
                                 own->kept[MOMENT2].numbers, t->sizes, own->values, own->rounded,
                                 own->kept[MOMENT1].numbers);
}

static void step_adafactor(const vt_optimizer *optimizer)
{
    const adafactor *a = optimizer->whole.memory;
    const vt_whole *whole = &optimizer->whole;
    const int64_t count = whole->count, sums = a->count - 2 * count;
    if (whole->group->size == 1) { /* tensor by tensor, which then lies in a cache */
        for (int64_t i = 0; i < count; i++) {
            find_scales(optimizer, &whole->parts[i], &a->tensors[i], true);
            apply(optimizer, &whole->parts[i], &a->tensors[i]);
        }
        return;
    }
    vt_group_all_reduce(whole->group, VT_SUM_FLOAT64, a->sums, sums, NULL);
    for (int64_t i = 0; i < count; i++)
        find_scales(optimizer, &whole->parts[i], &a->tensors[i], whole->parts[i].counts);
    vt_group_all_reduce(whole->group, VT_SUM_FLOAT64, a->sums + sums, 2 * count, NULL);
    for (int64_t i = 0; i < count; i++) apply(optimizer, &whole->parts[i], &a->tensors[i]);
}

/* pos_embed is split over the context axis, too. */
static const vt_whole_update whole_tensors = {NULL,           VT_AXES(VT_AXIS_TENSOR) | VT_AXES(VT_AXIS_CONTEXT),
                                              open_adafactor, add_squares,
                                              step_adafactor, close_adafactor};

const vt_optimizer_kind vt_optimizer_Adafactor = {.name = "Adafactor",
                                                  .states = {[ROW] = {"row", "row means of"},
                                                             [COLUMN] = {"column", "column means of"},
                                                             [MOMENT2] = {"moment2", "second moment"},
                                                             [MOMENT1] = {"moment1", "first moment"}},
                                                  .form = form,
                                                  .rule = {.kind = VT_OPTIMIZER_Adafactor},
                                                  .configure = configure,
                                                  .whole = &whole_tensors};
