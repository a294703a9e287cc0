#include "planning/cost.h"

#include "config/stages.h"
#include "training/schedule.h"

const char *const vt_cost_names[] = {"products", "attention", "memory", "starts", "messages", "link", "bubble"};

/* Each product takes the longer of the time for its arithmetic and the time to move its operands through memory
 * (roofline, Williams et al. 2009). */
static double product_seconds(const vt_hardware *hardware, vt_type type, const vt_dry_count *count)
{
    double rate = 1e12 * hardware->matrix_tflops[type] * hardware->matrix_fraction[type];
    double bandwidth = 1e9 * hardware->memory_gb_s * hardware->memory_fraction, seconds = 0;
    for (int i = 0; i < count->product_count; i++) {
        const vt_dry_product *product = &count->products[i];
        seconds += (double)product->calls * fmax(product->flops / rate, product->bytes / bandwidth);
    }
    return seconds;
}

/* Kernels compute heads of the next larger size that they have. */
static double attention_seconds(const vt_config *config, const vt_hardware *hardware, vt_type type, double flops)
{
    const int64_t size = config->embed_dim / config->num_heads;
    double head = (double)size, multiple = hardware->head_multiple;
    double computed = ceil(head / multiple) * multiple;
    return flops * computed / head / (1e12 * hardware->matrix_tflops[type] * hardware->attention_fraction[type]);
}

/* Of the operations of one class. */
static double memory_seconds(const vt_hardware *hardware, const vt_dry_count *count, vt_work work)
{
    return count->moved[work] / (1e9 * hardware->memory_gb_s * hardware->work_fraction[work]);
}

/* A ring over several nodes crosses the network once for each of the node's groups: the group's ranks on a node each
 * contribute their part of the node's bandwidth. Latency grows with the doublings of ranks, as in a tree. */
double vt_cost_messages(const vt_hardware *hardware, int size, int in_node, const vt_volume *volume)
{
    bool leaves = in_node < size;
    double bandwidth = hardware->within_gb_s, latency = leaves ? hardware->between_us : hardware->within_us;
    if (leaves) bandwidth = in_node > 1 ? fmin(bandwidth, hardware->between_gb_s * in_node) : hardware->between_gb_s;
    return (double)volume->operations * 1e-6 * latency * ceil(log2(size)) + volume->bytes / (1e9 * bandwidth);
}

/* The part of the traffic in the gradients' groups that comes after the update, which nothing hides: with ZeRO 1 and 2
 * the new values are gathered once, in addition to one reduction (with stage 2 one for each micro-batch) of as many
 * bytes. */
static double behind_update(const vt_config *config)
{
    if (config->zero_stage == 1) return 0.5;
    return config->zero_stage == 2 ? 1.0 / (double)(config->grad_accumulation + 1) : 0;
}

/* A backward, in times of a forward. */
static double backward_of(const vt_config *config)
{
    return config->recompute != VT_RECOMPUTE_NONE ? 3 : 2;
}

/* The share of a step's computing that is in its backwards: in all of them, or in the last one alone. */
static double backwards_part(const vt_config *config, bool all)
{
    const vt_step_shape shape = vt_schedule_shape(config, 0, vt_config_longest_rollout(config));
    const vt_step_counts counts = vt_schedule_counts(&shape);
    const double backward = backward_of(config), backwards = (double)counts.backwards * backward;
    return (all ? backwards : backward) / ((double)counts.forwards + backwards);
}

/* Time that can hide reductions of gradients: with ZeRO 2 every backward, otherwise the last one; stage 3 also gathers
 * ahead during forward. */
static double window(const vt_config *config, double compute)
{
    return config->zero_stage == 3 ? compute : compute * backwards_part(config, config->zero_stage == 2);
}

/* Seconds of computing but for the update. */
static double passes_seconds(const vt_hardware *hardware, const vt_plan *plan, const vt_cost *cost)
{
    return cost->seconds[VT_COST_MATRIX] + cost->seconds[VT_COST_ATTENTION] + cost->seconds[VT_COST_MEMORY] -
           memory_seconds(hardware, &plan->step, VT_WORK_OPTIMIZER);
}

/* Activations leave for the host's memory while forward computes, and return while backward does. */
static void add_link(const vt_config *config, const vt_hardware *hardware, const vt_plan *plan, vt_cost *cost)
{
    const double backwards = passes_seconds(hardware, plan, cost) * backwards_part(config, true);
    const double forwards = backwards / backward_of(config); /* those that keep something */
    if (plan->offloaded_bytes == 0 || hardware->host_gb_s == 0) return;
    const double each_way = plan->offloaded_bytes / (1e9 * hardware->host_gb_s);
    cost->seconds[VT_COST_LINK] = fmax(0, each_way - forwards) + fmax(0, each_way - backwards);
    cost->pass += cost->seconds[VT_COST_LINK] / (double)config->grad_accumulation;
}

static void add_messages(const vt_config *config, const vt_hardware *hardware, const vt_plan *plan, vt_cost *cost)
{
    double gradients = 0, ring = 0, waited = 0, late;
    double compute = cost->seconds[VT_COST_MATRIX] + cost->seconds[VT_COST_ATTENTION] + cost->seconds[VT_COST_MEMORY];
    double buckets = fmax(1, (double)plan->bytes[VT_MEMORY_GRADIENTS] / (config->bucket_cap_mb * 1024 * 1024));
    for (int i = 0; i < plan->group_count; i++) {
        const vt_plan_group *group = &plan->groups[i];
        const double seconds = vt_cost_messages(hardware, group->size, group->in_node, &group->volume);
        const vt_traffic traffic = vt_traffic_of(group->name);
        if (traffic == VT_TRAFFIC_PIPELINE)
            cost->hop = fmax(cost->hop, group->volume.operations > 0 ? seconds / (double)group->volume.operations : 0);
        else if (traffic == VT_TRAFFIC_GRADIENTS)
            gradients += seconds;
        else if (config->cp_comm == VT_CP_RING && traffic == VT_TRAFFIC_CONTEXT)
            ring += seconds;
        else
            waited += seconds;
    }
    late = gradients * behind_update(config);
    gradients -= late;
    /* the last bucket starts when backward has ended */
    double hidden = fmin(hardware->overlap * window(config, compute), gradients * (1 - 1 / ceil(buckets)));
    double hidden_ring = fmin(hardware->overlap * cost->seconds[VT_COST_ATTENTION], ring);
    cost->hidden = hidden + hidden_ring;
    cost->seconds[VT_COST_COMMUNICATION] = waited + late + gradients + ring - cost->hidden;
    const double passes = passes_seconds(hardware, plan, cost) + cost->seconds[VT_COST_START] + waited + ring;
    cost->pass = (passes - hidden_ring) / (double)config->grad_accumulation;
}

static void add_up(vt_cost *cost)
{
    cost->step = 0;
    for (int i = 0; i < VT_COST_COUNT; i++) {
        cost->step += cost->seconds[i];
        if (cost->seconds[i] > cost->seconds[cost->bound]) cost->bound = (vt_cost_part)i;
    }
}

void vt_cost_add_stages(const vt_config *config, const vt_hardware *hardware, double passes, vt_cost *cost)
{
    const double others = (double)(config->pipeline_parallel - 1);
    const vt_step_shape shape = vt_schedule_shape(config, 0, vt_config_longest_rollout(config));
    const vt_step_counts counts = vt_schedule_counts(&shape);
    const double bubble = vt_schedule_bubble(&shape) / others; /* 1 without a rollout */
    cost->seconds[VT_COST_BUBBLE] = bubble * (passes - cost->pass) + 2 * others * cost->hop;
    cost->seconds[VT_COST_COMMUNICATION] +=
        (double)(counts.forwards + counts.backwards - 2) * (1 - hardware->overlap) * cost->hop;
    add_up(cost);
}

void vt_cost_of(const vt_config *config, const vt_hardware *hardware, const vt_plan *plan, vt_cost *cost)
{
    vt_type type = vt_trainer_type(config);
    const vt_dry_count *count = &plan->step;
    *cost = (vt_cost){.step = 0};
    cost->seconds[VT_COST_MATRIX] = product_seconds(hardware, type, count);
    cost->seconds[VT_COST_ATTENTION] = attention_seconds(config, hardware, type, count->attention_flops);
    for (int i = 0; i < VT_WORK_COUNT; i++)
        cost->seconds[VT_COST_MEMORY] += memory_seconds(hardware, count, (vt_work)i);
    cost->seconds[VT_COST_START] = 1e-6 * hardware->operation_us * (double)count->operations;
    add_messages(config, hardware, plan, cost);
    add_link(config, hardware, plan, cost);
    add_up(cost);
}

double vt_cost_available(const vt_hardware *hardware)
{
    return (hardware->memory_gib - hardware->reserved_gib) * 1024 * 1024 * 1024;
}
