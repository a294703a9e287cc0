#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(VT_HAS_BF16)
#include <sys/auxv.h>
#endif
#if defined(VT_HAS_AMX)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#include <errno.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/cpu/cpu.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/threads.h"

static double cpu_available_memory(vt_backend *backend)
{
    return vt_memory_available();
}

static vt_status cpu_allocate(vt_backend *backend, vt_memory_category category, size_t bytes, void **memory)
{
    vt_status status = VT_OK;
    vt_cpu_state *state = backend->state;
    char needed[VT_NUMBER_SIZE], free_memory[VT_NUMBER_SIZE];
    *memory = NULL;
    if (bytes == 0) bytes = 1;
    double available = cpu_available_memory(backend);
    VT_CHECK(
        available < 0 || (double)bytes <= available,
        "%s need %s of memory, %s are free. A smaller batch (--local_batch_size), a larger --patch_size or a smaller "
        "--embed_dim need less",
        vt_memory_category_name(category), vt_text_bytes((double)bytes, needed), vt_text_bytes(available, free_memory));
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VT_CHECK(mapped != MAP_FAILED, "no memory for %s (%s): %s", vt_memory_category_name(category),
             vt_text_bytes((double)bytes, needed), strerror(errno));
    madvise(mapped, bytes, MADV_HUGEPAGE); /* advice only: fewer page faults where the kernel follows it */
    state->mappings = vt_grow(state->mappings, state->mapping_count, sizeof *state->mappings, "the back end");
    state->mappings[state->mapping_count++] = (vt_cpu_room){mapped, bytes};
    *memory = mapped;
done:
    return status;
}

static void cpu_release(vt_backend *backend, void *memory)
{
    vt_cpu_state *state = backend->state;
    size_t i = 0;
    if (memory == NULL) return;
    while (i < state->mapping_count && state->mappings[i].memory != memory) i++;
    VT_ASSERT(i < state->mapping_count); /* this back end owns it */
    munmap(memory, state->mappings[i].bytes);
    state->mappings[i] = state->mappings[--state->mapping_count];
}

/* Memory is cleared and copied by all threads, each a range of pieces: the system places a page when it is first
 * written, so pages lie near the cores whose threads later work on that part of long arrays (Adam, norms). */
enum { PIECE = 1 << 20, LEAST_STREAMED = 64 };

/* Clears a whole piece. Beyond the caches' reach (LEAST_STREAMED pieces), memory is not read before it is written. */
static void clear_piece(char *memory, bool stream)
{
#if defined(__SSE2__)
    for (size_t i = 0; stream && i < PIECE; i += sizeof(__m128i))
        _mm_stream_si128((__m128i *)(memory + i), _mm_setzero_si128());
    if (stream) _mm_sfence();
    if (stream) return;
#endif
    memset(memory, 0, PIECE);
}

static void cpu_zero(vt_backend *backend, void *memory, size_t bytes)
{
    int64_t pieces = (int64_t)((bytes + PIECE - 1) / PIECE);
#pragma omp parallel for schedule(static) if (pieces > 1)
    for (int64_t piece = 0; piece < pieces; piece++) {
        char *begin = (char *)memory + piece * PIECE;
        size_t left = bytes - (size_t)piece * PIECE;
        if (left < PIECE)
            memset(begin, 0, left);
        else
            clear_piece(begin, pieces >= LEAST_STREAMED && (uintptr_t)memory % 16 == 0);
    }
}

static void cpu_copy(vt_backend *backend, void *to, const void *from, size_t bytes)
{
    int64_t pieces = (int64_t)((bytes + PIECE - 1) / PIECE);
#pragma omp parallel for schedule(static) if (pieces > 1)
    for (int64_t piece = 0; piece < pieces; piece++) {
        size_t begin = (size_t)piece * PIECE, left = bytes - begin;
        memcpy((char *)to + begin, (const char *)from + begin, left < PIECE ? left : PIECE);
    }
}

/* Makes the room at least `bytes` large; its old content is lost when it grows. */
static void *grow(vt_backend *backend, size_t bytes, vt_cpu_room *room)
{
    if (bytes <= room->bytes) return room->memory;
    cpu_release(backend, room->memory);
    *room = (vt_cpu_room){NULL, 0};
    if (cpu_allocate(backend, VT_MEMORY_WORKSPACE, bytes, &room->memory) == VT_OK)
        room->bytes = bytes;
    else
        ((vt_cpu_state *)backend->state)->failed = true;
    return room->memory;
}

void *vt_cpu_stand_in_memory(vt_backend *backend, size_t bytes)
{
    return grow(backend, bytes, &((vt_cpu_state *)backend->state)->stand_ins);
}

void *vt_cpu_shared(vt_backend *backend, size_t bytes)
{
    return grow(backend, bytes, &((vt_cpu_state *)backend->state)->shared);
}

bool vt_cpu_scratch_reserve(vt_backend *backend, size_t bytes)
{
    vt_cpu_state *state = backend->state;
    const size_t pages = (bytes + 4095) / 4096 * 4096;
    return bytes == 0 || grow(backend, pages * (size_t)state->threads, &state->scratch) != NULL;
}

void *vt_cpu_scratch(vt_backend *backend)
{
    vt_cpu_state *state = backend->state;
    const size_t each = state->scratch.bytes / (size_t)state->threads;
    return (char *)state->scratch.memory + (size_t)omp_get_thread_num() * each;
}

static vt_status cpu_check(vt_backend *backend)
{
    vt_cpu_state *state = backend->state;
    return state->failed ? VT_ERROR : VT_OK;
}

static void cpu_close(vt_backend *backend)
{
    vt_cpu_state *state = backend->state;
    while (state->mapping_count > 0) cpu_release(backend, state->mappings[0].memory);
    free(state->mappings);
    free(state);
}

static void fill_plain(vt_backend *backend)
{
    backend->close = cpu_close;
    backend->check = cpu_check;
    backend->available_memory = cpu_available_memory;
    backend->allocate = cpu_allocate;
    backend->release = cpu_release;
    backend->zero = cpu_zero;
    backend->copy_from_host = cpu_copy;
    backend->copy_to_host = cpu_copy;
    vt_backend_fill_immediate(backend);
#define OPTIONAL_OPERATION(name, work, ...)
#define OPERATION(name, work, ...) backend->name = vt_plain_##name;
#include "backend/operations.def"
}

#if defined(__x86_64__)

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
}

#endif

#if defined(VT_HAS_BF16)

static bool has_bf16(void)
{
#if defined(__x86_64__)
    enum { AVX512_BF16 = 1 << 5 }; /* CPUID leaf 7, subleaf 1 */
    unsigned a = 0, b = 0, c = 0, d = 0;
    return has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX512_BF16) != 0;
#else
    return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
#endif
}

#endif

#if defined(VT_HAS_AMX)

/* The processor has bfloat16 tiles (CPUID leaf 7), and Linux lets this process use them, for which it must ask once
 * (Documentation/arch/x86/xstate.rst; since 5.16). The threads inherit the permission. */
static bool has_amx(void)
{
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!has_bf16() || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if ((d & AMX_BF16) == 0 || (d & AMX_TILE) == 0) return false;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static void fill_amx(vt_backend *backend)
{
    vt_vector_fill_amx(backend);
    vt_tiles_fill_amx(backend);
}

#endif

/* The kernels of this build; the later ones are faster where a processor has their instructions. */
typedef struct {
    vt_cpu_isa isa;
    const char *name;
    bool (*available)(void); /* on this processor; NULL: on all */
    void (*fill)(vt_backend *backend);
} vector_choice;

static const vector_choice choices[] = {
    {VT_ISA_BASELINE, "baseline", NULL, vt_vector_fill_baseline},
#if defined(__x86_64__)
    {VT_ISA_AVX2, "avx2", has_avx2, vt_vector_fill_avx2},
    {VT_ISA_AVX512, "avx512", has_avx512, vt_vector_fill_avx512},
#endif
#if defined(VT_HAS_BF16) && defined(__x86_64__) /* in the log "bf16" would be taken for the type of the numbers */
    {VT_ISA_BF16, "avx512+bf16", has_bf16, vt_vector_fill_bf16},
#elif defined(VT_HAS_BF16)
    {VT_ISA_BF16, "baseline+bf16", has_bf16, vt_vector_fill_bf16},
#endif
#if defined(VT_HAS_AMX)
    {VT_ISA_AMX, "amx", has_amx, fill_amx},
#endif
};
enum { CHOICES = sizeof choices / sizeof *choices };

/* Whether pairs multiply clearly faster than float32 numbers: by turns, the best of a few turns of some hundredths of a
 * millisecond, on one thread, so that what other cores do does not matter. With a smaller difference the choice could
 * change from run to run, and with it the bits. (On an Intel Xeon of the Sapphire Rapids class pairs have half the
 * rate.) */
static bool pairs_pay(vt_backend *backend, const vector_choice *pairs)
{
    enum { TURNS = 8, ROUNDS = 10000 };
    static const vt_type types[2] = {VT_FLOAT32, VT_BFLOAT16};
    double best[2] = {0};
    pairs->fill(backend);
    omp_set_num_threads(1);
    for (int turn = 0; turn < 2 * TURNS; turn++) {
        double *rate = &best[turn % 2];
        const double begin = vt_clock_seconds();
        const double flops = vt_backend_cpu_multiply_adds(backend, types[turn % 2], ROUNDS);
        *rate = fmax(*rate, flops / (vt_clock_seconds() - begin));
    }
    omp_set_num_threads(vt_cpu_threads(backend));
    return best[1] > 1.3 * best[0];
}

/* NULL: this processor or this build lacks what is asked for. */
static const vector_choice *choose_vectors(vt_backend *backend, vt_cpu_isa isa)
{
    const bool is_auto = isa == VT_ISA_AUTO;
    for (int i = CHOICES - 1; i >= 0; i--) {
        const vector_choice *c = &choices[i];
        if ((!is_auto && c->isa != isa) || (c->available != NULL && !c->available())) continue;
        if (!is_auto || c->isa != VT_ISA_BF16 || pairs_pay(backend, c)) return c;
    }
    return NULL;
}

static const char *const isa_words[] = {
#define WORD(enumerator, word) [enumerator] = word,
    VT_CPU_ISAS(WORD)
#undef WORD
};

/* What auto stands for: VITRAIN_CPU_ISA, so that the whole of a test or a run can be made with one instruction set. */
static vt_status read_isa(vt_cpu_isa *isa)
{
    vt_status status = VT_OK;
    enum { WORDS = sizeof isa_words / sizeof *isa_words };
    const char *text = getenv("VITRAIN_CPU_ISA");
    if (text == NULL || text[0] == '\0') goto done;
    size_t i = 0;
    while (i < WORDS && strcmp(isa_words[i], text) != 0) i++;
    VT_CHECK(i < WORDS, "VITRAIN_CPU_ISA is '%s', expected plain, baseline, avx2, avx512, bf16 or amx, or nothing",
             text);
    *isa = (vt_cpu_isa)i;
done:
    return status;
}

enum { MOST_THREADS = 4096 }; /* from num_threads */

vt_status vt_backend_open_cpu(vt_cpu_isa isa, int threads, vt_backend **result)
{
    vt_status status = VT_OK;
    vt_backend *backend = vt_allocate(1, sizeof *backend, "the CPU back end");
    vt_cpu_state *state = vt_allocate(1, sizeof *state, "the CPU back end");
    backend->state = state;
    backend->shares_host_memory = true;
    if (threads > 0) omp_set_num_threads(threads);
    state->threads = omp_get_max_threads();
    fill_plain(backend);
    VT_CHECK(state->threads <= MOST_THREADS, "OMP_NUM_THREADS=%d: expected 1 to %d", state->threads, MOST_THREADS);
    vt_threads_pin(state->threads);
    const char *isa_name = "plain";
    const bool is_auto = isa == VT_ISA_AUTO;
    if (is_auto) VT_TRY(read_isa(&isa));
    if (isa != VT_ISA_PLAIN) {
        const vector_choice *chosen = choose_vectors(backend, isa);
        VT_CHECK(chosen != NULL, "%s %s: this processor has no such instructions%s; %s",
                 is_auto ? "VITRAIN_CPU_ISA" : "cpu_isa", isa_words[isa],
                 isa == VT_ISA_AMX ? " (or the system or this build leaves them out)" : "",
                 is_auto ? "unset it" : "leave it at auto");
        chosen->fill(backend);
        isa_name = chosen->name;
    }
    vt_cpu_half_fill(backend);
    snprintf(backend->name, sizeof backend->name, "CPU, %d thread%s, %s", state->threads,
             state->threads == 1 ? "" : "s", isa_name);
done:
    if (status != VT_OK) vt_backend_close(&backend);
    *result = backend;
    return status;
}

double vt_backend_cpu_multiply_adds(const vt_backend *backend, vt_type type, int64_t rounds)
{
    const vt_cpu_state *state = backend->state;
    return state->multiply_adds != NULL ? state->multiply_adds(type, rounds) : 0;
}

void vt_backend_close(vt_backend **backend)
{
    if (*backend == NULL) return;
    (*backend)->close(*backend);
    free(*backend);
    *backend = NULL;
}
