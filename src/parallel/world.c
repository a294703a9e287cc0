#include "parallel/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/threads.h"

/* What each rank tells all others about itself. */
typedef struct {
    char host[VT_HOST_SIZE];
    unsigned char cores[VT_CORES_BYTES]; /* a bit for each core that it may use; all 0: unknown */
} introduction;

static vt_world *make_world(int rank, int ranks)
{
    vt_world *world = vt_allocate(1, sizeof *world, "the table of ranks");
    world->rank = rank;
    world->ranks = ranks;
    world->cores = 1;
    world->nodes = 1;
    world->node_of = vt_allocate((size_t)ranks, sizeof *world->node_of, "the table of ranks");
    world->layout = (vt_layout){ranks, /* along one axis, until set_layout */
                                {1, 1, 1, ranks},
                                {VT_AXIS_TENSOR, VT_AXIS_CONTEXT, VT_AXIS_PIPELINE, VT_AXIS_DATA}};
    return world;
}

/* ---- who is where ---- */

static int count_cores(const introduction *one)
{
    int count = 0;
    for (int i = 0; i < VT_CORES_BYTES; i++) count += __builtin_popcount(one->cores[i]);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? count : online > 0 ? (int)online : 1;
}

static bool shares_cores(const introduction *a, const introduction *b)
{
    bool a_known = false, b_known = false;
    for (int i = 0; i < VT_CORES_BYTES; i++) {
        if ((a->cores[i] & b->cores[i]) != 0) return true;
        a_known = a_known || a->cores[i] != 0;
        b_known = b_known || b->cores[i] != 0;
    }
    return !a_known || !b_known;
}

static void set_places(vt_world *world, const introduction *all)
{
    const introduction *own = &all[world->rank];
    int sharing = 0, here = 0, before = 0, known = 0;
    for (int rank = 0; rank < world->ranks; rank++) {
        int first = 0;
        while (strcmp(all[first].host, all[rank].host) != 0) first++;
        world->node_of[rank] = first == rank ? known++ : world->node_of[first];
        if (strcmp(all[rank].host, own->host) != 0) continue;
        here++;
        before += rank < world->rank;
        sharing += shares_cores(&all[rank], own);
    }
    world->nodes = known;
    int cores = count_cores(own);
    world->cores = cores > sharing && sharing > 0 ? cores / sharing : 1;
    if (world->launch.local_size < 0) { /* then the launcher may not have said local_rank either */
        world->launch.local_size = here;
        world->launch.local_rank = before;
    }
}

/* For tests: VITRAIN_RANKS_PER_NODE pretends that there are several nodes, with so many ranks each. */
static vt_status set_test_nodes(vt_world *world)
{
    vt_status status = VT_OK;
    const char *text = getenv("VITRAIN_RANKS_PER_NODE");
    if (text == NULL || text[0] == '\0') goto done;
    int64_t per_node = 0;
    VT_CHECK(vt_text_to_integer(text, &per_node) && per_node > 0 && per_node <= INT32_MAX,
             "VITRAIN_RANKS_PER_NODE is '%s', expected how many ranks are to count as one node", text);
    for (int rank = 0; rank < world->ranks; rank++) world->node_of[rank] = rank / (int)per_node;
    world->nodes = world->node_of[world->ranks - 1] + 1;
done:
    return status;
}

static void meet_others(vt_world *world)
{
    introduction *all = vt_allocate((size_t)world->ranks, sizeof *all, "the table of ranks");
    introduction *own = &all[world->rank];
    vt_host_name(own->host);
    vt_threads_cores(own->cores);
    vt_group_all_gather_equal(world->everyone, own, sizeof *own, all);
    set_places(world, all);
    free(all);
}

/* ---- opening and closing ---- */

static const double TIMEOUT_WITHOUT_OPTIONS = 60;

static vt_status open_engine(const vt_config *config, vt_world *world)
{
    vt_status status = VT_OK;
    const vt_launch *launch = &world->launch;
    double timeout = config != NULL ? config->comm_timeout : TIMEOUT_WITHOUT_OPTIONS;
    bool several =
        launch->world_size > 1 || (config != NULL && config->comm == VT_COMM_MPI && vt_launch_has_mpi(launch));
    if (!several) {
        world->engine = vt_engine_open_alone(0, 1, false);
        goto done;
    }
    if (!vt_launch_has_mpi(launch) && config != NULL && config->device != VT_DEVICE_CPU &&
        config->comm != VT_COMM_MPI) {
        if (vt_backend_choose_gpu(launch->local_rank) == VT_OK) {
            VT_TRY(
                vt_engine_open_nccl(launch, NULL, timeout, &world->engine)); /* for everything: there is nothing else */
            goto done;
        }
        vt_error_clear();
    }
    VT_CHECK(
        vt_launch_has_mpi(launch),
        "%s started %d ranks, which on the CPU talk over MPI, and MPI can't be reached from there: start them with "
        "`mpirun -np %d vitrain ...` or srun",
        vt_launch_name(launch->launcher), launch->world_size, launch->world_size);
    VT_TRY(vt_engine_open_mpi(launch, timeout, &world->engine));
done:
    return status;
}

/* Collective. Ranks with other options than rank 0's would wait for messages that never come, or each train a model of
 * its own. config NULL: this rank could not read its options, and has noted why. */
static vt_status check_same_options(const vt_config *config, vt_world *world)
{
    vt_text own = {0};
    vt_names lines = config != NULL ? vt_config_lines(config) : (vt_names){0};
    for (int64_t i = 0; i < lines.count; i++) vt_text_append(&own, "%s\n", lines.names[i]);
    const vt_status same =
        vt_world_same(world, own.characters, "all ranks need the same options, and the same program");
    vt_text_close(&own);
    vt_names_close(&lines);
    return vt_world_agree(world, config != NULL ? same : VT_ERROR);
}

/* Either all ranks fail in the same way or none does. */
static vt_status set_layout(const vt_config *config, vt_world *world)
{
    vt_status status = VT_OK;
    VT_TRY(vt_layout_make(config, world->ranks, &world->layout));
    for (int axis = 0; axis < VT_AXIS_COUNT; axis++)
        world->coordinate[axis] = vt_layout_coordinate(&world->layout, world->rank, (vt_axis)axis);
    VT_TRY(set_test_nodes(world));
done:
    if (status != VT_OK) world->agreed_failure = true;
    return status;
}

/* Called on any thread when even a small allocation fails: the other ranks don't know, and would wait for this one. */
static void end_job(void *engine, const char *message)
{
    vt_log_failure("%s", message);
    vt_engine_abort(engine, "%s", message);
}

vt_status vt_world_open(const vt_config *config, const vt_launch *launch, vt_world **result)
{
    vt_status status = VT_OK;
    vt_world *world = make_world(launch->rank, launch->world_size);
    world->launch = *launch;
    if (launch->used != NULL) *launch->used = true;
    VT_TRY(open_engine(config, world));
    world->device_engine = world->engine;
    vt_memory_last_words(end_job, world->engine);
    VT_TRY(vt_world_group(world, VT_AXES_ALL, VT_SCOPE_ALL, NULL, NULL, &world->everyone));
    meet_others(world);
    VT_TRY(check_same_options(config, world));
    VT_TRY(set_layout(config, world));
done:
    *result = world;
    return status;
}

void vt_world_fail_early(const vt_launch *launch)
{
    enum { SECONDS = 2 };
    vt_world *world = NULL;
    if (launch->world_size > 1 && vt_launch_has_mpi(launch) && vt_engine_has_mpi()) {
        vt_world_open(NULL, launch, &world);
        vt_world_close(&world, true);
    } else if (launch->rank > 0) {
        sleep(SECONDS); /* the first rank reports it and its exit ends the others, unless the mistake is theirs alone */
    }
}

int vt_world_threads(const vt_config *config, const vt_world *world)
{
    if (config->num_threads != VT_UNSET_INTEGER) return (int)config->num_threads;
    return world->ranks > 1 ? world->cores : 0;
}

vt_status vt_world_open_backend(const vt_config *config, const vt_world *world, vt_backend **backend)
{
    vt_status status = VT_OK;
    enum { MOST_ON_A_CORE = 4 }; /* more threads only wait for each other, for minutes */
    const int cores = vt_threads_core_count(), threads = vt_world_threads(config, world);
    VT_CHECK(cores == 0 || threads <= MOST_ON_A_CORE * cores,
             "num_threads=%d: this process has %d core%s, so 1 to %d are expected; leave it out for one thread a core",
             threads, cores, cores == 1 ? "" : "s", MOST_ON_A_CORE * cores);
    VT_TRY(vt_backend_open(config, threads, world->launch.local_rank, backend));
done:
    return status;
}

int vt_world_ranks_of_memory(const vt_world *world, const vt_backend *backend)
{
    int count = 0;
    if (backend != NULL && !backend->shares_host_memory) return 1;
    for (int rank = 0; rank < world->ranks; rank++) count += world->node_of[rank] == world->node_of[world->rank];
    return count;
}

vt_status vt_world_open_device(const vt_config *config, vt_world *world, const vt_backend *backend)
{
    vt_status status = VT_OK;
    VT_CHECK(config->comm != VT_COMM_NCCL || !backend->shares_host_memory,
             "comm is nccl, but NCCL connects GPUs and this run computes on the CPU, whose ranks talk over MPI: use "
             "comm auto or mpi");
    bool through_host = config->comm == VT_COMM_MPI || (config->comm == VT_COMM_AUTO && !vt_engine_has_nccl());
    if (world->ranks == 1 || backend->shares_host_memory || world->engine->device_memory || through_host) return VT_OK;
    VT_TRY(vt_engine_open_nccl(&world->launch, world->everyone, config->comm_timeout, &world->device_engine));
done:
    return status;
}

vt_status vt_world_open_dry(const vt_config *config, int rank, int ranks, const int *node_of, vt_world **result)
{
    vt_status status = VT_OK;
    vt_world *world = make_world(rank, ranks);
    world->launch = (vt_launch){.rank = rank, .world_size = ranks, .local_rank = rank, .local_size = ranks};
    for (int i = 0; node_of != NULL && i < ranks; i++) {
        world->node_of[i] = node_of[i];
        if (node_of[i] >= world->nodes) world->nodes = node_of[i] + 1;
    }
    world->engine = world->device_engine = vt_engine_open_alone(rank, ranks, true);
    VT_TRY(vt_world_group(world, VT_AXES_ALL, VT_SCOPE_ALL, NULL, NULL, &world->everyone));
    VT_TRY(set_layout(config, world));
done:
    *result = world;
    return status;
}

/* Before any rank ends: a launcher kills the others as soon as one has ended with an error. */
static void say_failure(const vt_world *world)
{
    if (vt_world_speaks(world) && vt_error_text()[0] != '\0') {
        fprintf(stderr, "vitrain: %s\n", vt_error_text());
        if (getenv("VITRAIN_DEBUG") != NULL) fprintf(stderr, "vitrain: noted at %s\n", vt_error_place());
        fflush(stderr);
    }
    vt_error_clear();
}

void vt_world_close(vt_world **result, bool failed)
{
    vt_world *world = *result;
    if (world == NULL) return;
    if (failed && world->ranks > 1 && world->engine != NULL && !world->engine->counts_only) {
        if (!world->agreed_failure)
            vt_engine_abort(world->engine, "%s", vt_error_text()[0] != '\0' ? vt_error_text() : "stopped by an error");
        say_failure(world);
    }
    while (world->group_count > 0) vt_group_close(&world->groups[--world->group_count]);
    if (world->engine != NULL && !world->engine->counts_only) vt_memory_last_words(NULL, NULL);
    if (world->device_engine != world->engine) vt_engine_close(&world->device_engine);
    vt_engine_close(&world->engine);
    free(world->groups);
    free(world->node_of);
    free(world);
    *result = NULL;
}

double vt_world_waited(const vt_world *world)
{
    double seconds = 0;
    for (int i = 0; i < world->group_count; i++) seconds += world->groups[i]->volume.seconds;
    return seconds;
}
