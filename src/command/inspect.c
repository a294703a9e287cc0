#include "command/inspect.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "checkpoint/find.h"
#include "command/arguments.h"
#include "command/command.h"
#include "source/fields/file_list.h"
#include "storage/output_file.h"
#include "storage/pytorch_file.h"

void vt_inspect_fault(int *faults, const char *format, ...)
{
    char sentence[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    vt_print("  FAULT: %s\n", sentence);
    vt_error_clear();
    ++*faults;
}

void vt_inspect_check(int *faults, vt_status status)
{
    if (status != VT_OK) vt_inspect_fault(faults, "%s", vt_error_text());
}

bool vt_inspect_holds(const char *directory, const char *name)
{
    char *path = vt_text_format("%s/%s", directory, name);
    bool there = vt_output_exists(path);
    free(path);
    return there;
}

static bool holds_yearly_files(const char *directory, const vt_fields_form *form)
{
    vt_file_list list = {0};
    bool any = vt_file_list_open(directory, "data", form, &list) == VT_OK;
    vt_error_clear();
    vt_file_list_close(&list);
    return any;
}

static vt_status look(const char *path, const vt_fields_form *form, const char *const periods[3], bool verify,
                      int *faults)
{
    vt_status status = VT_OK;
    struct stat info;
    char *checkpoint = NULL;
    const char *foreign = vt_pytorch_file_kind(path);
    VT_CHECK(stat(path, &info) == 0, "inspect: %s: %s", path, strerror(errno));
    if (vt_inspect_describes(path)) return vt_inspect_about(path);
    const bool is_directory = S_ISDIR(info.st_mode);
    const bool is_one =
        !is_directory || vt_inspect_holds(path, "checkpoint.h5") || vt_inspect_holds(path, "checkpoint.crc32c");
    const bool is_found = is_one && vt_checkpoint_find(path, VT_CHECKPOINT_TO_SHOW, &checkpoint) == VT_OK;
    vt_error_clear();
    VT_CHECK(is_directory || is_found, "inspect: %s is %s; expected the directory of a checkpoint, of a run or of data",
             path, foreign != NULL ? foreign : "a file");
    if (is_found) {
        vt_inspect_checkpoint(checkpoint, false, verify, faults);
    } else if (vt_inspect_holds(path, "shard-00000-of-00001.h5")) {
        vt_inspect_checkpoint(path, false, verify, faults);
    } else if (vt_inspect_holds(path, "metrics.csv") || vt_inspect_holds(path, "checkpoints") ||
               vt_inspect_holds(path, "out.log")) {
        vt_inspect_run(path, verify, faults);
    } else if (vt_inspect_holds_text(path)) {
        vt_inspect_text(path, verify, faults);
    } else if (vt_inspect_holds(path, "train") || vt_inspect_holds(path, "valid") || vt_inspect_holds(path, "stats") ||
               form->variables != NULL || holds_yearly_files(path, form)) {
        vt_inspect_data(path, form, periods, verify, faults);
    } else { /* a run's checkpoints/ */
        const bool in_run = vt_checkpoint_find(path, VT_CHECKPOINT_TO_SHOW, &checkpoint) == VT_OK;
        vt_error_clear();
        VT_CHECK(in_run,
                 "inspect: %s is not a directory of vitrain's: a checkpoint has checkpoint.h5, a run metrics.csv, data "
                 "train/*YYYY.h5 (netCDF: with --variables), text train.txt or wiki.train.raw",
                 path);
        vt_inspect_checkpoint(checkpoint, false, verify, faults);
    }
done:
    free(checkpoint);
    return status;
}

vt_status vt_command_inspect(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    const char *path = NULL;
    vt_argument_choice missing = {"refuse", "refuse|mask"};
    vt_fields_form form = {0};
    const char *periods[3] = {NULL};
    char *trimmed = NULL;
    vt_words others = {0};
    bool verify = false;
    int faults = 0;
    const vt_argument flags[] = {
        {"checkpoint", VT_ARGUMENT_PATH, &path, 0, 0, "another way to give PATH"},
        {"verify", VT_ARGUMENT_SWITCH, &verify, 0, 0, "read every value: checksums, and that all are numbers"},
        {"variables", VT_ARGUMENT_TEXT, &form.variables, 0, 0,
         "netCDF: the variables that are the channels, [u10,z@500]"},
        {"coordinates", VT_ARGUMENT_TEXT, &form.coordinates, 0, 0, "names of coordinates, [lat=FNOCY,time=T]"},
        {"time_step", VT_ARGUMENT_TEXT, &form.time_step, 0, 0,
         "as in training: 6h takes these of hourly times, or is the time between those of files that don't say it"},
        {"train_period", VT_ARGUMENT_TEXT, &periods[0], 0, 0, "as in training: the times of each set, 1979..2015"},
        {"valid_period", VT_ARGUMENT_TEXT, &periods[1], 0, 0, "likewise"},
        {"test_period", VT_ARGUMENT_TEXT, &periods[2], 0, 0, "likewise"},
        {"missing", VT_ARGUMENT_CHOICE, &missing, 0, 0, "as in training: a missing value is a fault, or none"},
        {"accept", VT_ARGUMENT_TEXT, &form.accept, 0, 0, "as in training: what files and sets may differ in"},
    };
    const vt_command_line line = {.command = "inspect",
                                  .help = "vitrain inspect PATH [--verify] [flags]: what a checkpoint, a run directory "
                                          "or a data directory holds, and\nwhether anything of it is missing or "
                                          "damaged: then the exit status is 1. Of statistics, a climatology or a "
                                          "forecast:\nthe data they were made from.\n"
                                          "vitrain inspect PATH OTHER: in what the data of two such things differ.\n\n",
                                  VT_FLAGS(flags),
                                  .operand_name = "PATH",
                                  .operand = &path};
    VT_TRY(vt_arguments_parse(&line, argument_count, arguments, &others));
    VT_CHECK(others.count <= 1,
             "inspect: %d paths are too many; of one its contents are shown, of two their differences",
             others.count + 1);
    form.masked = strcmp(missing.chosen, "mask") == 0;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    trimmed = vt_text_format("%.*s", (int)length, path);
    if (others.count == 1) {
        VT_TRY(vt_inspect_differences(trimmed, others.words[0], &form));
        goto done;
    }
    VT_TRY(look(trimmed, &form, periods, verify, &faults));
    VT_CHECK(faults == 0, "inspect: %s: %d fault%s found", trimmed, faults, faults == 1 ? "" : "s");
    vt_print(verify ? "all of it was read: no faults\n" : "no faults seen (--verify reads every value)\n");
done:
    free(trimmed);
    free(others.words);
    return status;
}
