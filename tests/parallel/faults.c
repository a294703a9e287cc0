/* Failing ranks, for tests/commands/parallel.sh: what one rank does, and what the others see. */
#include <signal.h>
#include <unistd.h>

#include "parallel/world.h"
#include "test.h"

enum { CULPRIT = 2, TIMEOUT = 3, PATIENCE = 300 };

/* All ranks meet in the group, however long a busy machine takes for that. From then on TIMEOUT is a long wait. */
static void meet(vt_engine *engine, vt_group **group)
{
    int all[64];
    double value = 1;
    for (int i = 0; i < engine->size; i++) all[i] = i;
    EXPECT_OK(vt_group_open(engine, "dp", all, engine->size, engine->rank, 0, NULL, group));
    printf("pid %d\n", (int)getpid());
    vt_group_all_reduce(*group, VT_SUM_FLOAT64, &value, 1, NULL);
    engine->timeout = TIMEOUT;
}

static int dies(vt_engine *engine, int signal_number)
{
    SCOPED(vt_group) *group = NULL;
    double value = 1;
    meet(engine, &group);
    if (engine->rank == CULPRIT) raise(signal_number);
    vt_group_all_reduce(group, VT_SUM_FLOAT64, &value, 1, NULL);
    printf("got past\n");
    return 0;
}

/* Ranks 0 1 | 2 3: rank 2 is stopped, and shares no waiting group with ranks 0 and 1. Rank 3 waits for 2, and rank 1
 * for rank 3. */
static int chain(vt_engine *engine)
{
    int pairs[3][2] = {{2, 3}, {1, 3}, {0, 1}};
    vt_group *groups[3] = {NULL}, *group = NULL;
    float value = 1;
    for (int i = 0; i < 3; i++) {
        bool in = pairs[i][0] == engine->rank || pairs[i][1] == engine->rank;
        int alone[1] = {engine->rank};
        EXPECT_OK(
            in ? vt_group_open(engine, "pair", pairs[i], 2, pairs[i][1] == engine->rank, pairs[i][0], NULL, &groups[i])
               : vt_group_open(engine, "alone", alone, 1, 0, engine->rank + 8, NULL, &groups[i]));
    }
    meet(engine, &group);
    if (engine->rank == CULPRIT) raise(SIGSTOP);
    for (int i = 0; i < 3; i++) vt_group_all_reduce(groups[i], VT_SUM_FLOAT32, &value, 1, NULL);
    return 0;
}

/* One rank gives up without telling the others, which wait for it to agree. */
static int gives_up(const vt_launch *launch)
{
    vt_config *config = NULL;
    vt_world *world = NULL;
    EXPECT_OK(vt_config_open_default(&config));
    EXPECT_OK(vt_world_open(config, launch, &world));
    vt_config_close(&config);
    bool failed = world->rank == CULPRIT;
    if (failed) vt_error_note(__FILE__, __LINE__, "the disk of %s is full", "nobody");
    if (!failed) vt_world_agree(world, VT_OK);
    vt_world_close(&world, failed);
    printf("got past\n");
    return 0;
}

static void handler(int signal_number)
{
    (void)signal_number;
}

/* MPI_Init has kept the program's handlers, and the default ones. */
static int count_changed_signals(void)
{
    static const int ours[] = {SIGTERM, SIGINT, SIGUSR1};
    struct sigaction action;
    int changed = 0;
    for (int i = 0; i < 3; i++) changed += sigaction(ours[i], NULL, &action) != 0 || action.sa_handler != handler;
    changed += sigaction(SIGXFSZ, NULL, &action) != 0 || action.sa_handler != SIG_IGN;
    changed += sigaction(SIGUSR2, NULL, &action) != 0 || action.sa_handler != SIG_DFL;
    return changed;
}

int vt_test_fault(const char *name)
{
    vt_launch launch = {0};
    SCOPED(vt_engine) *engine = NULL;
    signal(SIGTERM, handler);
    signal(SIGINT, handler);
    signal(SIGUSR1, handler);
    signal(SIGXFSZ, SIG_IGN);
    const double patience = strcmp(name, "missed") == 0 ? TIMEOUT : PATIENCE;
    if (vt_launch_detect(&launch) != VT_OK || vt_engine_open_mpi(&launch, patience, &engine) != VT_OK) {
        fprintf(stderr, "%s\n", vt_error_text());
        return 1;
    }
    int status = 2;
    if (strcmp(name, "stop") == 0) {
        status = dies(engine, SIGSTOP);
    } else if (strcmp(name, "kill") == 0) {
        status = dies(engine, SIGKILL);
    } else if (strcmp(name, "error") == 0) {
        if (engine->rank == CULPRIT) vt_engine_abort(engine, "the disk of %s is full", "nobody");
        status = dies(engine, SIGSTOP);
    } else if (strcmp(name, "chain") == 0) {
        status = chain(engine);
    } else if (strcmp(name, "world") == 0) {
        status = gives_up(&launch);
    } else if (strcmp(name, "signals") == 0) {
        status = count_changed_signals();
    }
    return status;
}
