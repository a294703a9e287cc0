#include "command/inspect.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/find.h"
#include "command/command.h"
#include "forecast/trained.h"
#include "source/fields/dataset.h"
#include "source/fields/file_list.h"
#include "source/fields/statistics.h"
#include "source/text/text.h"
#include "storage/output_file.h"
#include "storage/safetensors.h"
#include "storage/tensor_file.h"

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

bool vt_inspect_check(int *faults, vt_status status)
{
    if (status != VT_OK) vt_inspect_fault(faults, "%s", vt_error_text());
    return status == VT_OK;
}

/* ---- what data, statistics, checkpoints and forecasts say of their data, and in what two of them differ ---- */

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
    vt_tensor_file *index = NULL;
    VT_TRY(vt_checkpoint_find(path, VT_CHECKPOINT_TO_SHOW, &found));
    VT_TRY(vt_trained_open_index(found, &index));
    VT_TRY(vt_checkpoint_about(index, found, about));
    VT_CHECK(*about != NULL, "%s: its model was not trained on fields in files", found);
done:
    vt_tensor_file_close(&index);
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

static vt_status find_about(const char *path, const vt_fields_form *form, vt_fields_about **about)
{
    struct stat info;
    *about = NULL;
    if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode))
        return vt_text_ends_with(path, ".npy") ? of_statistics(path, about) : of_attribute(path, about);
    if (vt_output_holds(path, "checkpoint.h5") || vt_output_holds(path, "checkpoints"))
        return of_checkpoint(path, about);
    if (vt_output_holds(path, "about.json")) return vt_fields_about_read(path, about);
    return of_data(path, form, about);
}

/* Is it a file, or a directory of statistics, that says which data it was made from? */
static bool describes(const char *path)
{
    struct stat info;
    const bool is_file = stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
    if (is_file)
        return vt_text_ends_with(path, ".npy") || vt_text_ends_with(path, ".h5") || vt_text_ends_with(path, ".nc");
    return vt_output_holds(path, "about.json") && !vt_output_holds(path, "checkpoint.h5");
}

static vt_status print_about(const char *path)
{
    vt_status status = VT_OK;
    vt_fields_about *about = NULL;
    VT_TRY(find_about(path, NULL, &about));
    vt_print("%s: made from these data\n", path);
    vt_fields_about_print(about, "  ");
done:
    vt_fields_about_close(&about);
    return status;
}

static vt_status print_differences(const char *one, const char *other, const vt_fields_form *form)
{
    vt_status status = VT_OK;
    vt_fields_about *abouts[2] = {NULL, NULL};
    char *lines = NULL;
    VT_TRY(find_about(one, form, &abouts[0]));
    VT_TRY(find_about(other, form, &abouts[1]));
    lines = vt_fields_differences(&(vt_fields_side){abouts[0], one}, &(vt_fields_side){abouts[1], other});
    vt_print("%s", lines[0] != '\0' ? lines : "no differences\n");
done:
    for (int i = 0; i < 2; i++) vt_fields_about_close(&abouts[i]);
    free(lines);
    return status;
}

/* ---- a text ---- */

enum { SETS = 3, SEQ_LEN = 32 }; /* the default of seq_len */
static const char *const sets[SETS] = {"train", "valid", "test"};

static bool holds_text(const char *directory)
{
    bool any = false;
    for (int i = 0; i < SETS; i++) {
        char *path = NULL;
        any = vt_text_find(directory, (vt_set)i, &path) != VT_OK || path != NULL || any;
        vt_error_clear();
        free(path);
    }
    return any;
}

/* "  train: wiki.train.raw, 10.9 MB: 2051910 words, 66656 different ones, 2051878 windows of 32 (seq_len, stride 1)" */
static vt_status print_set(const char *directory, vt_set set, const vt_corpus_options *options, vt_vocabulary **words)
{
    vt_status status = VT_OK;
    char *path = NULL, size[VT_NUMBER_SIZE];
    vt_corpus *corpus = NULL;
    VT_TRY(vt_text_find(directory, set, &path));
    VT_CHECK(path != NULL || set == VT_SET_TEST, "there is no %s text",
             set == VT_SET_TRAINING ? "training" : "validation");
    if (path == NULL || (set != VT_SET_TRAINING && *words == NULL)) goto done;
    VT_TRY(vt_corpus_open(path, *words, options, &corpus));
    vt_print("  %s: %s, %s: %ld words", sets[set], vt_file_name(path),
             vt_text_bytes((double)corpus->head.origin.text_bytes, size), corpus->head.words);
    if (corpus->vocabulary != NULL)
        vt_print(", %ld different ones", corpus->vocabulary->count);
    else
        vt_print(", %ld of which are not in the training text", corpus->head.unknown);
    vt_print(", %ld windows of %d (seq_len, stride 1)\n", vt_text_windows(corpus->head.token_count, SEQ_LEN, 1),
             SEQ_LEN);
    if (corpus->head.has_mark) vt_print("    WARNING: it begins with a byte order mark, which is left out\n");
    if (set == VT_SET_TRAINING) {
        *words = corpus->vocabulary;
        corpus->vocabulary = NULL;
    }
done:
    vt_corpus_close(&corpus);
    free(path);
    return status;
}

static void print_text(const char *directory, bool verify, int *faults)
{
    const char *temporary = getenv("TMPDIR");
    const vt_corpus_options options = {
        .lower = true, .other_directory = temporary != NULL ? temporary : "/tmp", .keep_nothing = true, .anew = verify};
    vt_vocabulary *words = NULL;
    vt_print("%s: text, in lower case\n", directory);
    fflush(stdout);
    for (int i = 0; i < SETS; i++) vt_inspect_check(faults, print_set(directory, (vt_set)i, &options, &words));
    vt_vocabulary_close(&words);
}

/* ---- what it is ---- */

static bool holds_yearly_files(const char *directory, const vt_fields_form *form)
{
    vt_file_list list = {0};
    bool any = vt_file_list_open(directory, "data", form, &list) == VT_OK;
    vt_error_clear();
    vt_file_list_close(&list);
    return any;
}

static vt_status look(const char *path, const vt_config *config, const vt_fields_form *form, bool verify, int *faults)
{
    vt_status status = VT_OK;
    struct stat info;
    char *checkpoint = NULL;
    const char *foreign = vt_pytorch_file_kind(path);
    VT_CHECK(stat(path, &info) == 0, "inspect: %s: %s", path, strerror(errno));
    if (describes(path)) return print_about(path);
    const bool is_directory = S_ISDIR(info.st_mode);
    const bool is_one =
        !is_directory || vt_output_holds(path, "checkpoint.h5") || vt_output_holds(path, "checkpoint.crc32c");
    bool is_found = is_one && vt_checkpoint_find(path, VT_CHECKPOINT_TO_SHOW, &checkpoint) == VT_OK;
    vt_error_clear();
    VT_CHECK(is_directory || is_found, "inspect: %s is %s; expected the directory of a checkpoint, of a run or of data",
             path, foreign != NULL ? foreign : "a file");
    if (is_found || vt_output_holds(path, "shard-00000-of-00001.h5")) {
        vt_inspect_checkpoint(is_found ? checkpoint : path, false, verify, faults);
    } else if (vt_output_holds(path, "metrics.csv") || vt_output_holds(path, "checkpoints") ||
               vt_output_holds(path, "out.log")) {
        vt_inspect_run(path, verify, faults);
    } else if (holds_text(path)) {
        print_text(path, verify, faults);
    } else if (vt_output_holds(path, "train") || vt_output_holds(path, "valid") || vt_output_holds(path, "stats") ||
               form->variables != NULL || holds_yearly_files(path, form)) {
        vt_inspect_data(path, config, verify, faults);
    } else { /* a run's checkpoints/ */
        is_found = vt_checkpoint_find(path, VT_CHECKPOINT_TO_SHOW, &checkpoint) == VT_OK;
        vt_error_clear();
        VT_CHECK(is_found,
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
    vt_config *config = NULL;
    int faults = 0;
    VT_TRY(vt_config_open_text("inspect: {model: vit}\n", "inspect", call->option_count, call->options, 1, &config));
    vt_fields_form form = vt_fields_options(config, VT_SET_TRAINING).form;
    form.period = NULL;
    if (call->operand_count == 2) {
        VT_TRY(print_differences(path, call->operands[1], &form));
        goto done;
    }
    VT_TRY(look(path, config, &form, flags->verify, &faults));
    VT_CHECK(faults == 0, "inspect: %s: %d fault%s found", path, faults, faults == 1 ? "" : "s");
    vt_print(flags->verify ? "all of it was read: no faults\n" : "no faults seen (--verify reads every value)\n");
done:
    vt_config_close(&config);
    return status;
}
