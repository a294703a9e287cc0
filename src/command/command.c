#include "command/command.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/version.h"
#include "parallel/world.h"
#include "source/fields/seasonal.h"
#include "source/synthetic/atmosphere.h"
#include "storage/trial.h"

#define VT_EVERY_OPTION                                                                                                \
    "Every key of a configuration is a flag, too, and flags win: `vitrain options` lists them all.\n"

/* What help says of flags that several subcommands have. */
#define VT_MEMBERS_FLAG_HELP                                                                                           \
    "an ensemble of N forecasts: by the noise of a model of loss crps, of several checkpoints, or with input_noise "   \
    "on the initial state"
#define VT_CHECKPOINTS_FLAG_HELP                                                                                       \
    "A,B,C: the checkpoints of an ensemble, in place of CHECKPOINT; models of the same shape"

#define VT_MOST_USED_OPTIONS                                                                                           \
    "The flags used most:\n"                                                                                           \
    "  --config=NAME          the named configuration to use (base)\n"                                                 \
    "  --yaml_config=PATH     the file that holds it (config/ViT.yaml, here or beside the program)\n"                  \
    "  --data_dir=DIR         where train, valid and stats/*.npy are\n"                                                \
    "  --expdir=DIR           where run directories are made (./runs)\n"                                               \
    "  --run_num=TAG          tag of this run (00)\n"                                                                  \
    "  --num_epochs=N, --num_iters=N\n"                                                                                \
    "                         length of the run: one of the two\n"                                                     \
    "  --global_batch_size=N  samples of one optimizer step\n"                                                         \
    "  --resume               continue from the newest checkpoint of this run, if there is one\n"                      \
    "  --lr=X                 learning rate, the highest of the schedule\n"                                            \
    "  --embed_dim=N, --depth=N, --num_heads=N, --patch_size=N, --img_size=[A,B]\n"                                    \
    "                         the model, and the window of the grid\n"
#define VT_OF_CHECKPOINT "The configuration is the checkpoint's.\n"
/* Flags of several subcommands. */
#define VT_CHECKPOINT_HELP "directory of a checkpoint, or of a run (its best one); --checkpoint= may be left out"
#define VT_RANKS_HELP "how many ranks (default: as the launcher says, 1 without one)"

/* clang-format off */
#define VT_OTHER_ROW(...) {__VA_ARGS__},
#define VT_ROW(member, text, type, size, value, meaning, ...)                                                          \
    {.name = text, .preset = value, .help = meaning, .offset = offsetof(values, member),                               \
     .origin = offsetof(values, member##_origin), __VA_ARGS__},
#define VT_COMMAND(command, ...)                                                                                       \
    static const vt_row *command##_rows(void)                                                                          \
    {                                                                                                                  \
        typedef vt_##command##_flags values __attribute__((unused));                                                   \
        static const vt_row rows[] = {{.kind = VT_ROW_END},
#define VT_COMMAND_END(command)                                                                                        \
                                      {.kind = VT_ROW_END}};                                                           \
        return &rows[1];                                                                                               \
    }
/* clang-format on */
#include "command/flags.def"

#define VT_OTHER_ROW(...)
#define VT_ROW(...)
#define VT_COMMAND(command, ...) {command##_rows, sizeof(vt_##command##_flags), vt_command_##command, __VA_ARGS__},
#define VT_COMMAND_END(command)
const vt_subcommand vt_subcommands[] = {
#include "command/flags.def"
};
enum { TRY_AGAIN = 75 }; /* EX_TEMPFAIL of sysexits.h: job queues that requeue recognise it */
enum { COMMAND_COUNT = sizeof vt_subcommands / sizeof vt_subcommands[0] };
const int vt_subcommand_count = COMMAND_COUNT;

int vt_subcommand_words(const vt_subcommand *command, int count, char *const *words, const char **rest)
{
    int used = 0;
    for (*rest = command->name; used < count && **rest != '\0'; used++) {
        const size_t length = strcspn(*rest, " ");
        if (strlen(words[used]) != length || strncmp(words[used], *rest, length) != 0) break;
        *rest += length + ((*rest)[length] == ' ');
    }
    return used;
}

/* ---- the command line of a subcommand: its own flags and those of the configuration, `--key=value` or `--key value`
 * (a switch takes a value only after `=`; of a repeated flag the last one counts), and words without dashes ---- */

const vt_row *vt_flag_find(const vt_row *rows, const char *word)
{
    const size_t dashes = strspn(word, "-"), length = strcspn(word, "=");
    if (dashes != 2 && (dashes != 1 || length != 2)) return NULL;
    char *name = vt_text_format("%.*s", (int)(length - dashes), word + dashes);
    const vt_row *row = vt_row_find(rows, name);
    free(name);
    return row;
}

static vt_status fail_unknown(const vt_subcommand *command, const char *word)
{
    vt_status status = VT_OK;
    const bool options = command->options != VT_NO_OPTIONS;
    char *flag = vt_text_format("%.*s", (int)strcspn(word, "="), word);
    char *advice = vt_row_advice(command->flags(), options ? vt_options : NULL, flag + strspn(flag, "-"), "--");
    VT_CHECK(word[0] == '-', "unknown argument '%s'; `vitrain %s --help` lists all", word, command->name);
    VT_FAIL("unknown flag %s%s `vitrain %s --help` %s", flag, advice[0] != '\0' ? advice : ";", command->name,
            options ? "says which there are" : "lists all");
done:
    free(advice);
    free(flag);
    return status;
}

/* The path, of which slashes at its end are cut off, in place. */
static vt_status add_operand(const vt_subcommand *command, const char *word, vt_call *call)
{
    vt_status status = VT_OK;
    const int most = command->most;
    char *path = (char *)(uintptr_t)vt_file_of_address(word);
    VT_CHECK(call->operand_count < most, "'%s' after '%s': expected %s%s", word, call->operands[most - 1],
             most == 1 ? "one " : "", command->operands);
    for (size_t length = strlen(path); length > 1 && path[length - 1] == '/';) path[--length] = '\0';
    call->operands[call->operand_count++] = path;
done:
    return status;
}

/* The argument at *at; *at moves to its last word. */
static vt_status take(const vt_subcommand *command, int argument_count, char *const *arguments, int *at, vt_call *call)
{
    vt_status status = VT_OK;
    const char *word = arguments[*at], *value = NULL;
    const vt_row *row = vt_flag_find(command->flags(), word), *option = NULL;
    if (command->options != VT_NO_OPTIONS && strncmp(word, "--", 2) == 0) option = vt_flag_find(vt_options, word);
    if (row != NULL) {
        VT_TRY(vt_flag_value(row, argument_count, arguments, at, &value));
        if (vt_row_meant(row)->kind == VT_ROW_OPERAND)
            VT_TRY(add_operand(command, value, call));
        else
            VT_TRY(vt_flag_assign(row, value, call->flags));
    } else if (option != NULL) {
        const int first = *at;
        VT_TRY(vt_flag_value(option, argument_count, arguments, at, &value));
        for (int i = first; i <= *at; i++) call->options[call->option_count++] = arguments[i];
    } else if (word[0] != '-' && command->most > 0) {
        VT_TRY(add_operand(command, word, call));
    } else {
        /* the configuration's parser says what is wrong with a stray word */
        if (command->options == VT_NO_OPTIONS || strncmp(word, "--", 2) == 0) VT_TRY(fail_unknown(command, word));
        call->options[call->option_count++] = arguments[*at];
    }
done:
    return status;
}

/* Parses the arguments into *call, which is zeroed but for `line` and `launch`. To be closed, also after an error. */
static vt_status open_call(const vt_subcommand *command, int argument_count, char *const *arguments, vt_call *call)
{
    vt_status status = VT_OK;
    call->flags = vt_allocate(command->size + 1, 1, "the arguments");
    call->operands = vt_allocate((size_t)argument_count + 1, sizeof *call->operands, "the arguments");
    call->options = vt_allocate((size_t)argument_count + 1, sizeof *call->options, "the arguments");
    vt_rows_start(command->flags(), call->flags);
    for (int i = 0; i < argument_count; i++) VT_TRY(take(command, argument_count, arguments, &i, call));
    for (const vt_row *row = command->flags(); row->kind != VT_ROW_END; row++)
        VT_TRY(vt_row_check_scope(row, call->flags));
    VT_CHECK(call->operand_count >= command->least, "no %s given; see `vitrain %s --help`", command->operands,
             command->name);
done:
    if (status != VT_OK) vt_error_context("%s", command->name);
    return status;
}

static void close_call(const vt_subcommand *command, vt_call *call)
{
    if (call->flags != NULL) vt_rows_free(command->flags(), call->flags);
    free(call->flags);
    free(call->operands);
    free(call->options);
}

/* ---- help ---- */

static bool ask_help(int argument_count, char *const *arguments)
{
    for (int i = 0; i < argument_count; i++)
        if (strcmp(arguments[i], "--help") == 0 || strcmp(arguments[i], "-h") == 0) return true;
    return false;
}

void vt_subcommand_print_help(FILE *file, const vt_subcommand *command)
{
    const vt_row *flags = command->flags();
    const char *first = command == vt_subcommands ? "[train]" : command->name, *summary = command->summary;
    const char *operands = command->operands != NULL ? command->operands : "";
    fprintf(file, "usage: vitrain %s %s%s[--name=value ...]\n\n", first, operands, operands[0] != '\0' ? " " : "");
    fprintf(file, "%c%s.\n%s", toupper((unsigned char)summary[0]), summary + 1, command->help);
    vt_rows_print(file, flags);
    if (flags->kind != VT_ROW_END) fprintf(file, "  --help                            this text\n");
    if (command->options != VT_NO_OPTIONS) fprintf(file, "\n%s", VT_EVERY_OPTION);
    if (command->help_end != NULL) fprintf(file, "%s", command->help_end);
}

static void print_help(void)
{
    vt_print("vitrain %s: trains models of weather, cosmology and text\n\n"
             "usage: vitrain [subcommand] [--name=value ...]\n\n",
             vt_version);
    for (int i = 0; i < COMMAND_COUNT; i++) vt_print("  %-14s %s\n", vt_subcommands[i].name, vt_subcommands[i].summary);
    vt_print("  %-14s %s\n\n%s", "help", "this text, or that of a subcommand: vitrain help NAME",
             VT_EVERY_OPTION VT_MOST_USED_OPTIONS);
}

/* ---- running ---- */

static vt_status run_command(const vt_subcommand *command, int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    vt_text line = {0};
    vt_text_append(&line, "vitrain %s %s", vt_version, command->name);
    for (int i = 0; i < argument_count; i++) vt_text_append(&line, " %s", arguments[i]);
    vt_call call = {.line = line.characters, .launch = {.world_size = 1}};
    const bool alone = command->ranks == VT_RANK_ALONE;
    bool early = true, connected = false;
    if (ask_help(argument_count, arguments)) {
        vt_subcommand_print_help(stdout, command);
        goto done;
    }
    if (alone || command->options != VT_NO_OPTIONS) VT_TRY(vt_launch_detect(&call.launch));
    call.launch.used = &connected;
    if (!alone && vt_launch_has_mpi(&call.launch)) vt_trial_start_helper(); /* before MPI is initialised */
    if (alone && call.launch.world_size > 1)
        status = vt_error_note(__FILE__, __LINE__,
                               "%s runs on one rank, but there are %d ranks: start it without mpirun, or with one rank",
                               command->name, call.launch.world_size);
    else
        status = open_call(command, argument_count, arguments, &call);
    if (status == VT_OK) {
        status = command->run(&call);
        early = command->ranks == VT_RANKS_CONNECT && !connected;
    }
    if (status != VT_OK && early) vt_world_fail_early(&call.launch);
    close_call(command, &call);
done:
    vt_text_close(&line);
    return status;
}

/* Runs the subcommand that the arguments begin with. */
static vt_status run_named(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    const bool asks = argument_count > 1 && ask_help(1, arguments + 1);
    const char *nearest = NULL;
    vt_text longer = {0};       /* names of which the first word alone is given */
    vt_names first_words = {0}; /* of all */
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const vt_subcommand *command = &vt_subcommands[i];
        const char *rest;
        const int used = vt_subcommand_words(command, argument_count, arguments, &rest);
        if (rest[0] == '\0') {
            status = run_command(command, argument_count - used, arguments + used);
            goto done;
        }
        vt_names_take(&first_words, vt_text_format("%.*s", (int)strcspn(command->name, " "), command->name));
        if (used == 0) continue;
        if (asks) vt_subcommand_print_help(stdout, command);
        vt_text_append(&longer, "%s`vitrain %s`", longer.length > 0 ? " or " : "", command->name);
    }
    if (longer.length == 0)
        nearest = vt_text_nearest(arguments[0], (const char *const *)first_words.names, COMMAND_COUNT);
    VT_CHECK(nearest == NULL, "'%s' is not a subcommand; did you mean '%s'? (vitrain --help lists them)", arguments[0],
             nearest);
    VT_CHECK(longer.length > 0, "'%s' is not a subcommand (vitrain --help lists them; flags are written --name=value)",
             arguments[0]);
    VT_CHECK(asks, "%s: expected %s", arguments[0], longer.characters);
done:
    vt_text_close(&longer);
    vt_names_close(&first_words);
    return status;
}

/* `vitrain help NAME` is `vitrain NAME --help`. */
static vt_status dispatch(int argument_count, char *const *arguments)
{
    for (int i = 0; i < argument_count; i++)
        if (strcmp(arguments[i], "--version") == 0) return vt_command_version(NULL);
    const bool helps = argument_count > 0 && strcmp(arguments[0], "help") == 0;
    char *first = argument_count > helps ? arguments[helps] : "--help", *const ask[] = {first, "--help"};
    if (ask_help(1, ask) || strcmp(first, "help") == 0) {
        print_help();
        return VT_OK;
    }
    if (helps) return run_named(2, ask);
    if (first[0] == '-') return run_command(&vt_subcommands[0], argument_count, arguments); /* train */
    return run_named(argument_count, arguments);
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
