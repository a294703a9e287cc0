/* A model that is trained by hand beside PyTorch's, whose scripts make numbers by the same formulas and keep some of
 * the results. */
#ifndef VT_TESTS_GOLDEN_BY_HAND_H
#define VT_TESTS_GOLDEN_BY_HAND_H

#include "bare_model.h"
#include "golden/golden_file.h"
#include "loss/loss.h"

typedef struct {
    bare_model m;
    vt_model_tensor tensors[2]; /* input and target, in the back end's memory, as are those below */
    double *sums;               /* of the loss */
    float *losses;
} by_hand;

/* host NULL: unwritten */
static inline void *place(const by_hand *h, const void *host, size_t bytes)
{
    vt_backend *backend = h->m.backend;
    void *memory = NULL;
    EXPECT_OK(backend->allocate(backend, VT_MEMORY_DATA, bytes, &memory));
    if (host != NULL) backend->copy_from_host(backend, memory, host, bytes);
    return memory;
}

static inline void *fetch(const by_hand *h, const void *memory, size_t bytes)
{
    void *host = vt_test_owned(malloc(bytes));
    h->m.backend->copy_to_host(h->m.backend, host, memory, bytes);
    return host;
}

static inline float *fetch_floats(const by_hand *h, const float *memory, int64_t count)
{
    return fetch(h, memory, (size_t)count * sizeof(float));
}

static inline void by_hand_close(by_hand *h)
{
    vt_backend *backend = h->m.backend;
    EXPECT_OK(backend->check(backend));
    for (int t = 0; t < 2; t++) backend->release(backend, (void *)(uintptr_t)h->tensors[t].values);
    backend->release(backend, h->sums);
    backend->release(backend, h->losses);
    bare_model_close(&h->m);
}

/* Gives each parameter, by its number, the values that `make` returns. */
static inline void make_parameters(by_hand *h, float *make(const vt_parameter *parameter, int64_t number))
{
    for (int64_t i = 0; i < h->m.parameters->count; i++) {
        const vt_parameter *p = h->m.parameters->list[i];
        h->m.backend->copy_from_host(h->m.backend, p->value, make(p, i), (size_t)p->count * sizeof(float));
    }
    vt_parameters_refresh(h->m.parameters);
}

/* The mean of the losses behind `partials`. */
static inline double mean_of_losses(by_hand *h, const vt_compared *what)
{
    const int64_t batch = what->pass->batch;
    double mean = 0;
    vt_loss_finish(what, h->losses, NULL);
    const float *losses = fetch_floats(h, h->losses, batch);
    for (int64_t i = 0; i < batch; i++) mean += (double)losses[i] / (double)batch;
    return mean;
}

/* ---- the scripts' formulas ---- */

static inline double uniform(uint64_t seed, uint64_t index)
{
    uint64_t z = ((seed << 32) + index) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 40) / (double)(1 << 24);
}

/* About normal. */
static inline double sum_of_four(uint64_t seed, int64_t index)
{
    double sum = 0;
    for (uint64_t part = 0; part < 4; part++) sum += uniform(seed, 4 * (uint64_t)index + part);
    return sum - 2;
}

/* ‖values - expected‖ / ‖expected‖ of those at a stride, which are what the file has. */
static inline double difference_of_some(hid_t file, const char *group, const char *name, const float *values,
                                        int64_t count, int64_t stride)
{
    int64_t expected_count;
    const double *expected = golden_read(file, &expected_count, "%s/%s", group, name);
    float *taken = vt_test_owned(malloc((size_t)expected_count * sizeof *taken));
    EXPECT(expected_count == (count + stride - 1) / stride, "%s/%s", group, name);
    for (int64_t i = 0; i < expected_count; i++) taken[i] = values[i * stride];
    return golden_difference(taken, expected, expected_count);
}

#endif
