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
        VT_TRY(vt_loader_next(loader, &batch, &waited));
        if (batch == NULL) break;
        if (vt_stop_requested()) VT_TRY(VT_STOPPED);
        VT_TRY(vt_step_evaluate(trainer, batch, with_persistence, &sums));
    }
    validation->loss = sums.loss / (double)sums.samples;
    validation->persistence_loss = sums.persistence_loss / (double)sums.samples;
    for (int64_t c = 0; c < trainer->config->n_out_channels; c++)
        validation->rmse[c] = sums.rmse[c] / (double)sums.samples;
    validation->seconds = vt_clock_seconds() - begin;
done:
    vt_evaluation_close(&sums);
    return status;
}
