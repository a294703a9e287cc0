/* What the tests of src/config share: a configuration from a YAML text and flags, and its printed values. */
#ifndef VT_TESTS_CONFIG_OPEN_H
#define VT_TESTS_CONFIG_OPEN_H

#include "base/text.h"
#include "config/config.h"
#include "test.h"

/* "c.yaml" with these bytes, in the test's directory; its path. */
static inline const char *write_bytes(const void *bytes, size_t count)
{
    return test_write("c.yaml", bytes, count);
}

static inline const char *write_yaml(const char *text)
{
    return write_bytes(text, strlen(text));
}

/* The configuration of `yaml` with these flags; NULL ends the list. NULL for yaml: an empty configuration "base". */
static inline vt_status open_on_ranks(int64_t ranks, const char *yaml, vt_config **config, const char *const *flags)
{
    char *arguments[16];
    int count = 0;
    arguments[count++] = vt_text_format("--yaml_config=%s", write_yaml(yaml != NULL ? yaml : "base: {}\n"));
    for (; flags[count - 1] != NULL; count++) arguments[count] = vt_text_copy(flags[count - 1]);
    vt_status status = vt_config_open(count, arguments, ranks, config);
    for (int i = 0; i < count; i++) free(arguments[i]);
    return status;
}

/* The same, which must open. */
static inline vt_config *opened_on_ranks(int64_t ranks, const char *yaml, const char *const *flags)
{
    vt_config *config = NULL;
    EXPECT_OK(open_on_ranks(ranks, yaml, &config, flags));
    VT_ASSERT(config != NULL);
    return config;
}
#define OPENED_ON(ranks, ...) opened_on_ranks(ranks, NULL, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})
#define OPENED(yaml, ...) opened_on_ranks(1, yaml, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static inline vt_status open_with(const char *yaml, vt_config **config, const char *const *flags)
{
    return open_on_ranks(1, yaml, config, flags);
}
#define OPEN_ON(ranks, config, ...)                                                                                    \
    open_on_ranks(ranks, NULL, config, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})
#define OPEN(yaml, config, ...) open_with(yaml, config, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

#define EXPECT_VALUE(config, key, text)                                                                                \
    do {                                                                                                               \
        char *value_ = vt_config_value_text(config, key);                                                              \
        EXPECT(strcmp(value_, text) == 0, "%s is %s, expected %s", key, value_, text);                                 \
        free(value_);                                                                                                  \
    } while (0)

/* Opening must fail with a message that contains `part`. */
#define EXPECT_REFUSED(yaml, part, ...)                                                                                \
    do {                                                                                                               \
        vt_config *refused_ = NULL;                                                                                    \
        EXPECT_ERROR(OPEN(yaml, &refused_, __VA_ARGS__), part);                                                        \
        EXPECT(refused_ == NULL);                                                                                      \
        vt_config_close(&refused_);                                                                                    \
    } while (0)

/* Opening must succeed, and the option must have this value. */
#define EXPECT_GIVES(yaml, key, text, ...)                                                                             \
    do {                                                                                                               \
        vt_config *given_ = NULL;                                                                                      \
        EXPECT_OK(OPEN(yaml, &given_, __VA_ARGS__));                                                                   \
        if (given_ != NULL) EXPECT_VALUE(given_, key, text);                                                           \
        vt_config_close(&given_);                                                                                      \
    } while (0)

#endif
