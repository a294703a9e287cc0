#include "training/record.h"

#include <stdio.h>

#include "base/text.h"
#include "report/log.h"
#include "report/memory.h"

static void log_line(const char *text, void *context)
{
    (void)context;
    vt_log_info("%s", text);
}

void vt_record_configuration(const vt_config *config)
{
    vt_log_info("------------------ Configuration ------------------");
    vt_config_print(config, log_line, NULL);
    vt_log_info("---------------------------------------------------");
}

static void shape_text(const vt_parameter *parameter, char *buffer, size_t size)
{
    int used = snprintf(buffer, size, "[");
    for (int i = 0; i < parameter->dimensions; i++)
        used +=
            snprintf(buffer + used, size - (size_t)used, "%s%lld", i > 0 ? ", " : "", (long long)parameter->shape[i]);
    snprintf(buffer + used, size - (size_t)used, "]");
}

void vt_record_parameters(const vt_trainer *trainer)
{
    char shape[96];
    vt_log_info("%-32s %-22s %-22s %12s", "parameter", "global shape", "local shape", "bytes");
    for (int64_t i = 0; i < vt_parameters_count(trainer->parameters); i++) {
        const vt_parameter *parameter = vt_parameters_at(trainer->parameters, i);
        shape_text(parameter, shape, sizeof shape);
        vt_log_info("%-32s %-22s %-22s %12lld", parameter->name, shape, shape,
                    (long long)parameter->count * (long long)sizeof(float));
    }
    vt_log_info("number of model parameters: %lld", (long long)vt_parameters_element_count(trainer->parameters));
}

void vt_record_plan(const vt_plan *plan)
{
    static const char *const names[VT_MEMORY_CATEGORY_COUNT] = {"parameters",  "gradients", "optimizer",
                                                                "activations", "data",      "workspace"};
    char size[VT_NUMBER_SIZE];
    vt_text line = {0};
    double total = 0;
    for (int i = 0; i < VT_MEMORY_CATEGORY_COUNT; i++) {
        if (plan->bytes[i] == 0) continue;
        vt_text_append(&line, ", %s %s", names[i], vt_text_bytes((double)plan->bytes[i], size));
        total += (double)plan->bytes[i];
    }
    vt_log_info("memory the model needs: %s (%s); %.4g GFLOP a step", vt_text_bytes(total, size), line.characters + 2,
                1e-9 * plan->step_flops);
    vt_text_close(&line);
}

void vt_record_memory(void)
{
    vt_log_info(" Memory usage after forward pass: %.4f GB.", vt_memory_resident() / (1024.0 * 1024 * 1024));
}

void vt_record_epoch(int64_t epoch, double seconds, int64_t samples, double mean_loss)
{
    vt_log_info("Time taken for epoch %lld is %f sec, avg %f samples/sec", (long long)epoch, seconds,
                (double)samples / seconds);
    vt_log_info("  Avg train loss=%f", mean_loss);
}

void vt_record_validation(const vt_config *config, const vt_validation *validation, const char *const *channel_names)
{
    char number[VT_NUMBER_SIZE];
    vt_text rmse = {0};
    vt_log_info("  Avg val loss=%s", vt_text_float((float)validation->loss, number));
    vt_log_info("  Total validation time: %s sec", vt_text_double(validation->seconds, number));
    for (int64_t c = 0; c < config->n_out_channels; c++) {
        bool named = channel_names != NULL && channel_names[c][0] != '\0';
        if (named)
            vt_text_append(&rmse, " %s=%.4f", channel_names[c], validation->rmse[c]);
        else
            vt_text_append(&rmse, " %lld=%.4f", (long long)c, validation->rmse[c]);
    }
    vt_log_info("  Valid RMSE by channel:%s", rmse.characters);
    vt_text_close(&rmse);
}
