#include "training/stop.h"

#include <math.h>
#include <signal.h>
#include <stddef.h>

#include "base/clock.h"

static const int watched[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU};
static const char *const names[] = {"SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGXCPU"};
enum { WATCHED_COUNT = sizeof watched / sizeof watched[0] };

static volatile sig_atomic_t caught; /* the signal, or 0 */
static volatile sig_atomic_t interrupts;
static struct sigaction before[WATCHED_COUNT], pipe_before;
static double end = INFINITY; /* of the time, on the monotonic clock */

static void note(int signal_number)
{
    if (signal_number == SIGINT && ++interrupts > 1) {
        signal(SIGINT, SIG_DFL);
        raise(SIGINT); /* takes effect when this handler returns */
    }
    caught = signal_number;
}

void vt_stop_watch(double max_seconds)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART}, ignore = {.sa_handler = SIG_IGN};
    caught = interrupts = 0;
    end = vt_clock_seconds() + max_seconds;
    for (int i = 0; i < WATCHED_COUNT; i++) {
        sigaction(watched[i], NULL, &before[i]);
        bool stays_ignored = (watched[i] == SIGINT || watched[i] == SIGHUP) && before[i].sa_handler == SIG_IGN;
        if (!stays_ignored) sigaction(watched[i], &action, NULL);
    }
    sigaction(SIGPIPE, &ignore, &pipe_before);
}

void vt_stop_unwatch(void)
{
    for (int i = 0; i < WATCHED_COUNT; i++) sigaction(watched[i], &before[i], NULL);
    sigaction(SIGPIPE, &pipe_before, NULL);
    caught = interrupts = 0;
    end = INFINITY;
}

bool vt_stop_requested(void)
{
    return caught != 0 || vt_clock_seconds() >= end;
}

const char *vt_stop_reason(void)
{
    for (int i = 0; i < WATCHED_COUNT; i++)
        if (caught == watched[i]) return names[i];
    return vt_clock_seconds() >= end ? "max_time" : "a signal to another rank";
}
