/* cuda/trials.c without a GPU: its events take their times from a simulated clock. */
#include "test.h"

#if defined(VT_HAS_CUDA)

#include "base/clock.h"
#include "cuda/state.h"

enum { MOST_RUNS = 64 };

static struct {
    double now;            /* milliseconds */
    double pace;           /* the time for a unit of work: less as the clock of a GPU rises */
    char order[MOST_RUNS]; /* which trials ran */
    char fails;            /* the trial that fails from run `failing` on; 0: none */
    int runs, failing;     /* their number */
    int events, forgotten;
    bool error; /* what cudaPeekAtLastError would say */
    size_t free_bytes;
} fake;

typedef struct {
    double stamp;
} fake_event;

static cudaError_t event_create(cudaEvent_t *event)
{
    static fake_event events[2];
    *event = (cudaEvent_t)&events[fake.events++ % 2];
    return cudaSuccess;
}

static cudaError_t event_destroy(cudaEvent_t event)
{
    (void)event;
    fake.events--;
    return cudaSuccess;
}

static cudaError_t event_record(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    ((fake_event *)event)->stamp = fake.now;
    return cudaSuccess;
}

static cudaError_t event_synchronize(cudaEvent_t event)
{
    (void)event;
    return cudaSuccess;
}

static cudaError_t event_elapsed(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
    *milliseconds = (float)(((fake_event *)end)->stamp - ((fake_event *)begin)->stamp);
    return cudaSuccess;
}

static cudaError_t stream_synchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

static cudaError_t last_error(void)
{
    fake.forgotten++;
    fake.error = false;
    return cudaSuccess;
}

static cudaError_t memory_info(size_t *bytes, size_t *all)
{
    *all = *bytes = fake.free_bytes;
    return cudaSuccess;
}

/* 50 ms later at each look, and a GPU that is kept busy grows warm. */
static double clock_seconds(void)
{
    static double seconds;
    fake.pace = fake.pace > 1 ? fake.pace / 2 : 1;
    return seconds += 0.05;
}

#define cudaEventCreate event_create
#define cudaEventDestroy event_destroy
#define cudaEventRecord event_record
#define cudaEventSynchronize event_synchronize
#define cudaEventElapsedTime event_elapsed
#define cudaStreamSynchronize stream_synchronize
#define cudaGetLastError last_error
#define cudaMemGetInfo memory_info
#define vt_clock_seconds clock_seconds
#define vt_cuda_time_all tested_time_all
void tested_time_all(vt_backend *backend, int count, vt_cuda_trial *trials);
#include "cuda/trials.c"

typedef struct {
    char name;
    double work;
} task;

static bool run_task(void *context)
{
    const task *t = context;
    if (fake.runs < MOST_RUNS - 1) fake.order[fake.runs] = t->name;
    fake.runs++;
    if (t->name == fake.fails && fake.runs >= fake.failing) fake.error = true;
    if (fake.error) return false;
    fake.now += t->work * fake.pace;
    return true;
}

static void time_tasks(vt_cuda_state *state, vt_cuda_trial trials[2], task tasks[2])
{
    vt_backend backend = {.state = state};
    memset(fake.order, 0, sizeof fake.order);
    fake.runs = 0;
    for (int i = 0; i < 2; i++) trials[i] = (vt_cuda_trial){run_task, &tasks[i], -1};
    tested_time_all(&backend, 2, trials);
    EXPECT(fake.events == 0, "%d events are left", fake.events);
}

TEST(ways_take_turns_on_a_warm_gpu)
{
    task tasks[] = {{'a', 3}, {'b', 2}};
    vt_cuda_trial trials[2];
    vt_cuda_state state = {0};
    memset(&fake, 0, sizeof fake);
    fake.pace = 8; /* cold: everything takes eight times as long */
    time_tasks(&state, trials, tasks);
    EXPECT_NEAR(trials[0].milliseconds, 3, 1e-6);
    EXPECT_NEAR(trials[1].milliseconds, 2, 1e-6);
    const int length = fake.runs;
    EXPECT(length >= 2 + 3 + 6 && strcmp(fake.order + length - 6, "ababab") == 0, "%s", fake.order);
    time_tasks(&state, trials, tasks); /* warm by now */
    EXPECT_TEXT(fake.order, "abababab");
}

TEST(the_least_free_memory_is_kept)
{
    static const size_t seen[][2] = {{5, 5}, {3, 3}, {4, 3}};
    task tasks[] = {{'a', 3}, {'b', 2}};
    vt_cuda_trial trials[2];
    vt_cuda_state state = {.is_warm = true};
    memset(&fake, 0, sizeof fake);
    fake.pace = 1;
    for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++) {
        fake.free_bytes = seen[i][0];
        time_tasks(&state, trials, tasks);
        EXPECT(state.least_free == seen[i][1], "%zu", state.least_free);
    }
}

TEST(a_way_that_fails_is_never_the_fastest)
{
    for (int from = 1; from <= 7; from++)
        for (int bad = 0; bad < 2; bad++) {
            task tasks[] = {{'a', 3}, {'b', 2}};
            vt_cuda_trial trials[2];
            vt_cuda_state state = {.is_warm = true};
            memset(&fake, 0, sizeof fake);
            fake.pace = 1;
            fake.fails = tasks[bad].name;
            fake.failing = from;
            time_tasks(&state, trials, tasks);
            EXPECT_NEAR(trials[!bad].milliseconds, tasks[!bad].work, 1e-6);
            EXPECT(trials[bad].milliseconds > 1e300 && fake.forgotten == 1 && !fake.error, "%d from run %d: %g", bad,
                   from, trials[bad].milliseconds);
        }
}

#endif
