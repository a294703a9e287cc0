/* A group of ranks that communicate: along an axis of the layout, or several. One interface over engines: one rank by
 * itself, MPI, NCCL, and dry (counts messages, moves nothing). The collective algorithms are the engines'.
 *
 * Every operation is collective over the group and must be called by all its ranks in the same order. The call starts
 * it, and it is over when vt_request_wait returns; with `request` NULL the call waits itself. Buffers must stay valid
 * until then. Memory is the back end's if the group was made for one, otherwise the host's. Sums are made in the type
 * given, in an order that depends on the group's size and the count only: the same bits every time, and on every rank.
 *
 * Nothing is returned: a rank that waits longer than comm_timeout finds out who does not answer, says so and ends the
 * whole job (vt_engine_abort), because no rank can go on then. */
#ifndef VT_PARALLEL_GROUP_H
#define VT_PARALLEL_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "parallel/launch.h"

typedef enum { VT_SUM_FLOAT32, VT_SUM_FLOAT64 } vt_sum_type;

typedef struct vt_group vt_group;
typedef struct vt_engine vt_engine;

typedef struct {
    char *at;
    size_t count;
} vt_group_bytes;

/* One operation under way. Zero-initialised: nothing is. */
typedef struct {
    vt_group *group;
    void *state; /* the engine's own; NULL when it is over */
    /* group.c's own, of an operation on a copy in host memory: in the end `received` of it goes `to` the device */
    char *copy;
    vt_group_bytes received;
    char *to;
} vt_request;

/* What was sent, for the ledger: operations, and the bytes that this rank handed to the others, counted as a ring
 * sends them: all-reduce of n bytes over g ranks 2 n (g - 1) / g; reduce-scatter and all-gather of n bytes in all
 * n (g - 1) / g; exchange, send and broadcast n; a receive is not counted. */
typedef struct {
    int64_t operations;
    double bytes;
    double padding; /* of these, what filled up buckets: vt_group_note_padding */
    double seconds; /* spent waiting */
} vt_volume;

/* sum += factor * more */
void vt_volume_add(vt_volume *sum, const vt_volume *more, int64_t factor);

struct vt_group {
    char name[64]; /* "dp", "tp-cp", "world" */
    int size;
    int rank;     /* this one's place, 0 … size - 1 */
    int *members; /* the world's ranks, [size] */
    vt_volume volume;
    char receiving[96];  /* what vt_group_receive waits for, "receive of the …", in messages about time-outs; "": an
                            exchange */
    vt_backend *backend; /* whose memory is moved; NULL: the host's */
    vt_engine *engine;
    void *state; /* the engine's own: its communicator */
};

/* Of the bytes counted since there were `before`, this share was padding. */
static inline void vt_group_note_padding(vt_group *group, double before, double share)
{
    group->volume.padding += (group->volume.bytes - before) * share;
}

/* data [count] = its sum over the group, on every rank. */
void vt_group_all_reduce(vt_group *group, vt_sum_type type, void *data, int64_t count, vt_request *request);

/* data [sum of counts] has parts for rank 0, 1, … one behind another, float32: this rank's becomes its sum over the
 * group, and the others are undefined then. counts [size] must stay only until the call returns. */
void vt_group_reduce_scatter(vt_group *group, float *data, const int64_t *counts, vt_request *request);

/* data [sum of bytes] has parts of rank 0, 1, … one behind another, of which each rank has its own: then all of them.
 * bytes [size] must stay only until the call returns. */
void vt_group_all_gather(vt_group *group, void *data, const size_t *bytes, vt_request *request);

/* The same, waited for, where every rank sends `bytes`, which may lie in their place. */
void vt_group_all_gather_equal(vt_group *group, const void *send, size_t bytes, void *receive);

/* Sends to the member `to` and receives from the member `from` (places in the group) at once. */
void vt_group_exchange(vt_group *group, const void *send, size_t send_bytes, int to, void *receive,
                       size_t receive_bytes, int from, vt_request *request);

/* One half of an exchange each: what is sent to the member `to`, and what the member `from` sends. */
void vt_group_send(vt_group *group, const void *send, size_t bytes, int to, vt_request *request);
void vt_group_receive(vt_group *group, void *receive, size_t bytes, int from, vt_request *request);

/* data [bytes] of the member `root`, on every rank; it has ended when the function returns. */
void vt_group_broadcast(vt_group *group, void *data, size_t bytes, int root);

/* Is it over? With an engine that only counts, a sum is over once it has been waited for. The call also advances what
 * is under way, which MPI does only inside its calls. */
bool vt_request_test(vt_request *request);
void vt_request_wait(vt_request *request);

/* Makes the operations that `next` gets from here on run after this one, without anybody waiting; the request is then
 * over for the caller. False: the engine can't do this, nothing was done, and the caller has to wait. */
bool vt_request_chain(vt_request *request, const vt_group *next);

/* Collective over all ranks. A group of the world's ranks members [size], this one's at place `rank`; `color` is the
 * same for all its ranks, and no other group's of this call. Errors: the engine's. */
vt_status vt_group_open(vt_engine *engine, const char *name, const int *members, int size, int rank, int color,
                        vt_backend *backend, vt_group **group);
void vt_group_close(vt_group **group);

/* ---- engines ---- */

typedef enum { VT_ALL_REDUCE, VT_REDUCE_SCATTER, VT_ALL_GATHER, VT_EXCHANGE, VT_BROADCAST } vt_group_operation_kind;

/* "all-reduce", in messages. */
extern const char *const vt_group_operation_names[];

/* What a rank asks an engine for. What it gives and what it gets lies in one block of memory; of an exchange these are
 * apart. */
typedef struct {
    vt_group_operation_kind kind;
    vt_sum_type type;             /* of a sum's numbers */
    vt_group_bytes block;         /* of an exchange `at` is NULL, and `count` the sum of both */
    vt_group_bytes send, receive; /* what is sent stays as it is */
    const size_t *parts;          /* [size], bytes of each rank's part of the block (reduce-scatter and all-gather) */
    int to, from;                 /* of an exchange: members; `from` of a broadcast: its root */
} vt_group_operation;

size_t vt_sum_type_size(vt_sum_type type);

/* The same on a copy of its memory, [block.count], whose contents are not copied. */
vt_group_operation vt_group_operation_on(const vt_group_operation *operation, char *copy);

enum { VT_ENGINE_NAME = 96 };

struct vt_engine {
    char name[VT_ENGINE_NAME]; /* "Open MPI v4.1.4" */
    int rank, size;
    double timeout;     /* seconds; set by the opener */
    bool device_memory; /* takes the back end's memory as it is (NCCL); else it is staged through the host */
    bool counts_only;   /* nothing is moved (dry): `start` may be NULL */
    size_t copies;      /* if it counts only: bytes of the copies that MPI keeps of the sums under way, */
    size_t most_copies; /* the most so far, */
    size_t hole;        /* and of the hole that those of reduce-scatters leave in the heap */
    void *state;

    /* Operations are started on groups of two ranks or more and on more than 0 bytes; group.c has done the counting and
     * the staging. `request` is never NULL. start sets request->state; test and wait clear it when it is over. */

    /* Collective over all ranks: those with equal `color` form a group, in the order of `key`; its name, size, rank and
     * members are set already. */
    vt_status (*split)(vt_engine *engine, int color, int key, vt_group *group);
    void (*group_close)(vt_group *group);
    void (*start)(vt_group *group, const vt_group_operation *operation, vt_request *request);
    bool (*test)(vt_request *request);
    void (*wait)(vt_request *request);
    bool (*chain)(vt_request *request, const vt_group *next); /* NULL: it can't */
    /* Moves what is under way, between two pieces of computing: MPI's messages move only inside its calls. NULL: it
     * needs no help. */
    void (*advance)(vt_engine *engine);
    /* The back end replays recorded operations: the engine is to watch that they end. NULL: it need not. */
    void (*replayed)(vt_engine *engine, const vt_backend *backend);
    /* Ends every rank of the job at once, with a non-zero exit status; does not return. */
    void (*abort)(vt_engine *engine);
    void (*close)(vt_engine *engine);
};

/* One rank by itself; or counts_only: as rank `rank` of `size`, whose operations are counted and move nothing. */
vt_engine *vt_engine_open_alone(int rank, int size, bool counts_only);

/* MPI over all ranks of the launcher; initialises MPI. Errors: built without MPI; MPI sees another number of ranks
 * than the launcher says (launched without MPI's support). If MPI_Init waits for the others for more than `timeout`
 * seconds (at least 10), the process says so and ends. */
vt_status vt_engine_open_mpi(const vt_launch *launch, double timeout, vt_engine **engine);

/* NCCL over all ranks, on the GPU that this process has chosen. The ranks learn of one another over `host` (all ranks,
 * host memory), or when that is NULL meet at the launch's address and port. Errors: built without NCCL; the library is
 * not found; two ranks on one GPU; not all ranks come within `timeout` seconds. */
vt_status vt_engine_open_nccl(const vt_launch *launch, vt_group *host, double timeout, vt_engine **engine);

void vt_engine_close(vt_engine **engine);

/* Prints "vitrain: rank R on HOST: sentence" and ends the job. */
__attribute__((noreturn, format(printf, 2, 3))) void vt_engine_abort(vt_engine *engine, const char *format, ...);

/* "dp [0 2 4 6]": a group in messages. Returns `text`. */
enum { VT_GROUP_TEXT_SIZE = 160 };
const char *vt_group_text(const vt_group *group, char text[VT_GROUP_TEXT_SIZE]);

/* This host's name. */
enum { VT_HOST_SIZE = 64 };
void vt_host_name(char name[VT_HOST_SIZE]);

/* Does this build have MPI, NCCL? And the MPI library's name and version, "" without one. */
bool vt_engine_has_mpi(void);
void vt_engine_mpi_name(char name[VT_ENGINE_NAME]);
bool vt_engine_has_nccl(void);

#endif
