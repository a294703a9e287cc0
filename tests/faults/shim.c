/* LD_PRELOAD=build/tests/fault_shim.so: makes the n-th system call of some kinds fail, or kills the program at it; or
 * makes the n-th request for memory fail. Controlled by the environment:
 *
 *   FAULT_CALLS=write,pwrite64,...   the kinds that count; or "memory", or "own-memory": what the program itself asks
 *                                    for, not its libraries
 *   FAULT_BELOW=DIR                  only calls on files below this directory count
 *   FAULT_AT=N                       the N-th of them (1 is the first); 0 or not set: only count
 *   FAULT_ERROR=ENOSPC|EACCES|EPERM|EMFILE|EIO
 *                                    what it fails with; "kill": the program is killed before it, "kill-after": after
 *                                    it
 *   FAULT_STICKY=1                   all later ones fail as well (a disk that stays full)
 *   FAULT_SYNCED=PATH                gets "INODE BYTES" for each file that fsync or fdatasync (which must be among
 *                                    FAULT_CALLS) brings to the disk: what a loss of power leaves of it
 *   FAULT_REPORT=PATH                gets "count N" at the end; "WHAT N PATH" at a fault; with memory, at a crash,
 *                                    "crash N OBJECT", the program or the library at fault
 *
 * System calls are caught by seccomp (SECCOMP_RET_TRAP and a handler of SIGSYS), not by names of functions: the C
 * library's own calls, below stdio for one, don't go through any name. The handler makes the call itself with a marked
 * last argument, which the filter lets pass. x86-64 and aarch64 Linux. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* The sixth argument, which none of the calls below has, marks calls that the shim makes itself. */
#define OWN_CALL 0x7669747261696e21u

typedef struct {
    const char *name;
    long number;
    int descriptor,
        path; /* which arguments: the file, or the folder that the path starts from, and the path; -1: none */
} call_kind;

static const call_kind kinds[] = {
    {"write", SYS_write, 0, -1},         {"pwrite64", SYS_pwrite64, 0, -1},   {"fsync", SYS_fsync, 0, -1},
    {"fdatasync", SYS_fdatasync, 0, -1}, {"ftruncate", SYS_ftruncate, 0, -1}, {"close", SYS_close, 0, -1},
    {"openat", SYS_openat, 0, 1},        {"mkdirat", SYS_mkdirat, 0, 1},      {"unlinkat", SYS_unlinkat, 0, 1},
    {"symlinkat", SYS_symlinkat, 1, 2},  {"renameat", SYS_renameat, 0, 1},    {"renameat2", SYS_renameat2, 0, 1},
    {"read", SYS_read, 0, -1},           {"pread64", SYS_pread64, 0, -1},
#ifdef SYS_open
    {"open", SYS_open, -1, 0},           {"mkdir", SYS_mkdir, -1, 0},         {"unlink", SYS_unlink, -1, 0},
    {"symlink", SYS_symlink, -1, 1},     {"rename", SYS_rename, -1, 0},       {"rmdir", SYS_rmdir, -1, 0},
#endif
};
enum { KIND_COUNT = sizeof kinds / sizeof kinds[0] };

static bool watched[KIND_COUNT];
static bool watches_memory, only_own_memory, is_sticky, kills, kills_after;
static uintptr_t program_begin, program_end;
static int fault_error = EIO;
static unsigned long fault_at;
static atomic_ulong count;
static char below[4096], report_path[4096], synced_path[4096];

static long own_call(long number, long a, long b, long c, long d, long e)
{
#if defined __x86_64__
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = (long)OWN_CALL;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined __aarch64__
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = (long)OWN_CALL;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#else
#error "no system calls of this processor are known here"
#endif
}

/* Uses only its own system calls, and no memory: it runs in signal handlers. */
static void append(const char *to, const char *line, int length)
{
    if (to[0] == '\0') return;
    long file = own_call(SYS_openat, AT_FDCWD, (long)to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666, 0);
    if (file < 0) return;
    own_call(SYS_write, file, (long)line, length, 0, 0);
    own_call(SYS_close, file, 0, 0, 0, 0);
}

static void report(const char *what, const char *path)
{
    char line[4600];
    append(report_path, line, snprintf(line, sizeof line, "%s %lu %s\n", what, atomic_load(&count), path));
}

/* The path that a call refers to, made absolute if possible. */
static void path_of(const call_kind *kind, const long argument[6], char path[4096])
{
    const char *name = kind->path >= 0 ? (const char *)argument[kind->path] : "";
    int descriptor = kind->descriptor >= 0 ? (int)argument[kind->descriptor] : AT_FDCWD;
    char link[64] = "/proc/self/cwd";
    ssize_t length = 0;
    if (name[0] != '/') {
        if (descriptor != AT_FDCWD) snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
        length = readlink(link, path, 4094);
        if (length < 0) length = 0;
        if (kind->path >= 0) path[length++] = '/';
    }
    snprintf(path + length, (size_t)(4096 - length), "%s", name);
}

/* Whether this call is to fail. */
static bool counts_as_fault(void)
{
    unsigned long number = atomic_fetch_add(&count, 1) + 1;
    return fault_at > 0 && (number == fault_at || (is_sticky && number > fault_at));
}

static long make_call(const call_kind *kind, const long argument[6])
{
    struct stat before;
    char line[64];
    const bool synchronises = (kind->number == SYS_fsync || kind->number == SYS_fdatasync) &&
                              fstat((int)argument[0], &before) == 0 && S_ISREG(before.st_mode);
    const long result = own_call(kind->number, argument[0], argument[1], argument[2], argument[3], argument[4]);
    if (synchronises && result == 0)
        append(synced_path, line,
               snprintf(line, sizeof line, "%llu %llu\n", (unsigned long long)before.st_ino,
                        (unsigned long long)before.st_size));
    return result;
}

static long decide(const call_kind *kind, const long argument[6])
{
    char path[4096];
    path_of(kind, argument, path);
    bool counted = below[0] == '\0' || strncmp(path, below, strlen(below)) == 0;
    if (!counted || !counts_as_fault()) return make_call(kind, argument);
    if (kills_after) make_call(kind, argument);
    report(kind->name, path);
    if (kills) own_call(SYS_kill, own_call(SYS_getpid, 0, 0, 0, 0, 0), SIGKILL, 0, 0, 0);
    if (kind->number == SYS_close) make_call(kind, argument); /* Linux closes it in any case */
    return -fault_error;
}

static void on_call(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number;
    ucontext_t *c = context;
    int before = errno;
#if defined __x86_64__
    greg_t *r = c->uc_mcontext.gregs;
    const long argument[6] = {r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], r[REG_R9]};
#else
    unsigned long long *x = c->uc_mcontext.regs;
    const long argument[6] = {(long)x[0], (long)x[1], (long)x[2], (long)x[3], (long)x[4], (long)x[5]};
#endif
    long result = -ENOSYS;
    for (int i = 0; i < KIND_COUNT; i++)
        if (kinds[i].number == info->si_syscall) result = decide(&kinds[i], argument);
#if defined __x86_64__
    r[REG_RAX] = result;
#else
    x[0] = (unsigned long long)result;
#endif
    errno = before;
}

/* A thread that blocks SIGSYS would be killed by it. */
int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    sigset_t changed;
    if (set != NULL) {
        changed = *set;
        if (how != SIG_UNBLOCK) sigdelset(&changed, SIGSYS);
    }
    return sigprocmask(how, set != NULL ? &changed : NULL, old) == 0 ? 0 : errno;
}

static void catch_calls(void)
{
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER};
    struct sock_filter filter[2 * KIND_COUNT + 8];
    unsigned short length = 0;
    sigaction(SIGSYS, &action, NULL);
    filter[length++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, args[5]));
    filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)OWN_CALL, 0, 1);
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[length++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, nr));
    for (int i = 0; i < KIND_COUNT; i++) {
        if (!watched[i]) continue;
        filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)kinds[i].number, 0, 1);
        filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    }
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {length, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        static const char message[] = "fault_shim: no seccomp here\n";
        (void)!write(2, message, sizeof message - 1);
        _exit(77);
    }
}

/* The first object is the program; only requests from its code count. */
static int take_program(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size, (void)context;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0) continue;
        program_begin = info->dlpi_addr + part->p_vaddr;
        program_end = program_begin + part->p_memsz;
    }
    return 1;
}

/* The object that crashed: the innermost one except the C library and this shim, which get bad pointers from others. */
static void on_crash(int signal_number)
{
    void *frames[64];
    Dl_info own = {0}, object = {0};
    int frame_count = backtrace(frames, 64);
    const char *at_fault = "unknown";
    dladdr(report_path, &own);
    for (int i = 0; i < frame_count; i++) {
        if (dladdr(frames[i], &object) == 0 || object.dli_fbase == own.dli_fbase) continue;
        const char *slash = strrchr(object.dli_fname, '/'), *name = slash != NULL ? slash + 1 : object.dli_fname;
        if (strncmp(name, "libc.so", 7) == 0 || strncmp(name, "libc-", 5) == 0) continue;
        at_fault = name;
        break;
    }
    report("crash", at_fault);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void watch_crashes(void)
{
    void *frame[1];
    (void)backtrace(frame, 1); /* loads what it needs now, while there is memory */
    /* the stack of the first thread may be used up: HDF5 can recurse without end */
    static char other_stack[1 << 16];
    const stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof other_stack};
    const struct sigaction action = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK};
    const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    sigaltstack(&stack, NULL);
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++) sigaction(crashes[i], &action, NULL);
}

static void end_at_hangup(int number)
{
    _exit(128 + number);
}

__attribute__((constructor)) static void begin(void)
{
    const char *calls = getenv("FAULT_CALLS"), *error = getenv("FAULT_ERROR"), *text;
    if (getenv("FAULT_HANGUP") != NULL) signal(SIGHUP, end_at_hangup); /* as libraries of MPI do before main begins */
    if (calls == NULL) return;
    if ((text = getenv("FAULT_BELOW")) != NULL) snprintf(below, sizeof below, "%s", text);
    if ((text = getenv("FAULT_REPORT")) != NULL) snprintf(report_path, sizeof report_path, "%s", text);
    if ((text = getenv("FAULT_SYNCED")) != NULL) snprintf(synced_path, sizeof synced_path, "%s", text);
    if ((text = getenv("FAULT_AT")) != NULL) fault_at = strtoul(text, NULL, 10);
    is_sticky = getenv("FAULT_STICKY") != NULL;
    if (error != NULL) {
        fault_error = strcmp(error, "ENOSPC") == 0   ? ENOSPC
                      : strcmp(error, "EACCES") == 0 ? EACCES
                      : strcmp(error, "EPERM") == 0  ? EPERM
                      : strcmp(error, "EMFILE") == 0 ? EMFILE
                                                     : EIO;
        kills_after = strcmp(error, "kill-after") == 0;
        kills = kills_after || strcmp(error, "kill") == 0;
    }
    only_own_memory = strcmp(calls, "own-memory") == 0;
    if (only_own_memory) dl_iterate_phdr(take_program, NULL);
    if (only_own_memory || strcmp(calls, "memory") == 0) {
        watch_crashes();
        watches_memory = true;
        return;
    }
    for (int i = 0; i < KIND_COUNT; i++) {
        size_t length = strlen(kinds[i].name);
        for (const char *at = calls; (at = strstr(at, kinds[i].name)) != NULL; at += length)
            if ((at == calls || at[-1] == ',') && (at[length] == ',' || at[length] == '\0')) watched[i] = true;
    }
    catch_calls();
}

__attribute__((destructor)) static void end(void)
{
    report("count", "");
}

/* ---- memory ---- */

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t number, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

/* What the CUDA runtime, linked into the program, does before main does not count. */
static bool main_has_begun;
static int (*program_main)(int, char **, char **);

static int begin_main(int argument_count, char **arguments, char **environment)
{
    main_has_begun = true;
    return program_main(argument_count, arguments, environment);
}

int __libc_start_main(int (*main)(int, char **, char **), int argument_count, char **arguments, void (*before)(void),
                      void (*after)(void), void (*loader_end)(void), void *stack_end)
{
    int (*real)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
    void *found = dlsym(RTLD_NEXT, "__libc_start_main");
    memcpy(&real, &found, sizeof real);
    program_main = main;
    return real(begin_main, argument_count, arguments, before, after, loader_end, stack_end);
}

static bool refuses_memory(const void *caller)
{
    uintptr_t from = (uintptr_t)caller;
    if (!main_has_begun || !watches_memory || (only_own_memory && (from < program_begin || from >= program_end)))
        return false;
    if (!counts_as_fault()) return false;
    report("memory", "");
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes)
{
    return refuses_memory(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t number, size_t bytes)
{
    return refuses_memory(__builtin_return_address(0)) ? NULL : __libc_calloc(number, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return refuses_memory(__builtin_return_address(0)) ? NULL : __libc_realloc(memory, bytes);
}

void *reallocarray(void *memory, size_t number, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(number, bytes, &total)) return NULL;
    return refuses_memory(__builtin_return_address(0)) ? NULL : __libc_realloc(memory, total);
}

void *memalign(size_t alignment, size_t bytes)
{
    return refuses_memory(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) __attribute__((alias("memalign")));

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    if (refuses_memory(__builtin_return_address(0))) return ENOMEM;
    *memory = __libc_memalign(alignment, bytes);
    return *memory != NULL ? 0 : ENOMEM;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset)
{
    bool anonymous = (flags & MAP_ANONYMOUS) != 0;
    if (anonymous && refuses_memory(__builtin_return_address(0))) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
}
