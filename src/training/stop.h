/* The request to stop a run: SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP (the terminal is closed) or SIGXCPU (ulimit -t),
 * or max_time is over. The loop asks after each step, saves a checkpoint and ends with VT_STOPPED. A second SIGINT ends
 * the program at once. */
#ifndef VT_TRAINING_STOP_H
#define VT_TRAINING_STOP_H

#include <stdbool.h>

/* Catches the signals from here on, and counts seconds (INFINITY: no limit) from here. A SIGINT that is ignored, as in
 * a shell script's background, stays ignored, and so does SIGHUP, as under nohup. SIGPIPE is ignored: what reads the
 * log (tee) may end by the same signal, a step before the checkpoint. */
void vt_stop_watch(double max_seconds);

/* Restores the handlers that the signals had before. */
void vt_stop_unwatch(void);

bool vt_stop_requested(void);

/* Why the run stops: "SIGTERM", "max_time"; or "a signal to another rank" where this one wasn't asked. */
const char *vt_stop_reason(void);

#endif
