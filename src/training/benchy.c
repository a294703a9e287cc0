#include "training/benchy.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "training/reader.h"
#include "training/step.h"
#include "training/stop.h"

enum { TRIALS = 3, BATCHES = 50, TESTS = 3 };

/* The space before SYNTHETIC is the original's. */
static const char *const names[TESTS] = {"IO", "SYNTHETIC", "FULL"};
static const char *const shown[TESTS] = {"IO", " SYNTHETIC", "FULL"};

typedef struct {
    double warmup, trials[TRIALS]; /* samples a second, of all ranks together */
    double average, deviation;     /* of the trials; of the population */
} rates;

typedef struct {
    vt_trainer *trainer;
    vt_world *world;
    vt_loader *loader;
    int64_t epoch;
    const vt_batch *batch;
    char *path; /* of the rates; rank 0's */
    FILE *file;
} bench;

/* The epochs follow one another. */
static vt_status next_batch(bench *b)
{
    vt_status status = VT_OK;
    double waited = 0;
    int64_t replaced = 0;
    b->batch = NULL;
    while (b->batch == NULL) {
        if (b->epoch < 0) vt_loader_begin(b->loader, b->epoch = 0, 0);
        VT_TRY(vt_reader_next(b->trainer, b->loader, &b->batch, &waited, &replaced));
        if (b->batch == NULL) vt_loader_begin(b->loader, ++b->epoch, 0);
    }
done:
    return status;
}

/* Collective; all ranks begin and end together, so that rank 0's time is that of all. */
static vt_status run_trial(bench *b, bool reads, bool steps, double *rate)
{
    vt_status status = VT_OK;
    vt_world *world = b->world;
    vt_trainer *trainer = b->trainer;
    vt_step_figures figures;
    int64_t samples = 0;
    VT_TRY(vt_world_agree(world, vt_stop_requested() ? VT_STOPPED : VT_OK));
    double begin = vt_clock_seconds();
    for (int i = 0; i < BATCHES; i++) {
        if (reads) VT_TRY(next_batch(b));
        if (steps) VT_TRY(vt_step_start(trainer, b->batch));
        while (vt_trainer_steps_pending(trainer) > (i + 1 < BATCHES ? vt_step_latency(trainer) : 0))
            VT_TRY(vt_step_take(trainer, &figures));
        samples += b->batch->global_count;
    }
    VT_TRY(vt_world_agree(world, VT_OK));
    *rate = (double)samples / (vt_clock_seconds() - begin);
done:
    return status;
}

static vt_status run_test(bench *b, int test, rates *result)
{
    vt_status status = VT_OK;
    const bool reads = test != 1, steps = test != 0;
    VT_TRY(run_trial(b, reads, steps, &result->warmup));
    vt_log_info("BENCHY::%s warm-up throughput: %.3f samples/s", names[test], result->warmup);
    for (int i = 0; i < TRIALS; i++) {
        VT_TRY(run_trial(b, reads, steps, &result->trials[i]));
        vt_log_info("BENCHY::%s trial %d throughput: %.3f samples/s", names[test], i, result->trials[i]);
        result->average += result->trials[i] / TRIALS;
    }
    for (int i = 0; i < TRIALS; i++) result->deviation += pow(result->trials[i] - result->average, 2) / TRIALS;
    result->deviation = sqrt(result->deviation);
done:
    return status;
}

static void append_rates(vt_text *text, int test, const rates *r)
{
    vt_text_append(text, "  \"%s\": {\n    \"warmup\": %.9g,\n    \"trials\": [", names[test], r->warmup);
    for (int i = 0; i < TRIALS; i++) vt_text_append(text, "%s%.9g", i > 0 ? ", " : "", r->trials[i]);
    vt_text_append(text, "],\n    \"average\": %.9g,\n    \"standard_deviation\": %.9g\n  }%s\n", r->average,
                   r->deviation, test + 1 < TESTS ? "," : "");
}

/* Before anything is measured: what can't be written should not cost the tests. */
static vt_status open_json(bench *b, const char *run_directory)
{
    vt_status status = VT_OK;
    const char *chosen = getenv("BENCHY_OUTPUT");
    b->path = chosen != NULL && chosen[0] != '\0' ? vt_text_copy(chosen)
                                                  : vt_text_format("%s/benchy_output.json", run_directory);
    b->file = fopen(b->path, "w");
    VT_CHECK(b->file != NULL, "BENCHY_OUTPUT: can't write %s: %s", b->path, strerror(errno));
done:
    return status;
}

static vt_status write_json(bench *b, const rates results[TESTS])
{
    vt_status status = VT_OK;
    vt_text text = {0};
    FILE *file = b->file;
    b->file = NULL;
    vt_text_append(&text,
                   "{\n  \"unit\": \"samples/s over all ranks\",\n  \"ranks\": %d,\n  \"global_batch_size\": %lld,\n"
                   "  \"batches_per_trial\": %d,\n",
                   vt_world_ranks(b->world), (long long)vt_trainer_config(b->trainer)->global_batch_size, BATCHES);
    for (int test = 0; test < TESTS; test++) append_rates(&text, test, &results[test]);
    vt_text_append(&text, "}\n");
    VT_CHECK(vt_file_close(file, fputs(text.characters, file) >= 0), "BENCHY_OUTPUT: can't write %s: %s", b->path,
             strerror(errno));
    vt_log_info("every rate: %s", b->path);
done:
    vt_text_close(&text);
    return status;
}

vt_status vt_benchy_run(vt_trainer *trainer, vt_loader *loader, const char *run_directory)
{
    vt_status status = VT_OK;
    bench b = {.trainer = trainer, .world = vt_trainer_world(trainer), .loader = loader, .epoch = -1};
    rates results[TESTS] = {0};
    const bool writes = vt_world_rank(b.world) == 0;
    VT_TRY(vt_world_agree(b.world, writes ? open_json(&b, run_directory) : VT_OK));
    for (int test = 0; test < TESTS; test++) VT_TRY(run_test(&b, test, &results[test]));
    VT_TRY(vt_world_agree(b.world, writes ? write_json(&b, results) : VT_OK));
    for (int test = 0; test < TESTS; test++)
        vt_log_info("BENCHY::SUMMARY::%s average trial throughput: %.3f +/- %.3f", shown[test], results[test].average,
                    results[test].deviation);
done:
    if (b.file != NULL) fclose(b.file);
    free(b.path);
    return status;
}
