/* A small model over the weather task, with one batch to train it on, for tests. */
#ifndef VT_TESTS_SMALL_MODEL_H
#define VT_TESTS_SMALL_MODEL_H

#include "config/stages.h"
#include "operations/guarded.h"
#include "rig.h"

enum { BATCH = 4, FRAME = 2 * 8 * 12, LONGEST = 3 }; /* LONGEST: steps of forecast with targets */

typedef struct {
    rig rig;
    float input[BATCH * FRAME], target[BATCH * LONGEST * FRAME];
    vt_batch batch;
    vt_checkpoint_subject subject;
} model;

static inline vt_config *small_config(const char *settings)
{
    return config_with(1,
                       "img_size=[8,12] patch_size=4 n_in_channels=2 n_out_channels=2 embed_dim=16 depth=3 num_heads=2 "
                       "global_batch_size=4 num_iters=10",
                       settings);
}

/* The configuration is the model's from then on. */
static inline void open_small_of(model *m, vt_config *config, bool gpipe)
{
    static const float means[3] = {1, 2, 3}, stds[3] = {3, 4, 5}; /* of two channels, or three */
    *m = (model){.rig = {.config = config}};
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_AUTO, 0, &m->rig.backend));
    EXPECT_OK(rig_open(&m->rig, means, stds, gpipe));
    fill_random(m->input, BATCH * FRAME, 1, 3);
    fill_random(m->target, BATCH * LONGEST * FRAME, 2, 3);
    m->batch = (vt_batch){.sample_count = BATCH,
                          .global_count = BATCH,
                          .steps = vt_config_longest_rollout(config),
                          .tensors = {m->input, m->target}};
    m->subject = vt_trainer_subject(m->rig.trainer);
}

static inline void open_small(model *m, const char *settings)
{
    open_small_of(m, small_config(settings), false);
}

static inline void model_close(model *m)
{
    rig_close(&m->rig);
}

static inline double train_steps(model *m, int count)
{
    return rig_train(&m->rig, &m->batch, count);
}

#endif
