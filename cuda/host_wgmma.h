/* The functions of wgmma.h on the host. Kernels' calls go to tests/operations/host_wgmma.c, which follows PTX's
 * documentation and knows nothing of the kernels. It is a file of its own, without ThreadSanitizer, so that this sees
 * the kernels' accesses and not those of the stand-in. */
#ifndef VT_CUDA_HOST_WGMMA_H
#define VT_CUDA_HOST_WGMMA_H

#include <stdbool.h>
#include <stdint.h>

/* When copies and products happen between their start and the wait for them: as early as they can, as late as they
 * can, or at random. */
typedef enum { HOST_WGMMA_LATE, HOST_WGMMA_EARLY, HOST_WGMMA_RANDOM, HOST_WGMMA_ORDERS } host_wgmma_order;

/* What cuTensorMapEncodeTiled keeps: sizes and box in elements, strides in bytes. */
typedef struct {
    const uint16_t *first;
    int64_t size[4], stride[4];
    int box[4];
} vt_box_map;

#ifdef __cplusplus
extern "C" {
#endif

/* For tests: from the next launch on. */
void host_wgmma_choose(host_wgmma_order order, uint32_t seed);

typedef bool host_wgmma_condition(int64_t what, int64_t until);
typedef void host_wgmma_waiter(host_wgmma_condition *is_met, int64_t what, int64_t until);

/* Of a block, called by host_cuda.h's scheduler. wait: of a thread; place: which thread of the block runs. */
void host_wgmma_block_begins(int threads, unsigned char *shared, int64_t shared_bytes, host_wgmma_waiter *wait,
                             int (*place)(void));
void host_wgmma_block_ends(void);
void host_wgmma_thread_ends(int thread);
bool host_wgmma_advances(void); /* completes something; false: there is nothing */
bool host_wgmma_skips(void);    /* at random, a warp's turn; lets something happen */

/* What the functions below, and kernels, call in the place of the instructions. */
uint32_t host_wgmma_address(const void *pointer);
void host_wgmma_wait(int pending);
void host_wgmma_multiply(float *d, int columns, const uint32_t *a, uint64_t b, int major, bool adds);
void vt_barrier_init(uint32_t barrier, int arrivals);
void vt_barrier_init_fence(void);
void vt_barrier_arrive(uint32_t barrier);
void vt_barrier_arrive_expecting(uint32_t barrier, int bytes);
void vt_barrier_wait(uint32_t barrier, int parity);
void vt_copy_box(uint32_t to, const vt_box_map *map, int row, int panel, int sample, uint32_t barrier);
void vt_copy_bytes(uint32_t to, const void *from, int bytes, uint32_t barrier);
void vt_wgmma_fence(void);
void vt_wgmma_commit(void);

#ifdef __cplusplus
}

#define VT_INLINE static inline
#define __forceinline__ inline
#define __grid_constant__
#define VT_ALIGNED_SHARED(name) unsigned char *name = (unsigned char *)host_cuda::block.shared

namespace host_cuda
{

/* The block has such work from here on. */
VT_UNSEEN static void begin_work_beside()
{
    static const work_beside work = {host_wgmma_advances, host_wgmma_skips, host_wgmma_thread_ends,
                                     host_wgmma_block_ends};
    if (block.beside == nullptr)
        host_wgmma_block_begins(block.count, (unsigned char *)block.shared, (int64_t)block.shared_bytes, wait_until,
                                place);
    block.beside = &work;
}

} // namespace host_cuda

VT_INLINE vt_shared vt_shared_address(const void *pointer)
{
    host_cuda::begin_work_beside();
    return host_wgmma_address(pointer);
}

template <int COUNT> VT_INLINE void vt_registers_shrink()
{
}

template <int COUNT> VT_INLINE void vt_registers_grow()
{
}

template <int PENDING> VT_INLINE void vt_wgmma_wait()
{
    host_wgmma_wait(PENDING);
}

template <typename type, int COUNT> VT_INLINE void vt_pin(type (&)[COUNT])
{
}

template <int MAJOR, bool ADDS, int COUNT> VT_INLINE void vt_wgmma(float (&d)[COUNT], const uint32_t *a, uint64_t b)
{
    host_wgmma_multiply(d, 2 * COUNT, a, b, MAJOR, ADDS);
}

VT_INLINE float vt_exp2(float x)
{
    return exp2f(x);
}

static inline bool vt_map_boxes(vt_box_map *map, const vt_matrix &m, int64_t batch, int64_t rows, int box_rows,
                                int box_columns)
{
    *map = (vt_box_map){.first = m.half,
                        .size = {16, rows, m.columns / 16, batch},
                        .stride = {2, 2 * m.stride, 32, 2 * m.stride * rows},
                        .box = {16, box_rows, box_columns / 16, 1}};
    return true;
}

#endif
#endif
