/* What a step sends, counted with the dry engine, against the formulas of docs/parallelism.md: 64 ranks of a model of
 * real size. Bytes are those that one rank hands to others, as a ring sends them (vt_volume in group.h). */
#include "config/fit.h"
#include "config/stages.h"
#include "model/split.h"
#include "parallel/region.h"
#include "parallel/world.h"
#include "training/plan.h"
#include "unit/config_open.h"

/* ---- the formulas, from the configuration alone ---- */

/* The sizes that the formulas speak of, under the names of docs/parallelism.md. */
typedef struct {
    int64_t tensor, context, data, shards; /* ranks on the axes; of the data axis those that ZeRO splits over */
    int64_t parts, batch;                  /* micro-batches of a step, and samples of one on this rank */
    int64_t tokens, inner, own, next;      /* of a sample: all, between enter and leave, of the residual stream, and of
                                              the context axis's next rank */
    int64_t dim, depth;
    vt_span units; /* of this rank's stage */
    int64_t blocks;
    int64_t ahead, behind; /* forwards of a micro-batch in all steps of forecast, and backwards */
    double forecast;       /* numbers of its predicted fields */
    bool is_first, is_last;
    double element; /* bytes of what enters matrix products */
    bool sequence;
    vt_recompute recompute;
} sizes;

/* Bytes that each rank of a ring of `ranks` sends for `bytes` in all. */
static double all_reduce(int64_t ranks, double bytes)
{
    return 2 * bytes * (double)(ranks - 1) / (double)ranks;
}

static double scatter_or_gather(int64_t ranks, double bytes)
{
    return bytes * (double)(ranks - 1) / (double)ranks;
}

/* Ranks of this one's data group on its node, itself included. */
static int64_t data_ranks_of_node(const vt_world *world)
{
    int64_t count = 1;
    const int own = world->rank, *node_of = world->node_of;
    for (int rank = 0; rank < world->ranks; rank++) {
        if (rank == own) continue;
        bool together = node_of[rank] == node_of[own];
        for (vt_axis axis = VT_AXIS_TENSOR; axis < VT_AXIS_COUNT; axis++)
            together = together && (axis == VT_AXIS_DATA ||
                                    vt_layout_coordinate(&world->layout, rank, axis) == world->coordinate[axis]);
        count += together;
    }
    return count;
}

static void add_stage(const vt_config *config, const vt_world *world, sizes *s)
{
    const int64_t stage = world->coordinate[VT_AXIS_PIPELINE], last = config->pipeline_parallel - 1;
    vt_split split;
    if (vt_split_open(config, &split) != VT_OK) return;
    s->units = split.units[stage];
    s->blocks = s->units.count - (stage == 0) - (stage == last);
    s->is_first = stage == 0;
    s->is_last = stage == last;
    vt_split_close(&split);
}

static sizes sizes_of(const vt_config *config, const vt_world *world)
{
    const vt_layout *layout = &world->layout;
    sizes s = {.tensor = layout->size[VT_AXIS_TENSOR],
               .context = layout->size[VT_AXIS_CONTEXT],
               .data = layout->size[VT_AXIS_DATA],
               .shards = 1,
               .parts = config->grad_accumulation,
               .tokens = vt_fit_tokens(config),
               .dim = config->embed_dim,
               .depth = config->depth,
               .element = config->amp_mode == VT_AMP_NONE ? 4 : 2,
               .recompute = (vt_recompute)config->recompute};
    add_stage(config, world, &s);
    const int64_t rollout = vt_config_longest_rollout(config);
    s.behind = config->rollout_gradient == VT_ROLLOUT_GRADIENT_LAST ? 1 : rollout;
    s.ahead = rollout - 1 + s.behind;
    s.sequence = config->sequence_parallel && s.tensor > 1;
    s.batch = config->global_batch_size / s.data / s.parts;
    s.inner = vt_parallel_tokens(layout, world->rank, false, s.tokens).count;
    s.own = vt_parallel_tokens(layout, world->rank, s.sequence, s.tokens).count;
    const vt_span rows = vt_model_part(config, layout, world->rank);
    s.forecast = (double)(s.batch * config->n_out_channels * rows.count * config->img_size[1]);
    int next = (int)((world->coordinate[VT_AXIS_CONTEXT] + 1) % s.context);
    s.next = vt_layout_span(s.tokens, (int)s.context, next).count;
    if (config->zero_stage > 0) s.shards = config->zero_group == VT_ZERO_NODE ? data_ranks_of_node(world) : s.data;
    return s;
}

/* A block's forward ends two row-parallel layers, its backward two column-parallel ones. With sequence_parallel each
 * sum is a reduce-scatter, and what enters is gathered: in forward, and once more in backward, with the gradient of
 * what left. */
static vt_volume tensor_volume(const sizes *s)
{
    vt_volume volume = {0};
    if (s->tensor == 1) return volume;
    double passes = s->recompute != VT_RECOMPUTE_NONE ? 2 : 1, blocks = (double)(s->blocks * s->parts);
    double stream = (double)(s->batch * s->inner * s->dim);
    double sums = 2 * passes + 2, gathers = s->sequence ? 2 * passes + 4 : 0;
    volume.operations = (int64_t)(blocks * (sums + gathers));
    volume.bytes = blocks * (s->sequence ? sums * scatter_or_gather(s->tensor, 4 * stream) +
                                               gathers * scatter_or_gather(s->tensor, s->element * stream)
                                         : sums * all_reduce(s->tensor, 4 * stream));
    return volume;
}

/* Two squared norms of each sample, float64, for its loss. */
static vt_volume norm_volume(const sizes *s, int64_t ranks)
{
    if (ranks == 1 || !s->is_last) return (vt_volume){0};
    return (vt_volume){.operations = s->parts,
                       .bytes = (double)s->parts * all_reduce(ranks, 2.0 * (double)s->batch * sizeof(double))};
}

/* Keys and values of a block. Gathered: in forward, and again in backward, whose gradients are reduced. Round: each
 * rank passes on all blocks but the one that it has last, in forward and backward, and the gradients of all. */
static vt_volume context_volume(const sizes *s, bool ring)
{
    vt_volume volume = {0};
    if (s->context == 1) return volume;
    double forwards = s->recompute == VT_RECOMPUTE_BLOCK ? 2 : 1, blocks = (double)(s->blocks * s->parts);
    double row = 2 * (double)(s->batch * s->dim) / (double)s->tensor, all = row * (double)s->tokens;
    double passed = row * (double)(s->tokens - s->next);
    if (ring) {
        volume.operations = (int64_t)(blocks * ((forwards + 1) * (double)(s->context - 1) + (double)s->context));
        volume.bytes = blocks * ((forwards + 1) * s->element * passed + 4 * all);
    } else {
        volume.operations = (int64_t)(blocks * (forwards + 2));
        volume.bytes = blocks * ((forwards + 1) * scatter_or_gather(s->context, s->element * all) +
                                 scatter_or_gather(s->context, 4 * all));
    }
    if (!s->sequence) {
        vt_volume norms = norm_volume(s, s->context);
        volume.operations += norms.operations;
        volume.bytes += norms.bytes;
    }
    return volume;
}

/* The stream behind the stage, and the gradient of the one in front of it; of a rollout the last stage's forecasts, and
 * the first one's gradients of them. */
static vt_volume pipeline_volume(const vt_config *config, const sizes *s)
{
    const double element = config->pipeline_comm == VT_PIPELINE_BF16 ? 2 : 4;
    const int64_t messages = s->parts * ((s->is_last ? 0 : s->ahead) + (s->is_first ? 0 : s->behind));
    const int64_t rollout = vt_config_longest_rollout(config);
    const int64_t back = s->is_last ? rollout - 1 : s->is_first ? s->behind - 1 : 0;
    const int64_t round = s->is_first && s->is_last ? 0 : s->parts * back;
    return (vt_volume){.operations = messages + round,
                       .bytes = (double)messages * element * (double)(s->batch * s->own * s->dim) +
                                (double)round * 4 * s->forecast};
}

/* Elements of this rank's part of a unit's parameters, by the ranks over which their gradients are partial sums besides
 * the data axis. */
typedef struct {
    double none, context, tokens;
} elements;

/* Units: 0 the embedding, then the blocks, depth + 1 the head. */
static elements unit_elements(const vt_config *config, const sizes *s, int64_t unit)
{
    double d = (double)s->dim, area = (double)(config->patch_size * config->patch_size);
    double in = (double)(config->n_in_channels * (config->mask_channels ? 2 : 1)) * area;
    double out = (double)config->n_out_channels * area;
    if (unit == 0) return (elements){.none = (double)s->own * d, .tokens = in * d + d};
    if (unit == s->depth + 1) return (elements){.tokens = 2 * d + d * out};
    return (elements){.context = (12 * d * d + 7 * d) / (double)s->tensor + 2 * d, .tokens = 4 * d};
}

/* How often ZeRO stage 3 gathers a unit in a step: forward and backward of each micro-batch, but for the units that lie
 * in the two rooms when it turns round. */
static double gathers_of(const sizes *s, int64_t unit)
{
    double parts = (double)s->parts, count = 2 * parts;
    if (unit >= s->depth) count -= parts;
    if (unit <= 1) count -= parts - 1;
    return count;
}

static double reduced_bytes(const vt_config *config, const sizes *s, double count, int64_t partial)
{
    double bytes = 4 * count, slice = bytes / (double)s->shards;
    if (config->noddp) return 0;
    if (s->shards == 1) return all_reduce(partial * s->data, bytes);
    double times = config->zero_stage >= 2 ? (double)s->parts : 1;
    return times *
           (scatter_or_gather(s->shards, bytes) + all_reduce(s->data / s->shards, slice) + all_reduce(partial, slice));
}

static vt_volume gradient_volume(const vt_config *config, const sizes *s)
{
    vt_volume volume = {0};
    for (int64_t unit = s->units.first; unit < s->units.first + s->units.count; unit++) {
        elements has = unit_elements(config, s, unit);
        volume.bytes += reduced_bytes(config, s, has.none, 1) + reduced_bytes(config, s, has.context, s->context) +
                        reduced_bytes(config, s, has.tokens, s->context * (s->sequence ? s->tensor : 1));
        if (s->shards == 1) continue;
        double times = config->zero_stage == 3 ? gathers_of(s, unit) : 1;
        volume.bytes += times * scatter_or_gather(s->shards, 4 * (has.none + has.context + has.tokens));
    }
    return volume;
}

/* The loss and the squared norm of the gradients, both float64 and at once, over all ranks. */
static vt_volume figure_volume(const sizes *s, int64_t ranks)
{
    vt_volume volume = {0};
    if (ranks == 1) return volume;
    if (s->sequence) volume = norm_volume(s, s->tensor * s->context);
    volume.operations++;
    volume.bytes += all_reduce(ranks, 2 * sizeof(double));
    return volume;
}

/* Of one step of this rank of a world, also of a dry one. Of the gradients `operations` is 0: how many there are
 * depends on bucket_cap_mb. Padding of buckets is not counted. */
static void communication_by_formula(const vt_config *config, const vt_world *world,
                                     vt_volume expected[VT_TRAFFIC_COUNT])
{
    sizes s = sizes_of(config, world);
    expected[VT_TRAFFIC_TENSOR] = tensor_volume(&s);
    expected[VT_TRAFFIC_CONTEXT] = context_volume(&s, config->cp_comm == VT_CP_RING);
    expected[VT_TRAFFIC_PIPELINE] = pipeline_volume(config, &s);
    expected[VT_TRAFFIC_GRADIENTS] = gradient_volume(config, &s);
    expected[VT_TRAFFIC_FIGURES] = figure_volume(&s, world->ranks);
}

/* ---- the tests ---- */

/* Ranks with spans of tokens of every size, also next to a smaller one. */
static const int ranks_tried[] = {0, 5, 24, 31, 47, 63};

static void check_rank(const vt_config *config, int rank, const int *node_of, const char *what)
{
    vt_world *world = NULL;
    vt_plan plan;
    vt_volume expected[VT_TRAFFIC_COUNT];
    EXPECT_OK(vt_world_open_dry(config, rank, (int)config->ranks, node_of, &world));
    const vt_plan_options planned = vt_plan_options_of(world, NULL);
    EXPECT_OK(vt_plan_make(config, &planned, &plan));
    communication_by_formula(config, world, expected);
    for (vt_traffic i = 0; i < VT_TRAFFIC_COUNT; i++) {
        const vt_volume *counted = &plan.communication[i];
        double bytes = counted->bytes - counted->padding;
        EXPECT(fabs(bytes - expected[i].bytes) <= 1e-12 * expected[i].bytes,
               "%s, rank %d: %s: %.0f bytes, expected %.0f", what, rank, vt_traffic_names[i], bytes, expected[i].bytes);
        EXPECT(counted->padding >= 0 && counted->padding <= 2e-3 * bytes);
        if (i != VT_TRAFFIC_GRADIENTS)
            EXPECT(counted->operations == expected[i].operations, "%s, rank %d: %s: %ld operations, expected %ld", what,
                   rank, vt_traffic_names[i], counted->operations, expected[i].operations);
    }
    vt_world_close(&world, false);
}

/* `ranks_per_node` 0: one node. */
static void check_layout(const char *what, int ranks_per_node, const char *const *flags)
{
    SCOPED(vt_config) *config = NULL;
    int node_of[64];
    EXPECT_OK(open_on_ranks(64, NULL, &config, flags));
    if (config == NULL) return;
    for (int rank = 0; rank < 64; rank++) node_of[rank] = ranks_per_node > 0 ? rank / ranks_per_node : 0;
    for (size_t i = 0; i < sizeof ranks_tried / sizeof ranks_tried[0]; i++)
        check_rank(config, ranks_tried[i], node_of, what);
}
#define CHECK_LAYOUT(ranks_per_node, ...)                                                                              \
    check_layout(#__VA_ARGS__, ranks_per_node,                                                                         \
                 (const char *const[]){"--embed_dim=1024", "--depth=3", "--global_batch_size=128", __VA_ARGS__, NULL})

TEST(activations_are_sent_as_by_the_formula)
{
    CHECK_LAYOUT(0, "--tensor_parallel=8");
    CHECK_LAYOUT(0, "--tensor_parallel=4", "--sequence_parallel");
    CHECK_LAYOUT(0, "--context_parallel=64");
    CHECK_LAYOUT(0, "--context_parallel=64", "--cp_comm=ring");
    CHECK_LAYOUT(0, "--context_parallel=64", "--patch_size=7", "--pad=wrap", "--missing=mask", "--mask_channels");
    CHECK_LAYOUT(0, "--tensor_parallel=4", "--context_parallel=8", "--recompute=block");
    CHECK_LAYOUT(0, "--tensor_parallel=2", "--context_parallel=8", "--sequence_parallel", "--cp_comm=ring",
                 "--recompute=block", "--grad_accumulation=2");
    CHECK_LAYOUT(0, "--tensor_parallel=2", "--context_parallel=8", "--cp_comm=ring", "--recompute=linear");
    CHECK_LAYOUT(0, "--tensor_parallel=2", "--context_parallel=8", "--sequence_parallel", "--recompute=linear");
}

TEST(stages_send_as_by_the_formula)
{
    CHECK_LAYOUT(0, "--pipeline_parallel=4", "--grad_accumulation=8");
    CHECK_LAYOUT(0, "--pipeline_parallel=2", "--grad_accumulation=4", "--recompute=block", "--pipeline_schedule=gpipe");
    CHECK_LAYOUT(0, "--pipeline_parallel=4", "--grad_accumulation=8", "--tensor_parallel=4", "--context_parallel=2");
    CHECK_LAYOUT(0, "--pipeline_parallel=4", "--grad_accumulation=8", "--tensor_parallel=4", "--sequence_parallel",
                 "--context_parallel=2", "--cp_comm=ring", "--parallel_order=pp-tp-cp-dp");
    CHECK_LAYOUT(0, "--pipeline_parallel=4", "--grad_accumulation=2", "--zero_stage=1", "--amp_mode=bf16",
                 "--pipeline_comm=bf16");
    CHECK_LAYOUT(0, "--pipeline_parallel=8", "--depth=12", "--grad_accumulation=8", "--tensor_parallel=2",
                 "--context_parallel=2", "--parallel_order=cp-pp-tp-dp");
    CHECK_LAYOUT(8, "--pipeline_parallel=4", "--grad_accumulation=2", "--zero_stage=1", "--zero_group=node",
                 "--parallel_order=dp-tp-cp-pp");
    CHECK_LAYOUT(0, "--pipeline_parallel=64", "--depth=62", "--grad_accumulation=16", "--embed_dim=64");
    CHECK_LAYOUT(0, "--pipeline_parallel=4", "--grad_accumulation=8", "--rollout=3", "--predict=tendency");
    CHECK_LAYOUT(0, "--pipeline_parallel=2", "--grad_accumulation=2", "--rollout=1,4@2", "--rollout_gradient=last",
                 "--amp_mode=bf16", "--pipeline_comm=bf16", "--pipeline_schedule=gpipe");
}

TEST(bf16_activations_are_sent_as_by_the_formula)
{
    CHECK_LAYOUT(0, "--tensor_parallel=4", "--context_parallel=4", "--amp_mode=bf16");
    CHECK_LAYOUT(0, "--tensor_parallel=4", "--context_parallel=4", "--amp_mode=bf16", "--sequence_parallel",
                 "--cp_comm=ring");
}

TEST(gradients_are_sent_as_by_the_formula)
{
    CHECK_LAYOUT(0, "--bucket_cap_mb=1");
    CHECK_LAYOUT(0, "--bucket_cap_mb=100", "--grad_accumulation=2");
    CHECK_LAYOUT(0, "--zero_stage=1", "--grad_accumulation=2");
    CHECK_LAYOUT(0, "--zero_stage=2", "--grad_accumulation=2");
    CHECK_LAYOUT(0, "--zero_stage=3");
    CHECK_LAYOUT(0, "--zero_stage=3", "--grad_accumulation=2", "--recompute=block");
    CHECK_LAYOUT(0, "--noddp");
}

TEST(gradients_over_several_axes_are_sent_as_by_the_formula)
{
    CHECK_LAYOUT(0, "--tensor_parallel=4", "--context_parallel=4");
    CHECK_LAYOUT(0, "--tensor_parallel=4", "--context_parallel=2", "--sequence_parallel", "--zero_stage=1");
    CHECK_LAYOUT(0, "--tensor_parallel=4", "--context_parallel=4", "--zero_stage=3", "--parallel_order=dp-cp-tp");
    CHECK_LAYOUT(8, "--zero_stage=2", "--zero_group=node");
    CHECK_LAYOUT(16, "--tensor_parallel=2", "--context_parallel=2", "--zero_stage=3", "--zero_group=node");
    CHECK_LAYOUT(4, "--tensor_parallel=4", "--zero_stage=2", "--zero_group=node", "--grad_accumulation=2");
}
