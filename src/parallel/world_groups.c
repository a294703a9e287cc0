/* The groups of ranks along axes of the layout, within nodes and across them, and what they have counted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "parallel/world.h"

static void add_group(vt_world *world, vt_group *group)
{
    world->groups = vt_grow(world->groups, (size_t)world->group_count, sizeof(vt_group *), "the table of ranks");
    world->groups[world->group_count++] = group;
}

/* The members of `rank`'s group; returns how many. members: room for all ranks. */
static int scoped_members(const vt_world *world, int rank, unsigned axes, vt_scope scope, int *members)
{
    int count = vt_layout_members(&world->layout, rank, axes, members), kept = 0;
    if (scope == VT_SCOPE_ALL) return count;
    int own_place = 0; /* among those of this rank's node */
    for (int i = 0; members[i] != rank; i++) own_place += world->node_of[members[i]] == world->node_of[rank];
    int *place =
        vt_allocate((size_t)world->nodes, sizeof *place, "the table of ranks"); /* members of each node so far */
    for (int i = 0; i < count; i++) {
        int node = world->node_of[members[i]];
        bool is_kept = scope == VT_SCOPE_WITHIN_NODE ? node == world->node_of[rank] : place[node] == own_place;
        place[node]++;
        if (is_kept) members[kept++] = members[i];
    }
    free(place);
    return kept;
}

/* Checks the groups of all ranks, so that every rank gets the same result. */
static vt_status check_even(const vt_world *world, unsigned axes, int *members)
{
    vt_status status = VT_OK;
    char name[32];
    vt_layout_axes_name(&world->layout, axes, name);
    for (int rank = 0; rank < world->ranks; rank++) {
        int total = scoped_members(world, rank, axes, VT_SCOPE_ALL, members);
        int within = scoped_members(world, rank, axes, VT_SCOPE_WITHIN_NODE, members);
        int across = scoped_members(world, rank, axes, VT_SCOPE_ACROSS_NODES, members);
        VT_CHECK(
            within * across == total,
            "the %d ranks of a %s group lie unequally on the nodes (%d of them with rank %d, whose place is taken on "
            "%d nodes): put equally many of them on each node",
            total, name, within, rank, across);
    }
done:
    return status;
}

/* "tp in node of gradients" */
static void name_group(const vt_world *world, unsigned axes, vt_scope scope, const char *purpose, char name[64])
{
    static const char *const scope_names[] = {"", " in node", " across nodes"};
    char axes_name[32];
    vt_layout_axes_name(&world->layout, axes, axes_name);
    snprintf(name, 64, "%s%s%s%s", axes_name, scope_names[scope], purpose != NULL ? " of " : "",
             purpose != NULL ? purpose : "");
}

/* members [count]: the world's ranks, this one among them. */
static vt_status open_group(vt_world *world, const char *name, const int *members, int count, vt_backend *backend,
                            vt_group **group)
{
    vt_status status = VT_OK;
    int place = 0, lowest = world->rank;
    while (place < count - 1 && members[place] != world->rank) place++;
    for (int i = 0; i < count; i++)
        if (members[i] < lowest) lowest = members[i];
    const bool on_device = backend != NULL && !backend->shares_host_memory;
    VT_TRY(vt_group_open(on_device ? world->device_engine : world->engine, name, members, count, place, lowest, backend,
                         group));
    add_group(world, *group);
done:
    return status;
}

vt_status vt_world_group(vt_world *world, unsigned axes, vt_scope scope, const char *purpose, vt_backend *backend,
                         vt_group **result)
{
    vt_status status = VT_OK;
    char name[64];
    int *members = vt_allocate((size_t)world->ranks, sizeof *members, "the table of ranks");
    *result = NULL;
    name_group(world, axes, scope, purpose, name);
    for (int i = 0; i < world->group_count && *result == NULL; i++)
        if (strcmp(world->groups[i]->name, name) == 0 && world->groups[i]->backend == backend)
            *result = world->groups[i];
    if (*result != NULL) goto done;
    if (scope == VT_SCOPE_ACROSS_NODES) VT_TRY(check_even(world, axes, members));
    const int count = scoped_members(world, world->rank, axes, scope, members);
    VT_TRY(open_group(world, name, members, count, backend, result));
done:
    free(members);
    return status;
}

vt_status vt_world_pair(vt_world *world, int first, int second, const char *purpose, vt_backend *backend,
                        vt_group **group)
{
    vt_status status = VT_OK;
    char name[64];
    const vt_axis axis = VT_AXIS_PIPELINE;
    const int own = world->coordinate[axis], size = world->layout.size[axis];
    const bool is_pair = (own == first || own == second) && first >= 0 && second < size && first < second;
    int *members = vt_allocate((size_t)world->ranks, sizeof *members, "the table of ranks");
    vt_layout_members(&world->layout, world->rank, VT_AXES(axis), members); /* in the order of their coordinates */
    const int both[2] = {members[is_pair ? first : own], members[is_pair ? second : own]};
    name_group(world, VT_AXES(axis), VT_SCOPE_ALL, purpose, name);
    VT_TRY(open_group(world, name, both, is_pair ? 2 : 1, backend, group));
done:
    free(members);
    return status;
}

/* ---- what they have counted ---- */

/* By the names that vt_world_group gives. */
vt_traffic vt_traffic_of(const char *group)
{
    if (strcmp(group, "tp") == 0) return VT_TRAFFIC_TENSOR;
    if (strcmp(group, "cp") == 0) return VT_TRAFFIC_CONTEXT;
    if (strcmp(group, "pp") == 0 || strncmp(group, "pp ", 3) == 0) return VT_TRAFFIC_PIPELINE;
    return strstr(group, " of gradients") != NULL ? VT_TRAFFIC_GRADIENTS : VT_TRAFFIC_FIGURES;
}

const char *const vt_traffic_names[] = {"tp", "cp", "pp", "gradients", "figures"};
