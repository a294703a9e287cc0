#include "command/command.h"

#include <stdio.h>

#include "base/text.h"
#include "source/synthetic/sets.h"

static void report(const char *path, int64_t count, const char *what, double bytes, double seconds)
{
    char size[VT_NUMBER_SIZE];
    vt_print("%s  ", path);
    if (count > 0) vt_print("%ld %s, ", count, what);
    vt_print("%s in %.2f s (%.0f MB/s)\n", vt_text_bytes(bytes, size), seconds, 1e-6 * bytes / seconds);
    fflush(stdout);
}

static vt_status make_universe(const vt_synthetic_output *output, const vt_synth_flags *flags)
{
    const int64_t *sides = flags->box_size;
    const vt_universe_options options = {
        .output = *output, .box_size = {sides[0], sides[1]}, .tile = flags->tile, .npy = flags->npy};
    char size[VT_NUMBER_SIZE];
    const int64_t largest = sides[0] > sides[1] ? sides[0] : sides[1];
    vt_print("memory that a box of %ld³ points takes: %s\n", largest, vt_text_bytes(vt_universe_bytes(largest), size));
    return vt_universe_write(&options);
}

static vt_status make_text(const vt_synthetic_output *output, const vt_synth_flags *flags)
{
    vt_status status = VT_OK;
    vt_text_perplexities of;
    VT_TRY(vt_synthetic_text_write(output, flags->tokens, &of));
    vt_print("perplexity of a model that knows how the text is made: %.2f; of the best of single words %.2f, of pairs "
             "%.2f\n",
             of.exact, of.one_word, of.two_words);
done:
    return status;
}

static vt_status make_fields(const vt_synthetic_output *output, const vt_synth_flags *flags)
{
    vt_status status = VT_OK;
    VT_CHECK(flags->valid_steps <= flags->steps_per_year && flags->test_steps <= flags->steps_per_year,
             "synth: --valid_steps and --test_steps are at most --steps_per_year, %ld", flags->steps_per_year);
    const vt_synthetic_set_options options = {
        .output = *output,
        .height = flags->img_size[0],
        .width = flags->img_size[1],
        .channels = flags->channels,
        .years = flags->years,
        .steps_per_year = flags->steps_per_year,
        .valid_steps = flags->valid_steps,
        .test_steps = flags->test_steps,
        .noise = flags->noise,
        .chunk_times = flags->compress > 0 && flags->chunk_times == 0 ? 1 : flags->chunk_times,
        .compression = flags->compress};
    VT_TRY(vt_synthetic_set_write(&options));
    vt_print("statistics of the training years: %s/stats\n", output->directory);
done:
    return status;
}

vt_status vt_command_synth(const vt_call *call)
{
    const vt_synth_flags *flags = call->flags;
    const vt_synthetic_output output = {call->operands[0], (uint64_t)flags->seed, flags->force, report};
    if (flags->model == VT_SYNTHETIC_TEXT) return make_text(&output, flags);
    if (flags->model == VT_SYNTHETIC_BOXES) return make_universe(&output, flags);
    return make_fields(&output, flags);
}
