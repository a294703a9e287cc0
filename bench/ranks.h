/* What bench/scaling and bench/plan_layout share: the ranks of one layout, which make training steps on random numbers,
 * and how much processor time they and everything else take meanwhile. */
#ifndef VT_BENCH_RANKS_H
#define VT_BENCH_RANKS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "planning/practice.h"

/* This rank's part. */
typedef struct {
    vt_config *config;
    vt_world *world;
    vt_backend *backend;
    vt_trainer *trainer;
    vt_batch batch;
    float *fields[2]; /* of the batch */
} bench_ranks;

/* Configuration, world and batch; back end and trainer are opened after it. `text` and `settings` [count] are the
 * configuration, `where` names the program in messages. Collective. */
static inline vt_status ranks_open(const char *text, const char *where, int count, char *const *settings,
                                   const vt_launch *launch, bench_ranks *r)
{
    vt_status status = VT_OK;
    VT_TRY(vt_config_open_text(text, where, count, settings, launch->world_size, &r->config));
    VT_TRY(vt_world_open(r->config, launch, &r->world));
    const vt_config *config = r->config;
    const vt_span rows = vt_model_part(config, vt_world_layout(r->world), vt_world_rank(r->world));
    const int64_t samples = config->global_batch_size / config->data_parallel;
    const int64_t points = samples * rows.count * config->img_size[1];
    r->fields[0] = vt_practice_numbers(points * config->n_in_channels, 0);
    r->fields[1] = vt_practice_numbers(points * config->n_out_channels, 1);
    r->batch = (vt_batch){.sample_count = samples,
                          .global_count = config->global_batch_size,
                          .first_in_batch = samples * vt_world_coordinate(r->world, VT_AXIS_DATA),
                          .tensors = {r->fields[0], r->fields[1]}};
done:
    return status;
}

/* The trainer, whose learning rate stays almost constant. Collective. */
static inline vt_status ranks_open_trainer(bench_ranks *r)
{
    const vt_trainer_options options = {.world = r->world, .steps = 100000};
    return vt_trainer_open(r->config, &options, r->backend, &r->trainer);
}

static inline void ranks_close(bench_ranks *r, bool failed)
{
    vt_trainer_close(&r->trainer);
    vt_backend_close(&r->backend);
    vt_world_close(&r->world, failed);
    vt_config_close(&r->config);
    for (int i = 0; i < 2; i++) free(r->fields[i]);
}

/* Seconds since some moment in the past. */
typedef struct {
    double wall, busy, own; /* the clock's, those of all cores together, and those of the measured processes */
} processor_use;

/* Seconds that all cores have worked since the machine started, including other guests of the same host; 0 if the
 * system doesn't say. */
static inline double busy_seconds(void)
{
    double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft = 0, stolen = 0;
    FILE *file = fopen("/proc/stat", "r");
    if (file == NULL) return 0;
    int read = fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system, &idle, &waiting, &interrupts,
                      &soft, &stolen);
    fclose(file);
    return read < 8 ? 0 : (user + nice + system + interrupts + soft + stolen) / (double)sysconf(_SC_CLK_TCK);
}

/* who: RUSAGE_SELF, or RUSAGE_CHILDREN for all children that have ended. */
static inline processor_use processor_use_of(int who)
{
    struct rusage usage;
    getrusage(who, &usage);
    return (processor_use){vt_clock_seconds(), busy_seconds(),
                           (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                               1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec)};
}

/* The share of the machine that other processes had in between. */
static inline double others_share(processor_use begin, processor_use end)
{
    const double all = (end.wall - begin.wall) * (double)sysconf(_SC_NPROCESSORS_ONLN);
    return fmax(0, (end.busy - begin.busy) - (end.own - begin.own)) / all;
}

#endif
