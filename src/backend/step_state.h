/* Whether a step makes an update. It follows from the step's sums alone, so that the device decides it and the host
 * need not wait for them. */
#ifndef VT_BACKEND_STEP_STATE_H
#define VT_BACKEND_STEP_STATE_H

#include <float.h>

#include "backend/backend.h"
#include "base/random.h" /* VT_ON_DEVICE_TOO */

/* A step overflowed. The loss scale is halved, unless overflows are still tolerated; at its limit the run stops. */
VT_ON_DEVICE_TOO static inline void vt_loss_scale_lower(const vt_update *update, vt_step_state *state)
{
    const double half = state->loss_scale / 2;
    if (update->fixed_scale) return;
    if (state->tolerated > 1)
        state->tolerated--;
    else if (state->loss_scale <= update->least_scale)
        state->stopped = 1;
    else
        state->loss_scale = half > update->least_scale ? half : update->least_scale;
}

/* A clean step. */
VT_ON_DEVICE_TOO static inline void vt_loss_scale_raise(const vt_update *update, vt_step_state *state)
{
    if (update->fixed_scale) return;
    if (update->refills) state->tolerated = update->hysteresis;
    if (++state->clean_steps < update->window) return;
    state->tolerated = update->hysteresis;
    state->loss_scale *= 2;
    state->clean_steps = 0;
}

/* The gradients are multiplied by min(1, clip / (norm + 1e-6)) (torch.nn.utils.clip_grad_norm_), after they are
 * divided by the loss scale. If the loss or the norm is not finite there is no update, and the loss scale falls;
 * without a loss scale, and if `stops`, there is no update from then on. The dynamic loss scale is that of Micikevicius
 * et al. 2018, "Mixed Precision Training". */
VT_ON_DEVICE_TOO static inline void vt_step_decide(const vt_update *update, vt_step_state *state)
{
    /* up to here each gradient fits into float32 */
    const double most = (double)FLT_MAX * (double)FLT_MAX;
    bool is_finite = state->squares <= most && isfinite(state->losses);
    double scale = state->loss_scale, ratio;
    state->gradient_norm = sqrt(state->squares) / scale;
    if (!is_finite || state->stopped) {
        state->factor = NAN;
        if (is_finite) return;
        state->clean_steps = 0;
        if (update->scales_loss)
            vt_loss_scale_lower(update, state);
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
    if (update->scales_loss) vt_loss_scale_raise(update, state);
}

/* What the values of an update count in their average: all after the first update that it sees, then 1 - decay. One
 * that warms up forgets its beginning: its n-th update counts 9 / (n + 8) where that is more. */
VT_ON_DEVICE_TOO static inline float vt_average_share(double decay, bool warms_up, const vt_step_state *state)
{
    const double early = 9.0 / ((double)state->averaged + 8);
    if (state->averaged == 1) return 1;
    return (float)(warms_up && early > 1 - decay ? early : 1 - decay);
}

#endif
