/* --enable_benchy. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/profile.h"
#include "base/text.h"
#include "config/benchy.h"
#include "training/run_inside.h"
#include "training/stop.h"

static const char *const names[VT_BENCHY_TESTS] = {"IO", "SYNTHETIC", "FULL"};

/* Rates are samples per second, summed over all ranks. */
typedef struct {
    double *iterations; /* [batches] */
    double average;     /* of these */
    double rate, seconds;
} trial;

typedef struct {
    trial *trials;             /* [warmups + trials], warm-ups first */
    double average, deviation; /* of the rates of those that count; of the population */
} result;

typedef struct {
    vt_trainer *trainer;
    vt_world *world;
    vt_loader *loader;
    vt_benchy_settings settings;
    result results[VT_BENCHY_TESTS];
    int64_t epoch;
    const vt_batch *batch;
    char *path; /* of the JSON; rank 0's */
    FILE *file;
} bench;

/* The epochs follow one another. */
static vt_status next_batch(bench *b)
{
    vt_status status = VT_OK;
    int64_t replaced = 0;
    b->batch = NULL;
    while (b->batch == NULL) {
        if (b->epoch < 0) vt_loader_begin(b->loader, b->epoch = 0, 0);
        VT_TRY(vt_reader_next(b->trainer, b->loader, &b->batch, &replaced));
        if (b->batch == NULL) vt_loader_begin(b->loader, ++b->epoch, 0);
    }
done:
    return status;
}

static vt_status take_steps(bench *b, int64_t leave)
{
    vt_status status = VT_OK;
    vt_step_figures figures;
    while (b->trainer->pending > leave) VT_TRY(vt_step_take(b->trainer, &figures));
done:
    return status;
}

/* One batch: read, and a step made with it, as the test wants. */
static vt_status run_iteration(bench *b, int test, const char *label, int64_t index)
{
    vt_status status = VT_OK;
    vt_range_begin("BENCHY::BenchmarkIterator::%s::STEP_%lld", label, (long long)index);
    vt_range_begin("BENCHY::BenchmarkIterator::%s::DATA_%lld", label, (long long)index);
    if (test != VT_BENCHY_SYNTHETIC) status = next_batch(b);
    vt_range_end();
    if (status == VT_OK && test != VT_BENCHY_IO) status = vt_step_start(b->trainer, b->batch);
    if (status == VT_OK)
        status = take_steps(b, index + 1 < b->settings.tests[test].batches ? vt_step_latency(b->trainer) : 0);
    vt_range_end();
    return status;
}

/* Collective; all ranks begin and end together, so that rank 0's time is that of all. */
static vt_status run_trial(bench *b, int test, const char *label, trial *t)
{
    vt_status status = VT_OK;
    const int64_t batches = b->settings.tests[test].batches, every = b->settings.report_every;
    char number[VT_NUMBER_SIZE];
    double samples = 0;
    t->iterations = vt_allocate((size_t)batches, sizeof *t->iterations, "benchy's rates");
    VT_TRY(vt_world_agree(b->world, vt_stop_requested() ? VT_STOPPED : VT_OK));
    vt_range_begin("BENCHY::BenchmarkIterator::%s", label);
    const double begin = vt_clock_seconds();
    double last = begin;
    for (int64_t i = 0; i < batches && status == VT_OK; i++) {
        status = run_iteration(b, test, label, i);
        if (status != VT_OK) break;
        const double now = vt_clock_seconds();
        t->iterations[i] = (double)b->batch->global_count / fmax(now - last, 1e-9);
        t->average += t->iterations[i] / (double)batches;
        samples += (double)b->batch->global_count;
        last = now;
        if ((i + 1) % every == 0)
            vt_log_info("BENCHY::%s::Iteration Throughput: %s", label, vt_text_double(t->iterations[i], number));
    }
    vt_range_end();
    VT_TRY(vt_world_agree(b->world, status));
    t->seconds = vt_clock_seconds() - begin;
    t->rate = samples / t->seconds;
    vt_log_info("BENCHY::%s::Average Iteration Throughput: %s", label, vt_text_double(t->average, number));
    vt_log_info("BENCHY::%s::Trial Throughput: %s", label, vt_text_double(t->rate, number));
done:
    return status;
}

/* The steps on one batch need one; their first isn't timed. */
static vt_status prepare_synthetic(bench *b)
{
    vt_status status = VT_OK;
    if (b->batch == NULL) VT_TRY(next_batch(b));
    VT_TRY(vt_step_start(b->trainer, b->batch));
    VT_TRY(take_steps(b, 0));
done:
    return status;
}

static vt_status run_test(bench *b, int test)
{
    vt_status status = VT_OK;
    const vt_benchy_test *plan = &b->settings.tests[test];
    result *r = &b->results[test];
    if (!plan->runs) return VT_OK;
    r->trials = vt_allocate((size_t)(plan->warmups + plan->trials), sizeof *r->trials, "benchy's rates");
    const trial *counted = r->trials + plan->warmups;
    if (test == VT_BENCHY_SYNTHETIC) VT_TRY(vt_world_agree(b->world, prepare_synthetic(b)));
    for (int64_t i = 0; i < plan->warmups + plan->trials && status == VT_OK; i++) {
        const bool warms = i < plan->warmups;
        char *label = vt_text_format(warms ? "%s_WARMUP_%lld" : "%s_%lld", names[test],
                                     (long long)(warms ? i : i - plan->warmups));
        status = run_trial(b, test, label, &r->trials[i]);
        free(label);
    }
    for (int64_t i = 0; i < plan->trials; i++) r->average += counted[i].rate / (double)plan->trials;
    for (int64_t i = 0; i < plan->trials; i++)
        r->deviation += pow(counted[i].rate - r->average, 2) / (double)plan->trials;
    r->deviation = sqrt(r->deviation);
done:
    return status;
}

/* ---- the JSON file ---- */

/* `count` numbers that are `stride` bytes apart. */
static json_t *numbers(const double *first, size_t stride, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(list,
                              json_real(*(const double *)(const void *)((const char *)first + (size_t)i * stride)));
    return list;
}

/* benchy's keys, and after them ours. */
static json_t *json_of(const vt_benchy_test *plan, const result *r)
{
    const trial *counted = r->trials + plan->warmups;
    const int64_t count = plan->trials;
    json_t *rates = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(rates, numbers(counted[i].iterations, sizeof(double), plan->batches));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o*, s:f, s:f}", "rates", rates, /* in this order */
                     "avg_iter_throughput", numbers(&counted->average, sizeof *counted, count), "trial_throughput",
                     numbers(&counted->rate, sizeof *counted, count), "trial_time",
                     numbers(&counted->seconds, sizeof *counted, count), "trials",
                     numbers(&counted->rate, sizeof *counted, count), "warmup",
                     plan->warmups > 0 ? json_real(r->trials[0].rate) : NULL, "average", r->average,
                     "standard_deviation", r->deviation);
}

/* BENCHY_OUTPUT, else what the configuration says, else in the run directory. */
static char *json_path(const vt_benchy_settings *settings, const char *run_directory)
{
    const char *chosen = getenv("BENCHY_OUTPUT");
    if (chosen != NULL && chosen[0] != '\0') {
        return vt_text_format("%s%s", chosen, vt_text_ends_with(chosen, ".json") ? "" : ".json");
    }
    if (settings->file == NULL && settings->directory == NULL)
        return vt_text_format("%s/benchy_output.json", run_directory);
    const char *directory = settings->directory != NULL ? settings->directory : ".";
    const size_t length = strlen(directory);
    return vt_text_format("%s%s%s", directory, length > 0 && directory[length - 1] == '/' ? "" : "/",
                          settings->file != NULL ? settings->file : "benchy_result.json");
}

/* Before anything is measured: what can't be written should not cost the tests. */
static vt_status open_json(bench *b, const char *run_directory)
{
    vt_status status = VT_OK;
    b->path = json_path(&b->settings, run_directory);
    b->file = fopen(b->path, "we");
    VT_CHECK(b->file != NULL, "BENCHY_OUTPUT: can't write %s: %s", b->path, strerror(errno));
done:
    return status;
}

/* One line, as benchy writes it and the tutorials' scripts read it. */
static vt_status write_json(bench *b)
{
    vt_status status = VT_OK;
    FILE *file = b->file;
    const int ranks = b->world->ranks;
    const vt_benchy_settings *settings = &b->settings;
    json_t *root = json_pack("{s:i, s:s, s:i, s:I, s:I}", "nranks", ranks, "unit", "samples/s over all ranks", "ranks",
                             ranks, "global_batch_size", (json_int_t)b->trainer->config->global_batch_size,
                             "batches_per_trial", (json_int_t)settings->tests[VT_BENCHY_FULL].batches);
    b->file = NULL;
    vt_log_info("BENCHY::INFO::Message: Writing JSON output to %s.", b->path);
    bool whole = root != NULL;
    for (int test = 0; test < VT_BENCHY_TESTS; test++)
        if (settings->tests[test].runs)
            whole = json_object_set_new(root, names[test], json_of(&settings->tests[test], &b->results[test])) == 0 &&
                    whole;
    errno = whole ? 0 : EDOM; /* a rate that is no number */
    const bool written = whole && json_dumpf(root, file, 0) == 0 && fputc('\n', file) != EOF;
    VT_CHECK(vt_file_close(file, written), "BENCHY_OUTPUT: can't write %s: %s", b->path, strerror(errno));
done:
    json_decref(root);
    return status;
}

/* ---- all of it ---- */

static void close_bench(bench *b)
{
    for (int test = 0; test < VT_BENCHY_TESTS; test++) {
        const vt_benchy_test *plan = &b->settings.tests[test];
        result *r = &b->results[test];
        for (int64_t i = 0; r->trials != NULL && i < plan->warmups + plan->trials; i++) free(r->trials[i].iterations);
        free(r->trials);
    }
    if (b->file != NULL) fclose(b->file);
    free(b->path);
    vt_benchy_settings_close(&b->settings);
}

vt_status vt_run_benchy(const vt_run *run, bool *trains_on)
{
    static const char *const modes[] = {"Profiling mode single. Starting profiler on rank 0 only.",
                                        "Profiling mode all. Starting profiler on all ranks.", NULL};
    vt_status status = VT_OK;
    bench b = {.trainer = run->loop.trainer, .world = run->world, .loader = run->loop.training_loader, .epoch = -1};
    const bool first = b.world->rank == 0;
    const char *path = getenv("BENCHY_CONFIG_FILE");
    if (path != NULL && path[0] == '\0') path = NULL;
    VT_TRY(vt_world_agree(b.world, vt_benchy_settings_open(path, &b.settings)));
    VT_TRY(vt_world_agree(b.world, first ? open_json(&b, run->directory) : VT_OK));
    vt_log_info("BENCHY::INFO::Message: Using %s%s.",
                path != NULL ? "benchy configuration file " : "default benchy configuration", path != NULL ? path : "");
    if (modes[b.settings.profile] != NULL) vt_log_info("BENCHY::INFO::Message: %s", modes[b.settings.profile]);
    const bool profiles =
        b.settings.profile == VT_BENCHY_PROFILE_ALL || (first && b.settings.profile == VT_BENCHY_PROFILE_SINGLE);
    if (profiles) vt_profile_start();
    for (int test = 0; test < VT_BENCHY_TESTS && status == VT_OK; test++) status = run_test(&b, test);
    if (profiles) vt_profile_stop();
    if (status != VT_OK) goto done;
    for (int test = 0; test < VT_BENCHY_TESTS; test++)
        if (b.settings.tests[test].runs)
            vt_log_info("BENCHY::SUMMARY::%s%s average trial throughput: %.3f +/- %.3f",
                        test == VT_BENCHY_SYNTHETIC ? " " : "" /* the original's */, names[test],
                        b.results[test].average, b.results[test].deviation);
    VT_TRY(vt_world_agree(b.world, first ? write_json(&b) : VT_OK));
    *trains_on = b.settings.trains_on;
    vt_log_info("BENCHY::INFO::Message: Tests completed....%s", *trains_on ? "" : " exiting.");
done:
    close_bench(&b);
    return status;
}
