/* How long the GPU works on an operation, by its own clock (backend/times.h). */
#include "state.h"

static void clock_start(vt_backend *backend)
{
    vt_cuda_state *state = backend->state;
    for (int i = 0; i < 2; i++)
        if (state->clock[i] == NULL) vt_cuda_succeeds(backend, cudaEventCreate(&state->clock[i]), "making a clock");
    vt_cuda_succeeds(backend, cudaEventRecord(state->clock[0], state->stream), "starting a clock");
}

static double clock_stop(vt_backend *backend)
{
    vt_cuda_state *state = backend->state;
    float milliseconds = 0;
    if (vt_cuda_succeeds(backend, cudaEventRecord(state->clock[1], state->stream), "stopping a clock") &&
        vt_cuda_succeeds(backend, cudaEventSynchronize(state->clock[1]), "waiting for a clock"))
        vt_cuda_succeeds(backend, cudaEventElapsedTime(&milliseconds, state->clock[0], state->clock[1]),
                         "reading a clock");
    return 1e-3 * (double)milliseconds;
}

void vt_cuda_clock_fill(vt_backend *backend)
{
    backend->clock_start = clock_start;
    backend->clock_stop = clock_stop;
}

void vt_cuda_clock_close(vt_backend *backend)
{
    vt_cuda_state *state = backend->state;
    for (int i = 0; i < 2; i++) {
        if (state->clock[i] != NULL) cudaEventDestroy(state->clock[i]);
        state->clock[i] = NULL;
    }
}
