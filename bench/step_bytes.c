/* What each operation of a training step reads and writes, every operand once: what it moves at least. Counted by the
 * dry back end, so for any size, without that much memory and without a GPU.
 *
 *     build/bench/step_bytes [--name=value of vitrain ...]
 *
 * docs/lab/gpu.md compares it with what our kernels for a GPU move. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/times.h"
#include "training/step.h"
#include "training/trainer_inside.h"

typedef struct {
    const char *operation;
    int64_t calls;
    double bytes;
} row;

/* Rows of the same operation, whatever their sizes, are one. */
static int add(row *rows, int count, const vt_operation_time *time)
{
    const double bytes = time->bytes + (double)time->calls * time->work.product_bytes;
    int i = 0;
    while (i < count && strcmp(rows[i].operation, time->operation) != 0) i++;
    if (i == count) rows[count++] = (row){.operation = time->operation};
    rows[i].calls += time->calls;
    rows[i].bytes += bytes;
    return count;
}

static int most_first(const void *a, const void *b)
{
    const double difference = ((const row *)b)->bytes - ((const row *)a)->bytes;
    return difference < 0 ? -1 : difference > 0;
}

static void print(vt_backend *dry)
{
    int sizes, count = 0;
    double all = 0;
    const vt_operation_time *times = vt_times_sorted(dry, &sizes);
    row rows[sizes + 1];
    for (int i = 0; i < sizes; i++) count = add(rows, count, &times[i]);
    qsort(rows, (size_t)count, sizeof *rows, most_first);
    for (int i = 0; i < count; i++) {
        all += rows[i].bytes;
        if (rows[i].bytes > 0)
            printf("%-26s %6ld calls %9.3f GB\n", rows[i].operation, rows[i].calls, rows[i].bytes / 1e9);
    }
    printf("%-26s %15s %6.3f GB\n", "together", "", all / 1e9);
}

int main(int count, char **arguments)
{
    vt_status status = VT_OK;
    vt_config *config = NULL;
    vt_backend *dry = NULL;
    vt_world *world = NULL;
    vt_task *task = NULL;
    vt_trainer *trainer = NULL;
    vt_step_figures figures;
    const vt_arena_sizes any = {SIZE_MAX, SIZE_MAX, {SIZE_MAX, SIZE_MAX, SIZE_MAX}};
    VT_TRY(vt_config_open_text("bench: {}", "bench/step_bytes", count - 1, arguments + 1, 1, &config));
    VT_TRY(vt_backend_open_dry(&dry));
    dry->shares_host_memory = false; /* as a GPU */
    VT_TRY(vt_world_open_dry(config, 0, 1, NULL, &world));
    VT_TRY(vt_task_kind_of(config)->open(config, NULL, NULL, &task));
    const vt_trainer_options options = {.world = world, .task = task, .steps = 1};
    VT_TRY(vt_trainer_build(config, &options, dry, any, &trainer));
    vt_times_open(dry);
    const vt_batch batch = {.sample_count = config->global_batch_size, .global_count = config->global_batch_size};
    VT_TRY(vt_step_train(trainer, &batch, &figures));
    print(dry);
done:
    if (status != VT_OK) fprintf(stderr, "bench/step_bytes: %s\n", vt_error_text());
    if (dry != NULL) vt_times_close(dry);
    vt_trainer_close(&trainer);
    vt_task_close(&task);
    vt_world_close(&world, false);
    vt_backend_close(&dry);
    vt_config_close(&config);
    return status == VT_OK ? 0 : 1;
}
