#include "training/validate.h"

#include "base/clock.h"
#include "base/log.h"
#include "training/reader.h"
#include "training/stop.h"

vt_status vt_validate(vt_trainer *trainer, vt_loader *loader, bool with_persistence, vt_validation *validation)
{
    vt_status status = VT_OK;
    vt_evaluation sums;
    int64_t replaced = 0;
    double begin = vt_clock_seconds(), waited = 0;
    vt_evaluation_open(trainer->config, &sums);
    VT_TRY(vt_loader_begin(loader, 0, 0));
    for (;;) {
        const vt_batch *batch = NULL;
        VT_TRY(vt_reader_next(trainer->config, trainer->world, loader, &batch, &waited, &replaced));
        VT_TRY(vt_world_agree(trainer->world, vt_stop_requested() ? VT_STOPPED : VT_OK));
        if (batch == NULL) break;
        VT_TRY(vt_world_agree(trainer->world, vt_step_evaluate(trainer, batch, with_persistence, &sums)));
    }
    vt_evaluation_finish(trainer, &sums);
    if (replaced > 0)
        vt_log_warning("%lld validation samples could not be read, and others took their place (skip_bad_samples)",
                       (long long)replaced);
    validation->loss = sums.loss;
    validation->persistence_loss = sums.persistence_loss;
    for (int64_t c = 0; c < sums.channels; c++) validation->rmse[c] = sums.rmse[c];
    for (int64_t c = 0; c < sums.channels && validation->persistence_rmse != NULL; c++)
        validation->persistence_rmse[c] = isnan(sums.persistence_loss) ? (double)NAN : sums.persistence_rmse[c];
    validation->seconds = vt_clock_seconds() - begin;
done:
    vt_evaluation_close(&sums);
    return status;
}
