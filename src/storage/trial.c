#define _GNU_SOURCE /* SYS_close_range, strsignal */
#include "storage/trial.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "base/log.h"
#include "base/memory.h"
#include "base/whole.h"
#include "storage/hdf5_access.h"

enum { COMPUTING_SECONDS = 20, SECONDS = 300, OUT_OF_MEMORY = 99 };

/* What is tried. */
typedef struct {
    int64_t seconds; /* of computing, at most */
    int64_t memory;  /* bytes at most, beyond what the process has already */
    vt_trial_work *work;
    const char *const *words;
    int64_t count;
} request;

static void set_limit(int resource, rlim_t soft, rlim_t hard)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0) return;
    if (limit.rlim_max != RLIM_INFINITY && hard > limit.rlim_max) hard = limit.rlim_max;
    if (soft > hard) soft = hard;
    limit = (struct rlimit){soft, hard};
    setrlimit(resource, &limit);
}

/* In the copy: closes what is open, so that nothing of this process is touched, and undoes its handling of signals.
 * `kept`, if it isn't negative, becomes its standard input. */
static void detach(int kept)
{
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGXCPU, SIGALRM, SIGSYS, SIGTRAP};
    static const int for_the_run[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};
    sigset_t none;
    for (size_t i = 0; i < sizeof for_the_run / sizeof *for_the_run; i++) signal(for_the_run[i], SIG_IGN);
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        if (deadly[i] != SIGSYS) signal(deadly[i], SIG_DFL); /* SIGSYS: how tests catch system calls */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    int nowhere = open("/dev/null", O_RDWR);
    if (kept >= 0) dup2(kept, STDIN_FILENO);
    for (int i = kept >= 0 ? STDOUT_FILENO : STDIN_FILENO; i <= STDERR_FILENO && nowhere >= 0; i++) dup2(nowhere, i);
#ifdef SYS_close_range
    syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
#endif
}

/* Called when memory runs out: only the copy ends, so the other ranks are not told. */
static void end_here(void *context, const char *message)
{
    (void)context, (void)message;
    _exit(OUT_OF_MEMORY);
}

static herr_t end_without_memory(unsigned depth, const H5E_error2_t *error, void *context)
{
    (void)depth, (void)context;
    if (error->maj_num == H5E_RESOURCE && error->min_num == H5E_NOSPACE) _exit(OUT_OF_MEMORY);
    return 0;
}

/* Memory is limited in the trial alone: where HDF5 fails for lack of it here, it would go on elsewhere. So that says
 * nothing about the file. */
static herr_t look_at_failure(hid_t errors, void *context)
{
    (void)context;
    return H5Ewalk2(errors, H5E_WALK_UPWARD, end_without_memory, NULL);
}

__attribute__((noreturn)) static void run_there(const request *wanted)
{
    const rlim_t space = (rlim_t)vt_memory_of_process("VmSize"), most = space + (rlim_t)wanted->memory;
    detach(-1);
    set_limit(RLIMIT_CORE, 0, 0);
    set_limit(RLIMIT_CPU, (rlim_t)wanted->seconds, (rlim_t)wanted->seconds + 1);
    if (space > 0) set_limit(RLIMIT_AS, most, most);
    alarm(SECONDS);
    vt_log_unlock();
    H5set_free_list_limits(0, 0, 0, 0, 0, 0);
#ifdef M_PERTURB
    mallopt(M_PERTURB, 0xa5); /* memory that is used before it is set, or after it is freed, crashes it here already */
#endif
    vt_hdf5_leave();
    vt_hdf5_tell_failures(look_at_failure);
    vt_memory_last_words(end_here, NULL);
    wanted->work(wanted->words, wanted->count);
    _exit(0);
}

static vt_status judge(const char *path, int seconds, int ended)
{
    vt_status status = VT_OK;
    char how[128];
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return VT_OK;
    const bool no_memory = WIFEXITED(ended) ? WEXITSTATUS(ended) == OUT_OF_MEMORY : WTERMSIG(ended) == SIGKILL;
    VT_CHECK(!no_memory, "%s: not enough memory to look at it in a process of its own%s", path,
             WIFEXITED(ended) ? "" : ", which was killed");
    if (WIFEXITED(ended))
        snprintf(how, sizeof how, "ended the process that tried it (exit status %d)", WEXITSTATUS(ended));
    else if (WTERMSIG(ended) == SIGXCPU)
        snprintf(how, sizeof how, "computed for more than %d s", seconds);
    else if (WTERMSIG(ended) == SIGALRM)
        snprintf(how, sizeof how, "did not come to an end within %d s", SECONDS);
    else
        snprintf(how, sizeof how, "crashed (%s)", strsignal(WTERMSIG(ended)));
    VT_FAIL("%s: HDF5 %s when it was tried in a process of its own: the file is damaged, or made to do harm", path,
            how);
done:
    return status;
}

/* How a copy came to its end, as waitpid says; or why there was none: an errno, or that the helper has ended. */
enum { STARTED = 0, HELPER_ENDED = -1 };
typedef struct {
    int error, ended;
} outcome;

static outcome work_in_copy(const request *wanted)
{
    outcome result = {0};
    /* hold these locks, so that no other thread holds them in the copy */
    vt_hdf5_enter();
    vt_log_lock();
    pid_t child = fork();
    if (child == 0) run_there(wanted);
    if (child < 0) result.error = errno;
    vt_log_unlock();
    vt_hdf5_leave();
    while (child > 0 && waitpid(child, &result.ended, 0) < 0)
        if (errno != EINTR) break; /* somebody else has collected it */
    return result;
}

static void warn_once(int error)
{
    static atomic_bool warned;
    if (!atomic_exchange(&warned, true))
        vt_log_warning("no process could be started to try files in (%s): HDF5 reads them unguarded",
                       error == HELPER_ENDED ? "the one that starts them has ended" : strerror(error));
}

/* ---- the helper ---- */

/* Memory that the helper shares, at the same address: it is a copy of this process, in which functions are where they
 * are here, too. */
enum { BOARD_BYTES = 16 << 20 };
typedef struct {
    request wanted;
    outcome result;
    const char *words[]; /* [wanted.count], and the texts behind them */
} board;

static struct {
    pid_t process;
    int socket;   /* a byte says that the board was written; in the helper it leads to the program */
    board *board; /* NULL: no helper was wanted, or it could not be started … */
    int refused;  /* … because of this errno */
} helper;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

/* False: the other process has ended. */
static bool await_byte(void)
{
    char byte;
    ssize_t received;
    do received = recv(helper.socket, &byte, 1, 0);
    while (received < 0 && errno == EINTR);
    return received == 1;
}

/* Until this process's parent ends, which closes its socket. */
__attribute__((noreturn)) static void serve(const int ends[2])
{
    close(ends[0]);
    detach(ends[1]);
    helper.socket = STDIN_FILENO;
    while (await_byte()) {
        helper.board->result = work_in_copy(&helper.board->wanted);
        (void)send(helper.socket, "", 1, MSG_NOSIGNAL);
    }
    _exit(0);
}

/* At this process's exit, so that no zombie is left where nobody else collects it. */
static void end_helper(void)
{
    kill(helper.process, SIGKILL);
    waitpid(helper.process, NULL, 0);
}

void vt_trial_start_helper(void)
{
    int ends[2];
    board *shared = mmap(NULL, BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shared == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        helper.refused = errno;
        return;
    }
    helper.board = shared;
    helper.process = fork();
    if (helper.process == 0) serve(ends);
    if (helper.process < 0) helper.refused = errno;
    if (helper.process > 0) atexit(end_helper);
    close(ends[1]);
    helper.socket = ends[0];
}

static outcome ask_helper(const request *wanted)
{
    board *shared = helper.board;
    size_t bytes = sizeof *shared + (size_t)wanted->count * sizeof *shared->words;
    for (int64_t i = 0; i < wanted->count; i++) bytes += wanted->words[i] != NULL ? strlen(wanted->words[i]) + 1 : 0;
    if (bytes > BOARD_BYTES) return (outcome){.error = E2BIG};
    pthread_mutex_lock(&one_at_a_time);
    char *text = (char *)(shared->words + wanted->count);
    for (int64_t i = 0; i < wanted->count; i++) {
        const char *word = wanted->words[i];
        shared->words[i] = word != NULL ? text : NULL;
        if (word != NULL) text = stpcpy(text, word) + 1;
    }
    shared->wanted = *wanted;
    shared->wanted.words = shared->words;
    const bool answered = send(helper.socket, "", 1, MSG_NOSIGNAL) == 1 && await_byte();
    const outcome result = answered ? shared->result : (outcome){.error = HELPER_ENDED};
    pthread_mutex_unlock(&one_at_a_time);
    return result;
}

vt_status vt_trial(const char *path, int64_t bytes, vt_trial_work *work, const char *const *words, int64_t count)
{
    const int64_t seconds = vt_smaller(COMPUTING_SECONDS + bytes / 500000, SECONDS), gigabytes = bytes > 0 ? 2 : 8;
    const request wanted = {seconds, gigabytes << 30, work, words, count};
    outcome result = {.error = helper.refused};
    if (helper.refused == 0) result = helper.board != NULL ? ask_helper(&wanted) : work_in_copy(&wanted);
    if (result.error == STARTED) return judge(path, (int)seconds, result.ended);
    warn_once(result.error);
    return VT_OK;
}
