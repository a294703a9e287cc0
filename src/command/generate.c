#include "command/command.h"

#include "forecast/language.h"

vt_status vt_command_generate(const vt_call *call)
{
    vt_status status = VT_OK;
    const vt_generate_flags *flags = call->flags;
    const vt_generation how = {.prompt = flags->prompt,
                               .tokens = flags->tokens,
                               .temperature = flags->temperature,
                               .top_k = flags->top_k,
                               .seed = (uint64_t)flags->seed,
                               .count = flags->count};
    const char *named = call->operands[0];
    vt_trained model;
    VT_TRY(vt_trained_open(named, call->option_count, call->options, call->launch.world_size, &model));
    VT_CHECK(vt_trained_on_text(model.config),
             "generate: %s was not trained on text; `vitrain predict` makes forecasts", named);
    VT_CHECK(model.config->causal,
             "generate: %s was trained without causal: true, so that it saw each word that it had to predict, and "
             "can't write; "
             "train one with --config=lm or --causal",
             named);
    VT_TRY(vt_language_generate(&model, &how, &call->launch));
done:
    vt_trained_close(&model);
    return status;
}
