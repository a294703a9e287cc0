#include "task/loss_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

bool vt_loss_weights_are_set(const vt_config *config)
{
    return config->latitude_weights || config->channel_weights != NULL;
}

/* "loss: mse; points count by their latitude, and by channel_weights auto" */
void vt_loss_weights_log(const vt_config *config)
{
    char *loss = vt_config_value_text(config, "loss");
    const bool by_latitude = config->latitude_weights, by_channel = config->channel_weights != NULL;
    if (strcmp(loss, "relative_l2") != 0 || by_latitude || by_channel)
        vt_log_info("loss: %s%s%s%s%s%s", loss, by_latitude || by_channel ? "; points count by " : "",
                    by_latitude ? "their latitude" : "", by_latitude && by_channel ? ", and by " : "",
                    by_channel ? "channel_weights " : "", by_channel ? config->channel_weights : "");
    free(loss);
}

bool vt_channel_weights_are_automatic(const vt_config *config)
{
    return config->channel_weights != NULL && strcmp(config->channel_weights, "auto") == 0;
}

/* "[1, 0.5]" or "1, 0.5". */
static vt_status read_list(const char *list, int64_t channels, double *weights)
{
    vt_status status = VT_OK;
    const char *rest = list, *word;
    size_t length;
    int64_t count = 0;
    while ((word = vt_text_next_word(&rest, &length)) != NULL) {
        char *end = NULL;
        const double weight = strtod(word, &end);
        VT_CHECK(end == word + length && isfinite(weight) && weight >= 0,
                 "channel_weights: '%.*s' of '%.200s' is no weight; expected numbers from 0 on, one for each forecast "
                 "channel, or auto",
                 (int)length, word, list);
        if (count < channels) weights[count] = weight;
        count++;
    }
    VT_CHECK(count == channels,
             "channel_weights: '%.200s' holds %ld weight%s, but %ld channels are forecast (n_out_channels)", list,
             count, count == 1 ? "" : "s", channels);
done:
    return status;
}

vt_status vt_channel_weights(const vt_config *config, const float *changes, float *weights)
{
    vt_status status = VT_OK;
    const int64_t channels = config->n_out_channels;
    double *all = vt_allocate((size_t)channels, sizeof *all, "the channels' weights"), sum = 0;
    for (int64_t c = 0; c < channels; c++) all[c] = 1;
    if (vt_channel_weights_are_automatic(config))
        for (int64_t c = 0; c < channels; c++) all[c] = 1 / ((double)changes[c] * (double)changes[c]);
    else if (config->channel_weights != NULL)
        VT_TRY(read_list(config->channel_weights, channels, all));
    for (int64_t c = 0; c < channels; c++) sum += all[c];
    VT_CHECK(sum > 0, "channel_weights: all weights of '%.200s' are 0, so no channel would be learnt",
             config->channel_weights);
    for (int64_t c = 0; c < channels && weights != NULL; c++) weights[c] = (float)(all[c] / sum * (double)channels);
done:
    free(all);
    return status;
}
