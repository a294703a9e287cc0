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
#include "base/profile.h"
#include "base/text.h"
#include "config/benchy.h"
#include "training/run_inside.h"
#include "training/stop.h"

static const char *const names[VT_BENCHY_TESTS] = {"IO", "SYNTHETIC", "FULL"};

typedef struct {
    vt_trainer *trainer;
    vt_world *world;
    vt_loader *loader;
    vt_benchy_settings settings;
    json_t *results[VT_BENCHY_TESTS]; /* benchy's keys, and after them ours; rates are samples per second, summed over
                                         all ranks. NULL: the test was not run */
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

/* Adds a number to one of a result's lists. */
static void note(json_t *result, const char *list, double number)
{
    json_array_append_new(json_object_get(result, list), json_real(number));
}

/* Collective; all ranks begin and end together, so that rank 0's time is that of all. `result` gets what was measured;
 * of a trial that warms up only the rate, if it is the first. */
static vt_status run_trial(bench *b, int test, const char *label, bool warms, json_t *result)
{
    vt_status status = VT_OK;
    const int64_t batches = b->settings.tests[test].batches, every = b->settings.report_every;
    char number[VT_NUMBER_SIZE];
    double samples = 0, average = 0;
    json_t *rates = json_array();
    VT_TRY(vt_world_agree(b->world, vt_stop_requested() ? VT_STOPPED : VT_OK));
    vt_range_begin("BENCHY::BenchmarkIterator::%s", label);
    const double begin = vt_clock_seconds();
    double last = begin;
    for (int64_t i = 0; i < batches && status == VT_OK; i++) {
        status = run_iteration(b, test, label, i);
        if (status != VT_OK) break;
        const double now = vt_clock_seconds(), rate = (double)b->batch->global_count / fmax(now - last, 1e-9);
        json_array_append_new(rates, json_real(rate));
        average += rate / (double)batches;
        samples += (double)b->batch->global_count;
        last = now;
        if ((i + 1) % every == 0)
            vt_log_info("BENCHY::%s::Iteration Throughput: %s", label, vt_text_double(rate, number));
    }
    vt_range_end();
    VT_TRY(vt_world_agree(b->world, status));
    const double seconds = fmax(vt_clock_seconds() - begin, 1e-9), rate = samples / seconds;
    vt_log_info("BENCHY::%s::Average Iteration Throughput: %s", label, vt_text_double(average, number));
    vt_log_info("BENCHY::%s::Trial Throughput: %s", label, vt_text_double(rate, number));
    if (warms && json_object_get(result, "warmup") == NULL) json_object_set_new(result, "warmup", json_real(rate));
    if (warms) goto done;
    json_array_append(json_object_get(result, "rates"), rates);
    note(result, "avg_iter_throughput", average);
    note(result, "trial_throughput", rate);
    note(result, "trial_time", seconds);
    note(result, "trials", rate);
done:
    json_decref(rates);
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
    double average = 0, squares = 0;
    if (!plan->runs) return VT_OK;
    json_t *result = b->results[test] = json_pack("{s:[], s:[], s:[], s:[], s:[]}", "rates", "avg_iter_throughput",
                                                  "trial_throughput", "trial_time", "trials"); /* in this order */
    const json_t *trials = json_object_get(result, "trials");
    if (test == VT_BENCHY_SYNTHETIC) VT_TRY(vt_world_agree(b->world, prepare_synthetic(b)));
    for (int64_t i = 0; i < plan->warmups + plan->trials && status == VT_OK; i++) {
        const bool warms = i < plan->warmups;
        char *label = vt_text_format(warms ? "%s_WARMUP_%lld" : "%s_%lld", names[test],
                                     (long long)(warms ? i : i - plan->warmups));
        status = run_trial(b, test, label, warms, result);
        free(label);
    }
    if (status != VT_OK) goto done;
    for (size_t i = 0; i < json_array_size(trials); i++)
        average += json_real_value(json_array_get(trials, i)) / (double)plan->trials;
    for (size_t i = 0; i < json_array_size(trials); i++)
        squares += pow(json_real_value(json_array_get(trials, i)) - average, 2) / (double)plan->trials;
    json_object_set_new(result, "average", json_real(average));
    json_object_set_new(result, "standard_deviation", json_real(sqrt(squares))); /* of the population */
done:
    return status;
}

/* ---- the JSON file ---- */

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
    for (int test = 0; test < VT_BENCHY_TESTS; test++)
        if (b->results[test] != NULL) json_object_set(root, names[test], b->results[test]);
    const bool written = json_dumpf(root, file, 0) == 0 && fputc('\n', file) != EOF;
    VT_CHECK(vt_file_close(file, written), "BENCHY_OUTPUT: can't write %s: %s", b->path, strerror(errno));
done:
    json_decref(root);
    return status;
}

/* ---- all of it ---- */

static void close_bench(bench *b)
{
    for (int test = 0; test < VT_BENCHY_TESTS; test++) json_decref(b->results[test]);
    if (b->file != NULL) fclose(b->file);
    free(b->path);
    vt_benchy_settings_close(&b->settings);
}

vt_status vt_run_benchy(const vt_run *run, bool *trains_on)
{
    static const char *const modes[] = {"Profiling mode single. Starting profiler on rank 0 only.",
                                        "Profiling mode all. Starting profiler on all ranks.", NULL};
    vt_status status = VT_OK;
    bench b = {.trainer = run->loop.trainer, .world = run->world, .loader = run->loop.training_loader};
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
    vt_loader_begin(b.loader, 0, 0);
    for (int test = 0; test < VT_BENCHY_TESTS && status == VT_OK; test++) status = run_test(&b, test);
    if (profiles) vt_profile_stop();
    if (status != VT_OK) goto done;
    for (int test = 0; test < VT_BENCHY_TESTS; test++)
        if (b.results[test] != NULL)
            vt_log_info("BENCHY::SUMMARY::%s%s average trial throughput: %.3f +/- %.3f",
                        test == VT_BENCHY_SYNTHETIC ? " " : "" /* the original's */, names[test],
                        json_real_value(json_object_get(b.results[test], "average")),
                        json_real_value(json_object_get(b.results[test], "standard_deviation")));
    VT_TRY(vt_world_agree(b.world, first ? write_json(&b) : VT_OK));
    *trains_on = b.settings.trains_on;
    vt_log_info("BENCHY::INFO::Message: Tests completed....%s", *trains_on ? "" : " exiting.");
done:
    close_bench(&b);
    return status;
}
