#define _GNU_SOURCE /* strcasestr */
#include "report/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/whole.h"

enum { LONGEST_BAR = 40, SHORTEST_BAR = 8, HISTORY = 16, PIECES = 8, PIECE_SIZE = 64 };

/* The bar has its own line, and the cursor waits below it. So whatever ends the program, ctrl-C or worse, leaves the
 * terminal usable: nothing is hidden, and the shell's prompt begins on an empty line. A dumb terminal can't move the
 * cursor up; there the cursor stays at the end of the bar. */
struct vt_progress {
    bool colour, dumb;
    int shown; /* width of the bar on the screen, 0: none */
    double drawn_at;
};

/* ---- the curve ---- */

void vt_sparkline_add(vt_sparkline *line, double value)
{
    if (!isfinite(value)) return;
    if (line->count == (int64_t)VT_SPARKLINE_BUCKETS << line->doublings) { /* full: pairs become one */
        for (int i = 0; i < VT_SPARKLINE_BUCKETS / 2; i++) line->sums[i] = line->sums[2 * i] + line->sums[2 * i + 1];
        line->doublings++;
    }
    const int64_t run = INT64_C(1) << line->doublings;
    double *sum = &line->sums[line->count / run];
    if (line->count++ % run == 0) *sum = 0;
    *sum += value;
}

void vt_sparkline_format(const vt_sparkline *line, int columns, char text[VT_SPARKLINE_SIZE])
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double values[VT_SPARKLINE_BUCKETS], low = INFINITY, high = -INFINITY;
    const int64_t run = INT64_C(1) << line->doublings, used = vt_quotient_up(line->count, run);
    const int64_t shown = vt_smaller(used, columns);
    text[0] = '\0';
    if (shown < 2) return;
    for (int64_t i = 0; i < shown; i++) {
        const int64_t begin = i * used / shown, end = (i + 1) * used / shown;
        double sum = 0;
        for (int64_t j = begin; j < end; j++) sum += line->sums[j];
        values[i] = sum / (double)(vt_smaller(end * run, line->count) - begin * run);
        low = fmin(low, values[i]);
        high = fmax(high, values[i]);
    }
    for (int64_t i = 0; i < shown; i++)
        strcat(text, blocks[high > low ? (int)(7.999 * (values[i] - low) / (high - low)) : 0]);
}

/* ---- the text ---- */

static void format_time_left(double seconds, char text[PIECE_SIZE])
{
    int64_t s = !(seconds >= 0) ? 0 : seconds > 1e9 ? 1000000000 : (int64_t)(seconds + 0.5);
    if (s >= 24 * 3600)
        snprintf(text, PIECE_SIZE, ", %ld d %ld h left", s / 86400, s / 3600 % 24);
    else if (s >= 3600)
        snprintf(text, PIECE_SIZE, ", %ld:%02ld:%02ld left", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, PIECE_SIZE, ", %ld:%02ld left", s / 60, s % 60);
}

/* "[=====> ]", `length` columns with the brackets; the finished part in colour. Returns the bytes written. */
static int format_bar(const vt_progress_figures *figures, int length, bool colour, char *text)
{
    int inner = length - 2, done = figures->steps > 0 ? (int)(inner * figures->step / figures->steps) : 0, used = 0;
    done = done < 0 ? 0 : done > inner ? inner : done;
    used += sprintf(text + used, "[%s", colour ? "\033[36m" : "");
    for (int i = 0; i < inner; i++) text[used++] = i < done - 1 ? '=' : i == done - 1 ? '>' : ' ';
    used += sprintf(text + used, "%s]", colour ? "\033[0m" : "");
    return used;
}

/* As the C library would choose it; the program does not call setlocale. */
static bool is_utf8(void)
{
    static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(variables[i]);
        if (value == NULL || value[0] == '\0') continue;
        return strcasestr(value, "utf-8") != NULL || strcasestr(value, "utf8") != NULL;
    }
    return false;
}

void vt_progress_format(const vt_progress_figures *figures, int columns, bool colour, char text[VT_PROGRESS_SIZE])
{
    /* In the order of the line; the piece with the highest rank is left out first, the last two for a bar, too. */
    static const int ranks[PIECES] = {0, 1, 2, 7, 5, 4, 6, 3};
    char pieces[PIECES][PIECE_SIZE] = {{0}}, curve[VT_SPARKLINE_SIZE] = "";
    snprintf(pieces[0], PIECE_SIZE, "epoch %ld/%ld", figures->epoch, figures->epochs);
    snprintf(pieces[1], PIECE_SIZE, " %ld/%ld", figures->step, figures->steps);
    if (figures->epoch > 1 || figures->step > 0) snprintf(pieces[2], PIECE_SIZE, ", loss %.4f", figures->loss);
    if (is_utf8()) vt_sparkline_format(&figures->history, HISTORY, curve);
    if (curve[0] != '\0') snprintf(pieces[3], PIECE_SIZE, " %.*s", 3 * HISTORY, curve); /* 3 bytes a character */
    if (figures->validation_loss > 0) snprintf(pieces[4], PIECE_SIZE, ", valid %.4f", figures->validation_loss);
    snprintf(pieces[5], PIECE_SIZE, ", %.4g samples/s", figures->samples_per_sec);
    snprintf(pieces[6], PIECE_SIZE, ", data wait %.0f %%", 100 * figures->data_wait);
    format_time_left(figures->seconds_left, pieces[7]);

    int kept = PIECES + 1, room = -1;
    while (kept > 1 && room < (kept > PIECES - 2 ? SHORTEST_BAR + 1 : 0)) {
        kept--;
        room = columns;
        for (int i = 0; i < PIECES; i++)
            if (ranks[i] < kept) room -= vt_text_columns(pieces[i], strlen(pieces[i]));
    }
    int used = snprintf(text, VT_PROGRESS_SIZE, "%.*s", columns < 0 ? 0 : columns, pieces[0]);
    if (room > SHORTEST_BAR) {
        text[used++] = ' ';
        used += format_bar(figures, room - 1 < LONGEST_BAR ? room - 1 : LONGEST_BAR, colour, text + used);
    }
    for (int i = 1; i < PIECES; i++)
        if (ranks[i] < kept) used += snprintf(text + used, (size_t)(VT_PROGRESS_SIZE - used), "%s", pieces[i]);
}

/* ---- the terminal ---- */

static int terminal_columns(void)
{
    struct winsize size = {0};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* Moves to the bar's start; a terminal that became narrower has wrapped it into several rows. */
static void move_to_bar(const vt_progress *progress, int columns)
{
    if (progress->dumb)
        putchar('\r');
    else if (progress->shown > 0)
        printf("\033[%dA\r", (progress->shown + columns - 1) / columns);
}

static void take_away(void *context)
{
    vt_progress *progress = context;
    if (progress->shown == 0) return;
    move_to_bar(progress, terminal_columns());
    if (progress->dumb)
        printf("%*s\r", progress->shown, "");
    else
        fputs("\033[J", stdout);
    fflush(stdout);
    progress->shown = 0;
}

bool vt_progress_is_seen(int descriptor)
{
    return isatty(descriptor) == 1 && getenv("OMPI_COMM_WORLD_RANK") == NULL;
}

vt_progress *vt_progress_open(void)
{
    const char *terminal = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    if (!vt_progress_is_seen(STDOUT_FILENO)) return NULL;
    vt_progress *progress = vt_allocate(1, sizeof *progress, "the progress bar");
    progress->dumb = terminal == NULL || strcmp(terminal, "dumb") == 0;
    progress->colour = !progress->dumb && (no_colour == NULL || no_colour[0] == '\0');
    vt_log_before_line(take_away, progress);
    return progress;
}

void vt_progress_show(vt_progress *progress, const vt_progress_figures *figures)
{
    char text[VT_PROGRESS_SIZE], plain[VT_PROGRESS_SIZE];
    double now = vt_clock_seconds();
    if (progress == NULL || now - progress->drawn_at < 0.1) return;
    pid_t foreground = tcgetpgrp(STDOUT_FILENO); /* -1: a terminal that does not let a background process write */
    if (foreground > 0 && foreground != getpgrp()) return;
    int columns = terminal_columns(),
        last = columns > 1 ? columns - 1 : 1; /* writing into the last column would wrap the line */
    vt_progress_format(figures, last, progress->colour, text);
    vt_progress_format(figures, last, false, plain);
    int length = vt_text_columns(plain, strlen(plain));
    vt_log_lock();
    int before = progress->shown;
    move_to_bar(progress, columns);
    if (progress->dumb)
        printf("%s%*s", text, before > length ? before - length : 0, "");
    else
        printf("%s\033[J\n", text);
    fflush(stdout);
    progress->shown = progress->dumb && before > length ? before : length;
    vt_log_unlock();
    progress->drawn_at = now;
}

void vt_progress_close(vt_progress **progress)
{
    if (*progress == NULL) return;
    vt_log_before_line(NULL, NULL);
    take_away(*progress); /* no other thread uses it any more */
    free(*progress);
    *progress = NULL;
}
