/* Options `transform` and `bounds`: formulas, inverses, what is refused, and frames that are read. */
#include "task/weather/transforms.h"

#include "settings.h"
#include "test.h"

static const char *const names[] = {"t2m", "tp", "q850"};
enum { CHANNELS = 3 };

static vt_transform *parsed(const char *transform, const char *bounds)
{
    vt_transform *transforms = NULL;
    EXPECT_OK(vt_transforms_parse(transform, bounds, names, CHANNELS, &transforms));
    return transforms != NULL ? vt_test_owned(transforms) : NULL;
}

TEST(transforms_and_their_inverses)
{
    char text[VT_TRANSFORM_SIZE];
    vt_transform *t = parsed("[tp=log1p(1e-5), q@850=sqrt]", NULL);
    const float given[CHANNELS][6] = {{250, -3, 0, 1e-5f, NAN, 2e30f},
                                      {0, -1e-9f, 1e-5f, 0.02f, NAN, 2e30f},
                                      {0, -1e-9f, 1e-4f, 0.25f, NAN, -INFINITY}};
    const double expected[CHANNELS][4] = {{250, -3, 0, 1e-5}, {0, 0, log(2), log(2001)}, {0, 0, 0.01, 0.5}};
    float fields[CHANNELS][6];
    EXPECT(strcmp(vt_transform_name(&t[0], text), "") == 0 && strcmp(vt_transform_name(&t[2], text), "sqrt") == 0);
    EXPECT_TEXT(vt_transform_name(&t[1], text), "log1p(1e-05)");
    memcpy(fields, given, sizeof fields);
    vt_transforms_apply(t, CHANNELS, 6, fields[0]);
    for (int c = 0; c < CHANNELS; c++) {
        for (int i = 0; i < 4; i++) EXPECT_NEAR(fields[c][i], expected[c][i], 1e-6 * fabs(expected[c][i]) + 1e-11);
        EXPECT(isnan(fields[c][4]) && fields[c][5] == given[c][5]); /* no data, so that it is still found */
    }
    vt_transforms_invert(t, CHANNELS, 4, fields[0]);
    for (int c = 0; c < CHANNELS; c++) memcpy(fields[c], given[c], sizeof fields[c]);
    vt_transforms_apply(t, CHANNELS, 6, fields[0]);
    vt_transforms_invert(t, CHANNELS, 6, fields[0]);
    for (int c = 0; c < CHANNELS; c++)
        for (int i = 0; i < 4; i++) {
            const double back = c > 0 && given[c][i] < 0 ? 0 : (double)given[c][i];
            EXPECT_NEAR(fields[c][i], back, 1e-6 * fabs(back));
        }
    EXPECT(isnan(fields[1][4]));
    t = parsed("[tp=log(1e-3)]", NULL);
    EXPECT_NEAR(vt_transform_value(&t[1], 0.5), log(0.5), 0);
    EXPECT_NEAR(vt_transform_value(&t[1], -1), log(1e-3), 0);
    fields[0][0] = (float)log(0.5);
    vt_transforms_invert(&t[1], 1, 1, fields[0]);
    EXPECT_NEAR(fields[0][0], 0.5, 1e-7);
    EXPECT(parsed(NULL, NULL) == NULL);
    fields[0][0] = 7;
    vt_transforms_apply(NULL, CHANNELS, 6, fields[0]);
    vt_transforms_invert(NULL, CHANNELS, 6, fields[0]);
    EXPECT(fields[0][0] == 7);
}

/* A forecast below what a transform gives goes on falling backwards, unless it has bounds. */
TEST(bounds_hold_backwards)
{
    static const float seen[] = {-2, -0.5f, 0, 0.5f, 3, NAN};
    float free_fields[6], fields[6];
    for (int i = 0; i < 2; i++) {
        const char *transform = i == 0 ? "[tp=sqrt]" : "[tp=log1p(0.5)]";
        vt_transform *t = parsed(transform, NULL), *within = parsed(transform, "[tp=[0, 1.5], t2m=[-inf, 3]]");
        memcpy(free_fields, seen, sizeof seen);
        memcpy(fields, seen, sizeof seen);
        vt_transforms_invert(&t[1], 1, 6, free_fields);
        vt_transforms_invert(&within[1], 1, 6, fields);
        for (int k = 1; k < 5; k++) EXPECT(free_fields[k] > free_fields[k - 1]);
        EXPECT(free_fields[1] < 0 && free_fields[4] > 1.5f);
        for (int k = 0; k < 5; k++) EXPECT_NEAR(fields[k], fmin(fmax(free_fields[k], 0), 1.5), 0);
        EXPECT(isnan(fields[5]));
        EXPECT(within[0].bounds[0] == -INFINITY && within[0].bounds[1] == 3 && within[2].bounds[1] == INFINITY);
        EXPECT(vt_transform_value(&within[1], INFINITY) == INFINITY && vt_transform_value(&within[1], -INFINITY) < -9);
    }
}

static void refused(const char *transform, const char *bounds, const char *part)
{
    vt_transform *transforms = NULL;
    EXPECT_ERROR(vt_transforms_parse(transform, bounds, names, CHANNELS, &transforms), part);
    EXPECT(transforms == NULL);
}

TEST(transforms_that_are_refused)
{
    vt_transform *numbered = NULL;
    refused("[rain=sqrt]", NULL, "transform: there is no channel 'rain'; the data have t2m, tp, q850");
    refused(NULL, "[rain=[0, 1]]", "bounds: there is no channel 'rain'; the data have t2m, tp, q850");
    refused("[tp=sqrt, tp=sqrt]", NULL, "transform: channel 'tp' comes twice");
    refused("[q@850=sqrt, q850=sqrt]", NULL, "comes twice");
    refused(NULL, "[tp=[0, 1], tp=[0, 1]]", "bounds: channel 'tp' comes twice");
    static const char *const bad[] = {"",           "cube",    "log1p",     "log1p()", "log1p(0)",
                                      "log1p(-1)",  "sqrt(2)", "log(x)",    "log1p(1", "log1p(1)x",
                                      "log1p(inf)", "sqrtx",   "log1p(nan)"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(SETTINGS("[tp=%s]", bad[i]), NULL,
                SETTINGS("transform: '%s' of channel 'tp' is none of log1p(e), log(e) and sqrt", bad[i]));
    refused("[tp]", NULL, "transform: 'tp' is not of the form NAME=VALUE");
    refused(NULL, "[0, 1]", "bounds: '0' is not of the form NAME=VALUE");
    static const char *const ranges[] = {"[1, 0]",      "[0, 0]",     "[0]",      "[]",
                                         "[low, high]", "[inf, inf]", "[nan, 1]", "0..1"};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        refused(NULL, SETTINGS("[tp=%s]", ranges[i]), "bounds: channel 'tp' has [");
    EXPECT_OK(vt_transforms_parse("[2=sqrt]", "[0=[-.inf, .inf]]", NULL, CHANNELS, &numbered));
    EXPECT(numbered != NULL && numbered[2].function == VT_TRANSFORM_SQRT);
    free(numbered);
    EXPECT_ERROR(vt_transforms_parse("[3=sqrt]", NULL, NULL, CHANNELS, &numbered),
                 "transform: there is no channel '3'; the data have no names, but the numbers 0 to 2");
    EXPECT_ERROR(vt_transforms_parse("[-1=sqrt]", NULL, NULL, CHANNELS, &numbered), "there is no channel '-1'");
    EXPECT_ERROR(vt_transforms_parse("[tp=sqrt]", NULL, NULL, CHANNELS, &numbered), "there is no channel 'tp'");
}

/* The spellings of YAML and of the command line. */
TEST(transforms_in_a_configuration)
{
    static const char text[] = "x:\n  img_size: [8, 8]\n  transform: {tp: log1p(1e-5), q@850: sqrt}\n"
                               "  bounds:\n    tp: [0, .inf]\n    q@850: [0, 0.1]\n  variables: [tp, q@850]\n";
    static const char nested[] = "x:\n  img_size: [8, 8]\n  transform: {tp: [[1, 2]]}\n";
    vt_config *config = NULL;
    EXPECT_OK(vt_config_open_text(text, "a test", 0, NULL, 1, &config));
    EXPECT_TEXT(config->transform, "[tp=log1p(1e-5), q@850=sqrt]");
    EXPECT_TEXT(config->bounds, "[tp=[0, .inf], q@850=[0, 0.1]]");
    char *saved = vt_test_owned(vt_config_text(config));
    vt_config *again = NULL;
    EXPECT_OK(vt_config_open_text(saved, "a test", 0, NULL, 1, &again));
    EXPECT(strcmp(config->transform, again->transform) == 0 && strcmp(config->bounds, again->bounds) == 0);
    EXPECT_OK(vt_config_set(again, "transform", "None"));
    EXPECT(again->transform == NULL);
    EXPECT_OK(vt_config_set(again, "normalise", "climatology"));
    EXPECT_ERROR(vt_config_resolve(again), "bounds of a departure depend on its place and date");
    vt_config_close(&again);
    vt_config_close(&config);
    EXPECT_ERROR(vt_config_open_text(nested, "a test", 0, NULL, 1, &config), "a test:3:14: transform: found a mapping");
}
