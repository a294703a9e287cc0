#include "training/validate.h"

#include "base/clock.h"
#include "base/log.h"
#include "training/reader.h"
#include "training/stop.h"

vt_status vt_validate(vt_trainer *trainer, vt_loader *loader, bool with_baseline, vt_evaluation *validation)
{
    vt_status status = VT_OK;
    const vt_config *config = vt_trainer_config(trainer);
    vt_world *world = vt_trainer_world(trainer);
    int64_t replaced = 0;
    double begin = vt_clock_seconds(), waited = 0;
    vt_step_evaluation_open(trainer, with_baseline, validation);
    VT_TRY(vt_loader_begin(loader, 0, 0));
    for (;;) {
        const vt_batch *batch = NULL;
        VT_TRY(vt_reader_next(config, world, loader, &batch, &waited, &replaced));
        VT_TRY(vt_world_agree(world, vt_stop_requested() ? VT_STOPPED : VT_OK));
        if (batch == NULL) break;
        VT_TRY(vt_world_agree(world, vt_step_evaluate(trainer, batch, validation)));
    }
    vt_step_evaluation_finish(trainer, validation);
    validation->seconds = vt_clock_seconds() - begin;
    if (replaced > 0)
        vt_log_warning("%lld validation samples could not be read, and others took their place (skip_bad_samples)",
                       (long long)replaced);
done:
    return status;
}
