/* The options of optimizers, of the learning rate and of fp16's loss scale. */
#include <string.h>

#include "config/option.h"

/* ---- the learning rate ---- */

vt_status vt_config_choose_schedule(vt_config *config)
{
    vt_status status = VT_OK;
    static const vt_option_id parts[] = {VT_OPTION_lr_schedule_start_lr, VT_OPTION_lr_schedule_scaling,
                                         VT_OPTION_lr_schedule_end_lr, VT_OPTION_lr_schedule_warmup_steps};
    const vt_origin *origin = config->origin;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (origin[parts[i]] != VT_FROM_DEFAULT && origin[parts[i]] >= origin[VT_OPTION_lr_schedule])
            config->lr_schedule = VT_SCHEDULE_PARTS;
    VT_CHECK(config->lr_schedule != VT_SCHEDULE_PARTS || !isnan(config->lr_schedule_start_lr),
             "lr_schedule has parts, but no start_lr, the highest learning rate; add --lr_schedule.start_lr=2e-4");
done:
    return status;
}

double vt_config_scaled_rate(const vt_config *config, double rate)
{
    const bool by_parts = config->lr_schedule == VT_SCHEDULE_PARTS;
    const int scaling = by_parts ? config->lr_schedule_scaling : config->lr_scaling;
    double ratio = (double)config->global_batch_size / (double)config->base_batch_size;
    if (scaling == VT_SCALING_SQRT) return rate * sqrt(ratio);
    return scaling == VT_SCALING_LINEAR ? rate * ratio : rate;
}

double vt_config_learning_rate(const vt_config *config)
{
    const bool by_parts = config->lr_schedule == VT_SCHEDULE_PARTS;
    return vt_config_scaled_rate(config, by_parts ? config->lr_schedule_start_lr : config->lr);
}

int64_t vt_config_warmup(const vt_config *config)
{
    if (config->lr_schedule != VT_SCHEDULE_PARTS) return config->warmup;
    const bool raises =
        config->lr_schedule_scaling != VT_SCALING_NONE && config->global_batch_size > config->base_batch_size;
    return raises ? config->lr_schedule_warmup_steps : 0;
}

/* ---- the other numbers ---- */

/* Those that differ from optimizer to optimizer, unless something sets them. */
static void derive_numbers(vt_config *config)
{
#define WEIGHT_DECAY(name, help, weight_decay, momentum, nesterov) weight_decay,
#define MOMENTUM(name, help, weight_decay, momentum, nesterov) momentum,
#define NESTEROV(name, help, weight_decay, momentum, nesterov) nesterov,
    static const double decays[] = {VT_OPTIMIZERS(WEIGHT_DECAY)}, momenta[] = {VT_OPTIMIZERS(MOMENTUM)};
    static const bool nesterovs[] = {VT_OPTIMIZERS(NESTEROV)};
    vt_origin *origin = config->origin;
    if (isnan(config->weight_decay)) origin[VT_OPTION_weight_decay] = VT_FROM_DEFAULT;
    if (origin[VT_OPTION_weight_decay] == VT_FROM_DEFAULT) config->weight_decay = decays[config->optimizer];
    if (origin[VT_OPTION_momentum] == VT_FROM_DEFAULT) config->momentum = momenta[config->optimizer];
    if (origin[VT_OPTION_nesterov] == VT_FROM_DEFAULT) config->nesterov = nesterovs[config->optimizer];
    if (config->adafactor == VT_ADAFACTOR_ORIGINAL && origin[VT_OPTION_adafactor_eps] == VT_FROM_DEFAULT)
        config->adafactor_eps[0] = 1e-30;
}

/* Flags of fp16's loss scale have no effect without it, nor those of a dynamic scale with a fixed one; a file may keep
 * them for when they are used. A scale must not begin below its own limit. */
static vt_status check_loss_scale(const vt_config *config)
{
    vt_status status = VT_OK;
    char least[VT_NUMBER_SIZE], fixed[VT_NUMBER_SIZE];
    const double start = ldexp(1, (int)config->loss_scale_power);
    for (const vt_row *row = vt_options; row->kind != VT_ROW_END; row++) {
        if (!vt_row_is_option(row) || strncmp(row->name, "loss_scale", strlen("loss_scale")) != 0 ||
            config->origin[row->id] != VT_FROM_COMMAND_LINE)
            continue;
        VT_CHECK(config->amp_mode == VT_AMP_FP16,
                 "--%s sets fp16's loss scale, but there is none without amp_mode fp16; leave it out, or add "
                 "--amp_mode=fp16",
                 row->name);
        VT_CHECK(config->loss_scale == 0 || row->id == VT_OPTION_loss_scale,
                 "--%s is of a loss scale that follows overflows, but loss_scale %s is one for good; leave it out, or "
                 "make it --loss_scale=0",
                 row->name, vt_text_double(config->loss_scale, fixed));
    }
    VT_CHECK(config->loss_scale > 0 || !(config->loss_scale_min > start),
             "loss_scale_min %s is more than the %.0f = 2^%ld at which the loss scale begins; raise loss_scale_power, "
             "or lower loss_scale_min",
             vt_text_double(config->loss_scale_min, least), start, config->loss_scale_power);
done:
    return status;
}

vt_status vt_config_resolve_optimizer(vt_config *config)
{
    vt_status status = VT_OK;
    derive_numbers(config);
    VT_CHECK(!config->nesterov || config->momentum > 0,
             "nesterov looks ahead along the momentum, but momentum is 0; add --momentum=0.9, or --nesterov=false");
    VT_CHECK((config->optimizer_block & (config->optimizer_block - 1)) == 0,
             "optimizer_block %ld is no power of two; 256 is usual", config->optimizer_block);
    VT_TRY(check_loss_scale(config));
done:
    return status;
}
