#include "command/inspect.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "checkpoint/find.h"
#include "command/command.h"
#include "source/fields/file_list.h"
#include "storage/output_file.h"
#include "storage/safetensors.h"

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

vt_status vt_command_inspect(const vt_call *call)
{
    vt_status status = VT_OK;
    const vt_inspect_flags *flags = call->flags;
    const char *path = call->operands[0];
    const char *const periods[3] = {flags->train_period, flags->valid_period, flags->test_period};
    const vt_fields_form form = {.variables = flags->variables,
                                 .coordinates = flags->coordinates,
                                 .time_step = flags->time_step,
                                 .accept = flags->accept,
                                 .masked = flags->missing == VT_GAPS_MASK};
    int faults = 0;
    if (call->operand_count == 2) {
        VT_TRY(vt_inspect_differences(path, call->operands[1], &form));
        goto done;
    }
    VT_TRY(look(path, &form, periods, flags->verify, &faults));
    VT_CHECK(faults == 0, "inspect: %s: %d fault%s found", path, faults, faults == 1 ? "" : "s");
    vt_print(flags->verify ? "all of it was read: no faults\n" : "no faults seen (--verify reads every value)\n");
done:
    return status;
}
