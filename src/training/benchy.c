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
#include "config/option.h"
#include "training/run_inside.h"
#include "training/stop.h"

enum { IO, SYNTHETIC, FULL, TESTS };
enum { PROFILE_SINGLE, PROFILE_ALL, PROFILE_NONE };

static const char *const names[TESTS] = {"IO", "SYNTHETIC", "FULL"};

typedef struct {
    vt_trainer *trainer;
    vt_world *world;
    vt_loader *loader;
    /* the settings */
    int64_t report_every; /* batches between lines of the log */
    bool exits;           /* behind the tests; else the run goes on, and trains */
    bool barrier;         /* no effect: ranks always begin together */
    int profile;
    char *directory, *filename; /* of the JSON; NULL: not said */
    struct {
        bool runs;
        int64_t batches, trials, warmups; /* batches of a trial; trials that count, and before them that don't */
    } tests[TESTS];
    vt_origin origin; /* of the one that was read last */
    /* the tests */
    json_t *results[TESTS]; /* benchy's keys, and after them ours; rates are samples per second, summed over all ranks.
                               NULL: the test was not run */
    int64_t epoch;
    const vt_batch *batch;
    char *path; /* of the JSON; rank 0's */
    FILE *file;
} bench;

/* ---- the settings: benchy's defaults, and what the YAML file that BENCHY_CONFIG_FILE names says instead ---- */

/* clang-format off */
#define SETTING(text, type, value, member, ...) {.name = text, .kind = type, .preset = value, \
    .offset = offsetof(bench, member), .origin = offsetof(bench, origin), .is_any = true, __VA_ARGS__}
#define COUNT(text, value, member, from) SETTING(text, VT_ROW_INTEGER, value, member, .least = from, .most = 0x1p63)
#define TEST(section, test) SETTING(section ".run_benchmark", VT_ROW_BOOLEAN, "true", tests[test].runs, ), \
    COUNT(section ".nbatches", "50", tests[test].batches, 1), COUNT(section ".ntrials", "3", tests[test].trials, 1), \
    COUNT(section ".nwarmup", "1", tests[test].warmups, 0)
/* clang-format on */
static const vt_row table[] = {
    {.kind = VT_ROW_END},
    COUNT("global.report_freq", "10", report_every, 1),
    SETTING("global.exit_after_tests", VT_ROW_BOOLEAN, "true", exits, ),
    SETTING("global.profiler_mode", VT_ROW_CHOICE, "single", profile, .choices = "single|all|none"),
    SETTING("global.output_filename", VT_ROW_PATH, "None", filename, ),
    SETTING("global.output_dir", VT_ROW_PATH, "None", directory, ),
    SETTING("global.use_distributed_barrier", VT_ROW_BOOLEAN, "false", barrier, ),
    TEST("IO", IO),
    TEST("synthetic", SYNTHETIC),
    TEST("full", FULL),
    {.kind = VT_ROW_END}};
static const vt_row *const rows = &table[1];

/* Nothing is said: the defaults hold. */
static bool is_null(const vt_yaml_node *node)
{
    return node->kind == VT_YAML_SCALAR && strcmp(node->text, "null") == 0;
}

static vt_status read_section(const vt_yaml_entry *section, bench *b)
{
    vt_status status = VT_OK;
    char found[96], *name = NULL;
    const vt_yaml_node *settings = section->value;
    VT_CHECK(vt_text_choice(section->key->text, "global|IO|synthetic|full") >= 0,
             "%s:%zu:%zu: %s is no section of benchy; expected global, IO, synthetic or full",
             VT_YAML_PLACE(section->key), section->key->text);
    if (is_null(settings)) return VT_OK;
    VT_CHECK(settings->kind == VT_YAML_MAPPING, "%s:%zu:%zu: %s is %s; expected an object with its settings",
             VT_YAML_PLACE(settings), section->key->text, vt_yaml_describe(settings, found));
    VT_TRY(vt_yaml_entries(settings));
    for (size_t i = 0; i < settings->entry_count; i++) {
        const vt_yaml_entry *setting = &settings->entries[i];
        free(name);
        name = vt_text_format("%s.%s", section->key->text, setting->key->text);
        const vt_row *row = vt_row_find(rows, name);
        VT_CHECK(row != NULL,
                 "%s:%zu:%zu: %s is no key of benchy; expected of global report_freq, exit_after_tests, "
                 "profiler_mode, output_filename, output_dir, use_distributed_barrier; of IO, synthetic and full "
                 "run_benchmark, nbatches, ntrials, nwarmup",
                 VT_YAML_PLACE(setting->key), name);
        if (!is_null(setting->value)) VT_TRY(vt_row_read(row, setting->value, b));
    }
done:
    free(name);
    return status;
}

/* path NULL: the defaults alone. */
static vt_status read_settings(const char *path, bench *b)
{
    vt_status status = VT_OK;
    vt_yaml *yaml = NULL;
    vt_rows_start(rows, b);
    if (path == NULL) return VT_OK;
    VT_TRY(vt_yaml_open(path, NULL, "benchy's sections global, IO, synthetic and full", &yaml));
    const vt_yaml_node *top = vt_yaml_top(yaml);
    for (size_t i = 0; i < top->entry_count; i++) VT_TRY(read_section(&top->entries[i], b));
done:
    vt_yaml_close(&yaml);
    return status;
}

/* ---- the tests ---- */

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
    vt_range_begin("BENCHY::BenchmarkIterator::%s::STEP_%ld", label, index);
    vt_range_begin("BENCHY::BenchmarkIterator::%s::DATA_%ld", label, index);
    if (test != SYNTHETIC) status = next_batch(b);
    vt_range_end();
    if (status == VT_OK && test != IO) status = vt_step_start(b->trainer, b->batch);
    if (status == VT_OK) status = take_steps(b, index + 1 < b->tests[test].batches ? vt_step_latency(b->trainer) : 0);
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
    const int64_t batches = b->tests[test].batches, every = b->report_every;
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
    double average = 0, squares = 0;
    const int64_t trial_count = b->tests[test].trials, warmups = b->tests[test].warmups;
    if (!b->tests[test].runs) return VT_OK;
    json_t *result = b->results[test] = json_pack("{s:[], s:[], s:[], s:[], s:[]}", "rates", "avg_iter_throughput",
                                                  "trial_throughput", "trial_time", "trials"); /* in this order */
    const json_t *trials = json_object_get(result, "trials");
    if (test == SYNTHETIC) VT_TRY(vt_world_agree(b->world, prepare_synthetic(b)));
    for (int64_t i = 0; i < warmups + trial_count && status == VT_OK; i++) {
        const bool warms = i < warmups;
        char *label = vt_text_format(warms ? "%s_WARMUP_%ld" : "%s_%ld", names[test], warms ? i : i - warmups);
        status = run_trial(b, test, label, warms, result);
        free(label);
    }
    if (status != VT_OK) goto done;
    for (size_t i = 0; i < json_array_size(trials); i++)
        average += json_real_value(json_array_get(trials, i)) / (double)trial_count;
    for (size_t i = 0; i < json_array_size(trials); i++)
        squares += pow(json_real_value(json_array_get(trials, i)) - average, 2) / (double)trial_count;
    json_object_set_new(result, "average", json_real(average));
    json_object_set_new(result, "standard_deviation", json_real(sqrt(squares))); /* of the population */
done:
    return status;
}

/* ---- the JSON file ---- */

/* BENCHY_OUTPUT, else what the configuration says, else in the run directory. */
static char *json_path(const bench *b, const char *run_directory)
{
    const char *chosen = getenv("BENCHY_OUTPUT");
    if (chosen != NULL && chosen[0] != '\0') {
        return vt_text_format("%s%s", chosen, vt_text_ends_with(chosen, ".json") ? "" : ".json");
    }
    if (b->filename == NULL && b->directory == NULL) return vt_text_format("%s/benchy_output.json", run_directory);
    const char *directory = b->directory != NULL ? b->directory : ".";
    const size_t length = strlen(directory);
    return vt_text_format("%s%s%s", directory, length > 0 && directory[length - 1] == '/' ? "" : "/",
                          b->filename != NULL ? b->filename : "benchy_result.json");
}

/* Before anything is measured: what can't be written should not cost the tests. */
static vt_status open_json(bench *b, const char *run_directory)
{
    vt_status status = VT_OK;
    b->path = json_path(b, run_directory);
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
    json_t *root = json_pack("{s:i, s:s, s:i, s:I, s:I}", "nranks", ranks, "unit", "samples/s over all ranks", "ranks",
                             ranks, "global_batch_size", (json_int_t)b->trainer->config->global_batch_size,
                             "batches_per_trial", (json_int_t)b->tests[FULL].batches);
    b->file = NULL;
    vt_log_info("BENCHY::INFO::Message: Writing JSON output to %s.", b->path);
    for (int test = 0; test < TESTS; test++)
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
    for (int test = 0; test < TESTS; test++) json_decref(b->results[test]);
    if (b->file != NULL) fclose(b->file);
    free(b->path);
    vt_rows_free(rows, b);
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
    VT_TRY(vt_world_agree(b.world, read_settings(path, &b)));
    VT_TRY(vt_world_agree(b.world, first ? open_json(&b, run->directory) : VT_OK));
    vt_log_info("BENCHY::INFO::Message: Using %s%s.",
                path != NULL ? "benchy configuration file " : "default benchy configuration", path != NULL ? path : "");
    if (modes[b.profile] != NULL) vt_log_info("BENCHY::INFO::Message: %s", modes[b.profile]);
    const bool profiles = b.profile == PROFILE_ALL || (first && b.profile == PROFILE_SINGLE);
    if (profiles) vt_profile_start();
    vt_loader_begin(b.loader, 0, 0);
    for (int test = 0; test < TESTS && status == VT_OK; test++) status = run_test(&b, test);
    if (profiles) vt_profile_stop();
    if (status != VT_OK) goto done;
    for (int test = 0; test < TESTS; test++)
        if (b.results[test] != NULL)
            vt_log_info("BENCHY::SUMMARY::%s%s average trial throughput: %.3f +/- %.3f",
                        test == SYNTHETIC ? " " : "" /* the original's */, names[test],
                        json_real_value(json_object_get(b.results[test], "average")),
                        json_real_value(json_object_get(b.results[test], "standard_deviation")));
    VT_TRY(vt_world_agree(b.world, first ? write_json(&b) : VT_OK));
    *trains_on = !b.exits;
    vt_log_info("BENCHY::INFO::Message: Tests completed....%s", *trains_on ? "" : " exiting.");
done:
    close_bench(&b);
    return status;
}
