/* Whether the losses that a checkpoint keeps (the smallest of a validation, the baseline's) can be compared with those
 * of the run that continues from it. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "checkpoint/inside.h"
#include "source/sources.h"

/* What says which number of which samples a validation's loss is. */
static const char *const options[] = {"loss",    "lambda_rho",   "latitude_weights", "channel_weights",
                                      "missing", "valid_period", "time_step",        "stride"};
static const char *const limits[] = {"limit_nsamples_val", "Nsamples_val"};
static const char *const sets[] = {"valid_data_path", "val_path", "val_path_npy_data", "val_path_npy_label"};
enum {
    OPTIONS = sizeof options / sizeof options[0],
    LIMITS = sizeof limits / sizeof limits[0],
    SETS = sizeof sets / sizeof sets[0]
};

static bool are_one_place(const char *a, const char *b)
{
    char *left = realpath(a, NULL), *right = realpath(b, NULL);
    const bool same = left != NULL && right != NULL && strcmp(left, right) == 0;
    free(left);
    free(right);
    return same;
}

static void note(vt_text *changes, const char *what, const char *was, const char *is)
{
    vt_text_append(changes, "%s%s was %s, is %s", changes->length > 0 ? "; " : "", what, was, is);
}

static void compare_option(const vt_config *then, const vt_config *now, const char *name, bool is_path,
                           vt_text *changes)
{
    char *was = vt_config_value_text(then, name), *is = vt_config_value_text(now, name);
    if (strcmp(was, is) != 0 && !(is_path && are_one_place(was, is))) note(changes, name, was, is);
    free(was);
    free(is);
}

/* What normalises the fields is the checkpoint's, so it stays. Earlier checkpoints don't say the number of samples. */
static vt_status compare(vt_tensor_file *index, const vt_config *then, const vt_checkpoint_subject *subject,
                         vt_text *changes)
{
    vt_status status = VT_OK;
    const vt_config *now = subject->config;
    int64_t samples = 0;
    char numbers[2][VT_NUMBER_SIZE];
    const bool was_noise = then->data_loader_config == VT_LOADER_SYNTHETIC,
               is_noise = now->data_loader_config == VT_LOADER_SYNTHETIC;
    for (int i = 0; i < OPTIONS; i++) compare_option(then, now, options[i], false, changes);
    for (int i = 0; i < SETS; i++) compare_option(then, now, sets[i], true, changes);
    if (was_noise != is_noise) compare_option(then, now, "data_loader_config", false, changes);
    if (is_noise || strcmp(vt_source_kind_of(now)->name, "volumes") == 0)
        compare_option(then, now, "seed", false, changes); /* draws them */
    if (!vt_tensor_file_has(index, "validation_samples")) {
        for (int i = 0; i < LIMITS; i++) compare_option(then, now, limits[i], false, changes);
        return VT_OK;
    }
    VT_TRY(vt_tensor_file_get_integer(index, "validation_samples", &samples));
    snprintf(numbers[0], sizeof numbers[0], "%lld", (long long)samples);
    snprintf(numbers[1], sizeof numbers[1], "%lld", (long long)subject->validation_samples);
    if (samples != subject->validation_samples)
        note(changes, "the number of validation samples", numbers[0], numbers[1]);
done:
    return status;
}

vt_status vt_checkpoint_compare_measure(vt_tensor_file *index, const char *directory,
                                        const vt_checkpoint_subject *subject, vt_run_progress *progress)
{
    vt_status status = VT_OK;
    vt_config *then = NULL;
    vt_text changes = {0};
    VT_TRY(vt_checkpoint_configuration(index, directory, &then));
    VT_TRY(compare(index, then, subject, &changes));
    if (changes.length == 0) goto done;
    vt_log_info("the smallest validation loss and the baseline's begin anew, as those of %s measure something else: %s",
                directory, changes.characters);
    progress->validation_loss = progress->persistence_loss = NAN;
    progress->best_loss = INFINITY;
done:
    vt_config_close(&then);
    vt_text_close(&changes);
    return status;
}
