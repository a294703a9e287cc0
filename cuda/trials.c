/* Finds the fastest of several ways to do something on this GPU. */
#include <math.h>

#include "base/clock.h"
#include "base/status.h"
#include "state.h"

/* Keeps the GPU busy until its clock has risen. */
static void warm_up(vt_backend *backend, const vt_cuda_trial *trial)
{
    const double seconds = 0.2, begin = vt_clock_seconds();
    vt_cuda_state *state = backend->state;
    if (state->is_warm) return;
    state->is_warm = true;
    while (vt_clock_seconds() - begin < seconds && trial->run(trial->context) &&
           cudaStreamSynchronize(state->stream) == cudaSuccess)
        ;
}

/* A trial's failure is an error neither of the run nor of the next trial. */
static bool fail(vt_cuda_trial *trial)
{
    cudaGetLastError();
    trial->milliseconds = INFINITY;
    return false;
}

/* One run; false: it fails. */
static bool time_once(vt_backend *backend, vt_cuda_trial *trial, cudaEvent_t begin, cudaEvent_t end)
{
    cudaStream_t stream = ((vt_cuda_state *)backend->state)->stream;
    float milliseconds = 0;
    if (cudaEventRecord(begin, stream) != cudaSuccess || !trial->run(trial->context) ||
        cudaEventRecord(end, stream) != cudaSuccess || cudaEventSynchronize(end) != cudaSuccess ||
        cudaEventElapsedTime(&milliseconds, begin, end) != cudaSuccess)
        return fail(trial);
    if ((double)milliseconds < trial->milliseconds) trial->milliseconds = (double)milliseconds;
    return true;
}

/* Trials may allocate scratch results: then memory use is at its highest. */
static void note_free_memory(vt_cuda_state *state)
{
    size_t bytes, all;
    if (cudaMemGetInfo(&bytes, &all) == cudaSuccess && (state->least_free == 0 || bytes < state->least_free))
        state->least_free = bytes;
}

void vt_cuda_time_all(vt_backend *backend, int count, vt_cuda_trial *trials)
{
    enum { ROUNDS = 3, MOST = 16 };
    cudaEvent_t begin = NULL, end = NULL;
    bool ready = cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess, works[MOST];
    VT_ASSERT(count <= MOST);
    for (int i = 0; i < count; i++) {
        trials[i].milliseconds = INFINITY;
        works[i] = (ready && trials[i].run(trials[i].context)) || fail(&trials[i]);
        if (works[i]) warm_up(backend, &trials[i]);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < count; i++) works[i] = works[i] && time_once(backend, &trials[i], begin, end);
    note_free_memory(backend->state);
    if (begin != NULL) cudaEventDestroy(begin);
    if (end != NULL) cudaEventDestroy(end);
}
