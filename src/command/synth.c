#include "command/command.h"

#include <stdio.h>

#include "base/text.h"
#include "source/synthetic/synthetic_set.h"
#include "source/synthetic/synthetic_text.h"
#include "source/synthetic/universe.h"

static void report_box(const char *path, double bytes, double seconds)
{
    char size[VT_NUMBER_SIZE];
    vt_print("%s  %s in %.2f s (%.0f MB/s)\n", path, vt_text_bytes(bytes, size), seconds, 1e-6 * bytes / seconds);
    fflush(stdout);
}

static vt_status make_universe(const char *directory, const vt_synth_flags *flags)
{
    const vt_universe_options options = {.directory = directory,
                                         .box_size = {flags->box_size[0], flags->box_size[1]},
                                         .seed = (uint64_t)flags->seed,
                                         .tile = flags->tile,
                                         .npy = flags->npy,
                                         .force = flags->force,
                                         .report = report_box};
    char size[VT_NUMBER_SIZE];
    const int64_t largest = options.box_size[0] > options.box_size[1] ? options.box_size[0] : options.box_size[1];
    vt_print("memory that a box of %lld³ points takes: %s\n", (long long)largest,
             vt_text_bytes(vt_universe_bytes(largest), size));
    return vt_universe_write(&options);
}

static void report_text(const char *path, int64_t tokens)
{
    vt_print("%s  %lld tokens\n", path, (long long)tokens);
}

static vt_status make_text(const char *directory, const vt_synth_flags *flags)
{
    const vt_synthetic_text_options options = {.directory = directory,
                                               .tokens = flags->tokens,
                                               .seed = (uint64_t)flags->seed,
                                               .force = flags->force,
                                               .report = report_text};
    vt_text_perplexities of;
    const vt_status status = vt_synthetic_text_write(&options, &of);
    if (status == VT_OK)
        vt_print("perplexity of a model that knows how the text is made: %.2f; of the best of single words %.2f, of "
                 "pairs %.2f\n",
                 of.exact, of.one_word, of.two_words);
    return status;
}

static void report(const char *path, int64_t steps, double bytes, double seconds)
{
    char size[VT_NUMBER_SIZE];
    vt_print("%s  %lld times, %s in %.2f s (%.0f MB/s)\n", path, (long long)steps, vt_text_bytes(bytes, size), seconds,
             1e-6 * bytes / seconds);
    fflush(stdout);
}

static vt_status make_fields(const char *directory, const vt_synth_flags *flags)
{
    vt_status status = VT_OK;
    VT_CHECK(flags->valid_steps <= flags->steps_per_year && flags->test_steps <= flags->steps_per_year,
             "synth: --valid_steps and --test_steps are at most --steps_per_year, %lld",
             (long long)flags->steps_per_year);
    const vt_synthetic_set_options options = {
        .directory = directory,
        .height = flags->img_size[0],
        .width = flags->img_size[1],
        .channels = flags->channels,
        .years = flags->years,
        .steps_per_year = flags->steps_per_year,
        .valid_steps = flags->valid_steps,
        .test_steps = flags->test_steps,
        .seed = (uint64_t)flags->seed,
        .noise = flags->noise,
        .chunk_times = flags->compress > 0 && flags->chunk_times == 0 ? 1 : flags->chunk_times,
        .compression = flags->compress,
        .force = flags->force,
        .report = report};
    VT_TRY(vt_synthetic_set_write(&options));
    vt_print("statistics of the training years: %s/stats\n", directory);
done:
    return status;
}

vt_status vt_command_synth(const vt_call *call)
{
    const vt_synth_flags *flags = call->flags;
    if (flags->model == VT_SYNTHETIC_TEXT) return make_text(call->operands[0], flags);
    if (flags->model == VT_SYNTHETIC_BOXES) return make_universe(call->operands[0], flags);
    return make_fields(call->operands[0], flags);
}
