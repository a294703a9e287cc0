#include "planning/practice.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "source/sources.h"

struct vt_practice {
    vt_config config; /* its strings are the caller's */
    vt_trainer *trainer;
    vt_batch batch;
    float *fields[VT_BATCH_TENSORS];
};

static vt_config config_of(const vt_config *config, int64_t samples)
{
    vt_config own = *config;
    own.ranks = own.data_parallel = own.tensor_parallel = own.context_parallel = own.pipeline_parallel = 1;
    own.sequence_parallel = false;
    own.zero_stage = 0;
    own.grad_accumulation = 1;
    own.offload_activations = VT_OFFLOAD_NONE;
    own.global_batch_size = samples;
    own.lr = 0;
    own.on_nonfinite = VT_NONFINITE_SKIP; /* fp16 may begin with a loss scale that is too large */
    return own;
}

float *vt_practice_numbers(int64_t count, uint32_t stream)
{
    enum { DRAWN = 1000003 }; /* then the same again: not a multiple of a row, so that no two samples are alike */
    float *numbers = vt_allocate((size_t)count, sizeof *numbers, "a practice run");
    for (int64_t i = 0; i < count && i < DRAWN; i++) {
        const uint32_t key[2] = {1, stream}, counter[4] = {(uint32_t)i, 0, 0, 0};
        numbers[i] = 2 * vt_random_uniform(vt_random_philox(key, counter).word[0]) - 1;
    }
    for (int64_t i = DRAWN; i < count; i++) numbers[i] = numbers[i - DRAWN];
    return numbers;
}

void vt_practice_words(float *numbers, int64_t count, int64_t vocabulary)
{
    int32_t *words = (int32_t *)(void *)numbers;
    for (int64_t i = 0; i < count; i++) {
        const int64_t word = (int64_t)(0.5 * ((double)numbers[i] + 1) * (double)vocabulary);
        words[i] = (int32_t)(word < vocabulary ? word : vocabulary - 1);
    }
}

vt_status vt_practice_open(const vt_config *config, int64_t samples, vt_backend *backend, vt_practice **practice)
{
    vt_status status = VT_OK;
    vt_practice *p = vt_allocate(1, sizeof *p, "a practice run");
    const vt_model_kind *model = vt_model_kind_of(config);
    vt_tensor_spec specs[VT_BATCH_TENSORS];
    p->config = config_of(config, samples);
    p->batch = (vt_batch){.sample_count = samples, .global_count = samples, .steps = vt_config_longest_rollout(config)};
    const vt_span all = model->part_needed(&p->config, (vt_span){0, model->tokens(&p->config)});
    const int count = vt_source_kind_of(config)->specs(&p->config, all, specs);
    for (int t = 0; t < count; t++) {
        const int64_t values = samples * vt_tensor_values(&specs[t]);
        p->batch.tensors[t] = p->fields[t] = vt_practice_numbers(values, (uint32_t)t);
        if (specs[t].type == VT_TENSOR_INT32) vt_practice_words(p->fields[t], values, config->vocab_size);
    }
    const vt_trainer_options options = {.steps = 1};
    VT_TRY(vt_trainer_open(&p->config, &options, backend, &p->trainer));
    if (backend->shares_host_memory) goto done;
    VT_TRY(vt_step_keep_batch(p->trainer, &p->batch)); /* a run's copies go on beside its steps */
    for (int t = 0; t < count; t++) p->batch.tensors[t] = NULL;
done:
    if (status != VT_OK) vt_practice_close(&p);
    *practice = p;
    return status;
}

vt_status vt_practice_plan(const vt_config *config, int64_t samples, vt_plan *plan)
{
    const vt_config own = config_of(config, samples);
    return vt_plan_make(&own, &(vt_plan_options){0}, plan);
}

vt_status vt_practice_step(vt_practice *practice)
{
    vt_step_figures figures;
    return vt_step_train(practice->trainer, &practice->batch, &figures);
}

void vt_practice_close(vt_practice **practice)
{
    vt_practice *p = *practice;
    if (p == NULL) return;
    vt_trainer_close(&p->trainer);
    for (int t = 0; t < VT_BATCH_TENSORS; t++) free(p->fields[t]);
    free(p);
    *practice = NULL;
}
