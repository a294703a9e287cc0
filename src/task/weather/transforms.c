#include "task/weather/transforms.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/largest_value.h"
#include "base/memory.h"
#include "base/text.h"

static const char *const functions[] = {"", "log1p", "log", "sqrt", NULL};

/* ---- the options ---- */

enum { WORD = 128 };

/* The next word of a list, copied; false after the last one. */
static bool next_word(const char **rest, char word[WORD])
{
    size_t length;
    const char *next = vt_text_next_word(rest, &length);
    if (next != NULL) snprintf(word, WORD, "%.*s", (int)(length < WORD ? length : WORD - 1), next);
    return next != NULL;
}

/* "log1p(1e-5)" */
static bool parse_function(char *text, vt_transform *transform)
{
    const size_t length = strcspn(text, "("), end = strlen(text) - 1;
    const int place = vt_text_place(text, length, functions);
    transform->function = (vt_transform_function)(place > 0 ? place : 0);
    if (place <= 0 || transform->function == VT_TRANSFORM_SQRT) return place > 0 && text[length] == '\0';
    if (text[length] != '(' || text[end] != ')') return false;
    text[end] = '\0';
    const bool good = vt_text_to_double(text + length + 1, &transform->e) && transform->e > 0;
    text[end] = ')';
    return good;
}

/* A number, or infinity as Python or YAML writes it. */
static bool parse_bound(const char *text, double *value)
{
    static const char *const infinities[] = {"inf", ".inf", "-inf", "-.inf", NULL};
    const int place = vt_text_place(text, strlen(text), infinities);
    if (place >= 0) *value = place < 2 ? INFINITY : -INFINITY;
    return place >= 0 || vt_text_to_double(text, value);
}

/* What the list says behind the name of a channel: "log1p(1e-5)", or as the next two words its bounds. */
static vt_status parse_value(bool are_bounds, const char *name, char *value, const char **rest, vt_transform *transform)
{
    vt_status status = VT_OK;
    char low[WORD] = "", high[WORD] = "";
    double *bounds = transform->bounds;
    VT_CHECK(transform->function == VT_TRANSFORM_NONE || are_bounds, "transform: channel '%s' comes twice", name);
    VT_CHECK(isinf(bounds[0]) || !are_bounds, "bounds: channel '%s' comes twice", name);
    VT_CHECK(are_bounds || parse_function(value, transform),
             "transform: '%s' of channel '%s' is none of log1p(e), log(e) and sqrt, with a number e above 0", value,
             name);
    if (!are_bounds) goto done;
    VT_CHECK(value[0] == '\0' && next_word(rest, low) && parse_bound(low, &bounds[0]) && next_word(rest, high) &&
                 parse_bound(high, &bounds[1]) && bounds[0] < bounds[1],
             "bounds: channel '%s' has [%s, %s], expected [LOW, HIGH] with LOW below HIGH, of which one may be -inf or "
             "inf",
             name, low, high);
done:
    return status;
}

/* The channel of this name, "q850" by itself or as "q@850". */
static vt_status find_channel(const char *option, const char *name, const char *const *names, int64_t channels,
                              int64_t *channel)
{
    vt_status status = VT_OK;
    vt_text there = {0};
    char *plain = vt_text_copy(name), *at = strchr(plain, '@');
    if (at != NULL) memmove(at, at + 1, strlen(at));
    *channel = -1;
    if (names == NULL && (!vt_text_to_integer(name, channel) || *channel >= channels)) *channel = -1;
    if (names == NULL) vt_text_append(&there, "no names, but the numbers 0 to %ld", channels - 1);
    for (int64_t c = 0; c < channels && names != NULL; c++) {
        if (strcmp(names[c], name) == 0 || strcmp(names[c], plain) == 0) *channel = c;
        vt_text_append(&there, "%s%s", c > 0 ? ", " : "", names[c]);
    }
    VT_CHECK(*channel >= 0, "%s: there is no channel '%s'; the data have %s", option, name, there.characters);
done:
    vt_text_close(&there);
    free(plain);
    return status;
}

vt_status vt_transforms_parse(const char *transform, const char *bounds, const char *const *names, int64_t channels,
                              vt_transform **transforms)
{
    static const char *const options[] = {"transform", "bounds"};
    vt_status status = VT_OK;
    const char *lists[] = {transform, bounds};
    char word[WORD];
    int64_t channel;
    *transforms = NULL;
    if (transform == NULL && bounds == NULL) return VT_OK;
    *transforms = vt_allocate((size_t)channels + 1, sizeof **transforms, "the channels");
    for (int64_t c = 0; c < channels; c++) (*transforms)[c] = (vt_transform){.bounds = {-INFINITY, INFINITY}};
    for (int i = 0; i < 2; i++)
        while (lists[i] != NULL && next_word(&lists[i], word)) {
            char *value = strchr(word, '=');
            VT_CHECK(value != NULL, "%s: '%s' is not of the form NAME=VALUE; expected a list like %s", options[i], word,
                     i == 0 ? "[tp=log1p(1e-5), q@850=sqrt]" : "[tp=[0, inf]]");
            *value++ = '\0';
            VT_TRY(find_channel(options[i], word, names, channels, &channel));
            VT_TRY(parse_value(i == 1, word, value, &lists[i], &(*transforms)[channel]));
        }
done:
    if (status != VT_OK) free(*transforms);
    if (status != VT_OK) *transforms = NULL;
    return status;
}

const char *vt_transform_name(const vt_transform *transform, char name[VT_TRANSFORM_SIZE])
{
    char number[VT_NUMBER_SIZE];
    const bool has_number = transform->e > 0;
    snprintf(name, VT_TRANSFORM_SIZE, has_number ? "%s(%s)" : "%s", functions[transform->function],
             vt_text_double(transform->e, number));
    return name;
}

/* ---- values ---- */

double vt_transform_value(const vt_transform *transform, double x)
{
    const double e = transform->e, positive = x < 0 ? 0 : x;
    if (isinf(x) || transform->function == VT_TRANSFORM_NONE) return x;
    if (transform->function == VT_TRANSFORM_SQRT) return sqrt(positive);
    return transform->function == VT_TRANSFORM_LOG1P ? log1p(positive / e) : log(x < e ? e : x);
}

static double inverse(const vt_transform *transform, double y)
{
    if (transform->function == VT_TRANSFORM_NONE) return y;
    if (transform->function == VT_TRANSFORM_SQRT) return y * fabs(y);
    return transform->function == VT_TRANSFORM_LOG1P ? transform->e * expm1(y) : exp(y);
}

void vt_transforms_apply(const vt_transform *transforms, int64_t channels, int64_t points, float *fields)
{
    for (int64_t c = 0; c < channels && transforms != NULL; c++) {
        if (transforms[c].function == VT_TRANSFORM_NONE) continue;
        for (float *x = fields + c * points; x < fields + (c + 1) * points; x++)
            if (fabsf(*x) <= VT_LARGEST_VALUE) *x = (float)vt_transform_value(&transforms[c], (double)*x);
    }
}

void vt_transforms_invert(const vt_transform *transforms, int64_t channels, int64_t points, float *fields)
{
    if (transforms == NULL) return;
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < points; i++) {
            const double x = inverse(&transforms[c], (double)fields[c * points + i]);
            const double low = transforms[c].bounds[0], high = transforms[c].bounds[1];
            fields[c * points + i] = (float)(x < low ? low : x > high ? high : x);
        }
}
