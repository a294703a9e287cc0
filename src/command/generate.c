#include "command/command.h"

#include <stdlib.h>

#include "forecast/forecaster.h"
#include "forecast/language.h"
#include "parallel/world.h"

/* Everything before the ranks connect. */
static vt_status prepare(const vt_call *call, char **checkpoint, vt_config **config)
{
    vt_status status = VT_OK;
    const char *named = call->operands[0];
    VT_TRY(
        vt_forecaster_configure(named, call->option_count, call->options, call->launch.world_size, checkpoint, config));
    VT_CHECK(vt_forecaster_is_of_text(*config),
             "generate: %s was not trained on text; `vitrain predict` makes forecasts", named);
    VT_CHECK((*config)->causal,
             "generate: %s was trained without causal: true, so that it saw each word that it had to predict, and "
             "can't write; "
             "train one with --config=lm or --causal",
             named);
    VT_TRY(vt_language_take_words(*checkpoint, *config));
done:
    return status;
}

vt_status vt_command_generate(const vt_call *call)
{
    const vt_generate_flags *flags = call->flags;
    const vt_generation how = {.prompt = flags->prompt,
                               .tokens = flags->tokens,
                               .temperature = flags->temperature,
                               .top_k = flags->top_k,
                               .seed = (uint64_t)flags->seed,
                               .count = flags->count};
    char *checkpoint = NULL;
    vt_config *config = NULL;
    vt_status status = prepare(call, &checkpoint, &config);
    if (status == VT_ERROR) vt_world_fail_early(&call->launch);
    if (status == VT_OK) status = vt_language_generate(config, checkpoint, &how, &call->launch);
    vt_config_close(&config);
    free(checkpoint);
    return status;
}
