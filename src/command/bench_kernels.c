/* The operations of real steps of the large model, some of its blocks deep, beside the limits of the machine. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/threads.h"
#include "command/command.h"
#include "planning/practice.h"

/* A GPU needs work that takes long beside starting it and waiting for it. */
static const char BLOCKS[] = "2";
enum { SAMPLES = 1, SAMPLES_ON_GPU = 32 };

/* The machine that the table is of: what Linux calls its processor, or on ARM the lines of its implementer and part. */
static void print_processor(void)
{
    static const char *const fields[] = {"model name", "CPU implementer", "CPU part"};
    char line[512];
    vt_text name = {0};
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL && line[0] != '\n') { /* of the first core */
        line[strcspn(line, "\n")] = '\0';
        const char *colon = line + strcspn(line, ":"), *value = colon + strspn(colon, ": ");
        for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
            if (strncmp(line, fields[i], strlen(fields[i])) == 0)
                vt_text_append(&name, "%s%s", name.length > 0 ? ", " : "", i == 0 ? value : line);
    }
    if (file != NULL) fclose(file);
    const int count = vt_threads_core_count(), domains = vt_threads_domains(VT_NUMA_DOMAINS);
    vt_print("processor: %s; %d core%s for this process in %d NUMA domain%s\n",
             name.length > 0 ? name.characters : "unknown", count, count == 1 ? "" : "s", domains,
             domains == 1 ? "" : "s");
    vt_text_close(&name);
    if (count > 2)
        vt_print("No such machine was measured yet: please send in this table, and those with --amp_mode=bf16, with "
                 "--threads=1 and with --threads=%d.\n",
                 (count + 1) / 2);
}

static vt_status measure(vt_config *config, bool on_gpu, bool half, vt_backend *backend, int64_t rounds)
{
    vt_status status = VT_OK;
    vt_practice *practice = NULL;
    VT_TRY(vt_config_set(config, "depth", BLOCKS));
    config->amp_mode = half ? VT_AMP_BF16 : VT_AMP_NONE;
    VT_TRY(vt_config_resolve(config));
    VT_TRY(vt_practice_open(config, on_gpu ? SAMPLES_ON_GPU : SAMPLES, backend, &practice));
    vt_print("%s; %s blocks of the large model, %s, %d sample%s; %ld step%s\n", backend->name, BLOCKS,
             half ? "bfloat16" : "float32", on_gpu ? SAMPLES_ON_GPU : SAMPLES, on_gpu ? "s" : "", rounds,
             rounds == 1 ? "" : "s");
    VT_TRY(vt_step_times_print(practice, backend, vt_trainer_type(config), rounds));
done:
    vt_practice_close(&practice);
    return status;
}

vt_status vt_command_bench_kernels(const vt_call *call)
{
    vt_status status = VT_OK;
    const vt_bench_kernels_flags *flags = call->flags;
    const bool on_gpu = flags->device == VT_BENCH_CUDA, half = on_gpu || flags->amp_mode == VT_BENCH_BF16;
    vt_config *config = NULL;
    vt_backend *backend = NULL;
    /* of the reference model with batch 16 */
    const vt_attention_shape attention = {.batch = 16, .heads = 8, .head_dim = 48, .queries = 4050, .keys = 4050};
    VT_TRY(vt_config_open_default(&config));
    if (!on_gpu) print_processor();
    VT_TRY(on_gpu ? vt_backend_open_cuda(0, false, &backend)
                  : vt_backend_open_cpu(VT_ISA_AUTO, (int)flags->threads, &backend));
    VT_TRY(measure(config, on_gpu, half, backend, flags->rounds));
    VT_TRY(vt_attention_times_print(backend, &attention, 4 * flags->rounds));
done:
    vt_backend_close(&backend);
    vt_config_close(&config);
    return status;
}
