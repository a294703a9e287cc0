#include "forecast/members.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "task/task.h"

/* ---- the checkpoints ---- */

/* What the first checkpoint's configuration says for all: its sizes, and the files by which fields are normalised. */
static const char *const sizes[] = {"model",          "task",    "embed_dim", "depth", "patch_size", "n_in_channels",
                                    "n_out_channels", "missing", "variables", "roles", NULL};
static const char *const files[] = {"global_means_path", "global_stds_path", "static_fields", NULL};
static const char *const files_of_departures[] = {"climatology_path", "static_fields", NULL};
static const char *const files_of_changes[] = {"time_diff_stds_path", NULL};

/* Checks that these options are the same in both. */
static vt_status compare(const char *const *options, const char *const *names, const vt_config *const *configs,
                         const char *advice)
{
    vt_status status = VT_OK;
    char *values[2] = {NULL};
    for (const char *const *option = options; *option != NULL; option++) {
        for (int k = 0; k < 2; k++) free(values[k]);
        for (int k = 0; k < 2; k++) values[k] = vt_config_value_text(configs[k], *option);
        VT_CHECK(strcmp(values[0], values[1]) == 0, "--checkpoints: %s has %s %s, but %s has %s: %s", names[0], *option,
                 values[0], names[1], values[1], advice);
    }
done:
    for (int k = 0; k < 2; k++) free(values[k]);
    return status;
}

static vt_status check_fits(const char *const *names, const vt_config *const *configs)
{
    vt_status status = VT_OK;
    static const char weights_alone[] = "the models of an ensemble may differ in their weights alone";
    static const char one_set[] = "the models of an ensemble must see the same data; --data_dir=DIR names it for all";
    VT_TRY(compare(sizes, names, configs, weights_alone));
    VT_TRY(compare(vt_model_kind_of(configs[0])->identity, names, configs, weights_alone));
    VT_TRY(compare(vt_task_kind_of(configs[0])->identity, names, configs, weights_alone));
    const bool departs = configs[0]->normalise == VT_NORMALISE_CLIMATOLOGY;
    VT_TRY(compare(departs ? files_of_departures : files, names, configs, one_set));
    if (!departs && configs[0]->predict == VT_PREDICT_TENDENCY)
        VT_TRY(compare(files_of_changes, names, configs, one_set));
done:
    return status;
}

static bool is_same_place(const char *a, const char *b)
{
    char real_a[PATH_MAX], real_b[PATH_MAX];
    return realpath(a, real_a) != NULL && realpath(b, real_b) != NULL && strcmp(real_a, real_b) == 0;
}

/* Finds one more checkpoint and compares it with the ones before it. */
static vt_status add_checkpoint(const char *name, int flag_count, char *const *flags, int64_t ranks,
                                vt_members *members)
{
    vt_status status = VT_OK;
    char *found = NULL;
    vt_config *other = NULL;
    VT_TRY(vt_forecaster_configure(name, flag_count, flags, ranks, &found, &other));
    VT_TRY(vt_forecaster_check(found, other));
    for (int64_t i = 0; i < members->checkpoint_count; i++)
        VT_CHECK(!is_same_place(members->checkpoints[i], found),
                 "--checkpoints: %s and %s are the same checkpoint; name each one once", members->checkpoints[i], name);
    VT_TRY(check_fits((const char *const[]){members->checkpoints[0], found},
                      (const vt_config *const[]){members->config, other}));
    members->checkpoints =
        vt_grow(members->checkpoints, (size_t)members->checkpoint_count, sizeof *members->checkpoints, "checkpoints");
    members->checkpoints[members->checkpoint_count++] = found;
    found = NULL;
done:
    vt_config_close(&other);
    free(found);
    return status;
}

vt_status vt_members_begin(const char *name, int flag_count, char *const *flags, int64_t ranks, vt_members *members)
{
    members->checkpoints = vt_grow(NULL, 0, sizeof *members->checkpoints, "checkpoints");
    members->checkpoints[0] = NULL;
    members->checkpoint_count = 1;
    return vt_forecaster_configure(name, flag_count, flags, ranks, &members->checkpoints[0], &members->config);
}

static vt_status take_first(const char *name, int flag_count, char *const *flags, int64_t ranks, vt_members *members)
{
    vt_status status = VT_OK;
    if (members->config == NULL) VT_TRY(vt_members_begin(name, flag_count, flags, ranks, members));
    VT_TRY(vt_forecaster_check(members->checkpoints[0], members->config));
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
    for (bool more = true; more;) {
        const size_t length = strcspn(list, ",");
        VT_CHECK(length > 0, "--checkpoints: there is nothing before or after a comma; expected names like A,B,C");
        free(name);
        name = vt_text_format("%.*s", (int)length, list);
        VT_TRY(members->config == NULL ? take_first(name, flag_count, flags, ranks, members)
                                       : add_checkpoint(name, flag_count, flags, ranks, members));
        more = list[length] == ',';
        list += length + more;
    }
done:
    free(name);
    return status;
}

vt_status vt_members_configure(const char *name, const char *list, int64_t count, int flag_count, char *const *flags,
                               int64_t ranks, vt_members *members)
{
    vt_status status = VT_OK;
    VT_CHECK(name == NULL || list == NULL, "CHECKPOINT %s and --checkpoints=%s: give one of the two", name, list);
    VT_TRY(list == NULL ? take_first(name, flag_count, flags, ranks, members)
                        : take_list(list, flag_count, flags, ranks, members));
    VT_TRY(vt_forecaster_has_noise(members->checkpoints[0], members->config, &members->noisy));
    const int64_t checkpoints = members->checkpoint_count;
    members->count = list != NULL && count == 0 ? checkpoints : count;
    VT_CHECK(members->count % checkpoints == 0,
             "--members=%lld: %lld checkpoints can't have as many members each; use a multiple of %lld, or leave "
             "--members out",
             (long long)count, (long long)checkpoints, (long long)checkpoints);
    VT_CHECK(
        members->count <= checkpoints || members->noisy || members->config->input_noise > 0,
        "--members=%lld: the members of a checkpoint differ by noise on their initial state, but input_noise is 0; "
        "set --input_noise=S (in standard deviations of the fields' change over dt, such as 0.1), name several "
        "--checkpoints=A,B,C, or train a model on loss crps, which makes its own noise",
        (long long)count);
done:
    return status;
}

void vt_members_close(vt_members *members)
{
    vt_config_close(&members->config);
    vt_text_free_list(members->checkpoints, members->checkpoint_count);
    *members = (vt_members){0};
}

vt_status vt_members_open(const vt_members *members, vt_world *world, vt_dataset *dataset, const vt_fields_about *about,
                          vt_forecaster **forecaster)
{
    vt_status status = VT_OK;
    char *const *checkpoints = members->checkpoints;
    VT_TRY(vt_forecaster_open(members->config, checkpoints[0], world, dataset, about, forecaster));
    for (int64_t i = 1; i < members->checkpoint_count; i++) VT_TRY(vt_forecaster_add(*forecaster, checkpoints[i]));
done:
    return status;
}

/* ---- the members ---- */

int64_t vt_members_number(const vt_members *members)
{
    return members->count > 0 ? members->count : 1;
}

int64_t vt_members_of_each(const vt_members *members)
{
    return vt_members_number(members) / members->checkpoint_count;
}

bool vt_members_perturbs(const vt_members *members, int64_t member)
{
    if (members->noisy) return members->config->origin[VT_OPTION_input_noise] == VT_FROM_COMMAND_LINE;
    return member % vt_members_of_each(members) > 0;
}

char *vt_members_describe(const vt_members *members)
{
    vt_text text = {0};
    char number[VT_NUMBER_SIZE];
    const int64_t checkpoints = members->checkpoint_count;
    int64_t perturbed = 0;
    for (int64_t m = 0; m < vt_members_number(members); m++) perturbed += vt_members_perturbs(members, m);
    vt_text_append(&text, "%lld member%s", (long long)members->count, members->count == 1 ? "" : "s");
    if (checkpoints > 1) vt_text_append(&text, ", of %lld checkpoints", (long long)checkpoints);
    if (members->noisy) vt_text_append(&text, ", by the model's noise");
    if (perturbed > 0)
        vt_text_append(&text, ", %lld with input_noise %s on the initial state", (long long)perturbed,
                       vt_text_double(members->config->input_noise, number));
    return text.characters;
}
