/* Whether a step makes an update. It follows from the step's sums alone, so that the device decides it and the host
 * need not wait for them. */
#ifndef VT_BACKEND_STEP_STATE_H
#define VT_BACKEND_STEP_STATE_H

#include "backend/backend.h"
#include "base/random.h" /* VT_ON_DEVICE_TOO */

/* The dynamic loss scale (Micikevicius et al. 2018, "Mixed Precision Training"), with the numbers of PyTorch's
 * GradScaler. */
#define VT_LOSS_SCALE_START 65536.0
#define VT_LOSS_SCALE_INTERVAL 2000 /* clean steps until it is doubled */

/* The gradients are multiplied by min(1, clip / (norm + 1e-6)) (torch.nn.utils.clip_grad_norm_), after they are
 * divided by the loss scale. If the loss or the norm is not finite there is no update, and the loss scale is halved;
 * without a loss scale, and if `stops`, there is no update from then on. */
VT_ON_DEVICE_TOO static inline void vt_step_decide(const vt_update *update, vt_step_state *state)
{
    bool is_finite = isfinite(state->squares) && isfinite(state->losses);
    double scale = state->loss_scale, ratio;
    state->gradient_norm = sqrt(state->squares) / scale;
    if (!is_finite || state->stopped) {
        state->factor = NAN;
        if (is_finite) return;
        state->clean_steps = 0;
        if (update->scales_loss)
            state->loss_scale = scale / 2;
        else if (update->stops)
            state->stopped = 1;
        return;
    }
    ratio = update->gradient_clip / (state->gradient_norm + 1e-6);
    state->factor = (float)((ratio < 1 ? ratio : 1) / scale);
    state->updates++;
    if (state->averaged < INT32_MAX) state->averaged++;
    state->correction1 = 1 - pow(update->beta1, (double)state->updates);
    state->correction2 = 1 - pow(update->beta2, (double)state->updates);
    if (!update->scales_loss || ++state->clean_steps < VT_LOSS_SCALE_INTERVAL) return;
    state->loss_scale = 2 * scale;
    state->clean_steps = 0;
}

#endif
