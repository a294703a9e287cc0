/* A stand-in for the CUDA language, for tests on a machine without a GPU: kernels compile with the host's C++ compiler
 * and run here. Every thread of a block has a small stack; barriers and shuffles switch between them; blocks run one
 * after another on each OpenMP thread. It finds wrong indices (AddressSanitizer sees all memory), missing and divergent
 * barriers, partial warps, and shared memory that is read before it was written (it begins as NaN). It says nothing
 * about speed.
 * A barrier that only some threads of a warp or block reach ends the program with a message.
 *
 * Compiled for ThreadSanitizer it finds races, too, whatever the order in which threads run here. Each CUDA thread is
 * one of its fibers, and nothing orders two of them but what orders them on a GPU: barriers of the block and of the
 * warp. Shuffles order nothing. Blocks are not ordered either: half of them have fibers and shared memory of their
 * own, and which half differs from launch to launch. */
#ifndef VT_CUDA_HOST_CUDA_H
#define VT_CUDA_HOST_CUDA_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
extern "C" void __tsan_read_range(void *address, long bytes);
extern "C" void __tsan_write_range(void *address, long bytes);
#define VT_UNSEEN __attribute__((no_sanitize("thread"), noinline, unused))
#define VT_FOR_EACH_BLOCK _Pragma("omp parallel for schedule(static, neighbours) num_threads(2)")
#else
#define VT_UNSEEN inline
#define VT_FOR_EACH_BLOCK _Pragma("omp parallel for schedule(dynamic)")
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define VT_KERNEL static
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __shared__ static thread_local

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};

inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

template <typename number> static inline number min(number a, number b)
{
    return b < a ? b : a;
}

template <typename number> static inline number max(number a, number b)
{
    return a < b ? b : a;
}

namespace host_cuda
{

enum wait_for { RUNNING, BLOCK, WARP, CONDITION, ENDED };
constexpr int WARP_SIZE = 32, MOST_THREADS = 1024, MOST_COPIES = 64;
constexpr size_t STACK_BYTES = 64 << 10, SLOT_BYTES = 64;
/* Of compute capability 8.x, unless a file is for another one. */
#if !defined(VT_MOST_SHARED_BYTES)
#define VT_MOST_SHARED_BYTES (99 * 1024)
#endif

struct thread {
    char *stack;
    wait_for state;
#if defined(__x86_64__)
    void *saved;
#else
    ucontext_t context;
#endif
    void *fake_stack;                            /* AddressSanitizer's */
    void *fiber;                                 /* ThreadSanitizer's */
    int block_barriers, warp_barriers;           /* how many it has reached */
    bool (*is_met)(int64_t what, int64_t until); /* of CONDITION, with its arguments */
    int64_t what, until;
    int copy_count; /* cp.async that are not complete yet */
    struct {
        void *to;
        const void *from;
    } copies[MOST_COPIES];
};

/* What happens beside a block's threads, of its own accord: host_wgmma.h. */
struct work_beside {
    bool (*advances)(); /* completes something; false: there is nothing */
    bool (*skips)();    /* whether a warp's turn is left out */
    void (*thread_ends)(int thread);
    void (*block_ends)();
};

/* The state of the block that runs on this OpenMP thread. */
struct block_state {
    thread *threads; /* MOST_THREADS; lives as long as the OpenMP thread */
    thread *current;
    int count;
    int64_t turns;             /* of threads */
    const work_beside *beside; /* NULL: none */
    thread scheduler;
    const void *scheduler_stack;
    size_t scheduler_stack_bytes;
    void (*body)(const void *);
    const void *argument;
    char *shared;
    size_t shared_bytes;
    char (*slots)[SLOT_BYTES]; /* what the lanes of a warp exchange */
    /* Tokens of order_before and order_after. Barriers take two in turn, because some threads reach the next barrier
     * before others have left this one. */
    char begun, ended, at_block[2], at_warp[MOST_THREADS / WARP_SIZE][2];
};

inline thread_local block_state block;
inline char launched, completed; /* tokens, too */

/* Tells ThreadSanitizer that what a thread did before order_before(token) comes before what any thread does after
 * a later order_after(token). */
static inline void order_before(char *token)
{
#if defined(__SANITIZE_THREAD__)
    __tsan_release(token);
#else
    (void)token;
#endif
}

static inline void order_after(char *token)
{
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(token);
#else
    (void)token;
#endif
}

[[noreturn]] static inline void fail(const char *sentence)
{
    fprintf(stderr, "host_cuda: %s (block %u %u %u, thread %u)\n", sentence, blockIdx.x, blockIdx.y, blockIdx.z,
            threadIdx.x);
    abort();
}

#if defined(__x86_64__)
extern "C" void vt_host_cuda_switch(void **save, void *to);
__asm__(".text\n.weak vt_host_cuda_switch\n.type vt_host_cuda_switch,@function\nvt_host_cuda_switch:\n"
        " push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        " mov %rsp,(%rdi)\n mov %rsi,%rsp\n"
        " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n"
        ".size vt_host_cuda_switch,.-vt_host_cuda_switch\n");
#endif

VT_UNSEEN static void switch_stacks(thread *from, thread *to, const void *stack, size_t bytes)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(from->state == ENDED ? nullptr : &from->fake_stack, stack, bytes);
#else
    (void)stack, (void)bytes;
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to->fiber, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__x86_64__)
    vt_host_cuda_switch(&from->saved, to->saved);
#else
    swapcontext(&from->context, &to->context);
#endif
#if defined(__SANITIZE_ADDRESS__)
    const void *old_stack;
    size_t old_bytes;
    __sanitizer_finish_switch_fiber(from->fake_stack, &old_stack, &old_bytes);
    if (from == &block.scheduler) return;
    block.scheduler_stack = old_stack;
    block.scheduler_stack_bytes = old_bytes;
#endif
}

/* Switches to the scheduler until this thread may continue. */
VT_UNSEEN static void wait(wait_for what)
{
    thread *self = block.current;
    self->state = what;
    switch_stacks(self, &block.scheduler, block.scheduler_stack, block.scheduler_stack_bytes);
}

/* Until is_met(what, until). */
VT_UNSEEN static void wait_until(bool (*is_met)(int64_t, int64_t), int64_t what, int64_t until)
{
    thread *self = block.current;
    if (is_met(what, until)) return;
    self->is_met = is_met, self->what = what, self->until = until;
    wait(CONDITION);
}

VT_UNSEEN static void thread_main()
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &block.scheduler_stack, &block.scheduler_stack_bytes);
#endif
    order_after(&launched);
    order_after(&block.begun);
    block.body(block.argument);
    if (block.current->copy_count > 0) fail("a thread ends before its cp.async are complete");
    if (block.beside != nullptr) block.beside->thread_ends((int)(block.current - block.threads));
    order_before(&block.ended);
    order_before(&completed);
    wait(ENDED);
    fail("an ended thread runs on");
}

VT_UNSEEN static void prepare(thread *t)
{
    if (t->stack == nullptr) t->stack = (char *)aligned_alloc(64, STACK_BYTES);
    if (t->stack == nullptr) fail("no memory");
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(t->stack, STACK_BYTES);
#endif
#if defined(__x86_64__)
    void **top = (void **)(t->stack + STACK_BYTES);
    *--top = nullptr; /* in place of a caller's return address: keeps the stack aligned as in a call */
    *--top = (void *)thread_main;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    t->saved = top;
#else
    getcontext(&t->context);
    t->context.uc_stack.ss_sp = t->stack;
    t->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&t->context, thread_main, 0);
#endif
#if defined(__SANITIZE_THREAD__)
    if (t->fiber == nullptr) t->fiber = __tsan_create_fiber(0);
#endif
    t->state = RUNNING;
    t->fake_stack = nullptr;
    t->block_barriers = t->warp_barriers = 0;
}

/* Whether a thread can go on, now that others have run. */
VT_UNSEEN static bool can_run(thread *t)
{
    if (t->state == CONDITION && t->is_met(t->what, t->until)) t->state = RUNNING;
    return t->state == RUNNING;
}

/* Runs threads first … end - 1 of one warp until all wait at the block's barrier or for something else, or have ended.
 */
VT_UNSEEN static void run_warp(int first, int end)
{
    for (;;) {
        int at_warp = 0, running = 0, waiting = 0;
        for (int i = first; i < end; i++) {
            thread *t = &block.threads[i];
            if (!can_run(t)) continue;
            block.current = t;
            block.turns++;
            threadIdx.x = (unsigned)i;
            switch_stacks(&block.scheduler, t, t->stack, STACK_BYTES);
        }
        for (int i = first; i < end; i++) {
            running += can_run(&block.threads[i]);
            at_warp += block.threads[i].state == WARP;
            waiting += block.threads[i].state == CONDITION;
        }
        if (running > 0) continue;
        if (at_warp == 0 || waiting > 0) return;
        if (at_warp < end - first) fail("some threads of a warp never reach a shuffle or barrier of the warp");
        for (int i = first; i < end; i++) block.threads[i].state = RUNNING;
    }
}

VT_UNSEEN static void run_block()
{
#if defined(__SANITIZE_THREAD__)
    block.scheduler.fiber = __tsan_get_current_fiber();
#endif
    for (int i = 0; i < block.count; i++) prepare(&block.threads[i]);
    memset(block.shared, 0xff, block.shared_bytes); /* NaN */
    block.beside = nullptr;
    order_before(&block.begun);
    for (;;) {
        int at_block = 0, ended = 0, waiting = 0;
        bool skipped = false;
        const int64_t turns = block.turns;
        for (int w = 0; w < block.count; w += WARP_SIZE) {
            if (block.beside != nullptr && block.beside->skips())
                skipped = true;
            else
                run_warp(w, min(w + WARP_SIZE, block.count));
        }
        for (int i = 0; i < block.count; i++) {
            at_block += block.threads[i].state == BLOCK;
            ended += block.threads[i].state == ENDED;
            waiting += block.threads[i].state == CONDITION;
        }
        if (ended == block.count) break;
        if (at_block == block.count) {
            for (int i = 0; i < block.count; i++) block.threads[i].state = RUNNING;
        } else if (block.turns == turns && !skipped) {
            if (waiting == 0) fail("some threads of a block never reach __syncthreads");
            if (!block.beside->advances()) fail("threads wait for what never happens");
        }
    }
    if (block.beside != nullptr) block.beside->block_ends();
    order_after(&block.ended);
}

/* How many blocks that follow one another run on the same OpenMP thread (for ThreadSanitizer): 1, 2, 4 or 8 by turns,
 * but fewer than there are. So two blocks are on different ones in some of a kernel's launches, unless they are a
 * multiple of 16 apart. */
static inline int64_t choose_neighbours(int64_t blocks)
{
    static uint32_t launches;
    int64_t count = (int64_t)1 << (launches++ * 2654435769u >> 30);
    while (count > 1 && count >= blocks) count /= 2;
    return count;
}

template <typename function>
VT_UNSEEN static void launch(dim3 grid, unsigned threads, size_t shared_bytes, const function &run)
{
    int64_t blocks = (int64_t)grid.x * grid.y * grid.z;
    if (grid.y > 65535 || grid.z > 65535) fail("a grid that CUDA refuses");
    if (threads < 1 || threads > MOST_THREADS) fail("a block that CUDA refuses");
    if (shared_bytes > VT_MOST_SHARED_BYTES) fail("more shared memory than every GPU that the kernel is for has");
    [[maybe_unused]] const int64_t neighbours = choose_neighbours(blocks);
    order_before(&launched);
    VT_FOR_EACH_BLOCK
    for (int64_t i = 0; i < blocks; i++) {
        gridDim = grid;
        blockDim.x = threads;
        blockIdx = dim3((unsigned)(i % grid.x), (unsigned)(i / grid.x % grid.y), (unsigned)(i / grid.x / grid.y));
        block.count = (int)threads;
        if (block.threads == nullptr) {
            block.threads = (thread *)calloc(MOST_THREADS, sizeof(thread));
            block.slots = (char(*)[SLOT_BYTES])aligned_alloc(64, MOST_THREADS * SLOT_BYTES);
            if (block.threads == nullptr || block.slots == nullptr) fail("no memory");
        }
        if (block.shared_bytes != shared_bytes || block.shared == nullptr) {
            free(block.shared); /* exactly the size requested, so that AddressSanitizer sees its end */
            block.shared = (char *)aligned_alloc(128, (shared_bytes + 255) / 128 * 128);
            if (block.shared == nullptr) fail("no memory");
            block.shared_bytes = shared_bytes;
#if defined(__SANITIZE_ADDRESS__)
            __asan_poison_memory_region(block.shared + (shared_bytes + 7) / 8 * 8,
                                        (shared_bytes + 255) / 128 * 128 - (shared_bytes + 7) / 8 * 8);
#endif
        }
        block.body = [](const void *argument) { (*(const function *)argument)(); };
        block.argument = &run;
        run_block();
    }
    order_after(&completed);
}

/* ---- what is launched later, by whoever took it. The arguments are those of the launch; they are plain numbers and
 * pointers, so copying the bytes copies them. ---- */

inline void (*taker)(void (*run)(const void *), const void *arguments, size_t bytes); /* NULL: run at once */

extern "C" {
/* From here on every launch goes to `take`, which copies the arguments and runs the kernel later; NULL: launch directly
 * again. */
inline __attribute__((used)) void vt_host_cuda_hand_to(void (*take)(void (*run)(const void *), const void *, size_t))
{
    taker = take;
}

/* run(arguments [bytes]), now or later. */
inline __attribute__((used)) void vt_host_cuda_do(void (*run)(const void *arguments), const void *arguments,
                                                  size_t bytes)
{
    if (taker != nullptr)
        taker(run, arguments, bytes);
    else
        run(arguments);
}
}

/* The arguments are captured now, whenever the kernel runs. */
template <typename function, typename... types>
static void start(dim3 grid, unsigned threads, size_t shared_bytes, function *kernel, types... arguments)
{
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return; /* as in VT_LAUNCH of language.h */
    const auto what = [=] { launch(grid, threads, shared_bytes, [=] { kernel(arguments...); }); };
    static_assert(__is_trivially_copyable(decltype(what)), "a kernel's arguments");
    vt_host_cuda_do([](const void *kept) { (*(decltype(what) *)kept)(); }, &what, sizeof what);
}

/* This thread's place in its block. */
static inline int place()
{
    return (int)(block.current - block.threads);
}

/* Publishes `own` to the other lanes of the warp; lane(i) then reads lane i's value until leave(). */
template <typename type> VT_UNSEEN static void publish(const type &own)
{
    static_assert(sizeof own <= SLOT_BYTES, "a slot's size");
    *(type *)block.slots[place()] = own;
    wait(WARP);
}

template <typename type> static inline const type &lane(int index)
{
    return *(const type *)block.slots[place() / WARP_SIZE * WARP_SIZE + index];
}

static inline void leave()
{
    wait(WARP);
}

template <typename type> static inline type shuffle(type value, int source)
{
    publish(value);
    type result = lane<type>(source);
    leave();
    return result;
}

/* Waits for all threads of the block or warp, and orders what they did before what they do next. */
static inline void barrier(wait_for what, char tokens[2], int *reached)
{
    char *token = &tokens[(*reached)++ % 2];
    order_before(token);
    wait(what);
    order_after(token);
}

/* cp.async: 16 bytes from global to shared memory, copied when this thread waits for its copies. */
static inline void copy_later(void *to, const void *from)
{
    thread *self = block.current;
    if (((uintptr_t)to | (uintptr_t)from) % 16 != 0) fail("cp.async of unaligned memory");
    if (self->copy_count == MOST_COPIES) fail("more cp.async of one thread than host_cuda.h expects");
#if defined(__SANITIZE_THREAD__) /* from now on another thread may not touch either */
    __tsan_read_range((void *)from, 16);
    __tsan_write_range(to, 16);
#endif
    self->copies[self->copy_count].to = to;
    self->copies[self->copy_count++].from = from;
}

static inline void copies_wait()
{
    thread *self = block.current;
    for (int i = 0; i < self->copy_count; i++) memcpy(self->copies[i].to, self->copies[i].from, 16);
    self->copy_count = 0;
}

} // namespace host_cuda

static inline void __syncthreads()
{
    host_cuda::barrier(host_cuda::BLOCK, host_cuda::block.at_block, &host_cuda::block.current->block_barriers);
}

static inline void __syncwarp(unsigned = 0xffffffffu)
{
    host_cuda::barrier(host_cuda::WARP, host_cuda::block.at_warp[host_cuda::place() / host_cuda::WARP_SIZE],
                       &host_cuda::block.current->warp_barriers);
}

template <typename type> static inline type __shfl_xor_sync(unsigned, type value, int mask)
{
    return host_cuda::shuffle(value, host_cuda::place() % 32 ^ mask);
}

template <typename type> static inline type __shfl_sync(unsigned, type value, int source)
{
    return host_cuda::shuffle(value, source);
}

static inline bool __any_sync(unsigned, bool value)
{
    bool any = false;
    host_cuda::publish(value);
    for (int i = 0; i < host_cuda::WARP_SIZE; i++) any |= host_cuda::lane<bool>(i);
    host_cuda::leave();
    return any;
}

#define VT_DYNAMIC_SHARED(type, name) type *name = (type *)host_cuda::block.shared
#define VT_LAUNCH(kernel, grid, threads, shared_bytes, backend, ...)                                                   \
    do {                                                                                                               \
        (void)(backend);                                                                                               \
        host_cuda::start((grid), (threads), (shared_bytes), (kernel), __VA_ARGS__);                                    \
    } while (0)

#endif
