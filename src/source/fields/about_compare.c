/* Do two descriptions of data go together? The table of rules is here; docs/data.md prints it. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "config/config.h"
#include "source/fields/about.h"

/* ---- the rules ---- */

typedef enum {
    IGNORE,
    SAY,
    REFUSE,
    BY_NAME, /* channels are matched by their names; refused where one lacks */
    CHANGES, /* refused where changes are normalised, else said */
    NUMBERS, /* statistics are one number a channel, of any grid */
    KEPT,    /* nothing is compared here: the task uses the checkpoint's, and says if the files differ */
} verdict;

typedef enum {
    CHANNELS,
    SIZE,
    UNITS,
    TRANSFORM,
    GRID,
    CALENDAR,
    STEP,
    OFFSET,
    TIMES,
    NORMALISATION,
    CLIMATOLOGY,
    PROPERTIES
} property;

enum { NEVER = -1 };
#define WORD(enumerator, word) word,
static const char *const difference_words[] = {VT_DIFFERENCES(WORD)};

typedef struct {
    const char *name; /* in the table */
    int accepted_as;  /* a vt_difference; NEVER: it can't be accepted */
    verdict verdicts[VT_FIELDS_USES];
} rule;

static const rule rules[PROPERTIES] = {
    [CHANNELS] = {"names and order of channels",
                  VT_DIFFERENCE_CHANNELS,
                  {REFUSE, REFUSE, BY_NAME, REFUSE, BY_NAME, SAY}},
    [SIZE] = {"size of the grid", NEVER, {REFUSE, REFUSE, NUMBERS, REFUSE, REFUSE, SAY}},
    [UNITS] = {"units, level, cell method", VT_DIFFERENCE_UNITS, {REFUSE, REFUSE, REFUSE, REFUSE, REFUSE, SAY}},
    [TRANSFORM] = {"transform", NEVER, {IGNORE, IGNORE, REFUSE, REFUSE, REFUSE, SAY}},
    [GRID] = {"latitudes, longitudes", VT_DIFFERENCE_GRID, {REFUSE, REFUSE, SAY, REFUSE, REFUSE, SAY}},
    [CALENDAR] = {"calendar", VT_DIFFERENCE_CALENDAR, {REFUSE, SAY, SAY, REFUSE, SAY, IGNORE}},
    [STEP] = {"time step, dt", VT_DIFFERENCE_STEP, {REFUSE, REFUSE, CHANGES, REFUSE, REFUSE, SAY}},
    [OFFSET] = {"when within a step the times are", VT_DIFFERENCE_STEP, {REFUSE, SAY, IGNORE, SAY, SAY, IGNORE}},
    [TIMES] = {"times", NEVER, {SAY, SAY, SAY, IGNORE, SAY, IGNORE}},
    [NORMALISATION] = {"means, standard deviations", NEVER, {IGNORE, IGNORE, IGNORE, KEPT, KEPT, KEPT}},
    [CLIMATOLOGY] = {"climatology", VT_DIFFERENCE_CLIMATOLOGY, {IGNORE, IGNORE, IGNORE, REFUSE, REFUSE, SAY}},
};

char *vt_fields_rules_table(void)
{
    static const char *const uses[VT_FIELDS_USES] = {[VT_FILES_OF_A_SET] = "files of a set",
                                                     [VT_SETS_OF_A_RUN] = "validation, test : training",
                                                     [VT_STATISTICS_AND_DATA] = "statistics : data",
                                                     [VT_RESUMED_AND_DATA] = "`--resume` : data",
                                                     [VT_FORECAST_AND_DATA] = "`evaluate`, `predict` : data",
                                                     [VT_INITIAL_AND_DATA] = "`--init_from` : data"};
    static const char *const words[] = {[IGNORE] = "–",
                                        [SAY] = "say",
                                        [REFUSE] = "refuse",
                                        [BY_NAME] = "match by name, else refuse",
                                        [CHANGES] = "refuse if changes are normalised, else say",
                                        [NUMBERS] = "–",
                                        [KEPT] = "use the checkpoint's, say if the files differ"};
    vt_text text = {0};
    vt_text_append(&text, "| property | `accept` |");
    for (int use = 0; use < VT_FIELDS_USES; use++) vt_text_append(&text, " %s |", uses[use]);
    vt_text_append(&text, "\n|---|---|");
    for (int use = 0; use < VT_FIELDS_USES; use++) vt_text_append(&text, "---|");
    for (int p = 0; p < PROPERTIES; p++) {
        vt_text_append(&text, "\n| %s | %s |", rules[p].name,
                       rules[p].accepted_as >= 0 ? difference_words[rules[p].accepted_as] : "");
        for (int use = 0; use < VT_FIELDS_USES; use++) vt_text_append(&text, " %s |", words[rules[p].verdicts[use]]);
    }
    vt_text_append(&text, "\n");
    return text.characters;
}

/* ---- differences ---- */

/* What a comparison finds: a clause for each property that differs, and the names of those that one side alone has. */
typedef struct {
    const vt_fields_side *data, *other;
    bool trains, any_transform;
    char *different[PROPERTIES];
    bool other_count;   /* their numbers of channels differ, which can't be accepted */
    vt_text unknown[2]; /* what the data don't say, what the other side doesn't */
} finding;

static void note_unknown(finding *found, bool by_data, const char *what)
{
    vt_text *text = &found->unknown[by_data ? 0 : 1];
    vt_text_append(text, "%s%s", text->length > 0 ? ", " : "", what);
}

/* Are both sides known? If one alone is, that is noted. */
static bool both_known(finding *found, bool data, bool other, const char *what)
{
    if (data != other) note_unknown(found, !data, what);
    return data && other;
}

int64_t *vt_fields_order(const vt_fields_about *data, const vt_fields_about *other)
{
    if (data->names == NULL || other->names == NULL) return NULL;
    int64_t *order = vt_allocate((size_t)data->channels + 1, sizeof *order, "the order of channels");
    for (int64_t c = 0; c < data->channels; c++) {
        int64_t place = 0;
        while (place < other->channels && strcmp(data->names[c], other->names[place]) != 0) place++;
        order[c] = place;
        if (place < other->channels) continue;
        free(order);
        return NULL;
    }
    return order;
}

/* "channel 1 (z)" */
static const char *channel_text(const vt_fields_about *about, int64_t channel, char text[96])
{
    const char *name = about->names != NULL ? about->names[channel] : "";
    snprintf(text, 96, name[0] != '\0' ? "channel %ld (%.60s)" : "channel %ld", channel, name);
    return text;
}

/* Statistics may have more channels than are used. *order: where the other side has the channels
 * if not at the same places. */
static void compare_names(finding *found, vt_fields_use use, int64_t **order)
{
    const vt_fields_about *data = found->data->about, *other = found->other->about;
    char **difference = &found->different[CHANNELS];
    *order = NULL;
    if (data->channels == 0 || other->channels == 0) return;
    const bool may_have_more = use == VT_STATISTICS_AND_DATA;
    if (data->channels != other->channels && !(may_have_more && data->channels < other->channels)) {
        *difference = vt_text_format("%s has %ld channels, %s %ld", found->data->name, data->channels,
                                     found->other->name, other->channels);
        found->other_count = true;
        return;
    }
    if (!both_known(found, data->names != NULL, other->names != NULL, "names of channels")) return;
    for (int64_t c = 0; c < data->channels && *difference == NULL; c++)
        if (data->names[c][0] != '\0' && other->names[c][0] != '\0' && strcmp(data->names[c], other->names[c]) != 0)
            *difference = vt_text_format("channel %ld is '%s' in %s, but '%s' in %s", c, data->names[c],
                                         found->data->name, other->names[c], found->other->name);
    if (*difference != NULL && rules[CHANNELS].verdicts[use] == BY_NAME) *order = vt_fields_order(data, other);
}

static bool levels_agree(const vt_channel_meaning *one, const vt_channel_meaning *other)
{
    if (!one->has_level || !other->has_level) return true;
    const bool units = one->level_units[0] == '\0' || other->level_units[0] == '\0' ||
                       vt_units_agree(one->level_units, other->level_units);
    return units && fabs(one->level - other->level) <= 1e-4 * fabs(one->level);
}

static void compare_units(finding *found, const int64_t *order)
{
    const vt_fields_about *data = found->data->about, *other = found->other->about;
    char **difference = &found->different[UNITS], channel[96];
    const int64_t count = data->channels < other->channels ? data->channels : other->channels;
    bool lacks[2] = {false, false};
    for (int64_t c = 0; c < count && *difference == NULL; c++) {
        const vt_channel_meaning *a = vt_fields_about_meaning(data, c);
        const vt_channel_meaning *b = vt_fields_about_meaning(other, order != NULL ? order[c] : c);
        const bool known[2] = {a->units[0] != '\0', b->units[0] != '\0'};
        lacks[0] = lacks[0] || (!known[0] && known[1]);
        lacks[1] = lacks[1] || (known[0] && !known[1]);
        channel_text(data, c, channel);
        if (known[0] && known[1] && !vt_units_agree(a->units, b->units))
            *difference = vt_text_format("%s is in '%s' in %s, but in '%s' in %s", channel, a->units, found->data->name,
                                         b->units, found->other->name);
        else if (!levels_agree(a, b))
            *difference =
                vt_text_format("%s is at level %g %s in %s, but at %g %s in %s", channel, a->level, a->level_units,
                               found->data->name, b->level, b->level_units, found->other->name);
        else if (a->cell_methods[0] != '\0' && b->cell_methods[0] != '\0' &&
                 strcmp(a->cell_methods, b->cell_methods) != 0)
            *difference = vt_text_format("%s has the cell method '%s' in %s, but '%s' in %s", channel, a->cell_methods,
                                         found->data->name, b->cell_methods, found->other->name);
    }
    for (int k = 0; k < 2; k++)
        if (lacks[k]) note_unknown(found, k == 0, "units");
}

static void compare_transforms(finding *found, const int64_t *order)
{
    const vt_fields_about *data = found->data->about, *other = found->other->about;
    char **difference = &found->different[TRANSFORM], channel[96];
    const int64_t count = data->channels < other->channels ? data->channels : other->channels;
    for (int64_t c = 0; c < count && *difference == NULL && !found->any_transform; c++) {
        const char *own = vt_fields_about_meaning(data, c)->transform;
        const char *others = vt_fields_about_meaning(other, order != NULL ? order[c] : c)->transform;
        if (strcmp(own, others) == 0) continue;
        *difference = vt_text_format("the transform of %s is %s in %s, but %s in %s", channel_text(data, c, channel),
                                     own[0] != '\0' ? own : "none", found->data->name,
                                     others[0] != '\0' ? others : "none", found->other->name);
    }
}

/* Notes the first latitude or longitude that differs, unless a difference of the grids has been noted before. Two are
 * equal if they are at most a thousandth of the spacing apart, or as much as float32 rounds 360 degrees by. */
static void compare_coordinates(finding *found, bool longitudes)
{
    const vt_frame_window *window = &found->data->about->window;
    const int64_t count = longitudes ? window->width : window->rows;
    const char *what = longitudes ? "longitude" : "latitude";
    double *own = vt_fields_about_coordinates(found->data->about, longitudes);
    double *others = vt_fields_about_coordinates(found->other->about, longitudes);
    VT_ASSERT(own != NULL && others != NULL);
    const double spacing = count > 1 ? fabs(own[1] - own[0]) : 1;
    const double tolerance = fmax(1e-3 * spacing, 360 * (double)FLT_EPSILON);
    for (int64_t i = 0; i < count && found->different[GRID] == NULL; i++) {
        const double apart = own[i] - others[i];
        if (fabs(longitudes ? remainder(apart, 360) : apart) <= tolerance) continue;
        if (own[0] == others[0] && own[count - 1] == others[count - 1])
            found->different[GRID] = vt_text_format("%s %ld is %g degrees in %s, but %g in %s", what, i, own[i],
                                                    found->data->name, others[i], found->other->name);
        else
            found->different[GRID] = vt_text_format(
                "%ss differ: those of %s go from %g to %g, those of %s from %g to %g", what, found->data->name, own[0],
                own[count - 1], found->other->name, others[0], others[count - 1]);
    }
    free(own);
    free(others);
}

/* Where both say where their windows lie, the grids around these don't matter. */
static void compare_grids(finding *found)
{
    const vt_fields_about *data = found->data->about, *other = found->other->about;
    const vt_frame_window *a = &data->window, *b = &other->window;
    const bool same_window = a->rows == b->rows && a->width == b->width;
    const bool rows = both_known(found, data->latitudes != NULL, other->latitudes != NULL, "latitudes");
    const bool columns = both_known(found, data->longitudes != NULL, other->longitudes != NULL, "longitudes");
    if (a->rows == 0 || b->rows == 0) return;
    if (same_window && rows) compare_coordinates(found, false);
    if (same_window && columns) compare_coordinates(found, true);
    const bool whole =
        a->rows == data->rows && a->width == data->columns && b->rows == other->rows && b->width == other->columns;
    if (!same_window || (!(rows && columns) && (data->rows != other->rows || data->columns != other->columns))) {
        const bool of_windows = !same_window && !whole;
        found->different[SIZE] = vt_text_format(
            "%s has a %s of [%ld, %ld], %s one of [%ld, %ld]", found->data->name, of_windows ? "window" : "grid",
            of_windows ? a->rows : data->rows, of_windows ? a->width : data->columns, found->other->name,
            of_windows ? b->rows : other->rows, of_windows ? b->width : other->columns);
    }
    const vt_fields_side *turned = data->turned ? found->data : found->other;
    const vt_fields_side *unplaced = data->turned ? found->other : found->data;
    if (found->different[GRID] == NULL && turned->about->turned && unplaced->about->unplaced)
        found->different[GRID] = vt_text_format(
            "the rows of %s run from south to north, by its latitudes, but %s says no latitudes, so its rows can't be "
            "matched; write them into all files, or name them by --coordinates=[lat=NAME]",
            turned->name, unplaced->name);
}

/* Standard and proleptic calendars differ only before they begin to agree. */
static bool calendars_agree(const vt_fields_about *one, const vt_fields_about *other)
{
    const vt_fields_about *const both[2] = {one, other};
    if (one->calendar == other->calendar) return true;
    for (int i = 0; i < 2; i++) {
        vt_date begin;
        const vt_calendar calendar = both[i]->calendar;
        if (calendar > VT_CALENDAR_PROLEPTIC || both[i]->span_count == 0) return false;
        if (!vt_date_make(calendar, 1582, 10, 15, &begin) || both[i]->spans[0].first.minutes < begin.minutes)
            return false;
    }
    return true;
}

/* The minutes of a step that have passed at its times; of months: at their beginning, middle or end. */
static int64_t offset_of(const vt_fields_about *about)
{
    const vt_date first = about->spans[0].first;
    int64_t day = 0;
    if (about->step < VT_A_MONTH) return first.minutes % about->step;
    vt_date_month(first, &day);
    return day <= 10 ? 0 : day <= 20 ? 1 : 2;
}

static void compare_times(finding *found, vt_fields_use use)
{
    const vt_fields_about *data = found->data->about, *other = found->other->about;
    char steps[2][VT_DATE_SIZE], dates[2][VT_DATE_SIZE];
    const bool of_changes = use == VT_STATISTICS_AND_DATA && data->dt > 0 && other->dt > 0;
    const int64_t factors[2] = {of_changes ? data->dt : 1, of_changes ? other->dt : 1};
    if (both_known(found, data->dated, other->dated, "calendar") && !calendars_agree(data, other))
        found->different[CALENDAR] =
            vt_text_format("the calendar of %s is %s, that of %s %s", found->data->name,
                           vt_calendar_name(data->calendar), found->other->name, vt_calendar_name(other->calendar));
    /* sets of a run have samples alike: where nothing says their step, 6 hours are assumed of them */
    const int64_t assumed = use == VT_SETS_OF_A_RUN ? 60 * VT_HOURS_A_TIME : 0;
    const int64_t lengths[2] = {data->step > 0 ? data->step : assumed, other->step > 0 ? other->step : assumed};
    if (!both_known(found, lengths[0] > 0, lengths[1] > 0, "time step")) {
        if (factors[0] != factors[1])
            found->different[STEP] = vt_text_format("dt is %ld times in %s, but %ld in %s", factors[0],
                                                    found->data->name, factors[1], found->other->name);
        return;
    }
    if (lengths[0] * factors[0] != lengths[1] * factors[1])
        found->different[STEP] = vt_text_format(
            of_changes ? "changes are over %s in %s, but over %s in %s%s" : "times are %s apart in %s, but %s in %s%s",
            vt_length_format(lengths[0] * factors[0], steps[0]), found->data->name,
            vt_length_format(lengths[1] * factors[1], steps[1]), found->other->name,
            data->step == 0 || other->step == 0 ? " (6 h are assumed where nothing says it, as --time_step=1h would)"
                                                : "");
    else if (data->step > 0 && data->step == other->step && data->span_count > 0 && other->span_count > 0 &&
             offset_of(data) != offset_of(other))
        found->different[OFFSET] =
            vt_text_format("the times of %s begin at %s, those of %s at %s: not a whole number of steps apart",
                           found->data->name, vt_date_format(data->spans[0].first, dates[0]), found->other->name,
                           vt_date_format(other->spans[0].first, dates[1]));
}

bool vt_fields_share_times(const vt_fields_about *one, const vt_fields_about *other, vt_time_span *shared)
{
    if (one->calendar != other->calendar || one->span_count == 0 || other->span_count == 0) return false;
    if (one->step > 0 && one->step == other->step && offset_of(one) != offset_of(other)) return false;
    for (int64_t i = 0; i < one->span_count; i++)
        for (int64_t j = 0; j < other->span_count; j++) {
            const vt_time_span *a = &one->spans[i], *b = &other->spans[j];
            *shared = (vt_time_span){a->first.minutes > b->first.minutes ? a->first : b->first,
                                     a->last.minutes < b->last.minutes ? a->last : b->last};
            if (shared->first.minutes <= shared->last.minutes) return true;
        }
    return false;
}

/* Statistics should be of all times that are trained on, and forecasts of none of them. */
static void compare_spans(finding *found, vt_fields_use use)
{
    const vt_fields_about *data = found->data->about, *other = found->other->about;
    vt_time_span shared;
    char dates[4][VT_DATE_SIZE];
    if (data->span_count == 0 || other->span_count == 0 || data->calendar != other->calendar) return;
    const vt_time_span own = {data->spans[0].first, data->spans[data->span_count - 1].last};
    const vt_time_span others = {other->spans[0].first, other->spans[other->span_count - 1].last};
    const bool covers = others.first.minutes <= own.first.minutes && own.last.minutes <= others.last.minutes;
    const bool of_statistics = use == VT_STATISTICS_AND_DATA;
    if (use == VT_FILES_OF_A_SET || use == VT_SETS_OF_A_RUN) return; /* the set says more of these */
    if (of_statistics && !found->trains) return;
    if (of_statistics ? covers : !vt_fields_share_times(data, other, &shared)) return;
    found->different[TIMES] = vt_text_format(
        of_statistics ? "the times of %s, %s to %s, are not all in %s, which is of %s to %s"
                      : "the times of %s, %s to %s, and those that %s was trained on, %s to %s, overlap: scores on "
                        "these look better than forecasts are",
        found->data->name, vt_date_format(own.first, dates[0]), vt_date_format(own.last, dates[1]), found->other->name,
        vt_date_format(others.first, dates[2]), vt_date_format(others.last, dates[3]));
}

/* By its checksum; that of an older program by the deviations of what it leaves. */
static void compare_climatologies(finding *found)
{
    const vt_fields_about *data = found->data->about, *other = found->other->about;
    const vt_fields_normalisation *a = &data->normalisation, *b = &other->normalisation;
    const int64_t checksums[2] = {a->checksums[VT_FILE_OF_CLIMATOLOGY], b->checksums[VT_FILE_OF_CLIMATOLOGY]};
    char channel[96];
    if (!a->of_departures || !b->of_departures || a->stds == NULL || b->stds == NULL) return;
    if (checksums[0] >= 0 && checksums[0] == checksums[1]) return;
    for (int64_t c = 0; c < data->channels && c < other->channels && found->different[CLIMATOLOGY] == NULL; c++)
        if (!(fabs(a->stds[c] - b->stds[c]) <= 1e-4 * b->stds[c]))
            found->different[CLIMATOLOGY] = vt_text_format(
                "%s has another climatology than %s: the standard deviation of departures in %s is %g, not %g",
                found->data->name, found->other->name, channel_text(data, c, channel), a->stds[c], b->stds[c]);
    if (checksums[0] >= 0 && checksums[1] >= 0 && found->different[CLIMATOLOGY] == NULL)
        found->different[CLIMATOLOGY] =
            vt_text_format("%s has another climatology than %s: its checksum is %08x, not %08x", found->data->name,
                           found->other->name, (unsigned)checksums[0], (unsigned)checksums[1]);
}

static void find_differences(finding *found, vt_fields_use use)
{
    int64_t *order = NULL;
    compare_names(found, use, &order);
    if (found->different[CHANNELS] == NULL || order != NULL) {
        compare_units(found, order);
        compare_transforms(found, order);
    }
    if (use == VT_STATISTICS_AND_DATA && order != NULL) {
        free(found->different[CHANNELS]);
        found->different[CHANNELS] = NULL;
    }
    free(order);
    compare_grids(found);
    compare_times(found, use);
    compare_spans(found, use);
    compare_climatologies(found);
}

static void close_finding(finding *found)
{
    for (int p = 0; p < PROPERTIES; p++) free(found->different[p]);
    for (int k = 0; k < 2; k++) vt_text_close(&found->unknown[k]);
}

/* ---- what follows ---- */

static bool is_accepted(const char *accepted, const char *word)
{
    size_t length;
    const char *next;
    while (accepted != NULL && (next = vt_text_next_word(&accepted, &length)) != NULL)
        if (strlen(word) == length && strncmp(next, word, length) == 0) return true;
    return false;
}

static void remark(vt_text *remarks, const char *format, const char *text)
{
    if (remarks->length > 0) vt_text_append(remarks, "\n");
    vt_text_append(remarks, format, text);
}

vt_status vt_fields_compare(const vt_fields_rules *wanted, const vt_fields_side *data, const vt_fields_side *other,
                            vt_text *remarks)
{
    vt_status status = VT_OK;
    finding found = {.data = data, .other = other, .trains = wanted->trains, .any_transform = wanted->any_transform};
    find_differences(&found, wanted->use);
    for (int p = 0; p < PROPERTIES; p++) {
        const rule *own = &rules[p];
        verdict what = own->verdicts[wanted->use];
        if (found.different[p] == NULL || what == IGNORE || what == NUMBERS || what == KEPT) continue;
        if (what == CHANGES) what = wanted->changes_matter ? REFUSE : SAY;
        if (what == SAY) {
            remark(remarks, "%s", found.different[p]);
            continue;
        }
        const bool of_one_set = wanted->use == VT_FILES_OF_A_SET && (p == STEP || p == CALENDAR); /* a set has one */
        const char *word = own->accepted_as >= 0 && !(p == CHANNELS && found.other_count) && !of_one_set
                               ? difference_words[own->accepted_as]
                               : NULL;
        VT_CHECK(p != TRANSFORM, "%s; %s", found.different[p],
                 wanted->use == VT_STATISTICS_AND_DATA
                     ? "make statistics again by `vitrain stats` with --transform as the "
                       "run has it"
                     : "--transform must be that of the training");
        VT_CHECK(word != NULL, "%s; they can't be used together", found.different[p]);
        VT_CHECK(is_accepted(wanted->accepted, word), "%s; --accept=%s goes on all the same", found.different[p], word);
        remark(remarks, "!accepted: %s", found.different[p]);
    }
    for (int k = 0; k < 2; k++) {
        if (found.unknown[k].length == 0) continue;
        char *sentence =
            vt_text_format("%s doesn't say its %s, so these are taken to be those of %s", (k == 0 ? data : other)->name,
                           found.unknown[k].characters, (k == 0 ? other : data)->name);
        remark(remarks, "%s", sentence);
        free(sentence);
    }
done:
    close_finding(&found);
    return status;
}

char *vt_fields_differences(const vt_fields_side *one, const vt_fields_side *other)
{
    finding found = {.data = one, .other = other};
    vt_text text = {0};
    vt_text_append(&text, "%s", "");
    find_differences(&found, VT_FILES_OF_A_SET);
    for (int p = 0; p < PROPERTIES; p++)
        if (found.different[p] != NULL) vt_text_append(&text, "%s\n", found.different[p]);
    for (int k = 0; k < 2; k++)
        if (found.unknown[k].length > 0)
            vt_text_append(&text, "%s doesn't say its %s\n", (k == 0 ? one : other)->name, found.unknown[k].characters);
    close_finding(&found);
    return text.characters;
}

bool vt_fields_same_channels(const vt_fields_about *one, const vt_fields_about *other)
{
    const vt_fields_side sides[2] = {{one, ""}, {other, ""}};
    finding found = {.data = &sides[0], .other = &sides[1]};
    find_differences(&found, VT_RESUMED_AND_DATA);
    const bool same = found.different[CHANNELS] == NULL && found.different[UNITS] == NULL;
    close_finding(&found);
    return same;
}

vt_status vt_fields_agree(const vt_fields_rules *wanted, const vt_fields_side *data, const vt_fields_side *other)
{
    vt_text remarks = {0};
    const vt_status status = vt_fields_compare(wanted, data, other, &remarks);
    if (status == VT_OK) vt_log_lines(remarks.characters);
    vt_text_close(&remarks);
    return status;
}
