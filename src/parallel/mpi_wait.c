/* Waits for MPI's operations, and finds out who does not answer: every wait has a time limit. After engine->timeout
 * seconds the rank asks all others whether they are alive, on a separate communicator. Ranks that wait answer, because
 * they poll their mail; a rank that does not answer is stopped, dead or far behind, and is named before the job
 * ends. */
#include "parallel/group.h"

#ifdef VT_HAS_MPI

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "parallel/mpi_inside.h"

/* The phases of a wait: spin, yield, sleep. Data is transferred only while ranks poll, and sleeping meanwhile was
 * measured to cost a factor of three, so the rank yields for as long as a transfer at 100 MB/s would take, and as long
 * as it waits for one rank's message. */
static const double SPIN_SECONDS = 1e-4, YIELD_SECONDS = 0.02, YIELD_SECONDS_PER_BYTE = 1e-8, REST_SECONDS = 1e-4;
static const double ANSWER_SECONDS = 3;  /* seconds to wait for answers after a time-out */
static const double SPEAK_SECONDS = 3;   /* seconds for the lowest rank to report and end the job */
static const double LINGER_SECONDS = 12; /* a rank that was asked exits after this many seconds, however the job ends */

typedef enum { MAIL_ASK = 1, MAIL_ANSWER, MAIL_SPEAK } mail_tag;

void vt_mpi_check(vt_engine *engine, int code, const char *operation_name, const char *where)
{
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    vt_engine_abort(engine, "the %s over %s: %s: %s", operation_name, where, engine->name, text);
}

static void send_letter(vt_mpi_state *state, const char *text, int to, mail_tag tag)
{
    /* never freed: the job is about to end, and MPI may read it until then */
    vt_mpi_letter *sent = vt_allocate(1, sizeof *sent, "communication over MPI");
    snprintf(sent->text, sizeof sent->text, "%s", text);
    MPI_Request request;
    if (MPI_Isend(sent, sizeof *sent, MPI_BYTE, to, (int)tag, state->mail, &request) == MPI_SUCCESS)
        MPI_Request_free(&request);
}

/* Errors are ignored: the mail is about the end of the job anyway. */
void vt_mpi_post_receive(vt_mpi_state *state)
{
    MPI_Irecv(&state->incoming, sizeof state->incoming, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, state->mail,
              &state->receive);
}

void vt_mpi_read_mail(vt_engine *engine)
{
    vt_mpi_state *state = engine->state;
    double now = vt_clock_seconds();
    int here = 1;
    MPI_Status from;
    while (state->receive != MPI_REQUEST_NULL && MPI_Test(&state->receive, &here, &from) == MPI_SUCCESS && here) {
        vt_mpi_letter read = state->incoming;
        read.text[sizeof read.text - 1] = '\0';
        vt_mpi_post_receive(state);
        switch (from.MPI_TAG) {
        case MAIL_ASK:
            send_letter(state, state->waiting, from.MPI_SOURCE, MAIL_ANSWER);
            if (state->end == 0) state->end = now + LINGER_SECONDS;
            break;
        case MAIL_ANSWER:
            if (state->answers == NULL || state->answers[from.MPI_SOURCE] != NULL) break;
            state->answers[from.MPI_SOURCE] = vt_text_copy(read.text);
            break;
        default:
            vt_engine_abort(engine, "%s", read.text);
        }
    }
    if (state->end != 0 && now > state->end) _exit(EXIT_FAILURE); /* the others have reported the cause */
}

static void sleep_for(double seconds)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

static bool all_answered(const vt_engine *engine)
{
    const vt_mpi_state *state = engine->state;
    for (int rank = 0; rank < engine->size; rank++)
        if (state->answers[rank] == NULL) return false;
    return true;
}

/* "rank 2 (nodeA, pid 4711)", "ranks 2 (…), 3 (…)": the ranks that did not answer. Returns how many. */
static int name_silent(const vt_engine *engine, vt_text *names)
{
    enum { SHOWN = 5 };
    const vt_mpi_state *state = engine->state;
    int silent = 0, shown = 0;
    for (int rank = 0; rank < engine->size; rank++) silent += state->answers[rank] == NULL;
    vt_text_append(names, silent > 1 ? "ranks " : "rank ");
    for (int rank = 0; rank < engine->size; rank++) {
        if (state->answers[rank] != NULL || ++shown > SHOWN) continue;
        vt_text_append(names, "%s%d (%s, pid %d)", shown > 1 ? ", " : "", rank, state->processes[rank].host,
                       state->processes[rank].pid);
    }
    if (silent > SHOWN) vt_text_append(names, " and %d more", silent - SHOWN);
    return silent;
}

/* The sentence about a wait that took too long, from the answers. */
static char *verdict(const vt_engine *engine)
{
    const vt_mpi_state *state = engine->state;
    vt_text names = {0}, text = {0};
    const int silent = name_silent(engine, &names);
    if (silent > 0) {
        vt_text_append(&text,
                       "%s %s not answer, and the %s is not over within %g s (comm_timeout): %s stopped, dead or far "
                       "behind",
                       names.characters, silent > 1 ? "do" : "does", state->waiting, engine->timeout,
                       silent > 1 ? "they are" : "it is");
    } else { /* a bug, or a very slow network */
        vt_text_append(&text,
                       "the %s is not over within %g s (comm_timeout), though every rank answers:", state->waiting,
                       engine->timeout);
        for (int rank = 0; rank < engine->size && rank < 8; rank++)
            vt_text_append(&text, "%s rank %d waits for the %s", rank > 0 ? "," : "", rank, state->answers[rank]);
    }
    vt_text_close(&names);
    return text.characters;
}

/* Asks which ranks are alive, and ends the job: the lowest rank that answers reports. */
__attribute__((noreturn)) static void time_out(vt_engine *engine)
{
    vt_mpi_state *state = engine->state;
    state->answers = vt_allocate((size_t)engine->size, sizeof *state->answers, "communication over MPI");
    state->answers[engine->rank] = vt_text_copy(state->waiting);
    state->end = 0; /* this rank ends by itself */
    for (int rank = 0; rank < engine->size; rank++)
        if (rank != engine->rank) send_letter(state, state->waiting, rank, MAIL_ASK);
    double start = vt_clock_seconds();
    while (vt_clock_seconds() - start < ANSWER_SECONDS && !all_answered(engine)) {
        vt_mpi_read_mail(engine);
        sleep_for(1e-3);
    }
    char *sentence = verdict(engine);
    int lowest = 0;
    while (state->answers[lowest] == NULL) lowest++;
    if (lowest != engine->rank) {
        send_letter(state, sentence, lowest, MAIL_SPEAK);
        for (start = vt_clock_seconds(); vt_clock_seconds() - start < SPEAK_SECONDS; sleep_for(1e-3))
            vt_mpi_read_mail(engine);
    }
    vt_engine_abort(engine, "%s", sentence);
}

/* Tests the requests in turn; each call lets MPI advance all of them. */
bool vt_mpi_is_over(vt_engine *engine, vt_mpi_operation *work, const char *where)
{
    while (work->over < work->count) {
        int done = 0;
        vt_mpi_check(engine, MPI_Test(&work->requests[work->over], &done, MPI_STATUS_IGNORE), work->name, where);
        if (!done) return false;
        work->over++;
    }
    return true;
}

/* Spins at first, then yields, then sleeps: often there are more ranks than cores. */
void vt_mpi_wait_for(vt_engine *engine, vt_mpi_operation *work, const vt_group *group)
{
    vt_mpi_state *state = engine->state;
    char text[VT_GROUP_TEXT_SIZE] = "all ranks";
    if (vt_mpi_is_over(engine, work, text)) return;
    if (group != NULL) vt_group_text(group, text);
    snprintf(state->waiting, sizeof state->waiting, "%s over %s", work->name, text);
    double start = vt_clock_seconds(), yield = YIELD_SECONDS + YIELD_SECONDS_PER_BYTE * (double)work->volume;
    while (!vt_mpi_is_over(engine, work, text)) {
        double waited = vt_clock_seconds() - start;
        if (waited < SPIN_SECONDS) continue;
        vt_mpi_read_mail(engine);
        if (waited > engine->timeout) time_out(engine);
        if (waited < yield || work->is_receive)
            sched_yield();
        else
            sleep_for(REST_SECONDS);
    }
}

void vt_mpi_meet(vt_engine *engine, const char *name)
{
    MPI_Request request = MPI_REQUEST_NULL;
    vt_mpi_operation work = {.name = name, .count = 1, .requests = &request};
    vt_mpi_check(engine, MPI_Ibarrier(MPI_COMM_WORLD, &request), name, "all ranks");
    vt_mpi_wait_for(engine, &work, NULL);
}

#endif
