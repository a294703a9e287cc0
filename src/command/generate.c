#include "command/command.h"

#include <stdlib.h>

#include "command/arguments.h"
#include "forecast/language.h"
#include "parallel/world.h"

static const char help[] =
    "vitrain generate CHECKPOINT --prompt=\"the history of\" [flags]: continues a text with a language model that was\n"
    "trained with causal: true. Prints the prompt and what follows, a line for each text (docs/lm.md).\n\n";
static const char help_end[] =
    "\nThe same seed gives the same text. The configuration is the checkpoint's; every key of it is a flag, too.\n";

/* Everything before the ranks connect. */
static vt_status prepare(int argument_count, char *const *arguments, int64_t ranks, vt_generation *how,
                         char **checkpoint, vt_config **config)
{
    vt_status status = VT_OK;
    const char *named = NULL;
    int64_t seed = 333;
    bool of_text = false;
    vt_words changes = {0};
    const vt_argument flags[] = {
        {"checkpoint", VT_ARGUMENT_PATH, &named, 0, 0, VT_CHECKPOINT_FLAG_HELP},
        {"prompt", VT_ARGUMENT_ANY_TEXT, &how->prompt, 0, 0,
         "how the text begins; without it, with a word of the training text, drawn by its frequency"},
        {"tokens", VT_ARGUMENT_INTEGER, &how->tokens, 1, 1e9, "words that are added"},
        {"temperature", VT_ARGUMENT_REAL, &how->temperature, 0, 1000, "0: always the likeliest word; above 1: wilder"},
        {"top_k", VT_ARGUMENT_INTEGER, &how->top_k, 0, 1e9, "draw among the N likeliest words only; 0: among all"},
        {"seed", VT_ARGUMENT_INTEGER, &seed, 0, 9e15, "another seed: another text"},
        {"count", VT_ARGUMENT_INTEGER, &how->count, 1, 1e9, "texts, each with draws of its own"},
    };
    const vt_command_line line = {.command = "generate",
                                  .help = help,
                                  .help_end = help_end,
                                  VT_FLAGS(flags),
                                  .operand_name = "CHECKPOINT",
                                  .operand = &named,
                                  .options = true};
    VT_TRY(vt_arguments_parse(&line, argument_count, arguments, &changes));
    how->seed = (uint64_t)seed;
    VT_TRY(vt_language_configure(named, changes.count, changes.words, ranks, &of_text, checkpoint, config));
    VT_CHECK(of_text, "generate: %s was not trained on text; `vitrain predict` makes forecasts", named);
    VT_CHECK((*config)->causal,
             "generate: %s was trained without causal: true, so that it saw each word that it had to predict, and "
             "can't write; "
             "train one with --config=lm or --causal",
             named);
done:
    free(changes.words);
    return status;
}

vt_status vt_command_generate(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    vt_generation how = {.prompt = "", .tokens = 50, .temperature = 1, .count = 1};
    vt_launch launch;
    char *checkpoint = NULL;
    vt_config *config = NULL;
    VT_TRY(vt_launch_detect(&launch));
    status = prepare(argument_count, arguments, launch.world_size, &how, &checkpoint, &config);
    if (status == VT_ERROR) vt_world_fail_early(&launch);
    if (status == VT_OK) status = vt_language_generate(config, checkpoint, &how, &launch);
done:
    vt_config_close(&config);
    free(checkpoint);
    return status;
}
