/* The operations of real steps of the large model, some of its blocks deep, beside the limits of the machine. */
#include <stdio.h>
#include <string.h>

#include "base/threads.h"
#include "command/arguments.h"
#include "command/command.h"
#include "planning/step_times.h"

/* A GPU needs work that takes long beside starting it and waiting for it. */
enum { BLOCKS = 2, SAMPLES = 1, SAMPLES_ON_GPU = 32 };

static vt_status open_device(bool on_gpu, int64_t threads, vt_backend **backend)
{
    return on_gpu ? vt_backend_open_cuda(0, false, backend) : vt_backend_open_cpu(VT_ISA_AUTO, (int)threads, backend);
}

/* The machine that the table is of. */
static void print_processor(void)
{
    unsigned char cores[VT_CORES_BYTES];
    char line[512] = "", *name = NULL;
    int count = 0;
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file != NULL && name == NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "model name", 10) == 0) name = strchr(line, ':');
    if (file != NULL) fclose(file);
    line[strcspn(line, "\n")] = '\0';
    vt_threads_cores(cores);
    for (int i = 0; i < VT_CORES_BYTES; i++) count += __builtin_popcount(cores[i]);
    const int domains = vt_threads_domains(VT_NUMA_DOMAINS);
    printf("processor: %s; %d core%s for this process in %d NUMA domain%s\n", name == NULL ? "unknown" : name + 2,
           count, count == 1 ? "" : "s", domains, domains == 1 ? "" : "s");
    if (count > 2)
        printf("No such machine was measured yet: please send in this table, and those with --threads=1 and "
               "--threads=%d.\n",
               (count + 1) / 2);
}

static vt_status measure(vt_config *config, bool on_gpu, vt_backend *backend, int64_t rounds)
{
    vt_status status = VT_OK;
    vt_practice *practice = NULL;
    config->depth = BLOCKS;
    config->amp_mode = on_gpu ? VT_AMP_BF16 : VT_AMP_NONE;
    VT_TRY(vt_config_resolve(config));
    VT_TRY(vt_practice_open(config, on_gpu ? SAMPLES_ON_GPU : SAMPLES, backend, &practice));
    printf("%s; %d blocks of the large model, %s, %d sample%s; %lld step%s\n", backend->name, BLOCKS,
           on_gpu ? "bfloat16" : "float32", on_gpu ? SAMPLES_ON_GPU : SAMPLES, on_gpu ? "s" : "", (long long)rounds,
           rounds == 1 ? "" : "s");
    VT_TRY(vt_step_times_print(practice, backend, vt_trainer_type(config), rounds));
done:
    vt_practice_close(&practice);
    return status;
}

vt_status vt_command_bench_kernels(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    int64_t threads = 0, rounds = 5;
    vt_config *config = NULL;
    vt_backend *backend = NULL;
    vt_argument_choice device = {"cpu", "cpu|cuda"};
    const vt_argument flags[] = {
        {"device", VT_ARGUMENT_CHOICE, &device, 0, 0, "where to compute"},
        {"threads", VT_ARGUMENT_INTEGER, &threads, 0, 4096, "0: one a core"},
        {"rounds", VT_ARGUMENT_INTEGER, &rounds, 1, 1000, "steps that are timed"},
    };
    const vt_command_line line = {.command = "bench kernels",
                                  .help = "usage: vitrain bench kernels [--name=value ...]\n\n"
                                          "The operations of a large model's training step, beside the limits of the "
                                          "machine.\n\n",
                                  VT_FLAGS(flags)};
    VT_TRY(vt_arguments_parse(&line, argument_count, arguments, NULL));
    const bool on_gpu = strcmp(device.chosen, "cuda") == 0;
    VT_TRY(vt_config_open_default(&config));
    if (!on_gpu) print_processor();
    VT_TRY(open_device(on_gpu, threads, &backend));
    VT_TRY(measure(config, on_gpu, backend, rounds));
done:
    vt_backend_close(&backend);
    vt_config_close(&config);
    return status;
}
