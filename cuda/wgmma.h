/* Hopper's asynchronous instructions as small functions: barriers in shared memory (PTX mbarrier), copies that complete
 * on them (cp.async.bulk, the tensor memory accelerator or TMA), and products of a warpgroup (wgmma), in bfloat16 with
 * float32 sums. The host versions are in host_wgmma.h. On a GPU they need code for sm_90a (make/cuda.mk).
 *
 * Addresses in shared memory are 32-bit numbers (vt_shared), as in PTX's .shared window.
 *
 * Tiles in shared memory consist of panels of 16 columns, one panel after another: tile[panel][row][16], 32 bytes a
 * row, with the 32-byte swizzle. So heads of 48 columns need no padding. The same tile serves as an operand whose depth
 * is the columns, and as one whose depth is the rows (vt_by_columns, vt_by_rows). */
#ifndef VT_CUDA_WGMMA_H
#define VT_CUDA_WGMMA_H

#define VT_MOST_SHARED_BYTES (227 * 1024) /* of a block, on the host */
#include "language.h"

typedef uint32_t vt_shared;

/* Which dimension of operand B is contiguous in shared memory: its depth, or its columns ("trans-b" of PTX). */
enum { VT_DEPTH_CONTIGUOUS = 0, VT_COLUMNS_CONTIGUOUS = 1 };

#ifdef __CUDACC__

#include <cuda.h> /* the driver's; so these files are compiled without -Icuda, which would find cuda/cuda.h */

#define VT_INLINE __device__ static __forceinline__
#define VT_ALIGNED_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]

typedef CUtensorMap vt_box_map;

VT_INLINE vt_shared vt_shared_address(const void *pointer)
{
    return (vt_shared)__cvta_generic_to_shared(pointer);
}

/* ---- barriers: a phase is complete when all arrivals and all bytes of copies are there ---- */

VT_INLINE void vt_barrier_init(vt_shared barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* Makes initialised barriers known to copies; a __syncthreads() makes them known to the other threads. */
VT_INLINE void vt_barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

VT_INLINE void vt_barrier_arrive(vt_shared barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives, and lets the phase wait for so many bytes of copies, too. */
VT_INLINE void vt_barrier_arrive_expecting(vt_shared barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* Waits until the phase of this parity is complete; the first phase has parity 0. */
VT_INLINE void vt_barrier_wait(vt_shared barrier, int parity)
{
    asm volatile("{\n.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* ---- copies into shared memory, started by one thread ---- */

/* The map's box whose first element is column 0 of row `row` and panel `panel` of a sample. */
VT_INLINE void vt_copy_box(vt_shared to, const vt_box_map *map, int row, int panel, int sample, vt_shared barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
                 "l"(map), "r"(0), "r"(row), "r"(panel), "r"(sample), "r"(barrier)
                 : "memory");
}

/* `bytes` and both addresses are multiples of 16. */
VT_INLINE void vt_copy_bytes(vt_shared to, const void *from, int bytes, vt_shared barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* ---- registers that warpgroups of a block pass to each other; all threads of a warpgroup call ---- */

template <int COUNT> VT_INLINE void vt_registers_shrink()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* Waits until the block has so many for each thread: forever, if those that it started with are not enough. */
template <int COUNT> VT_INLINE void vt_registers_grow()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* ---- the order of products; all threads of a warpgroup call ---- */

/* Between a thread's own use of registers and the next product that has them as operands. */
VT_INLINE void vt_wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Ends a group of products. */
VT_INLINE void vt_wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most PENDING of the groups are not complete. vt_pin for each result must follow. */
template <int PENDING> VT_INLINE void vt_wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* Keeps the compiler from moving uses of these registers over this place: it doesn't know that vt_wgmma_wait completes
 * them. */
template <int COUNT> VT_INLINE void vt_pin(float (&values)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(values[i])::"memory");
}

template <int COUNT> VT_INLINE void vt_pin(uint32_t (&values)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(values[i])::"memory");
}

/* ---- products ---- */

#define VT_R16                                                                                                         \
    "%0, %1, %2, %3, %4, %5, %6, %7"                                                                                   \
    ", %8, %9, %10, %11, %12, %13, %14, %15"
#define VT_R24 VT_R16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define VT_R32 VT_R24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define VT_R40 VT_R32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define VT_R48 VT_R40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define VT_R56 VT_R48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define VT_R64 VT_R56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define VT_D8(i)                                                                                                       \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),        \
        "+f"(d[i + 7])
#define VT_D16 VT_D8(0), VT_D8(8)
#define VT_D24 VT_D16, VT_D8(16)
#define VT_D32 VT_D24, VT_D8(24)
#define VT_D40 VT_D32, VT_D8(32)
#define VT_D48 VT_D40, VT_D8(40)
#define VT_D56 VT_D48, VT_D8(48)
#define VT_D64 VT_D56, VT_D8(56)

/* d [64, N] = a [64, 16] b [16, N], or d += a b if ADDS; d has N / 2 registers, a four, each with two neighbours along
 * the depth. After the registers of d come the numbers of the operands behind them. */
#define VT_WGMMA(N, COUNT, REGISTERS, OPERANDS, o0, o1, o2, o3, o4, o5, o6)                                            \
    template <int MAJOR, bool ADDS> VT_INLINE void vt_wgmma(float(&d)[COUNT], const uint32_t *a, uint64_t b)           \
    {                                                                                                                  \
        asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %" #o5 ", 0;\n"                                           \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" REGISTERS "}, "                      \
                     "{%" #o0 ", %" #o1 ", %" #o2 ", %" #o3 "}, %" #o4 ", adds, 1, 1, %" #o6 ";\n}"                    \
                     : OPERANDS                                                                                        \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"((int)ADDS), "n"(MAJOR));                \
    }

VT_WGMMA(32, 16, VT_R16, VT_D16, 16, 17, 18, 19, 20, 21, 22)
VT_WGMMA(48, 24, VT_R24, VT_D24, 24, 25, 26, 27, 28, 29, 30)
VT_WGMMA(64, 32, VT_R32, VT_D32, 32, 33, 34, 35, 36, 37, 38)
VT_WGMMA(80, 40, VT_R40, VT_D40, 40, 41, 42, 43, 44, 45, 46)
VT_WGMMA(96, 48, VT_R48, VT_D48, 48, 49, 50, 51, 52, 53, 54)
VT_WGMMA(112, 56, VT_R56, VT_D56, 56, 57, 58, 59, 60, 61, 62)
VT_WGMMA(128, 64, VT_R64, VT_D64, 64, 65, 66, 67, 68, 69, 70)

/* 2^x by the unit for exponentials; denormals become 0. */
VT_INLINE float vt_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ---- on the host ---- */

/* A matrix of batch × rows rows as a map of four dimensions: 16 columns, rows, panels, samples. Boxes have box_rows
 * rows of box_columns columns; what lies behind a sample's last row is 0 in them. False: the driver has no such map. */
static inline bool vt_map_boxes(vt_box_map *map, const vt_matrix &m, int64_t batch, int64_t rows, int box_rows,
                                int box_columns)
{
    typedef CUresult (*encode_type)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                    const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                    CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    static encode_type encode = nullptr; /* from the driver at run time: the program must start without it */
    if (encode == nullptr) {
        void *found = nullptr;
        cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
        const cudaError_t error =
            cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
#else
        const cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
        if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) return false;
        encode = (encode_type)found;
    }
    const cuuint64_t row = 2 * (cuuint64_t)m.stride;
    const cuuint64_t sizes[4] = {16, (cuuint64_t)rows, (cuuint64_t)m.columns / 16, (cuuint64_t)batch};
    const cuuint64_t strides[3] = {row, 32, row * (cuuint64_t)rows};
    const cuuint32_t box[4] = {16, (cuuint32_t)box_rows, (cuuint32_t)box_columns / 16, 1}, steps[4] = {1, 1, 1, 1};
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, m.half, sizes, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_32B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

#else
#include "host_wgmma.h"
#endif

/* ---- descriptors of operand B in a tile; offsets in bytes ---- */

VT_INLINE uint64_t vt_descriptor(vt_shared start, int leading, int stride)
{
    const uint64_t swizzle_32 = 3;
    return (uint64_t)((start & 0x3ffffu) >> 4) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 |
           swizzle_32 << 62;
}

/* The depth is the 16 columns of one panel: eight rows further is 256 bytes. The leading offset is not used. */
VT_INLINE uint64_t vt_by_columns(vt_shared panel)
{
    return vt_descriptor(panel, 16, 256);
}

/* The depth is 16 rows, from a multiple of 8 on: eight rows further is 256 bytes, 16 columns further is a panel. */
VT_INLINE uint64_t vt_by_rows(vt_shared first_row, int panel_bytes)
{
    return vt_descriptor(first_row, panel_bytes, 256);
}

/* The same operand `bytes` further on: one addition, where a new descriptor takes several. */
VT_INLINE uint64_t vt_ahead(uint64_t descriptor, int bytes)
{
    return descriptor + (uint64_t)(bytes >> 4);
}

#endif
