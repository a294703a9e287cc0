/* Parameters that a run leaves as they are (option freeze). */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "model/parameters.h"

enum { LONGEST = 256 }; /* bytes of a pattern */

/* The next of "[a, b.[0-7].*]", or of that without the list's brackets; commas in those of a pattern are its own.
 * False: there is none. */
static bool next_pattern(const char **rest, char pattern[LONGEST])
{
    static const char separators[] = ", \t\n'\"";
    int depth = 0;
    size_t length = 0;
    const char *at = *rest + strspn(*rest, separators);
    while (at[length] != '\0' && (depth > 0 || strchr(separators, at[length]) == NULL)) {
        depth += (at[length] == '[') - (at[length] == ']');
        if (depth < 0) break; /* the list's end */
        length++;
    }
    *rest = at + length;
    snprintf(pattern, LONGEST, "%.*s", (int)length, at);
    return length > 0;
}

/* Behind the bracket that opens a list; a pattern may begin with one, too. */
static const char *begin_of(const char *patterns)
{
    return patterns[0] == '[' && vt_text_ends_with(patterns, "]") ? patterns + 1 : patterns;
}

bool vt_parameters_freezes(const char *patterns, const char *name)
{
    char pattern[LONGEST];
    bool freezes = false;
    for (const char *rest = patterns != NULL ? begin_of(patterns) : ""; !freezes && next_pattern(&rest, pattern);)
        freezes = fnmatch(pattern, name, 0) == 0;
    return freezes;
}

static vt_status check_patterns(vt_parameters *parameters, const char *patterns)
{
    vt_status status = VT_OK;
    const int64_t count = parameters->count;
    int64_t trained = 0;
    for (int64_t i = 0; i < count; i++) {
        const vt_parameter *own = parameters->list[i], *before = i > 0 ? parameters->list[i - 1] : own;
        VT_CHECK(
            !own->joined || own->frozen == before->frozen,
            "freeze %.200s: %s is %s, but %s is not; they are computed as one, so freeze q, k and v together, or none",
            patterns, own->name, own->frozen ? "frozen" : "trained", before->name);
        if (!own->frozen && trained++ == 0) parameters->first_trained = own->unit;
        if (own->frozen) parameters->frozen_count += own->whole_count;
    }
    VT_CHECK(trained > 0, "freeze %.200s: all %ld parameters of the model are frozen, so nothing would be trained",
             patterns, count);
done:
    return status;
}

vt_status vt_parameters_freeze(vt_parameters *parameters, const char *patterns)
{
    vt_status status = VT_OK;
    const int64_t count = parameters->count;
    char pattern[LONGEST];
    if (patterns == NULL) return VT_OK;
    for (const char *rest = begin_of(patterns); next_pattern(&rest, pattern);) {
        bool matches = false;
        for (int64_t i = 0; i < count; i++)
            if (fnmatch(pattern, parameters->list[i]->name, 0) == 0) matches = parameters->list[i]->frozen = true;
        VT_CHECK(matches,
                 "freeze: '%.100s' matches no parameter of the model. They have names like %s, %s and %s; a run's "
                 "parameters.csv has all",
                 pattern, parameters->list[0]->name, parameters->list[count / 2]->name,
                 parameters->list[count - 1]->name);
    }
    VT_TRY(check_patterns(parameters, patterns));
done:
    return status;
}
