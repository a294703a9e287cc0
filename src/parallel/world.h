/* All ranks of a run: the layout, the engine, and the groups along its axes. Also what ranks agree on (an error on one
 * of them ends the phase on all), and what a rank has sent through its groups. */
#ifndef VT_PARALLEL_WORLD_H
#define VT_PARALLEL_WORLD_H

#include "parallel/group.h"
#include "parallel/launch.h"
#include "parallel/layout.h"

/* Which ranks of an axis: all, those of this rank's node, or those in the same place of their nodes. */
typedef enum { VT_SCOPE_ALL, VT_SCOPE_WITHIN_NODE, VT_SCOPE_ACROSS_NODES } vt_scope;

/* As this rank sees them. Only this room's files change it. */
typedef struct {
    /* where this rank stands */
    int rank, ranks; /* this one, and how many there are */
    int coordinate[VT_AXIS_COUNT];
    int cores;        /* that this rank may use, divided by the local ranks that share them */
    int nodes;        /* how many there are */
    int *node_of;     /* [ranks]: which node each rank runs on, 0, 1, … in the order of their first ranks */
    vt_launch launch; /* with local_rank and local_size, also where the launcher did not say */
    vt_layout layout;
    /* what it communicates through */
    vt_engine *engine;
    vt_engine *device_engine; /* for the back end's memory: NCCL for GPUs, else the same */
    vt_group *everyone;       /* all ranks, over host memory: for figures and agreements */
    vt_group **groups;        /* [group_count] that vt_world_group has made, in their order, all ranks' first */
    int group_count;
    /* what became of it */
    bool agreed_failure; /* all ranks know of a failure, and end alike */
    int speaker;         /* the rank that tells the user: vt_world_speaks */
} vt_world;

/* ---- opening and closing ---- */

/* Collective. The engine for this launch and config->comm, the layout, and what the ranks tell one another about their
 * hosts. From then on a rank that vt_allocate ends ends the job, which the log tells too. Errors: those of
 * vt_layout_make and of the engines, and a rank with different options. After an error *world may still be open, for
 * vt_world_speaks, and must be closed. A node is a host, or each VITRAIN_RANKS_PER_NODE ranks (for tests). */
vt_status vt_world_open(const vt_config *config, const vt_launch *launch, vt_world **world);

/* After a failure before vt_world_open: prints the noted error, once for all ranks that failed in the same way,
 * tells the ranks that wait in vt_world_open, and clears the note. Where only the launcher connects the ranks, the
 * note stays; all ranks but the first then wait for two seconds, in which the launcher ends them. */
void vt_world_fail_early(const vt_launch *launch);

/* Collective, before groups over the back end's memory are made: the engine for that memory, which is NCCL for GPUs
 * unless config->comm says mpi. Errors: as vt_engine_open_nccl. */
vt_status vt_world_open_device(const vt_config *config, vt_world *world, const vt_backend *backend);

/* Threads for this rank's back end: num_threads, else its share of the cores where there are several ranks; 0: the back
 * end decides. */
int vt_world_threads(const vt_config *config, const vt_world *world);

/* The back end that the configuration asks for, with these threads, and on a GPU of this rank's own. */
vt_status vt_world_open_backend(const vt_config *config, const vt_world *world, vt_backend **backend);

/* Ranks that share the back end's memory (NULL: the host's) with this one, itself included; a GPU has its own. */
int vt_world_ranks_of_memory(const vt_world *world, const vt_backend *backend);

/* Collective over all ranks. Returns memory that the ranks of this node share, or NULL on all of them: the node has one
 * rank, or the system refuses. The node's first rank says how large it is, and *bytes becomes that on all; it is zeros
 * when that rank calls `prepare`, which returns before the others have it. Pages take no place before they are written
 * to. munmap frees it. */
void *vt_world_share_memory(vt_world *world, size_t *bytes, void (*prepare)(void *memory, size_t bytes));

/* As any rank of any layout, over the dry engine. node_of [ranks]: which node each rank runs on (0, 1, …); NULL: all on
 * one. */
vt_status vt_world_open_dry(const vt_config *config, int rank, int ranks, const int *node_of, vt_world **world);

/* Collective when all ranks succeeded or have agreed on a failure, which is then told on standard error, once, and its
 * note cleared on all. Closes the groups and the engine. When this rank `failed` and the others don't know, says what
 * was noted and ends the job: exit status 1, no return. */
void vt_world_close(vt_world **world, bool failed);

/* Collective over all ranks: makes the group along `axes`, for the back end's memory (NULL: the host's), or finds
 * it. Callers whose operations may start in another order than those of other callers need a group of their own,
 * named `purpose` (NULL: the common group). *group is never NULL: a single rank is a group, too. Errors, on all
 * ranks: across nodes, when nodes hold different numbers of such a group's ranks. */
vt_status vt_world_group(vt_world *world, unsigned axes, vt_scope scope, const char *purpose, vt_backend *backend,
                         vt_group **group);

/* Collective over all ranks, each of which names places on the pipeline axis: a group of the two ranks there, if this
 * one is one of them and both are there, else of this one alone. Each call makes a new group, named `purpose` (or
 * NULL). */
vt_status vt_world_pair(vt_world *world, int first, int second, const char *purpose, vt_backend *backend,
                        vt_group **group);

/* Collective over all ranks, at the end of a phase: VT_OK only when all have it. The lowest rank that failed keeps its
 * note, with rank and host put before it when there are several; the others' says "all ranks: stop: " and then the
 * same, and vt_world_speaks is false on them. VT_STOPPED on any rank without an error is VT_STOPPED on all. */
vt_status vt_world_agree(vt_world *world, vt_status status);

/* Collective, for a failure that the run survives: the note of the lowest rank that failed, preceded by rank and
 * host when there are several ranks; NULL when none failed. malloc'd; the notes stay. */
char *vt_world_cause(vt_world *world, vt_status status);

/* Around what the ranks still do together after an agreed failure (a last checkpoint): between the two calls they can
 * agree on new errors. The first call takes the failure, with this rank's note; the second one restores it, in the
 * place of whatever is noted then. */
typedef struct {
    int speaker; /* the rank that reports it */
    vt_error cause;
} vt_agreed_failure;
vt_agreed_failure vt_world_lift_failure(vt_world *world);
void vt_world_restore_failure(vt_world *world, const vt_agreed_failure *failure);

/* Does this rank print messages for the user? Rank 0, or after a failure the one that keeps the note. NULL: yes. */
bool vt_world_speaks(const vt_world *world);

/* Is any rank's `value` true? Collective. */
bool vt_world_any(vt_world *world, bool value);

/* values [count], summed over all ranks, in float64. Collective. */
void vt_world_sum(vt_world *world, double *values, int64_t count);

/* The largest `value` of any rank. Collective. */
double vt_world_most(vt_world *world, double value);

/* Seconds that this rank has waited for others so far, over all groups. */
double vt_world_waited(const vt_world *world);

/* Collective: is this text, of lines, that of rank 0? Fails on a rank where it isn't, with the first line that differs,
 * both ways, and `demand`; ranks then have to agree. NULL on any side: not compared. */
vt_status vt_world_same(vt_world *world, const char *own, const char *demand);

/* The text of rank 0 (malloc'd; *text of the others is replaced; may be NULL). Collective. */
void vt_world_broadcast_text(vt_world *world, char **text);

/* ---- what a rank sends ----
 * Its groups count it; those over the dry engine do so before anything runs. Bytes are those that this rank hands to
 * others, as a ring sends them (vt_volume in group.h). Nothing here communicates. */

typedef enum {
    VT_TRAFFIC_TENSOR,    /* activations between the ranks of the tensor axis */
    VT_TRAFFIC_CONTEXT,   /* keys and values, and a sample's norms, between those of the context axis */
    VT_TRAFFIC_PIPELINE,  /* activations and their gradients between neighbouring stages */
    VT_TRAFFIC_GRADIENTS, /* gradients, and with ZeRO parameters */
    VT_TRAFFIC_FIGURES,   /* losses and norms: a few numbers */
    VT_TRAFFIC_COUNT
} vt_traffic;

extern const char *const vt_traffic_names[];

/* What a group of a world is for, by its name. */
vt_traffic vt_traffic_of(const char *group);

#endif
