#include "command/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "command/arguments.h"
#include "source/synthetic/climate.h"
#include "source/synthetic/synthetic_set.h"
#include "source/synthetic/synthetic_text.h"
#include "source/synthetic/universe.h"

/* malloc'd */
static char *help_text(void)
{
    vt_text text = {0};
    vt_text_append(
        &text,
        "vitrain synth DIR [flags]: makes a synthetic atmosphere in DIR, in the layout of a data directory:\n"
        "DIR/train/2001.h5 ..., DIR/valid, DIR/test and DIR/stats (train with --data_dir=DIR). 6-hourly fields of\n"
        "travelling Rossby-Haurwitz waves in balance; docs/data.md has the physics. Channels, in order:\n ");
    for (int c = 0; c < VT_CLIMATE_CHANNELS; c++) vt_text_append(&text, " %s", vt_climate_channels[c].name);
    vt_text_append(
        &text,
        "\n\nWith --model=unet3d it makes a synthetic universe instead: DIR/train.h5 and DIR/valid.h5, boxes of\n"
        "dark matter (Nbody) and of the gas that follows from it (Hydro); docs/unet3d.md has the formulas.\n\n"
        "With --text it makes a text: DIR/train.txt, valid.txt and test.txt, of 1000 made-up words, and in "
        "entropy.txt\n"
        "the perplexity of a model that knows how it is made (docs/lm.md).\n\n");
    return text.characters;
}

static void report_box(const char *path, double bytes, double seconds)
{
    char size[VT_NUMBER_SIZE];
    vt_print("%s  %s in %.2f s (%.0f MB/s)\n", path, vt_text_bytes(bytes, size), seconds, 1e-6 * bytes / seconds);
    fflush(stdout);
}

/* Names the first of these flags that was given. */
static vt_status refuse_flags(const char *const *names, const char *what, int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    for (int i = 0; i < argument_count; i++)
        for (const char *const *name = names; *name != NULL; name++) {
            const size_t length = strlen(*name);
            VT_CHECK(strncmp(arguments[i], "--", 2) != 0 || strncmp(arguments[i] + 2, *name, length) != 0 ||
                         (arguments[i][2 + length] != '\0' && arguments[i][2 + length] != '='),
                     "synth: --%s is no flag of %s; leave it out", *name, what);
        }
done:
    return status;
}

static vt_status make_universe(const vt_universe_options *options, int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    static const char *const others[] = {"img_size",       "channels", "years",       "valid_steps", "test_steps",
                                         "steps_per_year", "noise",    "chunk_times", "compress",    NULL};
    char size[VT_NUMBER_SIZE];
    VT_TRY(refuse_flags(others, "a set for model unet3d", argument_count, arguments));
    const int64_t largest = options->box_size[0] > options->box_size[1] ? options->box_size[0] : options->box_size[1];
    vt_print("memory that a box of %lld³ points takes: %s\n", (long long)largest,
             vt_text_bytes(vt_universe_bytes(largest), size));
    VT_TRY(vt_universe_write(options));
done:
    return status;
}

static void report_text(const char *path, int64_t tokens)
{
    vt_print("%s  %lld tokens\n", path, (long long)tokens);
}

static vt_status make_text(const vt_synthetic_text_options *options, int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    static const char *const others[] = {"img_size",       "channels", "years",       "valid_steps", "test_steps",
                                         "steps_per_year", "noise",    "chunk_times", "compress",    "model",
                                         "box_size",       "npy",      "tile",        NULL};
    vt_text_perplexities of;
    VT_TRY(refuse_flags(others, "a text", argument_count, arguments));
    VT_TRY(vt_synthetic_text_write(options, &of));
    vt_print("perplexity of a model that knows how the text is made: %.2f; of the best of single words %.2f, of pairs "
             "%.2f\n",
             of.exact, of.one_word, of.two_words);
done:
    return status;
}

static void report(const char *path, int64_t steps, double bytes, double seconds)
{
    char size[VT_NUMBER_SIZE];
    vt_print("%s  %lld times, %s in %.2f s (%.0f MB/s)\n", path, (long long)steps, vt_text_bytes(bytes, size), seconds,
             1e-6 * bytes / seconds);
    fflush(stdout);
}

vt_status vt_command_synth(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    const char *directory = NULL;
    bool force = false;
    char *help = help_text();
    int64_t size[2] = {32, 64}, channels = 8, years = 1, steps_per_year = 1460, valid_steps = 365, test_steps = 0;
    int64_t seed = 333, chunk_times = 0, compression = 0, box_size[2] = {128, 128}, tile = 1;
    double noise = 0.02;
    bool npy = false, text = false;
    int64_t tokens = 600000;
    vt_argument_choice model = {"vit", "vit|unet3d"};
    static const char *const of_boxes[] = {"box_size", "npy", "tile", "tokens", NULL};
    const vt_argument flags[] = {
        {"model", VT_ARGUMENT_CHOICE, &model, 0, 0, "the model that the set is for"},
        {"img_size", VT_ARGUMENT_PAIR, size, 2, 32768, "grid: latitudes, longitudes"},
        {"channels", VT_ARGUMENT_INTEGER, &channels, 1, VT_CLIMATE_CHANNELS, "the first N of the known channels"},
        {"years", VT_ARGUMENT_INTEGER, &years, 1, 7000, "years of training, one file each"},
        {"valid_steps", VT_ARGUMENT_INTEGER, &valid_steps, 0, 1e6, "times of the year after those, for validation"},
        {"test_steps", VT_ARGUMENT_INTEGER, &test_steps, 0, 1e6, "times of the year after that, for test"},
        {"steps_per_year", VT_ARGUMENT_INTEGER, &steps_per_year, 1, 1e6, "times of a training year"},
        {"seed", VT_ARGUMENT_INTEGER, &seed, 0, 9e15, "another seed: other waves, continents and noise"},
        {"noise", VT_ARGUMENT_REAL, &noise, 0, 10, "standard deviation of the noise, in parts of the channel's"},
        {"chunk_times", VT_ARGUMENT_INTEGER, &chunk_times, 0, 100000, "HDF5 chunks of N times; 0: contiguous"},
        {"compress", VT_ARGUMENT_INTEGER, &compression, 0, 9, "gzip level, bytes shuffled; sets chunk_times to 1 if 0"},
        {"box_size", VT_ARGUMENT_PAIR, box_size, 4, 2048, "unet3d: sides of the two boxes in points, even"},
        {"npy", VT_ARGUMENT_SWITCH, &npy, 0, 0, "unet3d: the .npy files of dali-lowmem, too"},
        {"tile", VT_ARGUMENT_INTEGER, &tile, 1, 64, "unet3d: copies of the box along each axis of its file"},
        {"text", VT_ARGUMENT_SWITCH, &text, 0, 0, "a text of made-up words instead"},
        {"tokens", VT_ARGUMENT_INTEGER, &tokens, 1000, 1e12,
         "text: words for training; a tenth each for the other sets"},
        {"force", VT_ARGUMENT_SWITCH, &force, 0, 0, "replace files of the same names"},
    };
    const vt_command_line line = {
        .command = "synth", .help = help, VT_FLAGS(flags), .operand_name = "directory", .operand = &directory};
    VT_TRY(vt_arguments_parse(&line, argument_count, arguments, NULL));
    if (text) {
        const vt_synthetic_text_options options = {
            .directory = directory, .tokens = tokens, .seed = (uint64_t)seed, .force = force, .report = report_text};
        status = make_text(&options, argument_count, arguments);
        goto done;
    }
    if (strcmp(model.chosen, "unet3d") == 0) {
        const vt_universe_options universe = {.directory = directory,
                                              .box_size = {box_size[0], box_size[1]},
                                              .seed = (uint64_t)seed,
                                              .tile = tile,
                                              .npy = npy,
                                              .force = force,
                                              .report = report_box};
        status = make_universe(&universe, argument_count, arguments);
        goto done;
    }
    VT_TRY(refuse_flags(of_boxes, "a set for model vit", argument_count, arguments));
    VT_CHECK(valid_steps <= steps_per_year && test_steps <= steps_per_year,
             "synth: --valid_steps and --test_steps are at most --steps_per_year, %lld", (long long)steps_per_year);
    const vt_synthetic_set_options options = {.directory = directory,
                                              .height = size[0],
                                              .width = size[1],
                                              .channels = channels,
                                              .years = years,
                                              .steps_per_year = steps_per_year,
                                              .valid_steps = valid_steps,
                                              .test_steps = test_steps,
                                              .seed = (uint64_t)seed,
                                              .noise = noise,
                                              .chunk_times = compression > 0 && chunk_times == 0 ? 1 : chunk_times,
                                              .compression = compression,
                                              .force = force,
                                              .report = report};
    VT_TRY(vt_synthetic_set_write(&options));
    vt_print("statistics of the training years: %s/stats\n", directory);
done:
    free(help);
    return status;
}
