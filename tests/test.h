/* The test harness: TEST(name) { ... } anywhere under tests/ is found by itself; EXPECT notes a failure and continues.
 * `build/tests/vitrain-tests [part of a name ...]` runs all tests, or those whose "file/name" contains one of the words
 * ("=file/name": equals it); --list before the words prints the names instead, with VITRAIN_TEST_PATHS=gpu only those
 * of GPU_TEST. VITRAIN_TEST_LONG in the environment: the LONG_TESTs instead of all others (make long-test).
 * Tests in tests/parallel run only with --parallel as the first argument, and then only they run: on all ranks of a
 * launcher (tests/mpirun -np 4 build/tests/vitrain-tests --parallel), the same tests on each; a failure on any rank
 * counts. --has-mpi says whether that works, --has-gpu names the GPU that tests of operations would use, --fault NAME
 * runs a rank's part in a fault (tests/parallel/faults.c), --hdf5 prints numbers of a file (tests/values.c), --damage
 * damages a checkpoint (tests/damage.c).
 * In the environment: VITRAIN_TEST_SECONDS=N ends the program in a test that takes longer, VITRAIN_TEST_UNTIL_FAILURE
 * after the first test that fails (it may have damaged the GPU's context). With VITRAIN_TEST_PATHS=gpu the operations
 * that a test called on the GPU are printed before its last line. */
#ifndef VT_TESTS_TEST_H
#define VT_TESTS_TEST_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

typedef void vt_test_function(void);
void vt_test_register(const char *file, const char *name, vt_test_function *function, bool on_gpu, bool is_long);
void vt_test_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
void vt_test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same because of a library that `make deps` installs; a failure where CI=true. */
void vt_test_lacks(const char *what);

/* The ranks that --parallel runs on. */
typedef struct vt_engine vt_engine;
extern vt_engine *vt_test_engine;

/* 0, or 2 if there is no fault with this name. */
int vt_test_fault(const char *name);

/* Prints a dataset's numbers ("values FILE DATASET [FIRST [COUNT]]"), its bytes, or where it begins in the file
 * ("offset FILE DATASET", if it is in one piece). 0, or 1 and a message. */
int vt_test_values(int count, char *const *words);

/* Damages the checkpoint of one rank in "DIRECTORY SEED", in a way that depends on the seed. 0, or 2 on failure. */
int vt_test_damage(int count, char *const *words);

/* VITRAIN_TEST_PATHS=gpu: only the GPU is tried (operations/paths.h); tests that don't use it are skipped. */
bool vt_test_gpu_alone(void);
/* VITRAIN_TEST_GPU_KNOWN: the caller has checked that there is a usable GPU (--has-gpu), so it need not be opened
 * again. */
bool vt_test_gpu_known(void);
extern bool vt_test_gpu_used;   /* by the running test */
extern bool vt_test_gpu_wanted; /* the running test would use it if there were one */

/* Notes an operation that the running test called on the GPU. `name` must stay. */
void vt_test_operation(const char *name);

/* A fresh empty directory for the running test, removed when it passes. */
const char *vt_test_directory(void);

/* "<that directory>/<name>", until the test ends, with the directories of the name created; and a file there, whose
 * path is returned. */
const char *test_path(const char *name);
const char *test_write(const char *name, const void *bytes, size_t count);

/* Returns `memory` (malloc'd; NULL ends the program), which is freed when the running test has ended. */
void *vt_test_owned(void *memory);

/* SCOPED(vt_config) *config = NULL; declares a vt_config *, which vt_config_close closes where its block ends: what was
 * declared last is closed first. */
#define SCOPED(type) __attribute__((cleanup(type##_close))) type

#define TEST(name) VT_TEST(name, false, false)
/* A test that uses the GPU if there is one. */
#define GPU_TEST(name) VT_TEST(name, true, false)
/* A test that takes more than a few seconds and adds to what a shorter one shows: for `make long-test`. */
#define LONG_TEST(name) VT_TEST(name, false, true)
#define LONG_GPU_TEST(name) VT_TEST(name, true, true)

#define VT_TEST(name, on_gpu, is_long)                                                                                 \
    static void test_##name(void);                                                                                     \
    __attribute__((constructor)) static void register_##name(void)                                                     \
    {                                                                                                                  \
        vt_test_register(__FILE__, #name, test_##name, on_gpu, is_long);                                               \
    }                                                                                                                  \
    static void test_##name(void)

/* EXPECT(condition) or EXPECT(condition, "format", values...): the message should hold the actual values. */
#define EXPECT(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) vt_test_fail(__FILE__, __LINE__, #condition " " __VA_ARGS__);                                \
    } while (0)

/* The call must return VT_OK; the noted error is printed otherwise. Clears the note. */
#define EXPECT_OK(call)                                                                                                \
    do {                                                                                                               \
        if ((call) != VT_OK) vt_test_fail(__FILE__, __LINE__, #call ": %s", vt_error_text());                          \
        vt_error_clear();                                                                                              \
    } while (0)

/* The call must fail with a message that contains `part`. Clears the note. */
#define EXPECT_ERROR(call, part)                                                                                       \
    do {                                                                                                               \
        if ((call) == VT_OK)                                                                                           \
            vt_test_fail(__FILE__, __LINE__, #call ": succeeded, should fail with '%s'", part);                        \
        else if (strstr(vt_error_text(), part) == NULL)                                                                \
            vt_test_fail(__FILE__, __LINE__, #call ": message '%s' lacks '%s'", vt_error_text(), part);                \
        vt_error_clear();                                                                                              \
    } while (0)

/* The text must be the expected one. */
#define EXPECT_TEXT(text, expected)                                                                                    \
    do {                                                                                                               \
        const char *text_ = (text), *expected_ = (expected);                                                           \
        if (strcmp(text_, expected_) != 0) vt_test_fail(__FILE__, __LINE__, "'%s', expected '%s'", text_, expected_);  \
    } while (0)

/* The text must contain `part`. */
#define EXPECT_PART(text, part)                                                                                        \
    do {                                                                                                               \
        const char *text_ = (text), *part_ = (part);                                                                   \
        if (strstr(text_, part_) == NULL) vt_test_fail(__FILE__, __LINE__, "'%s' lacks '%s'", text_, part_);           \
    } while (0)

/* |actual - expected| <= tolerance, both finite. */
#define EXPECT_NEAR(actual, expected, tolerance)                                                                       \
    do {                                                                                                               \
        double actual_ = (actual), expected_ = (expected);                                                             \
        if (!(fabs(actual_ - expected_) <= (tolerance)))                                                               \
            vt_test_fail(__FILE__, __LINE__, #actual " is %.9g, expected %.9g within %.3g", actual_, expected_,        \
                         (double)(tolerance));                                                                         \
    } while (0)

#endif
