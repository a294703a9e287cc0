#include "command/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "base/threads.h"
#include "planning/layouts.h"
#include "planning/practice.h"
#include "report/page.h"
#include "report/progress.h"
#include "source/sources.h"
#include "storage/output_file.h"

enum { SHOWN = 10, SHOWN_TOO_LARGE = 3 };

/* Parses the configuration with its layout set aside: the search decides whether a layout divides the ranks. */
static vt_status open_config(const vt_call *call, int64_t ranks, vt_config **result)
{
    vt_status status = VT_OK;
    vt_config *config = NULL;
    VT_TRY(vt_config_read(NULL, NULL, call->option_count, call->options, 1, &config));
    if (config->origin[VT_OPTION_local_batch_size] == VT_FROM_YAML) { /* a file's batch_size, on as many ranks */
        if (config->origin[VT_OPTION_global_batch_size] != VT_FROM_COMMAND_LINE)
            config->global_batch_size = config->local_batch_size * ranks;
        config->local_batch_size = VT_UNSET_INTEGER;
    }
    VT_CHECK(config->local_batch_size == VT_UNSET_INTEGER,
             "plan compares layouts of the same global batch: give --global_batch_size instead of --local_batch_size");
    const int64_t tensor = config->tensor_parallel, context = config->context_parallel;
    const int64_t stages = config->pipeline_parallel, parts = config->grad_accumulation;
    config->tensor_parallel = config->context_parallel = config->pipeline_parallel = config->grad_accumulation = 1;
    VT_TRY(vt_config_resolve(config));
    VT_TRY(vt_source_complete(config));
    config->tensor_parallel = tensor;
    config->context_parallel = context;
    config->pipeline_parallel = stages;
    config->grad_accumulation = parts;
    config->ranks = ranks;
done:
    if (status != VT_OK) vt_config_close(&config);
    *result = config;
    return status;
}

/* ---- printing ---- */

static double energy_kwh(const vt_config *config, const vt_hardware *hardware, double seconds)
{
    return (double)config->ranks * hardware->power_w * seconds / 3.6e6;
}

static void print_csv(const vt_config *config, const vt_hardware *hardware, const vt_layouts *layouts)
{
    int64_t steps = vt_layouts_steps(config);
    vt_print("tensor_parallel,context_parallel,pipeline_parallel,data_parallel,zero_stage,sequence_parallel,recompute,"
             "grad_accumulation,micro_batch,fits,stage,memory_bytes,parameters,gradients,optimizer,activations,data,"
             "workspace,step_seconds,");
    for (int c = 0; c < VT_COST_COUNT; c++) vt_print("%s_seconds,", vt_cost_names[c]);
    vt_print("hidden_seconds,bound,host_bytes,samples_per_second,tflops_per_rank,run_seconds,energy_kwh\n");
    for (int64_t i = 0; i < layouts->count; i++) {
        const vt_option_cost *o = &layouts->options[i];
        double run = (double)steps * o->cost.step;
        vt_print("%ld,%ld,%ld,%ld,%ld,%s,%s,%ld,%ld,%s,%ld,%.0f", o->tensor, o->context, o->pipeline, o->data, o->zero,
                 o->sequence ? "true" : "false", vt_recompute_words[o->recompute], o->accumulation, o->micro_batch,
                 o->fits ? "true" : "false", o->stage, o->total);
        for (int c = 0; c < VT_MEMORY_CATEGORY_COUNT; c++) vt_print(",%.0f", o->bytes[c]);
        vt_print(",%.6g", o->cost.step);
        for (int c = 0; c < VT_COST_COUNT; c++) vt_print(",%.6g", o->cost.seconds[c]);
        vt_print(",%.6g,%s,%.0f,%.6g,%.6g,%.6g,%.6g\n", o->cost.hidden, vt_cost_names[o->cost.bound], o->waiting,
                 (double)config->global_batch_size / o->cost.step, 1e-12 * o->flops / o->cost.step, run,
                 energy_kwh(config, hardware, run));
    }
}

static void print_head(const vt_config *config, const vt_hardware *hardware)
{
    static const char columns[] = "%2s  %3s%3s%5s%5s %-6s%6s%7s%8s%7s%8s%s\n";
    char nodes[VT_NUMBER_SIZE] = "";
    if (hardware->ranks_per_node > 0) snprintf(nodes, sizeof nodes, ", %.0f on a node", hardware->ranks_per_node);
    vt_print_wrapped("configuration %s on %ld rank%s of %s%s:\n  batch %ld, %s; %.1f GiB a rank\n\n", config->config,
                     config->ranks, config->ranks == 1 ? "" : "s", hardware->name, nodes, config->global_batch_size,
                     config->amp_mode == VT_AMP_NONE ? "float32" : "16 bits", vt_cost_available(hardware) / 1073741824);
    vt_print(columns, "", "", "", "", "", "recom-", "micro", "GiB", "ms a", "", "samples", "");
    vt_print(columns, "tp", "cp", "pp", "dp", "zero", "pute", "batch", "a rank", "step", "bubble", "/s", "  bound by");
}

static void print_row(const vt_config *config, const vt_option_cost *o, bool terminal)
{
    char bound[48] = "does not fit", bubble[16] = "-";
    if (o->fits)
        snprintf(bound, sizeof bound, "%s %.0f %%", vt_cost_names[o->cost.bound],
                 100 * o->cost.seconds[o->cost.bound] / o->cost.step);
    if (o->pipeline > 1)
        snprintf(bubble, sizeof bubble, "%.0f %%", 100 * o->cost.seconds[VT_COST_BUBBLE] / o->cost.step);
    if (terminal && !o->fits) printf("\033[9m");
    vt_print("%2ld%s %3ld%3ld%5ld%5ld %-6s%6ld%7.1f%8.*f%7s%8.*f  %s", o->tensor, o->sequence ? "s" : " ", o->context,
             o->pipeline, o->data, o->zero, o->recompute != VT_RECOMPUTE_NONE ? vt_recompute_words[o->recompute] : "-",
             o->micro_batch, o->total / 1073741824, o->cost.step < 0.1 ? 1 : 0, 1e3 * o->cost.step, bubble,
             o->cost.step > 1 ? 2 : 0, (double)config->global_batch_size / o->cost.step, bound);
    if (terminal && !o->fits) printf("\033[0m");
    vt_print("\n");
}

static void print_run(const vt_config *config, const vt_hardware *hardware, const vt_option_cost *o)
{
    char run[VT_NUMBER_SIZE], energy[VT_NUMBER_SIZE] = "";
    const int64_t steps = vt_layouts_steps(config) > 0 ? vt_layouts_steps(config) : 1000;
    const double seconds = (double)steps * o->cost.step;
    if (hardware->power_w > 0) snprintf(energy, sizeof energy, " and %.3g kWh", energy_kwh(config, hardware, seconds));
    vt_print_wrapped("%ld steps of the fastest take %s%s, at %.3g TFLOP/s a rank.\n", steps,
                     vt_number_duration(seconds, run), energy, 1e-12 * o->flops / o->cost.step);
}

/* Prints the best of each grid, and a few that would be faster but don't fit. */
static void print_table(const vt_config *config, const vt_hardware *hardware, const vt_layouts *layouts, bool all)
{
    bool terminal = vt_progress_is_seen(STDOUT_FILENO);
    int64_t shown = 0, too_large = 0, fitting = 0;
    print_head(config, hardware);
    for (int64_t i = 0; i < layouts->count; i++) {
        const vt_option_cost *o = &layouts->options[i];
        const bool has_room = o->fits ? shown < SHOWN : too_large < SHOWN_TOO_LARGE;
        const bool wanted = has_room && ((!o->fits && fitting == 0) || vt_layouts_fastest(layouts, o) == o);
        fitting += o->fits;
        if (!all && !wanted) continue;
        print_row(config, o, terminal);
        shown += o->fits;
        too_large += !o->fits;
    }
    vt_print("\n");
    if (fitting > 0) print_run(config, hardware, vt_layouts_fastest(layouts, NULL));
    vt_print("%ld layouts, %ld of them fit%s.\n%s--csv has all figures, also memory by purpose.\n"
             "tp with s: sequence_parallel. Time to read data is not counted.\n",
             layouts->count, fitting, all ? "" : "; here the fastest that fits of each grid",
             all ? "" : "--all shows every layout, ");
    const int domains = vt_threads_domains(VT_NUMA_DOMAINS);
    if (hardware->kind == VT_MACHINE_CPU && config->ranks < domains)
        vt_print_wrapped("This machine's cores lie in %d NUMA domains. A rank in each has its memory nearby: BIND=numa "
                         "submit/local.sh %d (docs/performance.md).\n",
                         domains, domains);
    if (hardware->kind == VT_MACHINE_CPU && hardware->ranks_per_node > 0 &&
        (double)config->ranks > hardware->ranks_per_node)
        vt_print_wrapped("%s was measured with %.0f rank%s on a node, so these are on %.0f such nodes. Ranks that "
                         "share the cores of one are slower: measure it with as many (mpirun -np N vitrain plan "
                         "--calibrate=FILE).\n",
                         hardware->name, hardware->ranks_per_node, hardware->ranks_per_node > 1 ? "s" : "",
                         ceil((double)config->ranks / hardware->ranks_per_node));
}

/* Of the fastest layout that fits: what offload_activations takes away, and what the step waits for it. */
static void print_offload(const vt_config *config, const vt_hardware *hardware, const vt_layouts *layouts)
{
    char waiting[VT_NUMBER_SIZE], sent[VT_NUMBER_SIZE];
    const vt_option_cost *o = vt_layouts_fastest(layouts, NULL);
    if (config->offload_activations == VT_OFFLOAD_NONE) return;
    vt_print_wrapped(
        "offload_activations: with the fastest layout that fits, activations take %s of pinned host memory a rank, and "
        "%s go there and return in each step.\n",
        vt_text_bytes(o->waiting, waiting), vt_text_bytes(o->sent, sent));
    if (hardware->host_gb_s == 0)
        vt_print_wrapped("How long that takes is not known: %s has no host_gb_s (GB/s between a GPU and its host).\n",
                         hardware->name);
    else if (o->cost.seconds[VT_COST_LINK] > 0)
        vt_print_wrapped("WARNING: the link to the host (%g GB/s) is the bound: a step waits %.3g ms for it.%s\n",
                         hardware->host_gb_s, 1e3 * o->cost.seconds[VT_COST_LINK],
                         o->recompute ? "" : " With --recompute=block only blocks' inputs go there.");
}

/* ---- measuring ---- */

static vt_status calibrate(const char *path, const vt_launch *launch, vt_config *config)
{
    vt_status status = VT_OK;
    vt_world *world = NULL;
    vt_backend *backend = NULL;
    vt_hardware hardware;
    char *comment = NULL;
    config->tensor_parallel = config->context_parallel = config->pipeline_parallel = 1;
    config->ranks = launch->world_size;
    VT_TRY(vt_world_open(config, launch, &world));
    VT_TRY(vt_backend_open_cpu((vt_cpu_isa)config->cpu_isa, vt_world_threads(config, world), &backend));
    int64_t local = config->global_batch_size / world->ranks;
    VT_TRY(vt_calibrate(config, local > 0 ? local : 1, world, backend, &hardware));
    comment = vt_text_format(
        "# Measured by vitrain plan --calibrate at the sizes of configuration %s, by %d rank%s at once:\n"
        "# %s. memory_gib is what was free. Not measured: overlap, power_w%s%s.\n",
        config->config, world->ranks, world->ranks == 1 ? "" : "s", backend->name,
        hardware.ranks_per_node > 1 ? "" : ", within_*", world->nodes > 1 ? "" : ", between_*");
    if (world->rank == 0) VT_TRY(vt_hardware_write(&hardware, comment, path));
    if (world->rank == 0) vt_print("%s is written; use it with --hardware=%s\n", path, path);
done:
    free(comment);
    vt_backend_close(&backend);
    vt_world_close(&world, status != VT_OK);
    return status;
}

static vt_status plan_layouts(const vt_plan_flags *flags, const vt_config *config, const vt_hardware *hardware)
{
    vt_status status = VT_OK;
    vt_layouts layouts = {NULL, 0};
    VT_TRY(vt_layouts_plan(config, hardware, &layouts));
    if (flags->csv) {
        print_csv(config, hardware, &layouts);
    } else {
        print_table(config, hardware, &layouts, flags->all);
        print_offload(config, hardware, &layouts);
    }
done:
    vt_layouts_close(&layouts);
    return status;
}

/* The configuration's batch is that of the first of several numbers of ranks; rules are of one rank. */
static vt_status plan(const vt_call *call, int64_t rank_count)
{
    vt_status status = VT_OK;
    const vt_plan_flags *flags = call->flags;
    const bool rules = flags->rules != VT_RULES_OFF;
    const bool other_model =
        flags->rules == VT_RULES_MEGATRON || flags->layers > 0 || flags->hidden > 0 || !isnan(flags->parameters);
    vt_hardware hardware;
    vt_config *config = NULL;
    int64_t *ranks = NULL;
    int count = 0;
    VT_CHECK(!other_model || call->option_count == 0,
             "plan: '%s' belongs to the run's model, but --rules is given another one; leave one of the two out",
             call->options[0]);
    if (flags->scaling != NULL) VT_TRY(vt_plan_scaling_ranks(flags->scaling, &ranks, &count));
    VT_TRY(vt_hardware_read(flags->hardware != NULL ? flags->hardware : rules ? "a100-80" : "cpu", &hardware));
    if (!other_model) VT_TRY(open_config(call, rules ? 1 : count > 0 ? ranks[0] : rank_count, &config));
    if (rules)
        VT_TRY(vt_plan_rules_print(flags, config, &hardware));
    else if (count > 0)
        VT_TRY(vt_plan_scaling(config, &hardware, ranks, count, flags->output));
    else
        VT_TRY(plan_layouts(flags, config, &hardware));
done:
    free(ranks);
    vt_config_close(&config);
    return status;
}

vt_status vt_command_plan(const vt_call *call)
{
    const vt_plan_flags *flags = call->flags;
    const vt_launch *launch = &call->launch;
    const int64_t ranks = flags->ranks != VT_UNSET_INTEGER ? flags->ranks : launch->world_size;
    const char *path = flags->calibrate;
    vt_config *config = NULL;
    if (path == NULL) return launch->rank == 0 ? plan(call, ranks) : VT_OK; /* the first rank also reports errors */
    if (strcmp(path, VT_SWITCH_ON) == 0) path = "hardware-here.yaml";
    vt_status status = open_config(call, ranks, &config);
    if (status == VT_OK) status = vt_output_check_file("--calibrate", path);
    if (status != VT_OK) vt_world_fail_early(launch);
    if (status == VT_OK) status = calibrate(path, launch, config);
    vt_config_close(&config);
    return status;
}
