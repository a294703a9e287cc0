#include "command/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "base/version.h"
#include "command/arguments.h"
#include "config/config.h"
#include "parallel/world.h"

const vt_subcommand vt_subcommands[] = {
    {"train", NULL, NULL, "train a model; the default without a subcommand", vt_command_train, false, VT_ALL_OPTIONS},
    {"synth", NULL, "DIR", "write a synthetic atmosphere in the layout of the training data", vt_command_synth, true,
     VT_NO_OPTIONS},
    {"npy", NULL, "FILE.h5", "write the fields of a box as .npy arrays, for dali-lowmem", vt_command_npy, true,
     VT_NO_OPTIONS},
    {"stats", NULL, "DIR", "write the means and standard deviations of a data set", vt_command_stats, true,
     VT_NO_OPTIONS},
    {"bench", "io", NULL, "measure the reader by itself, beside plain reads of the same bytes", vt_command_bench, false,
     VT_ALL_OPTIONS},
    {"bench", "kernels", NULL, "measure the operations of a training step, beside the machine's limits",
     vt_command_bench, false, VT_NO_OPTIONS},
    {"export", NULL, "CHECKPOINT", "write a checkpoint's parameters as a .safetensors file", vt_command_export, true,
     VT_NO_OPTIONS},
    {"evaluate", NULL, "CHECKPOINT", "score forecasts of a checkpoint: RMSE and ACC by channel and lead time, maps",
     vt_command_evaluate, false, VT_CHECKPOINT_OPTIONS},
    {"predict", NULL, "CHECKPOINT", "forecast from one initial time, into a NetCDF file", vt_command_predict, false,
     VT_CHECKPOINT_OPTIONS},
    {"generate", NULL, "CHECKPOINT", "continue a text with a language model", vt_command_generate, false,
     VT_CHECKPOINT_OPTIONS},
    {"watch", NULL, "RUN", "show the progress of a run, also one in another terminal", vt_command_watch, false,
     VT_NO_OPTIONS},
    {"report", NULL, "RUN [RUN ...]", "write a run's report.html, or a page that compares several runs",
     vt_command_report, true, VT_NO_OPTIONS},
    {"inspect", NULL, "PATH", "show what a checkpoint, a run or a data directory holds, and whether it is complete",
     vt_command_inspect, false, VT_NO_OPTIONS},
    {"layout", NULL, NULL, "print the grid of ranks of a parallel run", vt_command_layout, false, VT_ALL_OPTIONS},
    {"plan", NULL, NULL, "show the memory and time that each layout of a run would take", vt_command_plan, false,
     VT_ALL_OPTIONS},
    {"options", NULL, NULL, "list every option of a configuration; print the man page and completions",
     vt_command_options, true, VT_NO_OPTIONS},
    {"version", NULL, NULL, "print the version, as --version does", vt_command_version, false, VT_NO_OPTIONS},
};
enum { TRY_AGAIN = 75 }; /* EX_TEMPFAIL of sysexits.h: job queues that requeue recognise it */
enum { COMMAND_COUNT = sizeof vt_subcommands / sizeof vt_subcommands[0] };
const int vt_subcommand_count = COMMAND_COUNT;

static const vt_subcommand *find_command(const char *name)
{
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(vt_subcommands[i].name, name) == 0) return &vt_subcommands[i];
    }
    return NULL;
}

/* ---- help ---- */

static void print_train_flags(void)
{
    vt_print("The flags used most:\n"
             "  --config=NAME          the named configuration to use (base)\n"
             "  --yaml_config=PATH     the file that holds it (config/ViT.yaml, here or beside the program)\n"
             "  --data_dir=DIR         where train, valid and stats/*.npy are\n"
             "  --expdir=DIR           where run directories are made (./runs)\n"
             "  --run_num=TAG          tag of this run (00)\n"
             "  --num_epochs=N, --num_iters=N\n"
             "                         length of the run: one of the two\n"
             "  --global_batch_size=N  samples of one optimizer step\n"
             "  --resume               continue from the newest checkpoint of this run, if there is one\n"
             "  --lr=X                 learning rate, the highest of the schedule\n"
             "  --embed_dim=N, --depth=N, --num_heads=N, --patch_size=N, --img_size=[A,B]\n"
             "                         the model, and the window of the grid\n"
             "Every key of a configuration is a flag, and flags win: `vitrain options` lists them all.\n");
}

static void print_train_help(void)
{
    vt_print("usage: vitrain [train] [--config=NAME] [--name=value ...]\n\n"
             "Trains a model (of the weather, of cosmological fields, of text) as the named configuration says.\n\n");
    print_train_flags();
}

static void print_help(void)
{
    vt_print("vitrain %s: trains models of weather, cosmology and text\n\n"
             "usage: vitrain [subcommand] [--name=value ...]\n\n",
             vt_version());
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const char *word = vt_subcommands[i].word;
        int width = vt_print("  %s%s%s", vt_subcommands[i].name, word != NULL ? " " : "", word != NULL ? word : "");
        vt_print("%*s%s\n", 17 - width, "", vt_subcommands[i].summary);
    }
    vt_print("  %-14s %s\n\n", "help", "this text, or that of a subcommand: vitrain help NAME");
    print_train_flags();
}

/* ---- running ---- */

static vt_status unknown_command(const char *name)
{
    vt_status status = VT_OK;
    const char *names[COMMAND_COUNT];
    for (size_t i = 0; i < COMMAND_COUNT; i++) names[i] = vt_subcommands[i].name;
    const char *nearest = vt_text_nearest(name, names, COMMAND_COUNT);
    VT_CHECK(nearest == NULL, "'%s' is not a subcommand; did you mean '%s'? (vitrain --help lists them)", name,
             nearest);
    VT_FAIL("'%s' is not a subcommand (vitrain --help lists them; flags are written --name=value)", name);
done:
    return status;
}

static vt_status check_alone(const vt_subcommand *command)
{
    vt_status status = VT_OK;
    vt_launch launch;
    VT_TRY(vt_launch_detect(&launch));
    if (launch.world_size == 1) return VT_OK;
    status = vt_error_note(__FILE__, __LINE__,
                           "%s runs on one rank, but there are %d ranks: start it without mpirun, or with one rank",
                           command->name, launch.world_size);
    vt_world_fail_early(&launch);
done:
    return status;
}

static vt_status run_command(const vt_subcommand *command, int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    const bool help = vt_arguments_ask_help(argument_count, arguments);
    if (help && command->run == vt_command_train) { /* its flags are those of the option table, which has no --help */
        print_train_help();
        return VT_OK;
    }
    if (command->alone && !help) VT_TRY(check_alone(command));
    status = command->run(argument_count, arguments);
    if (help && status == VT_STOPPED) status = VT_OK;
done:
    return status;
}

static vt_status run_help(int argument_count, char *const *arguments)
{
    static char help[] = "--help";
    char *const ask[] = {help};
    if (argument_count == 0) {
        print_help();
        return VT_OK;
    }
    if (strcmp(arguments[0], "help") == 0 || vt_arguments_ask_help(1, arguments)) return run_help(0, NULL);
    const vt_subcommand *command = find_command(arguments[0]);
    return command == NULL ? unknown_command(arguments[0]) : run_command(command, 1, ask);
}

static vt_status dispatch(int argument_count, char *const *arguments)
{
    const char *first = argument_count > 0 ? arguments[0] : "--config=base";
    for (int i = 0; i < argument_count; i++)
        if (strcmp(arguments[i], "--version") == 0) return vt_command_version(0, NULL);
    if (vt_arguments_ask_help(argument_count > 0 ? 1 : 0, arguments)) return run_help(0, NULL);
    if (strcmp(first, "help") == 0) return run_help(argument_count - 1, arguments + 1);
    if (first[0] == '-') return run_command(find_command("train"), argument_count, arguments);
    const vt_subcommand *command = find_command(first);
    return command == NULL ? unknown_command(first) : run_command(command, argument_count - 1, arguments + 1);
}

/* If one of the three standard files is closed, the next file that is opened would get its number, and output meant for
 * the standard file would go into it. So opens one on which reading or writing fails. */
static void hold_standard_files(void)
{
    for (int file = 0; file <= 2; file++) {
        if (fcntl(file, F_GETFD) == -1 && errno == EBADF) (void)!open("/dev/null", file == 0 ? O_WRONLY : O_RDONLY);
    }
}

/* In the name of a flag '-' may stand for '_': --batch-size=128. */
static void take_dashes(int argument_count, char *const *arguments)
{
    for (int i = 0; i < argument_count; i++)
        for (char *c = arguments[i] + 2; strncmp(arguments[i], "--", 2) == 0 && *c != '\0' && *c != '='; c++)
            if (*c == '-') *c = '_';
}

/* --help and --version are switches like others: with a value "--help=yes" is "--help", and "--help=no" is left out. */
static vt_status take_switches(int *argument_count, char **arguments)
{
    vt_status status = VT_OK;
    static const char *const switches[] = {"--help=", "--version="};
    int count = 0;
    for (int i = 0; i < *argument_count; i++) {
        bool stays = true;
        for (size_t k = 0; k < sizeof switches / sizeof switches[0]; k++) {
            const size_t length = strlen(switches[k]);
            if (strncmp(arguments[i], switches[k], length) != 0) continue;
            VT_CHECK(vt_boolean_parse(arguments[i] + length, &stays), "%s: expected true or false", arguments[i]);
            arguments[i][length - 1] = '\0';
        }
        if (stays) arguments[count++] = arguments[i];
    }
    *argument_count = count;
done:
    return status;
}

int vt_command_run(int argument_count, char *const *arguments)
{
    hold_standard_files();
    take_dashes(argument_count, arguments);
    char **taken = vt_allocate((size_t)argument_count + 1, sizeof *taken, "the arguments");
    for (int i = 0; i < argument_count; i++) taken[i] = arguments[i];
    vt_status status = take_switches(&argument_count, taken);
    if (status == VT_OK) status = dispatch(argument_count, taken);
    free(taken);
    errno = 0;
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    if (!written && status == VT_OK)
        status = vt_error_note(__FILE__, __LINE__, "standard output can't be written: %s",
                               errno != 0 ? strerror(errno) : "an earlier write failed");
    if (status == VT_OK) return EXIT_SUCCESS;
    if (status == VT_STOPPED) return TRY_AGAIN;
    if (vt_error_text()[0] == '\0') return EXIT_FAILURE; /* another rank reports why */
    fprintf(stderr, "vitrain: %s\n", vt_error_text());
    if (getenv("VITRAIN_DEBUG") != NULL) fprintf(stderr, "vitrain: noted at %s\n", vt_error_place());
    return EXIT_FAILURE;
}
