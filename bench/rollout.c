/* What training over K steps of forecast costs, for the models of config/ViT.yaml's ncep-forecast and of bench/step's
 * size small: the time of a training step beside K steps that recompute their blocks (--recompute=block: forward,
 * forward again, backward), in turns; and the memory beside the plan.
 *
 *     build/bench/rollout [--rounds=N]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/median.h"
#include "base/process_memory.h"
#include "base/threads.h"
#include "planning/practice.h"

enum { MOST_ROUNDS = 101, SIDES = 2 };

static const struct {
    const char *name, *settings;
} models[] = {
    {"ncep", "a: {img_size: [24, 48], patch_size: 4, embed_dim: 64, depth: 4, num_heads: 4, global_batch_size: 16, "
             "n_in_channels: 4, n_history: 3, n_out_channels: 1, predict: tendency, loss: mse}"},
    {"small", "a: {img_size: [32, 64], patch_size: 4, embed_dim: 128, depth: 4, num_heads: 4, global_batch_size: 8, "
              "predict: tendency, loss: mse}"},
};

typedef struct {
    vt_config *config;
    vt_backend *backend;
    vt_practice *practice;
} side;

static vt_status open_side(side *s, const char *settings, char *flag)
{
    vt_status status = VT_OK;
    VT_TRY(vt_config_open_text(settings, "bench/rollout", 1, &flag, 1, &s->config));
    VT_TRY(vt_backend_open_cpu((vt_cpu_isa)s->config->cpu_isa, 0, &s->backend));
    VT_TRY(vt_practice_open(s->config, s->config->global_batch_size, s->backend, &s->practice));
    VT_TRY(vt_practice_step(s->practice));
done:
    return status;
}

static void close_side(side *s)
{
    vt_practice_close(&s->practice);
    vt_backend_close(&s->backend);
    vt_config_close(&s->config);
}

/* Seconds of `steps` training steps. */
static vt_status time_steps(side *s, int steps, double *seconds)
{
    vt_status status = VT_OK;
    const double begin = vt_clock_seconds();
    for (int i = 0; i < steps; i++) VT_TRY(vt_practice_step(s->practice));
    *seconds = vt_clock_seconds() - begin;
done:
    return status;
}

static vt_status compare_times(const char *name, const char *settings, int horizon, int rounds)
{
    vt_status status = VT_OK;
    side sides[SIDES] = {0};
    double seconds[SIDES][MOST_ROUNDS];
    char flag[32], recompute[] = "--recompute=block";
    snprintf(flag, sizeof flag, "--rollout=%d", horizon);
    VT_TRY(open_side(&sides[0], settings, flag));
    VT_TRY(open_side(&sides[1], settings, recompute));
    for (int i = 0; i < rounds; i++)
        for (int s = 0; s < SIDES; s++) VT_TRY(time_steps(&sides[s], s == 0 ? 1 : horizon, &seconds[s][i]));
    const double own = vt_median(seconds[0], rounds), other = vt_median(seconds[1], rounds);
    printf("%-6s K %2d: %8.4f s a step, %d steps that recompute %8.4f s, ratio %.3f", name, horizon, own, horizon,
           other, own / other);
done:
    for (int s = 0; s < SIDES; s++) close_side(&sides[s]);
    return status;
}

/* In a process of its own: what the memory grows by, beside the plan, with one batch in place of the readers' data. */
static vt_status compare_memory(const char *settings, int horizon)
{
    vt_status status = VT_OK;
    side s = {0};
    vt_plan plan;
    char flag[32];
    const double before = vt_memory_resident();
    snprintf(flag, sizeof flag, "--rollout=%d", horizon);
    VT_TRY(open_side(&s, settings, flag));
    VT_TRY(vt_practice_plan(s.config, s.config->global_batch_size, &plan));
    const vt_config *c = s.config;
    const int64_t fields = c->n_in_channels + horizon * c->n_out_channels;
    const int64_t batch = c->global_batch_size * fields * c->img_size[0] * c->img_size[1] * (int64_t)sizeof(float);
    printf(";  memory %6.1f MB, planned %6.1f MB\n", (vt_memory_peak() - before) / 1048576,
           (vt_plan_total(&plan) - (double)plan.ring_bytes + (double)batch) / 1048576);
done:
    close_side(&s);
    return status;
}

/* Runs one comparison in a child. */
static bool compare(size_t model, int horizon, int rounds)
{
    int result = 1;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const char *settings = models[model].settings;
        const vt_status status = rounds > 0 ? compare_times(models[model].name, settings, horizon, rounds)
                                            : compare_memory(settings, horizon);
        if (status != VT_OK) fprintf(stderr, "bench/rollout: %s\n", vt_error_text());
        fflush(stdout);
        _exit(status != VT_OK);
    }
    waitpid(child, &result, 0);
    return result == 0;
}

int main(int argument_count, char **arguments)
{
    static const int horizons[] = {2, 4, 12};
    int rounds = 9, failures = 0;
    vt_threads_wait_shortly(arguments);
    if (argument_count > 1 && strncmp(arguments[1], "--rounds=", 9) == 0) rounds = atoi(arguments[1] + 9);
    if (rounds < 1 || rounds > MOST_ROUNDS) rounds = MOST_ROUNDS;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t h = 0; h < sizeof horizons / sizeof *horizons; h++)
            for (int r = rounds; r >= 0; r -= rounds) failures += !compare(m, horizons[h], r);
    return failures > 0;
}
