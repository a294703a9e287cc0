/* `vitrain inspect`: what data, statistics, checkpoints and forecasts say of their data, and in what two of them
 * differ. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/text.h"
#include "checkpoint/find.h"
#include "command/inspect.h"
#include "forecast/forecaster.h"
#include "source/fields/dataset.h"
#include "source/fields/statistics.h"
#include "storage/output_file.h"
#include "storage/tensor_file.h"

/* ---- where descriptions are ---- */

static vt_status of_attribute(const char *path, vt_fields_about **about)
{
    vt_status status = VT_OK;
    vt_tensor_file *file = NULL;
    char *text = NULL;
    VT_TRY(vt_tensor_files_try(path));
    VT_TRY(vt_tensor_file_open(path, &file));
    VT_CHECK(vt_tensor_file_has(file, "about"),
             "%s holds no attribute 'about', so nothing says which data it was made from: it is of another program, or "
             "of an older vitrain",
             path);
    VT_TRY(vt_tensor_file_get_text(file, "about", &text));
    VT_TRY(vt_fields_about_parse(text, path, about));
done:
    free(text);
    vt_tensor_file_close(&file);
    return status;
}

static vt_status of_statistics(const char *path, vt_fields_about **about)
{
    vt_status status = VT_OK;
    int kind = 0;
    while (kind < 3 && !vt_text_ends_with(path, vt_normalising_names[kind])) kind++;
    VT_CHECK(kind < 3, "%s: only of global_means.npy, global_stds.npy and time_diff_stds.npy is it known what they are",
             path);
    VT_TRY(vt_statistics_about(path, (vt_normalising_file)kind, about));
    VT_CHECK(*about != NULL, "nothing says which data %s was made from: no about.json beside it has its checksum",
             path);
done:
    return status;
}

static vt_status of_checkpoint(const char *path, vt_fields_about **about)
{
    vt_status status = VT_OK;
    char *found = NULL;
    VT_TRY(vt_checkpoint_find(path, VT_CHECKPOINT_TO_SHOW, &found));
    VT_TRY(vt_forecaster_about(found, about));
    VT_CHECK(*about != NULL, "%s: its model was not trained on fields in files", found);
done:
    free(found);
    return status;
}

/* The set in the directory, or its training set. */
static vt_status of_data(const char *path, const vt_fields_form *form, vt_fields_about **about)
{
    char *training = vt_text_format("%s/train", path);
    const vt_status status = vt_fields_about_of_set(vt_output_exists(training) ? training : path, path, form, about);
    free(training);
    return status;
}

static vt_status find(const char *path, const vt_fields_form *form, vt_fields_about **about)
{
    struct stat info;
    *about = NULL;
    if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode))
        return vt_text_ends_with(path, ".npy") ? of_statistics(path, about) : of_attribute(path, about);
    if (vt_inspect_holds(path, "checkpoint.h5") || vt_inspect_holds(path, "checkpoints"))
        return of_checkpoint(path, about);
    if (vt_inspect_holds(path, "about.json")) return vt_fields_about_read(path, about);
    return of_data(path, form, about);
}

/* ---- what they say ---- */

bool vt_inspect_describes(const char *path)
{
    struct stat info;
    const bool is_file = stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
    static const char *const ends[] = {".npy", ".h5", ".nc"};
    for (int i = 0; i < 3; i++)
        if (is_file && vt_text_ends_with(path, ends[i])) return true;
    return !is_file && vt_inspect_holds(path, "about.json") && !vt_inspect_holds(path, "checkpoint.h5");
}

vt_status vt_inspect_about(const char *path)
{
    vt_status status = VT_OK;
    vt_fields_about *about = NULL;
    VT_TRY(find(path, NULL, &about));
    vt_print("%s: made from these data\n", path);
    vt_fields_about_print(about, "  ");
done:
    vt_fields_about_close(&about);
    return status;
}

vt_status vt_inspect_differences(const char *one, const char *other, const vt_fields_form *form)
{
    vt_status status = VT_OK;
    vt_fields_about *abouts[2] = {NULL, NULL};
    char *lines = NULL;
    VT_TRY(find(one, form, &abouts[0]));
    VT_TRY(find(other, form, &abouts[1]));
    lines = vt_fields_differences(&(vt_fields_side){abouts[0], one}, &(vt_fields_side){abouts[1], other});
    vt_print("%s", lines[0] != '\0' ? lines : "no differences\n");
done:
    for (int i = 0; i < 2; i++) vt_fields_about_close(&abouts[i]);
    free(lines);
    return status;
}
