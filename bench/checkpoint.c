/* For how long a checkpoint stops training with async_checkpoint: a copy of values and moments, beside the time in
 * which the same bytes are copied in memory; and how long its writing takes then.
 *
 *     build/bench/checkpoint DIRECTORY [rounds]
 *
 * 24 matrices of 1024 × 1024 numbers with Adam's moments: 302 MB. Ends with status 1 when training stopped for more
 * than 0.1 s + 2 · bytes/(rate of copying memory). */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/median.h"
#include "checkpoint/store.h"
#include "storage/output_file.h"

enum { MATRICES = 24, SIDE = 1024, MOST_ROUNDS = 99 };

static void check(vt_status status)
{
    if (status == VT_OK) return;
    fprintf(stderr, "bench/checkpoint: %s\n", vt_error_text());
    exit(1);
}

static void open_model(const vt_config *config, vt_backend *backend, vt_parallel *parallel, vt_parameters **parameters)
{
    check(vt_parameters_open(backend, parallel, parameters));
    for (int i = 0; i < MATRICES; i++) {
        char name[32];
        const int64_t shape[2] = {SIDE, SIDE};
        snprintf(name, sizeof name, "blocks.%d.weight", i);
        (void)vt_parameters_add(*parameters, "", name, 2, shape, VT_START_NORMAL, 0.02);
    }
    const vt_optimizer_kind *kind = vt_optimizer_kinds[config->optimizer];
    const vt_parameters_storage storage = {25e6, 0, 1, 0, kind->grain != NULL ? kind->grain(config) : 1};
    check(vt_parameters_allocate(*parameters, VT_FLOAT32, &storage));
    vt_parameters_start(*parameters, 1, "");
}

int main(int argc, char **argv)
{
    static double copies[MOST_ROUNDS], blocked[MOST_ROUNDS], writing[MOST_ROUNDS];
    static char flag[] = "--async_checkpoint=true";
    char *const flags[] = {flag, NULL};
    const int rounds = argc > 2 && atoi(argv[2]) > 0 && atoi(argv[2]) <= MOST_ROUNDS ? atoi(argv[2]) : 5;
    const vt_launch launch = {.world_size = 1, .local_size = 1};
    vt_config *config = NULL;
    vt_world *world = NULL;
    vt_backend *backend = NULL;
    vt_parallel *parallel = NULL;
    vt_parameters *parameters = NULL;
    vt_optimizer *optimizer = NULL;
    vt_checkpoint_store *store = NULL;
    vt_checkpoint_saver *saver = NULL;
    void *from = NULL, *to = NULL;
    if (argc < 2) {
        fputs("build/bench/checkpoint DIRECTORY [rounds]\n", stderr);
        return 2;
    }
    check(vt_config_open_text("bench: {}", "bench", 1, flags, 1, &config));
    check(vt_world_open(config, &launch, &world));
    check(vt_backend_open_cpu(VT_ISA_AUTO, 0, &backend));
    check(vt_parallel_open(config, world, backend, 1, &parallel));
    open_model(config, backend, parallel, &parameters);
    check(vt_optimizer_open(config, backend, parameters, &optimizer));
    const vt_checkpoint_subject subject = {
        .config = config, .world = world, .backend = backend, .parameters = parameters, .optimizer = optimizer};
    check(vt_output_make_directory(argv[1]));
    check(vt_checkpoint_store_open(argv[1], 1, &store));
    check(vt_checkpoint_saver_open(&subject, store, &saver));
    const size_t bytes = vt_checkpoint_copy_bytes(&subject);
    check(backend->allocate(backend, VT_MEMORY_WORKSPACE, bytes, &from));
    check(backend->allocate(backend, VT_MEMORY_WORKSPACE, bytes, &to));
    for (int round = -1; round < rounds; round++) { /* the first one only warms up */
        const int at = round < 0 ? 0 : round;
        vt_run_progress progress = {.step = round + 2, .validation_loss = 1, .best_loss = 0};
        const double begin = vt_clock_seconds();
        backend->copy(backend, to, from, bytes);
        const double copied = vt_clock_seconds();
        check(vt_checkpoint_saver_save(saver, &progress, copied));
        const double goes_on = vt_clock_seconds();
        check(vt_checkpoint_saver_wait(saver));
        copies[at] = copied - begin;
        blocked[at] = goes_on - copied;
        writing[at] = vt_clock_seconds() - goes_on;
    }
    const double copy = vt_median(copies, rounds), stop = vt_median(blocked, rounds);
    const double most = 0.1 + 2 * copy;
    printf("%s: %.0f MB, %d rounds\ncopy in memory %.4f s; training stops for %.4f s (%.2f of it, at most %.4f s); "
           "writing "
           "then takes %.2f s\n",
           backend->name, (double)bytes / 1e6, rounds, copy, stop, stop / copy, most, vt_median(writing, rounds));
    vt_checkpoint_saver_close(&saver);
    vt_checkpoint_store_close(&store);
    backend->release(backend, from);
    backend->release(backend, to);
    vt_optimizer_close(&optimizer);
    vt_parameters_close(&parameters);
    vt_parallel_close(&parallel);
    vt_backend_close(&backend);
    vt_world_close(&world, false);
    vt_config_close(&config);
    return stop > most;
}
