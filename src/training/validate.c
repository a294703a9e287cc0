#include "training/validate.h"

#include "base/clock.h"
#include "training/stop.h"

vt_status vt_validate(vt_trainer *trainer, vt_loader *loader, bool with_persistence, vt_validation *validation)
{
    vt_status status = VT_OK;
    vt_evaluation sums;
    double begin = vt_clock_seconds(), waited = 0;
    vt_evaluation_open(trainer->config, &sums);
    VT_TRY(vt_loader_begin(loader, 0, 0));
    for (;;) {
        const vt_batch *batch = NULL;
        status = vt_loader_next(loader, &batch, &waited);
        if (status == VT_OK && vt_stop_requested()) status = VT_STOPPED;
        VT_TRY(vt_world_agree(trainer->world, status));
        if (batch == NULL) break;
        VT_TRY(vt_world_agree(trainer->world, vt_step_evaluate(trainer, batch, with_persistence, &sums)));
    }
    vt_evaluation_finish(trainer, &sums);
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
