#include "report/run_files.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

/* Parses the file as vitrain writes it: a line "name:", then a line " key: value" for each key. */
static void read_keys(const char *path, vt_run_files *files)
{
    FILE *file = NULL;
    char *line = NULL;
    size_t size = 0;
    files->configuration = vt_text_copy("");
    if (vt_file_open(path, &file, NULL) != VT_OK) vt_error_clear();
    while (file != NULL && vt_file_line(file, &line, &size) > 0) {
        line[strcspn(line, "\n")] = '\0';
        char *colon = strchr(line, ':');
        if (line[0] == '#' || colon == NULL) continue;
        *colon = '\0';
        if (line[0] != ' ') {
            free(files->configuration);
            files->configuration = vt_text_copy(line);
            continue;
        }
        vt_names_add(&files->keys, line + strspn(line, " "));
        vt_names_add(&files->values, colon + 1 + strspn(colon + 1, " "));
    }
    free(line);
    if (file != NULL) fclose(file);
}

static const char expected[] = "expected the directory of a run, like runs/demo/1CPU/00";

static vt_status check_directory(const char *directory, const char *metrics)
{
    vt_status status = VT_OK;
    struct stat info;
    char *log = vt_text_format("%s/out.log", directory);
    VT_CHECK(stat(directory, &info) == 0, "%s: %s; %s", directory, strerror(errno), expected);
    VT_CHECK(S_ISDIR(info.st_mode), "%s is a file; %s", directory, expected);
    VT_CHECK(access(metrics, F_OK) == 0 || access(log, F_OK) != 0,
             "%s has no metrics.csv: its run has not finished a step; %s says how far it is", directory, log);
    VT_CHECK(access(metrics, F_OK) == 0, "%s: %s; %s", metrics, strerror(errno), expected);
done:
    free(log);
    return status;
}

/* `columns`, which NULL ends, are those that every run writes; the first two count. */
static vt_status open_table(const char *path, const char *const *columns, vt_table *table)
{
    vt_status status = VT_OK;
    VT_TRY(vt_table_open(path, false, table));
    VT_TRY(vt_table_need(table, path, columns));
    for (int64_t row = 0; row < table->rows; row++)
        for (int i = 0; i < 2; i++)
            VT_CHECK(fabs(vt_table_value(table, row, columns[i])) < 1e15,
                     "%s: the column '%s' of row %ld holds no number of a run; bring the file back, or delete that row",
                     path, columns[i], row + 1);
done:
    if (status != VT_OK) vt_table_close(table);
    return status;
}

/* The last epoch whose validation scored the baseline, too, is the first one since its loss has measured the same. */
static void find_baseline(vt_run_files *files)
{
    const vt_table *epochs = &files->epochs;
    const int64_t column = vt_table_find(epochs, "valid_loss") + 1;
    const char *found = column > 0 && column < epochs->names.count ? epochs->names.names[column] : "";
    const bool is_loss = vt_text_ends_with(found, "_loss");
    files->baseline =
        is_loss ? vt_text_format("%.*s", (int)(strlen(found) - strlen("_loss")), found) : vt_text_copy("persistence");
    for (int64_t row = 1; row < epochs->rows && is_loss; row++)
        if (isfinite(vt_table_value(epochs, row, found))) files->baseline_row = row;
}

vt_status vt_run_files_open(const char *directory, vt_run_files *files)
{
    vt_status status = VT_OK;
    char *paths[4];
    struct stat info;
    static const char *const names[4] = {"metrics.csv", "epochs.csv", "plan.csv", "config.yaml"};
    *files = (vt_run_files){.directory = vt_text_copy(directory)};
    for (int i = 0; i < 4; i++) paths[i] = vt_text_format("%s/%s", directory, names[i]);
    read_keys(paths[3], files);
    VT_TRY(check_directory(directory, paths[0]));
    VT_TRY(open_table(paths[0], (const char *const[]){"step", "epoch", "loss", NULL}, &files->steps));
    if (stat(paths[1], &info) == 0 && info.st_size > 0)
        VT_TRY(open_table(paths[1], (const char *const[]){"step", "epoch", "train_loss", "valid_loss", NULL},
                          &files->epochs));
    find_baseline(files);
    if (vt_table_open(paths[2], false, &files->plan) != VT_OK) vt_error_clear();
done:
    for (int i = 0; i < 4; i++) free(paths[i]);
    return status;
}

void vt_run_files_close(vt_run_files *files)
{
    vt_table_close(&files->steps);
    vt_table_close(&files->epochs);
    vt_table_close(&files->plan);
    vt_names_close(&files->keys);
    vt_names_close(&files->values);
    free(files->baseline);
    free(files->configuration);
    free(files->directory);
    *files = (vt_run_files){0};
}

const char *vt_run_files_key(const vt_run_files *files, const char *name)
{
    for (int64_t i = 0; i < files->keys.count; i++)
        if (strcmp(files->keys.names[i], name) == 0) return files->values.names[i];
    return "";
}

double vt_run_baseline(const vt_run_files *files, const char *column)
{
    char *name = vt_text_format("%s_%s", files->baseline, column);
    const double value = vt_table_value(&files->epochs, files->baseline_row, name);
    free(name);
    return value;
}

double vt_run_recent_mean(const vt_run_files *files, const char *column, int64_t most)
{
    double sum = 0;
    int64_t rows = files->steps.rows, count = rows < most ? rows : most;
    for (int64_t i = 0; i < count; i++) sum += vt_table_value(&files->steps, rows - 1 - i, column);
    return count > 0 ? sum / (double)count : (double)NAN;
}

bool vt_run_is_finished(const char *line)
{
    static const char *const ends[] = {"; run directory ", "the run is finished",
                                       "BENCHY::INFO::Message: Tests completed"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (strstr(line, ends[i]) != NULL) return true;
    return false;
}

char *vt_run_last_line(const char *directory, bool *is_closed)
{
    static const char stamp_end[] = " - root - ";
    char *path = vt_text_format("%s/out.log", directory), *line = NULL, *last = vt_text_copy("");
    size_t size = 0;
    FILE *file = NULL;
    bool closed = false;
    if (vt_file_open(path, &file, NULL) != VT_OK) vt_error_clear();
    while (file != NULL && vt_file_line(file, &line, &size) > 0) {
        line[strcspn(line, "\n")] = '\0';
        closed = vt_run_is_finished(line) || (closed && strstr(line, " - Starting Training Loop...") == NULL);
        const char *text = strstr(line, stamp_end);
        if (text == NULL) continue;
        free(last);
        last = vt_text_copy(text + strlen(stamp_end));
    }
    if (is_closed != NULL) *is_closed = closed;
    if (file != NULL) fclose(file);
    free(path);
    free(line);
    return last;
}
