/* What all ranks agree on: errors, sums and texts. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "parallel/world.h"

/* The text of rank `root`; see vt_world_broadcast_text. */
static void broadcast_text(vt_world *world, int root, char **text)
{
    if (world->ranks == 1 || world->engine->counts_only) return;
    int64_t size = *text != NULL ? (int64_t)strlen(*text) + 1 : 0; /* 0: NULL */
    vt_group_broadcast(world->everyone, &size, sizeof size, root);
    if (world->rank != root) {
        free(*text);
        *text = size > 0 ? vt_allocate((size_t)size, 1, "a message") : NULL;
    }
    vt_group_broadcast(world->everyone, *text, (size_t)size, root);
}

/* The lowest rank that failed, of those with a note if there are any; -1: none. `stopped`: did any rank stop? */
static int find_failed(vt_world *world, vt_status status, bool *stopped)
{
    enum { UNNOTED = 16 }; /* this rank failed, but another one reports the error */
    int failed = -1;
    *stopped = status == VT_STOPPED;
    if (world->ranks == 1 || world->engine->counts_only) return status == VT_ERROR ? world->rank : -1;
    char *all = vt_allocate((size_t)world->ranks, 1, "the table of ranks"), own = (char)status;
    if (status == VT_ERROR && vt_error_text()[0] == '\0') own = UNNOTED;
    vt_group_all_gather_equal(world->everyone, &own, 1, all);
    for (int rank = world->ranks - 1; rank >= 0; rank--) {
        if (all[rank] == VT_ERROR || (all[rank] == UNNOTED && (failed < 0 || all[failed] == UNNOTED))) failed = rank;
        *stopped = *stopped || all[rank] == VT_STOPPED;
    }
    free(all);
    return failed;
}

/* The note of the rank that failed, which gets rank and host put before it when there are several; malloc'd. */
static char *spread_cause(vt_world *world, int failed)
{
    char *cause = NULL;
    if (failed == world->rank) {
        char host[VT_HOST_SIZE];
        vt_host_name(host);
        if (world->ranks > 1 && !world->engine->counts_only) vt_error_context("rank %d on %s", world->rank, host);
        cause = vt_text_copy(vt_error_text());
    }
    broadcast_text(world, failed, &cause);
    return cause;
}

vt_status vt_world_agree(vt_world *world, vt_status status)
{
    bool stopped = false;
    if (world->agreed_failure) return status; /* all ranks know already */
    int failed = find_failed(world, status, &stopped);
    if (failed < 0) return stopped ? VT_STOPPED : VT_OK;
    world->agreed_failure = true;
    world->speaker = failed;
    char *cause = spread_cause(world, failed);
    if (failed != world->rank) {
        vt_error_clear();
        vt_error_note(__FILE__, __LINE__, "all ranks: stop: %s", cause);
    }
    free(cause);
    return VT_ERROR;
}

char *vt_world_cause(vt_world *world, vt_status status)
{
    bool stopped = false;
    int failed = find_failed(world, status, &stopped);
    return failed < 0 ? NULL : spread_cause(world, failed);
}

vt_agreed_failure vt_world_lift_failure(vt_world *world)
{
    vt_agreed_failure failure = {.speaker = world->speaker};
    vt_error_move_out(&failure.cause);
    world->agreed_failure = false;
    return failure;
}

void vt_world_restore_failure(vt_world *world, const vt_agreed_failure *failure)
{
    vt_error_move_in(&failure->cause);
    world->agreed_failure = true;
    world->speaker = failure->speaker;
}

bool vt_world_speaks(const vt_world *world)
{
    return world == NULL || world->rank == world->speaker;
}

bool vt_world_any(vt_world *world, bool value)
{
    double count = value;
    vt_world_sum(world, &count, 1);
    return count > 0;
}

void vt_world_sum(vt_world *world, double *values, int64_t count)
{
    vt_group_all_reduce(world->everyone, VT_SUM_FLOAT64, values, count, NULL);
}

double vt_world_most(vt_world *world, double value)
{
    double *all = vt_allocate((size_t)world->ranks, sizeof *all, "the table of ranks"), most = value;
    all[world->rank] = value;
    vt_world_sum(world, all, world->ranks);
    for (int rank = 0; rank < world->ranks; rank++) most = all[rank] > most ? all[rank] : most;
    free(all);
    return most;
}

void vt_world_broadcast_text(vt_world *world, char **text)
{
    broadcast_text(world, 0, text);
}

/* ---- the same text ---- */

static int line_length(const char *line)
{
    return (int)strcspn(line, "\n");
}

vt_status vt_world_same(vt_world *world, const char *own, const char *demand)
{
    vt_status status = VT_OK;
    char *first = own != NULL ? vt_text_copy(own) : NULL;
    vt_world_broadcast_text(world, &first);
    if (own == NULL || first == NULL) goto done;
    const char *here = own, *there = first;
    while (*here != '\0' && *there != '\0') {
        int a = line_length(here), b = line_length(there);
        bool may_differ = strncmp(here, "num_threads:", strlen("num_threads:")) == 0; /* machines differ */
        VT_CHECK((a == b && memcmp(here, there, (size_t)a) == 0) || may_differ, "'%.*s' here, '%.*s' on rank 0: %s", a,
                 here, b, there, demand);
        here += here[a] == '\n' ? a + 1 : a;
        there += there[b] == '\n' ? b + 1 : b;
    }
    VT_CHECK(*here == *there, "'%.*s' is %s: %s", line_length(*here != '\0' ? here : there),
             *here != '\0' ? here : there, *here != '\0' ? "here, but not on rank 0" : "on rank 0, but not here",
             demand);
done:
    free(first);
    return status;
}
