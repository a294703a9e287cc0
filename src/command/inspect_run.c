#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "checkpoint/find.h"
#include "command/inspect.h"
#include "config/option.h"
#include "config/yaml.h"
#include "journal/run_directory.h"
#include "report/run_files.h"
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

static vt_status print_configuration(const char *path)
{
    vt_status status = VT_OK;
    vt_yaml *yaml = NULL;
    VT_TRY(vt_yaml_open(path, NULL, VT_YAML_CONFIGURATIONS, &yaml));
    const vt_yaml_node *top = vt_yaml_top(yaml), *keys = top->entry_count == 1 ? top->entries[0].value : NULL;
    if (keys == NULL) goto done;
    VT_TRY(vt_yaml_entries(keys));
    if (keys->entry_count == 0) goto done;
    vt_print("  configuration %s:", top->entries[0].key->text);
    for (size_t i = 0; i < keys->entry_count; i++) {
        const vt_yaml_node *value = keys->entries[i].value;
        const char *key = keys->entries[i].key->text;
        if (!is_shown(key)) continue;
        if (value->kind == VT_YAML_SCALAR && strcmp(value->text, "None") != 0) vt_print(" %s %s,", key, value->text);
        if (value->kind == VT_YAML_SEQUENCE && value->count == 2)
            vt_print(" %s [%s, %s],", key, value->child[0]->text, value->child[1]->text);
    }
    vt_print(" … (config.yaml)\n");
done:
    vt_yaml_close(&yaml);
    return status;
}

static void print_losses(const char *directory, int *faults)
{
    vt_run_files run = {0};
    const vt_status opened = vt_run_files_open(directory, &run);
    vt_inspect_check(faults, opened);
    if (run.steps.rows > 0)
        vt_print("  steps: %.0f done (epoch %.0f), last loss %.6g, %.4g samples/s, data wait %.0f %%\n",
                 vt_table_value(&run.steps, -1, "step"), vt_table_value(&run.steps, -1, "epoch"),
                 vt_table_value(&run.steps, -1, "loss"), vt_table_value(&run.steps, -1, "samples_per_sec"),
                 100 * vt_table_value(&run.steps, -1, "data_wait_fraction"));
    else if (opened == VT_OK)
        vt_print("  steps: none yet\n");
    if (run.epochs.rows > 0)
        vt_print("  epochs: %lld done, last losses: training %.6g, validation %.6g (%s %.6g)\n",
                 (long long)vt_table_value(&run.epochs, -1, "epoch"), vt_table_value(&run.epochs, -1, "train_loss"),
                 vt_table_value(&run.epochs, -1, "valid_loss"), run.baseline, vt_run_baseline(&run, "loss"));
    if (!isfinite(vt_table_value(&run.steps, -1, "loss")) && run.steps.rows > 0)
        vt_inspect_fault(faults, "the last step's loss is not a number");
    vt_run_files_close(&run);
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
    enum { MOST = 1024 };
    char *above = vt_text_format("%s/checkpoints", directory), *names[MOST], best[VT_CHECKPOINT_NAME];
    int count = 0;
    vt_step_list list = {0};
    if (vt_checkpoint_list(above, "", &list) != VT_OK) vt_error_clear();
    while (count < list.count && count < MOST - 1) {
        names[count] = vt_text_format("step-%08lld", (long long)list.steps[count]);
        count++;
    }
    free(list.steps);
    vt_checkpoint_best_name(above, best);
    const bool is_copy = strcmp(best, "best") == 0;
    if (is_copy) names[count++] = vt_text_copy(best);
    qsort(names, (size_t)count, sizeof names[0], vt_by_name);
    vt_print("  checkpoints: %d", count);
    for (int i = 0; i < count; i++) vt_print("%s %s", i == 0 ? ":" : ",", names[i]);
    vt_print(best[0] == '\0' ? "\n" : "; best is %s\n", is_copy ? "a whole copy" : best);
    for (int i = 0; i < count; i++) {
        char *path = vt_text_format("%s/%s", above, names[i]);
        const int held = vt_checkpoint_hold(path);
        if (held >= 0 || vt_output_exists(path)) /* else the run has removed it meanwhile */
            vt_inspect_checkpoint(path, true, verify, faults);
        if (held >= 0) close(held);
        free(path);
        free(names[i]);
    }
    free(above);
}

void vt_inspect_run(const char *directory, bool verify, int *faults)
{
    char *configuration = vt_text_format("%s/config.yaml", directory);
    vt_print("%s: a run\n", directory);
    fflush(stdout);
    vt_inspect_check(faults, print_configuration(configuration));
    print_losses(directory, faults);
    print_end(directory);
    print_checkpoints(directory, verify, faults);
    free(configuration);
}
