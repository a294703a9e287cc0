/* Errors as values. A function that can fail returns vt_status; the failing place notes one sentence with the actual
 * names and numbers (VT_FAIL, VT_CHECK), and every function on the way up releases what it holds at one `done:` label.
 * The note belongs to the thread that failed; vt_error_move_out and vt_error_move_in hand it to another. */
#ifndef VT_BASE_STATUS_H
#define VT_BASE_STATUS_H

#include <stdbool.h>

/* VT_STOPPED: ended early on request (a signal, max_time), with everything saved; nothing is noted. */
typedef enum { VT_OK = 0, VT_ERROR = 1, VT_STOPPED = 2 } vt_status;

/* Notes a failure, on one line, and returns VT_ERROR. Only the first note since vt_error_clear is kept: it is the root
 * cause. */
vt_status vt_error_note(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Puts "context: " before the noted sentence, for a caller that knows what the callee could not. Returns VT_ERROR. */
vt_status vt_error_context(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The noted sentence of this thread, "" when there is none. */
const char *vt_error_text(void);

/* "file:line" where it was noted. */
const char *vt_error_place(void);

void vt_error_clear(void);

/* A failure on its way from one thread to another: plain data, nothing to free. */
typedef struct {
    char text[2048];
    char place[128];
} vt_error;

void vt_error_move_out(vt_error *error); /* moves this thread's note into *error */
void vt_error_move_in(const vt_error *error);

/* All three need `vt_status status = VT_OK;` and a label `done:` in the function. */
#define VT_FAIL(...)                                                                                                   \
    do {                                                                                                               \
        vt_error_note(__FILE__, __LINE__, __VA_ARGS__);                                                                \
        status = VT_ERROR; /* set here, so that static analysers see it */                                             \
        goto done;                                                                                                     \
    } while (0)

/* For what a user, a file or a machine can cause; always on. */
#define VT_CHECK(condition, ...)                                                                                       \
    do {                                                                                                               \
        if (!(condition)) VT_FAIL(__VA_ARGS__);                                                                        \
    } while (0)

#define VT_TRY(call)                                                                                                   \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != VT_OK) goto done;                                                                                \
    } while (0)

/* For what only a bug can cause: says where, and aborts. For memory that runs out see base/memory.h. */
#define VT_ASSERT(condition)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) vt_assertion_failed(#condition, __FILE__, __LINE__);                                         \
    } while (0)

__attribute__((noreturn)) void vt_assertion_failed(const char *condition, const char *file, int line);

#endif
