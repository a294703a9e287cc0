#include "command/command.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"
#include "journal/run_directory.h"
#include "report/progress.h"
#include "report/run_files.h"

enum { PATIENCE = 10 }; /* a run that holds no lock has ended when it has made no step for this many seconds */

/* The figures that the run itself shows, as far as its files contain them. */
static vt_progress_figures figures_of(const vt_run_files *run)
{
    enum { RECENT = 20 };
    vt_progress_figures figures = {.validation_loss = vt_table_value(&run->epochs, -1, "valid_loss")};
    double epochs = vt_table_value(&run->plan, 0, "epochs"), batch = vt_table_value(&run->plan, 0, "global_batch_size");
    double steps = vt_table_value(&run->plan, 0, "steps_per_epoch"), done = vt_table_value(&run->steps, -1, "step");
    figures.epochs = isfinite(epochs) ? (int64_t)epochs : 0;
    figures.steps = isfinite(steps) ? (int64_t)steps : 0;
    figures.epoch = 1;
    if (run->steps.rows == 0) return figures;
    for (int64_t row = 0; row < run->steps.rows; row++)
        vt_sparkline_add(&figures.history, vt_table_value(&run->steps, row, "loss"));
    figures.epoch = (int64_t)vt_table_value(&run->steps, -1, "epoch");
    figures.step = (int64_t)done - (figures.epoch - 1) * figures.steps;
    figures.loss = vt_table_value(&run->steps, -1, "loss");
    figures.samples_per_sec = vt_run_recent_mean(run, "samples_per_sec", RECENT);
    figures.data_wait = vt_run_recent_mean(run, "data_wait_fraction", RECENT);
    figures.seconds_left = (epochs * steps - done) * batch / figures.samples_per_sec;
    return figures;
}

/* Does the log's last line say that the run ended, and how? */
static bool says_the_end(const char *last)
{
    return vt_run_is_finished(last) || strstr(last, "Stopped by") != NULL || strncmp(last, "ERROR", 5) == 0;
}

/* Ended according to its log, or because no process holds its directory any more. `idle`: seconds since the last new
 * step. */
static bool has_ended(const char *directory, double idle)
{
    char *last = vt_run_last_line(directory, NULL);
    int lock = -1;
    bool said = says_the_end(last);
    bool held = vt_run_directory_lock(directory, false, &lock) != VT_OK;
    vt_error_clear();
    vt_run_directory_unlock(&lock);
    free(last);
    return !held && (said || idle > PATIENCE);
}

static void print_line(const vt_progress_figures *figures)
{
    char text[VT_PROGRESS_SIZE];
    vt_progress_format(figures, VT_PRINT_COLUMNS, false, text);
    vt_print("%s\n", text);
    fflush(stdout);
}

static vt_status look(const char *directory, vt_progress_figures *figures)
{
    vt_run_files run;
    const vt_status status = vt_run_files_open(directory, &run);
    if (status == VT_OK) *figures = figures_of(&run);
    vt_run_files_close(&run);
    return status;
}

/* A terminal shows a moving bar; a file or pipe gets a line for each epoch. */
vt_status vt_command_watch(const vt_call *call)
{
    vt_status status = VT_OK;
    const vt_watch_flags *flags = call->flags;
    const char *directory = call->operands[0];
    const double interval = flags->interval;
    const struct timespec pause = {(time_t)interval, (long)(1e9 * (interval - floor(interval)))};
    vt_progress_figures figures = {.step = -1};
    vt_progress *progress = flags->once ? NULL : vt_progress_open();
    double changed = vt_clock_seconds();
    for (bool ended = flags->once;; nanosleep(&pause, NULL)) {
        const int64_t step = figures.step, epoch = figures.epoch;
        if (!ended) ended = has_ended(directory, vt_clock_seconds() - changed); /* before the files are read */
        VT_TRY(look(directory, &figures));
        if (ended) break;
        if (figures.step != step || figures.epoch != epoch) changed = vt_clock_seconds();
        vt_progress_show(progress, &figures);
        if (progress == NULL && figures.epoch != epoch) print_line(&figures);
    }
    vt_progress_close(&progress);
    print_line(&figures);
    if (flags->once) goto done;
    char *last = vt_run_last_line(directory, NULL);
    vt_print_wrapped("%s: %s\n", says_the_end(last) ? "ended" : "interrupted, no process runs it; its last line", last);
    free(last);
done:
    vt_progress_close(&progress);
    return status;
}
