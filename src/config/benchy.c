#include "config/benchy.h"

#include <stdlib.h>

#include "config/keys.h"

static const char *const sections[VT_BENCHY_TESTS] = {"IO", "synthetic", "full"};

static vt_status take_whole_number(vt_keys *keys, const char *section, const char *key, double least, int64_t *number)
{
    char *path = vt_text_format("%s.%s", section, key);
    double value = (double)*number;
    const vt_status status = vt_keys_whole_number(keys, path, least, &value);
    *number = (int64_t)value;
    free(path);
    return status;
}

static void take_text(vt_keys *keys, const char *path, char **text)
{
    const vt_yaml_node *node = vt_keys_find(keys, path);
    if (node == NULL || node->kind != VT_YAML_SCALAR) return;
    free(*text);
    *text = vt_text_copy(node->text);
}

static vt_status take_test(vt_keys *keys, const char *section, vt_benchy_test *test)
{
    vt_status status = VT_OK;
    char *runs = vt_text_format("%s.run_benchmark", section);
    VT_TRY(vt_keys_truth(keys, runs, &test->runs));
    VT_TRY(take_whole_number(keys, section, "nbatches", 1, &test->batches));
    VT_TRY(take_whole_number(keys, section, "ntrials", 1, &test->trials));
    VT_TRY(take_whole_number(keys, section, "nwarmup", 0, &test->warmups));
done:
    free(runs);
    return status;
}

static vt_status take_global(vt_keys *keys, vt_benchy_settings *settings)
{
    vt_status status = VT_OK;
    bool exits = true, has_barrier = false;
    const vt_yaml_node *mode = vt_keys_find(keys, "global.profiler_mode");
    VT_TRY(take_whole_number(keys, "global", "report_freq", 1, &settings->report_every));
    VT_TRY(vt_keys_truth(keys, "global.exit_after_tests", &exits));
    VT_TRY(vt_keys_truth(keys, "global.use_distributed_barrier", &has_barrier)); /* ranks always begin together */
    settings->trains_on = !exits;
    if (mode != NULL) {
        const int word = mode->kind == VT_YAML_SCALAR ? vt_text_choice(mode->text, VT_BENCHY_PROFILES) : -1;
        if (word < 0) VT_TRY(vt_keys_refuse("global.profiler_mode", mode, VT_BENCHY_PROFILES));
        settings->profile = (vt_benchy_profile)word;
    }
    take_text(keys, "global.output_dir", &settings->directory);
    take_text(keys, "global.output_filename", &settings->file);
done:
    return status;
}

vt_status vt_benchy_settings_open(const char *path, vt_benchy_settings *settings)
{
    vt_status status = VT_OK;
    vt_keys keys = {0};
    *settings = (vt_benchy_settings){.report_every = 10};
    for (int t = 0; t < VT_BENCHY_TESTS; t++) settings->tests[t] = (vt_benchy_test){true, 50, 3, 1};
    if (path == NULL) return VT_OK;
    VT_TRY(vt_keys_open(path, "benchy's sections global, IO, synthetic and full", &keys));
    VT_TRY(take_global(&keys, settings));
    for (int t = 0; t < VT_BENCHY_TESTS; t++) VT_TRY(take_test(&keys, sections[t], &settings->tests[t]));
    for (size_t i = 0; i < keys.count; i++)
        if (!keys.keys[i].known)
            VT_TRY(vt_keys_refuse(
                keys.keys[i].path, keys.keys[i].node,
                "a key of benchy: of global report_freq, exit_after_tests, profiler_mode, output_filename, "
                "output_dir, use_distributed_barrier; of IO, synthetic and full run_benchmark, nbatches, "
                "ntrials, nwarmup"));
done:
    vt_keys_close(&keys);
    return status;
}

void vt_benchy_settings_close(vt_benchy_settings *settings)
{
    free(settings->directory);
    free(settings->file);
    *settings = (vt_benchy_settings){0};
}
