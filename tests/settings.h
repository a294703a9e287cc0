/* The options of a test's configuration as one text. */
#ifndef VT_TESTS_SETTINGS_H
#define VT_TESTS_SETTINGS_H

#include "base/text.h"
#include "config/config.h"
#include "test.h"

/* Such a text, valid until the test ends. */
#define SETTINGS(...) ((const char *)vt_test_owned(vt_text_format(__VA_ARGS__)))

static inline vt_config *default_config(void)
{
    vt_config *config = NULL;
    EXPECT_OK(vt_config_open_default(&config));
    VT_ASSERT(config != NULL);
    return config;
}

/* settings: "img_size=[20,12] patch_size=4" */
static inline void set_options(vt_config *config, const char *settings)
{
    char *text = vt_test_owned(vt_text_copy(settings)), *rest = NULL;
    for (char *name = strtok_r(text, " ", &rest); name != NULL; name = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(name, '=');
        VT_ASSERT(value != NULL);
        *value = '\0';
        EXPECT_OK(vt_config_set(config, name, value + 1));
    }
}

/* The default configuration of `ranks` ranks with these settings, and with these besides, resolved. */
static inline vt_config *config_with(int64_t ranks, const char *settings, const char *more)
{
    vt_config *config = default_config();
    config->ranks = ranks;
    set_options(config, settings);
    set_options(config, more);
    EXPECT_OK(vt_config_resolve(config));
    return config;
}

#endif
