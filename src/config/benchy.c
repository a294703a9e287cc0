#include "config/benchy.h"

#include <stdlib.h>

#include "config/keys.h"

static const char *const sections[VT_BENCHY_TESTS] = {"IO", "synthetic", "full"};

static int64_t whole_number(vt_keys *keys, const char *section, const char *key, double least, int64_t preset)
{
    char *path = vt_text_format("%s.%s", section, key);
    const double value = vt_keys_whole_number(keys, path, least, (double)preset);
    free(path);
    return (int64_t)value;
}

static void take_text(vt_keys *keys, const char *path, char **text)
{
    const vt_yaml_node *node = vt_keys_find(keys, path);
    if (node == NULL || node->kind != VT_YAML_SCALAR) return;
    free(*text);
    *text = vt_text_copy(node->text);
}

static void take_test(vt_keys *keys, const char *section, vt_benchy_test *test)
{
    char *runs = vt_text_format("%s.run_benchmark", section);
    test->runs = vt_keys_truth(keys, runs, test->runs);
    test->batches = whole_number(keys, section, "nbatches", 1, test->batches);
    test->trials = whole_number(keys, section, "ntrials", 1, test->trials);
    test->warmups = whole_number(keys, section, "nwarmup", 0, test->warmups);
    free(runs);
}

static void take_global(vt_keys *keys, vt_benchy_settings *settings)
{
    const vt_yaml_node *mode = vt_keys_find(keys, "global.profiler_mode");
    settings->report_every = whole_number(keys, "global", "report_freq", 1, settings->report_every);
    settings->trains_on = !vt_keys_truth(keys, "global.exit_after_tests", true);
    (void)vt_keys_truth(keys, "global.use_distributed_barrier", false); /* ranks always begin together */
    if (mode != NULL) {
        const int word = mode->kind == VT_YAML_SCALAR ? vt_text_choice(mode->text, VT_BENCHY_PROFILES) : -1;
        if (word < 0)
            vt_keys_refuse(keys, "global.profiler_mode", mode, VT_BENCHY_PROFILES);
        else
            settings->profile = (vt_benchy_profile)word;
    }
    take_text(keys, "global.output_dir", &settings->directory);
    take_text(keys, "global.output_filename", &settings->file);
}

vt_status vt_benchy_settings_open(const char *path, vt_benchy_settings *settings)
{
    vt_status status = VT_OK;
    vt_keys keys = {0};
    *settings = (vt_benchy_settings){.report_every = 10};
    for (int t = 0; t < VT_BENCHY_TESTS; t++) settings->tests[t] = (vt_benchy_test){true, 50, 3, 1};
    if (path == NULL) return VT_OK;
    VT_TRY(vt_keys_open(path, "benchy's sections global, IO, synthetic and full", &keys));
    take_global(&keys, settings);
    for (int t = 0; t < VT_BENCHY_TESTS; t++) take_test(&keys, sections[t], &settings->tests[t]);
    for (size_t i = 0; i < keys.count; i++)
        if (!keys.keys[i].known)
            vt_keys_refuse(&keys, keys.keys[i].path, keys.keys[i].node,
                           "a key of benchy: of global report_freq, exit_after_tests, profiler_mode, output_filename, "
                           "output_dir, use_distributed_barrier; of IO, synthetic and full run_benchmark, nbatches, "
                           "ntrials, nwarmup");
    status = keys.status;
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
