#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/find.h"
#include "command/inspect.h"
#include "config/option.h"
#include "journal/run_directory.h"
#include "report/run_report.h"
#include "storage/output_file.h"

/* Does the key distinguish runs: is it an option of the model, or one of these? */
static bool is_shown(const char *key)
{
    static const char keys[] =
        "img_size|lat_range|lon_range|n_in_channels|n_out_channels|global_batch_size|lr|optimizer|num_epochs";
    const vt_row *row = vt_row_find(vt_options, key);
    const vt_row *section = row != NULL ? vt_row_section(row) : NULL;
    if (section != NULL && section->target != NULL && strcmp(section->target, "model") == 0) return true;
    return vt_text_choice(key, keys) >= 0;
}

static void print_configuration(const vt_run_files *run, int *faults)
{
    if (run->keys.count == 0) {
        vt_inspect_fault(faults, "%s/config.yaml is missing, or holds no configuration", run->directory);
        return;
    }
    vt_print("  configuration %s:", run->configuration);
    for (int64_t i = 0; i < run->keys.count; i++) {
        const char *key = run->keys.names[i], *value = run->values.names[i];
        if (is_shown(key) && strcmp(value, "None") != 0) vt_print(" %s %s,", key, value);
    }
    vt_print(" … (config.yaml)\n");
}

/* In the words of its report. */
static void print_figures(const vt_run_files *run, int *faults)
{
    vt_run_figure figures[VT_RUN_FIGURES];
    if (run->steps.rows == 0) {
        vt_print("  steps: none yet\n");
        return;
    }
    vt_run_figures_of(run, figures);
    for (const vt_run_figure *figure = figures; figure < figures + VT_RUN_FIGURES; figure++)
        if (figure->value[0] != '\0') vt_print("  %s: %s, %s\n", figure->name, figure->value, figure->detail);
    if (!isfinite(vt_table_value(&run->steps, -1, "loss")))
        vt_inspect_fault(faults, "the last step's loss is not a number");
}

static void print_end(const char *directory)
{
    int lock = -1;
    bool going = vt_run_directory_lock(directory, false, &lock) != VT_OK;
    vt_error_clear();
    vt_run_directory_unlock(&lock);
    char *last = vt_run_last_line(directory, NULL);
    vt_print("  state: %s; the log's last line: %s\n",
             going                             ? "running"
             : vt_run_is_finished(last)        ? "ended"
             : strstr(last, "Stopped") != NULL ? "stopped, --resume continues it"
             : strncmp(last, "ERROR", 5) == 0
                 ? "failed"
                 : "interrupted, --resume continues from the last checkpoint, if there is one",
             last);
    free(last);
}

/* Each complete checkpoint by its name, with what inspecting it shows. */
static void print_checkpoints(const char *directory, bool verify, int *faults)
{
    char *above = vt_text_format("%s/checkpoints", directory), best[VT_CHECKPOINT_NAME];
    vt_names names = {0};
    vt_step_list list = {0};
    if (vt_checkpoint_list(above, "", &list) != VT_OK) vt_error_clear();
    for (int64_t i = 0; i < list.count; i++) vt_names_take(&names, vt_text_format("step-%08ld", list.steps[i]));
    free(list.steps);
    vt_checkpoint_best_name(above, best);
    const bool is_copy = strcmp(best, "best") == 0;
    if (is_copy) vt_names_add(&names, best);
    vt_names_sort(&names);
    vt_print("  checkpoints: %ld", names.count);
    for (int64_t i = 0; i < names.count; i++) vt_print("%s %s", i == 0 ? ":" : ",", names.names[i]);
    vt_print(best[0] == '\0' ? "\n" : "; best is %s\n", is_copy ? "a whole copy" : best);
    for (int64_t i = 0; i < names.count; i++) {
        char *path = vt_text_format("%s/%s", above, names.names[i]);
        const int held = vt_checkpoint_hold(path);
        if (held >= 0 || vt_output_exists(path)) /* else the run has removed it meanwhile */
            vt_inspect_checkpoint(path, true, verify, faults);
        if (held >= 0) close(held);
        free(path);
    }
    vt_names_close(&names);
    free(above);
}

void vt_inspect_run(const char *directory, bool verify, int *faults)
{
    vt_run_files run;
    vt_print("%s: a run\n", directory);
    fflush(stdout);
    const vt_status opened = vt_run_files_open(directory, &run);
    print_configuration(&run, faults);
    if (vt_inspect_check(faults, opened)) print_figures(&run, faults);
    vt_run_files_close(&run);
    print_end(directory);
    print_checkpoints(directory, verify, faults);
}
