#include "forecast/members.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/find.h"
#include "loss/loss.h"
#include "source/sources.h"
#include "task/task.h"

/* ---- the checkpoints ---- */

/* What the first checkpoint's configuration says for all: its sizes, and the files by which fields are normalised. */
static const char *const sizes[] = {"model",          "task",    "embed_dim", "depth", "patch_size", "n_in_channels",
                                    "n_out_channels", "missing", "variables", "roles", NULL};
static const char *const files[] = {"global_means_path", "global_stds_path", "static_fields", NULL};
static const char *const files_of_departures[] = {"climatology_path", "static_fields", NULL};
static const char *const files_of_changes[] = {"time_diff_stds_path", NULL};

/* Checks that these options are the same in both. */
static vt_status compare(const char *const *options, const vt_trained *a, const vt_trained *b, const char *advice)
{
    vt_status status = VT_OK;
    char *values[2] = {NULL};
    for (const char *const *option = options; *option != NULL; option++) {
        for (int k = 0; k < 2; k++) free(values[k]);
        for (int k = 0; k < 2; k++) values[k] = vt_config_value_text(k == 0 ? a->config : b->config, *option);
        VT_CHECK(strcmp(values[0], values[1]) == 0, "--checkpoints: %s has %s %s, but %s has %s: %s", a->checkpoint,
                 *option, values[0], b->checkpoint, values[1], advice);
    }
done:
    for (int k = 0; k < 2; k++) free(values[k]);
    return status;
}

static vt_status check_fits(const vt_trained *a, const vt_trained *b)
{
    vt_status status = VT_OK;
    static const char weights_alone[] = "the models of an ensemble may differ in their weights alone";
    static const char one_set[] = "the models of an ensemble must see the same data; --data_dir=DIR names it for all";
    VT_TRY(compare(sizes, a, b, weights_alone));
    VT_TRY(compare(vt_model_kind_of(a->config)->identity, a, b, weights_alone));
    VT_TRY(compare(vt_task_kind_of(a->config)->identity, a, b, weights_alone));
    const bool departs = a->config->normalise == VT_NORMALISE_CLIMATOLOGY;
    VT_TRY(compare(departs ? files_of_departures : files, a, b, one_set));
    if (!departs && a->config->predict == VT_PREDICT_TENDENCY) VT_TRY(compare(files_of_changes, a, b, one_set));
done:
    return status;
}

vt_status vt_members_add(const char *name, int flag_count, char *const *flags, int64_t ranks, vt_members *members)
{
    members->models = vt_grow(members->models, (size_t)members->model_count, sizeof *members->models, "checkpoints");
    const vt_status status = vt_trained_open(name, flag_count, flags, ranks, &members->models[members->model_count++]);
    members->config = members->models[0].config;
    return status;
}

/* Can the checkpoint that was added last forecast fields, beside those before it? */
static vt_status check_last(const vt_members *members, const char *name)
{
    vt_status status = VT_OK;
    const int64_t before = members->model_count - 1;
    const vt_trained *first = members->models, *last = &members->models[before];
    VT_CHECK(strcmp(vt_source_kind_of(last->config)->name, "fields") == 0,
             "%s: its model was trained on source %s, but only fields in files can be forecast", last->checkpoint,
             vt_source_kind_of(last->config)->name);
    for (int64_t i = 0; i < before; i++)
        VT_CHECK(!vt_checkpoint_is_one_place(members->models[i].checkpoint, last->checkpoint),
                 "--checkpoints: %s and %s are the same checkpoint; name each one once", members->models[i].checkpoint,
                 name);
    if (before > 0) VT_TRY(check_fits(first, last));
done:
    return status;
}

static vt_status take_list(const char *list, int flag_count, char *const *flags, int64_t ranks, vt_members *members)
{
    vt_status status = VT_OK;
    char *name = NULL;
    VT_CHECK(strchr(list, ',') != NULL,
             "--checkpoints=%s: expected at least two checkpoints with commas between them, like --checkpoints=A,B,C",
             list);
    for (const char *next = list, *end; next != NULL; next = *end == ',' ? end + 1 : NULL) {
        end = next + strcspn(next, ",");
        VT_CHECK(end > next, "--checkpoints: there is nothing before or after a comma; expected names like A,B,C");
        free(name);
        name = vt_text_format("%.*s", (int)(end - next), next);
        VT_TRY(vt_members_add(name, flag_count, flags, ranks, members));
        VT_TRY(check_last(members, name));
    }
done:
    free(name);
    return status;
}

vt_status vt_members_configure(const char *name, const char *list, int64_t count, int64_t rollout, int flag_count,
                               char *const *flags, int64_t ranks, vt_members *members)
{
    vt_status status = VT_OK;
    VT_CHECK(name == NULL || list == NULL, "CHECKPOINT %s and --checkpoints=%s: give one of the two", name, list);
    if (list != NULL) {
        VT_TRY(take_list(list, flag_count, flags, ranks, members));
    } else {
        if (members->model_count == 0) VT_TRY(vt_members_add(name, flag_count, flags, ranks, members));
        VT_TRY(check_last(members, name));
    }
    members->noisy = vt_loss_kind_at(members->config, members->models[0].epoch)->of_members;
    const int64_t checkpoints = members->model_count;
    members->count = count > 0 ? count : list != NULL ? checkpoints : 0;
    VT_CHECK(members->count % checkpoints == 0,
             "--members=%ld: %ld checkpoints can't have as many members each; use a multiple of %ld, or leave "
             "--members out",
             count, checkpoints, checkpoints);
    VT_CHECK(members->count <= checkpoints || members->noisy || members->config->input_noise > 0,
             "--members=%ld: the members of a checkpoint differ by noise on their initial state, but input_noise is 0; "
             "set --input_noise=S (in standard deviations of the fields' change over dt, such as 0.1), name several "
             "--checkpoints=A,B,C, or train a model on loss crps, which makes its own noise",
             count);
    const int64_t in = vt_config_channels_a_time(members->config), out = members->config->n_out_channels;
    VT_CHECK(rollout == 1 || out >= in,
             "--rollout=%ld: this model forecasts %ld channels from %ld, so a forecast can't be the next one's "
             "input; only --rollout=1 is possible",
             rollout, out, in);
done:
    return status;
}

void vt_members_close(vt_members *members)
{
    for (int64_t i = 0; i < members->model_count; i++) vt_trained_close(&members->models[i]);
    free(members->models);
    *members = (vt_members){0};
}

/* ---- the members ---- */

int64_t vt_members_number(const vt_members *members)
{
    return members->count > 0 ? members->count : 1;
}

bool vt_members_perturbs(const vt_members *members, int64_t member)
{
    if (members->noisy) return members->config->origin[VT_OPTION_input_noise] == VT_FROM_COMMAND_LINE;
    return member % (vt_members_number(members) / members->model_count) > 0;
}

char *vt_members_describe(const vt_members *members)
{
    vt_text text = {0};
    char number[VT_NUMBER_SIZE];
    const int64_t checkpoints = members->model_count;
    int64_t perturbed = 0;
    for (int64_t m = 0; m < vt_members_number(members); m++) perturbed += vt_members_perturbs(members, m);
    vt_text_append(&text, "%ld member%s", members->count, members->count == 1 ? "" : "s");
    if (checkpoints > 1) vt_text_append(&text, ", of %ld checkpoints", checkpoints);
    if (members->noisy) vt_text_append(&text, ", by the model's noise");
    if (perturbed > 0)
        vt_text_append(&text, ", %ld with input_noise %s on the initial state", perturbed,
                       vt_text_double(members->config->input_noise, number));
    return text.characters;
}
