/* The back ends that every operation is tested on: the paths of the CPU that this machine can run (the plain oracle and
 * every vector instruction set), the CUDA kernels compiled for the host (cuda/host_cuda.h), and the GPU where there is
 * one. VITRAIN_TEST_PATHS=gpu in the environment: the GPU alone, beside the oracle. */
#ifndef VT_TESTS_OPERATIONS_PATHS_H
#define VT_TESTS_OPERATIONS_PATHS_H

#include "backend/backend.h"

/* Beside vt_cpu_isa: the CUDA back end's kernels, run on the host. */
#define PATH_HOST_CUDA ((vt_cpu_isa)(VT_ISA_AMX + 1))

/* The table with every hand-written kernel of cuda/, compiled for the host; matrix products, which a library computes
 * on a GPU, are the plain loops. Its memory does not count as host memory: layers must copy. */
vt_status open_host_cuda(vt_backend **backend);
bool has_host_cuda(void); /* in this build: a C++ compiler was found */
/* Sets the rows of its matrix products and convolutions to the plain loops, which wait their turn among the kernels
 * (vt_host_cuda_do). */
vt_status host_cuda_fill_products(vt_backend *backend);

/* The CUDA back end on the GPU, with exact float32 products. */
#define PATH_GPU ((vt_cpu_isa)(VT_ISA_AMX + 2))

/* The CPU's kernels for bfloat16 tiles over a model of the tiles (operations/tiles_model.h), on top of the baseline's
 * kernels. Not among all paths, because everything else in it is the baseline's. */
#define PATH_TILES_MODEL ((vt_cpu_isa)(VT_ISA_AMX + 3))

/* The CUDA back end's own memory, streams and recording (cuda/backend.c) over a stand-in for CUDA's runtime, with the
 * kernels on the host: all work as late as possible; copies of batches as early as possible; or copies late beside
 * early work. For steps only: the host can't access its memory. */
#define PATH_STREAMS_LATE ((vt_cpu_isa)(VT_ISA_AMX + 4))
#define PATH_STREAMS_COPIES_EARLY ((vt_cpu_isa)(VT_ISA_AMX + 5))
#define PATH_STREAMS_COPIES_LATE ((vt_cpu_isa)(VT_ISA_AMX + 6))
bool has_streams(void); /* in this build */
vt_status open_streams_path(vt_cpu_isa path, vt_backend **backend);
void refuse_graphs(int count); /* on these paths: the next `count` */

/* Convolutions alone: cuda/convolution.c over a stand-in for cuDNN that computes what it is described. */
#define PATH_CUDNN ((vt_cpu_isa)(VT_ISA_AMX + 7))
bool has_cudnn_path(void); /* in this build */
vt_status open_cudnn_path(vt_backend **backend);

/* For operations, whose operands may lie anywhere in the host's memory (on the GPU by operations/mirror.h). */
vt_status path_open(vt_cpu_isa isa, vt_backend **backend);
/* For a trainer, which takes its memory from the back end. */
vt_status path_open_trainers(vt_cpu_isa isa, vt_backend **backend);
vt_status path_open_gpu(vt_backend **backend);
/* Like path_open of the GPU, but algorithms are chosen by timing, as in a run without `deterministic`. Choices are kept
 * in $XDG_CACHE_HOME: set it before. */
vt_status path_open_timed_gpu(vt_backend **backend);
bool path_is_available(vt_cpu_isa isa);

#define FOR_EACH_CPU_PATH(isa)                                                                                         \
    for (vt_cpu_isa isa = VT_ISA_PLAIN; isa <= VT_ISA_AMX; isa++)                                                      \
        if (path_is_available(isa))

#define FOR_EACH_CUDA_PATH(isa)                                                                                        \
    for (vt_cpu_isa isa = PATH_HOST_CUDA; isa <= PATH_GPU; isa++)                                                      \
        if (path_is_available(isa))

#define FOR_EACH_PATH(isa)                                                                                             \
    for (vt_cpu_isa isa = VT_ISA_PLAIN; isa <= PATH_GPU; isa++)                                                        \
        if (path_is_available(isa))

/* The same with the back end, which is checked and closed after the loop's body. */
vt_backend *open_path(vt_cpu_isa isa);
void close_path(vt_backend **backend);
#define FOR_EACH_BACKEND(isa, b)                                                                                       \
    FOR_EACH_PATH(isa)                                                                                                 \
    for (vt_backend *b = open_path(isa); b != NULL; close_path(&b))

/* The oracle and another path. */
typedef struct {
    vt_backend *plain, *fast;
} pair;

/* VITRAIN_TEST_GPU=host in the environment: the CUDA kernels on the host take the GPU's place, to try what tests do
 * with one. */
bool path_gpu_is_host(void);
/* On PATH_GPU and a GPU: attention over wgmma from now on; false: this GPU or build has none. */
bool path_use_wgmma(vt_backend *backend);
bool path_wgmma_served(vt_backend *backend); /* whether it ran the last call of some shape */

pair open_pair(vt_cpu_isa isa);
void close_pair(pair *p);
#define FOR_EACH_PAIR(p)                                                                                               \
    FOR_EACH_FAST_PATH(isa)                                                                                            \
    for (pair p = open_pair(isa); p.fast != NULL; close_pair(&p))

/* The oracle, whose slow loops need to compute only once, and those of the paths that are available and `wanted`. */
typedef struct {
    vt_backend *plain, *at[16];
    vt_cpu_isa isa[16];
    int count;
} path_list;

path_list open_paths(bool wanted(vt_cpu_isa isa));
void close_paths(path_list *paths);

/* A back end of the CPU's fastest path with so many threads; `restore_threads` gives later tests theirs back. */
vt_backend *open_with_threads(int threads);
void restore_threads(void);

/* For whole steps. Paths on the host are slow: in the short test each case has the GPU and one order of the streams'
 * work, in turn. */
bool path_has_turn(vt_cpu_isa isa, size_t number_of_case);
#define FOR_EACH_CUDA_STEP_PATH(isa)                                                                                   \
    for (vt_cpu_isa isa = PATH_HOST_CUDA; isa <= PATH_STREAMS_COPIES_LATE; isa++)                                      \
        if (isa != PATH_TILES_MODEL && path_is_available(isa))

#define FOR_EACH_STEP_PATH(isa)                                                                                        \
    for (vt_cpu_isa isa = VT_ISA_PLAIN; isa <= PATH_STREAMS_COPIES_LATE; isa++)                                        \
        if (isa != PATH_TILES_MODEL && path_is_available(isa))

/* Where bfloat16 attention consists of products of tiles, which round their operands. */
#define FOR_EACH_TILES_PATH(isa)                                                                                       \
    for (vt_cpu_isa isa = VT_ISA_AMX; isa <= PATH_TILES_MODEL; isa++)                                                  \
        if ((isa == VT_ISA_AMX || isa == PATH_TILES_MODEL) && path_is_available(isa))

/* All but the oracle. */
#define FOR_EACH_FAST_PATH(isa)                                                                                        \
    for (vt_cpu_isa isa = VT_ISA_BASELINE; isa <= PATH_GPU; isa++)                                                     \
        if (path_is_available(isa))

#endif
