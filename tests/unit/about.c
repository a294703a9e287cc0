/* Descriptions of data: what two of them are compared by, in each use; written and read back; those of another version.
 */
#include "source/fields/about.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "settings.h"
#include "task/weather/calendar.h"
#include "test.h"

enum { CHANNELS = 2, COLUMNS = 6 };

static double *numbers_from(double first, double step, int64_t count)
{
    double *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++) values[i] = first + step * (double)i;
    return values;
}

/* As the data are described, in JSON with ' for ". */
static const char usual[] =
    "{'vitrain_data': 1, 'channels': [{'name': 't2m', 'units': 'K'}, {'name': 'v10', 'units': 'm s-1'}],"
    " 'grid': {'rows': 4, 'columns': 6, 'window': {'first_row': 0, 'first_column': 0, 'rows': 4, 'columns': 6},"
    "          'latitudes': [75, 25, -25, -75], 'longitudes': [0, 60, 120, 180, 240, 300]},"
    " 'time': {'calendar': 'standard', 'step_minutes': 360, 'step_from': 'file', 'dt': 1, 'count': 40,"
    "          'spans': [['2001-01-01 00:00', '2001-01-10 18:00']]},"
    " 'normalisation': {'of': 'values', 'means': [280, 281], 'stds': [10, 10.1]}}";

static json_t *json_of(const char *text)
{
    char *copy = vt_test_owned(vt_text_copy(text));
    for (char *at = copy; (at = strchr(at, '\'')) != NULL;) *at = '"';
    json_t *json = json_loads(copy, 0, NULL);
    VT_ASSERT(json != NULL);
    return json;
}

/* Members of `with` become those of `whole`, or leave it if they are null; elements of a list go by their numbers. */
static void change(json_t *whole, json_t *with)
{
    const char *key;
    json_t *value;
    json_object_foreach(with, key, value)
    {
        const size_t place = (size_t)atoi(key);
        json_t *inner = json_is_array(whole) ? json_array_get(whole, place) : json_object_get(whole, key);
        if (json_is_null(value))
            json_object_del(whole, key);
        else if (json_is_object(value) && inner != NULL)
            change(inner, value);
        else if (json_is_array(whole))
            json_array_set(whole, place, value);
        else
            json_object_set(whole, key, value);
    }
}

/* The usual description with these changes (NULL: none). */
static vt_fields_about *about_with(const char *one, const char *other)
{
    const char *const changes[] = {one, other};
    vt_fields_about *about = NULL;
    json_t *whole = json_of(usual);
    for (int i = 0; i < 2; i++) {
        json_t *with = json_of(changes[i] != NULL ? changes[i] : "{}");
        change(whole, with);
        json_decref(with);
    }
    char *text = vt_test_owned(json_dumps(whole, 0));
    json_decref(whole);
    EXPECT_OK(vt_fields_about_parse(text, "a test", &about));
    VT_ASSERT(about != NULL);
    return about;
}

static vt_fields_about *about_of_data(void)
{
    return about_with(NULL, NULL);
}

static const char level[] = "{'channels': {'0': {'level': {'value': 500}}}}";
static const char level_in_hpa[] = "{'channels': {'0': {'level': {'value': 500, 'units': 'hPa'}}}}";
static const char mean_of_time[] = "{'channels': {'1': {'cell_methods': 'time: mean'}}}";
static const char transformed[] = "{'channels': {'1': {'transform': 'log1p(1e-05)'}}}";
static const char of_departures[] = "{'normalisation': {'of': 'departures', 'crc32c': {'climatology.h5': '00000011'}}}";
static const char no_coordinates[] = "{'grid': {'latitudes': null, 'longitudes': null}}";

/* What comes of a property that differs. */
typedef struct {
    const char *both, *change; /* of both descriptions, and of the other one; NULL: nothing */
    const char *accept;        /* lets it pass */
    const char *outcomes;      /* R: refused, N: so even if it is accepted, S: said, -: neither, by vt_fields_use */
    const char *said;          /* by a remark or an error */
} row;

static const row rows[] = {
    {NULL, "{'channels': {'1': {'name': 'u10'}}}", "channels", "RRRRRS",
     "channel 1 is 'v10' in ./new, but 'u10' in the old"},
    {NULL, "{'channels': {'0': {'units': 'degC'}}}", "units", "RRRRRS",
     "channel 0 (t2m) is in 'K' in ./new, but in 'degC' in the old"},
    {level_in_hpa, "{'channels': {'0': {'level': {'value': 850}}}}", "units", "RRRRRS",
     "channel 0 (t2m) is at level 500 hPa in ./new, but at 850 hPa in the old"},
    {level_in_hpa, "{'channels': {'0': {'level': {'units': 'm'}}}}", "units", "RRRRRS",
     "channel 0 (t2m) is at level 500 hPa in ./new, but at 500 m in the old"},
    {mean_of_time, "{'channels': {'1': {'cell_methods': 'time: maximum'}}}", "units", "RRRRRS",
     "channel 1 (v10) has the cell method 'time: mean' in ./new, but 'time: maximum' in the old"},
    {NULL, transformed, NULL, "--NNNS",
     "the transform of channel 1 (v10) is none in ./new, but log1p(1e-05) in the old"},
    {transformed, NULL, NULL, "------", "transform"},
    {level, NULL, NULL, "------", "level"},
    {NULL, "{'grid': {'window': {'rows': 3}}}", NULL, "NN-NNS", "a window of [4, 6], the old one of [3, 6]"},
    /* around the same window, whose place isn't known */
    {NULL, "{'grid': {'rows': 6, 'latitudes': null}}", NULL, "NN-NNS", "a grid of [4, 6], the old one of [6, 6]"},
    {NULL, "{'grid': {'latitudes': {'2': -24}}}", "grid", "RRSRRS",
     "latitude 2 is -25 degrees in ./new, but -24 in the old"},
    /* the same weather stored from -180 on */
    {NULL, "{'grid': {'longitudes': [-180, -120, -60, 0, 60, 120]}}", "grid", "RRSRRS",
     "longitudes differ: those of ./new go from 0 to 300, those of the old from -180 to 120"},
    {NULL, "{'time': {'calendar': 'noleap'}}", "calendar", "NSSRS-",
     "the calendar of ./new is standard, that of the old noleap"},
    {NULL, "{'time': {'step_minutes': 1440, 'spans': []}}", "step", "NRSRRS", " 6 h "},
    {NULL, "{'time': {'dt': 4}}", NULL, "--S---", "changes are over 6 h in ./new, but over 24 h in the old"},
    {NULL, "{'time': {'spans': [['2001-01-01 03:00', '2001-01-10 21:00']]}}", "step", "RS-SS-",
     "not a whole number of steps apart"},
    {of_departures, "{'normalisation': {'crc32c': {'climatology.h5': '00000012'}}}", "climatology", "---RRS",
     "its checksum is 00000011, not 00000012"},
    {of_departures, "{'normalisation': {'crc32c': null, 'stds': {'1': 10.201}}}", "climatology", "---RRS",
     "the standard deviation of departures in channel 1 (v10) is 10.1, not 10.201"},
};

static vt_status compare(int use, const char *accept, bool changes_matter, const vt_fields_about *data,
                         const vt_fields_about *other, vt_text *remarks)
{
    const vt_fields_rules rules = {
        .use = (vt_fields_use)use, .accepted = accept, .changes_matter = changes_matter, .trains = true};
    const vt_fields_side sides[2] = {{data, "./new"}, {other, "the old"}};
    return vt_fields_compare(&rules, &sides[0], &sides[1], remarks);
}

static bool says(const vt_text *remarks, const char *text)
{
    return remarks->length > 0 && strstr(remarks->characters, text) != NULL;
}

TEST(rules_of_each_use)
{
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int use = 0; use < VT_FIELDS_USES; use++) {
            const row *own = &rows[r];
            const char outcome = own->outcomes[use];
            SCOPED(vt_fields_about) *data = about_with(own->both, NULL), *other = about_with(own->both, own->change);
            SCOPED(vt_text) remarks = {0};
            if (outcome == 'N' || outcome == 'R') {
                EXPECT_ERROR(compare(use, NULL, false, data, other, &remarks), own->said);
                if (outcome == 'N') {
                    EXPECT_ERROR(compare(use, "[channels, units, grid, calendar, step, climatology]", false, data,
                                         other, &remarks),
                                 own->change != transformed      ? "they can't be used together"
                                 : use == VT_STATISTICS_AND_DATA ? "make statistics again"
                                                                 : "must be that of the training");
                } else {
                    SCOPED(vt_text) accepted = {0};
                    const char *words = SETTINGS("[%s]", own->accept);
                    EXPECT_OK(compare(use, words, false, data, other, &accepted));
                    EXPECT(says(&accepted, "accepted: ") && says(&accepted, own->said), "row %zu, use %d", r, use);
                }
            } else {
                EXPECT_OK(compare(use, NULL, false, data, other, &remarks));
                EXPECT(says(&remarks, own->said) == (outcome == 'S'), "row %zu, use %d: '%s'", r, use,
                       remarks.length > 0 ? remarks.characters : "");
            }
        }
}

/* Nothing is refused that is equal, and nothing said; what one side doesn't know is one line. */
TEST(equal_and_unknown)
{
    static const char no_step[] = "{'time': {'step_minutes': null}}";
    static const char *const unknown[][2] = {
        {"{'channels': {'0': {'name': null}, '1': {'name': null}}}", "names of channels"},
        {"{'channels': {'0': {'units': null}, '1': {'units': null}}}", "units"},
        {no_coordinates, "latitudes, longitudes"},
        {"{'time': {'calendar': null, 'spans': []}}", "calendar"},
        {no_step, "time step"}};
    for (int use = 0; use < VT_FIELDS_USES; use++) {
        SCOPED(vt_fields_about) *data = about_of_data(), *other = about_of_data();
        vt_text remarks = {0};
        EXPECT_OK(compare(use, NULL, true, data, other, &remarks));
        EXPECT(remarks.length == 0 || use == VT_FORECAST_AND_DATA, "use %d: '%s'", use, remarks.characters);
        EXPECT((use == VT_FORECAST_AND_DATA) == says(&remarks, "was trained on"), "use %d", use);
        vt_text_close(&remarks);
        vt_fields_about_close(&other);
        for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
            other = about_with(unknown[i][0], NULL);
            const char *sentence =
                SETTINGS("the old doesn't say its %s, so these are taken to be those of ./new", unknown[i][1]);
            EXPECT_OK(compare(use, NULL, true, data, other, &remarks));
            if (unknown[i][0] != no_step || use != VT_SETS_OF_A_RUN) /* the step of these is assumed, also 6 h */
                EXPECT(says(&remarks, sentence), "use %d: '%s' lacks '%s'", use, remarks.characters, sentence);
            vt_text_close(&remarks);
            vt_fields_about_close(&other);
        }
    }
}

/* Rows that are turned round can't be matched with rows whose direction no file says. */
static void expect_calendars(vt_calendar one, vt_calendar two, int64_t year, int64_t times, bool agree)
{
    vt_fields_about *sides[2] = {about_of_data(), about_of_data()};
    vt_text remarks = {0};
    for (int i = 0; i < 2; i++) {
        vt_date first;
        sides[i]->calendar = i == 0 ? one : two;
        sides[i]->span_count = 0;
        EXPECT(vt_date_make(sides[i]->calendar, year, 11, 1, &first));
        if (times > 0) vt_fields_about_add_span(sides[i], first, vt_date_after(first, times * sides[i]->step));
    }
    const vt_status status = compare(VT_RESUMED_AND_DATA, NULL, false, sides[0], sides[1], &remarks);
    EXPECT((status == VT_OK) == agree, "%s, %s, %ld: %s", vt_calendar_name(one), vt_calendar_name(two), year,
           vt_error_text());
    if (!agree) EXPECT_PART(vt_error_text(), "the calendar of ./new is ");
    vt_error_clear();
    vt_text_close(&remarks);
    for (int i = 0; i < 2; i++) vt_fields_about_close(&sides[i]);
}

/* The standard calendar is the proleptic one from 1582-10-15 on. */
TEST(calendars_that_agree)
{
    expect_calendars(VT_CALENDAR_STANDARD, VT_CALENDAR_PROLEPTIC, 1582, 8, true);
    expect_calendars(VT_CALENDAR_PROLEPTIC, VT_CALENDAR_STANDARD, 2001, 8, true);
    expect_calendars(VT_CALENDAR_STANDARD, VT_CALENDAR_PROLEPTIC, 1581, 8, false);
    expect_calendars(VT_CALENDAR_STANDARD, VT_CALENDAR_PROLEPTIC, 2001, 0, false); /* nothing says when they begin */
    expect_calendars(VT_CALENDAR_STANDARD, VT_CALENDAR_NO_LEAP, 2001, 8, false);
}

TEST(turned_rows_need_latitudes)
{
    SCOPED(vt_fields_about) *data = about_of_data(), *other = about_with(no_coordinates, NULL);
    SCOPED(vt_text) remarks = {0};
    data->turned = true;
    EXPECT_ERROR(compare(VT_FILES_OF_A_SET, NULL, false, data, other, &remarks),
                 "run from south to north, by its latitudes, but the old says no latitudes");
    EXPECT_ERROR(compare(VT_SETS_OF_A_RUN, NULL, false, other, data, &remarks), "so its rows can't be matched");
}

TEST(channels_by_name_and_more_of_them)
{
    static const char *const three[] = {"u10", "v10", "t2m"};
    SCOPED(vt_fields_about) *data = about_of_data(), *statistics = vt_fields_about_of_names(three, 3);
    SCOPED(vt_text) remarks = {0};
    EXPECT_OK(compare(VT_STATISTICS_AND_DATA, NULL, false, data, statistics, &remarks));
    int64_t *order = vt_test_owned(vt_fields_order(data, statistics));
    EXPECT(order != NULL && order[0] == 2 && order[1] == 1);
    EXPECT(vt_fields_order(statistics, data) == NULL);
    EXPECT_ERROR(compare(VT_STATISTICS_AND_DATA, NULL, false, statistics, data, &remarks),
                 "./new has 3 channels, the old 2; they can't be used together");
    EXPECT_ERROR(compare(VT_RESUMED_AND_DATA, NULL, false, data, statistics, &remarks),
                 "./new has 2 channels, the old 3");
}

/* Where tendencies are normalised, statistics of changes over another length would be wrong. */
TEST(changes_over_the_same_length)
{
    SCOPED(vt_fields_about) *data = about_of_data(), *statistics = about_of_data();
    SCOPED(vt_text) remarks = {0};
    statistics->dt = 4;
    EXPECT_ERROR(compare(VT_STATISTICS_AND_DATA, NULL, true, data, statistics, &remarks),
                 "changes are over 6 h in ./new, but over 24 h in the old; --accept=step");
    data->step = 1440; /* daily data: the same 24 hours */
    EXPECT_OK(compare(VT_STATISTICS_AND_DATA, NULL, true, data, statistics, &remarks));
    data->step = statistics->step = 0; /* not known: dt alone */
    EXPECT_ERROR(compare(VT_STATISTICS_AND_DATA, NULL, true, data, statistics, &remarks),
                 "dt is 1 times in ./new, but 4 in the old");
}

TEST(times_of_statistics)
{
    static const char fewer[] = "{'time': {'spans': [['2001-01-03 00:00', '2001-01-04 18:00']]}}";
    SCOPED(vt_fields_about) *data = about_of_data(), *statistics = about_with(fewer, NULL);
    SCOPED(vt_text) remarks = {0};
    vt_time_span shared;
    EXPECT_OK(compare(VT_STATISTICS_AND_DATA, NULL, false, data, statistics, &remarks));
    EXPECT(says(&remarks,
                "the times of ./new, 2001-01-01 00:00 to 2001-01-10 18:00, are not all in the old, which is of "
                "2001-01-03 00:00 to 2001-01-04 18:00"),
           "%s", remarks.characters);
    EXPECT(vt_fields_share_times(data, statistics, &shared));
    EXPECT(shared.first.minutes == statistics->spans[0].first.minutes &&
           shared.last.minutes == statistics->spans[0].last.minutes);
    statistics->spans[0].first.minutes += statistics->step / 2; /* between the times of the other */
    EXPECT(!vt_fields_share_times(data, statistics, &shared));
    statistics->spans[0].first.minutes += 20 * 1440 - statistics->step / 2;
    statistics->spans[0].last.minutes += 20 * 1440;
    EXPECT(!vt_fields_share_times(data, statistics, &shared));
}

/* Coordinates may be rounded to float32, and longitudes begin anywhere on the circle. */
TEST(rounded_coordinates_are_equal)
{
    SCOPED(vt_fields_about) *data = about_of_data(), *other = about_of_data();
    SCOPED(vt_text) remarks = {0};
    for (int i = 0; i < COLUMNS; i++) {
        data->longitudes[i] = 0.01 * i + 359.97; /* across the meridian, a hundredth of a degree apart */
        other->longitudes[i] = (double)(float)data->longitudes[i];
        if (i > 2) other->longitudes[i] = (double)(float)(data->longitudes[i] - 360);
    }
    EXPECT_OK(compare(VT_RESUMED_AND_DATA, NULL, false, data, other, &remarks));
    other->longitudes[4] += 0.001;
    EXPECT_ERROR(compare(VT_RESUMED_AND_DATA, NULL, false, data, other, &remarks), "longitude");
}

/* Of a grid whose last column is its first meridian once more, a window over the seam goes on behind that. */
TEST(windows_over_a_meridian_that_comes_twice)
{
    static const char twice[] = "{'grid': {'longitudes': [0, 72, 144, 216, 288, 360],"
                                "          'window': {'first_column': 3, 'columns': 5}}}";
    static const char unknown[] = "{'grid': {'longitudes': null, 'window': {'first_column': 3, 'columns': 5}}}";
    SCOPED(vt_fields_about) *about = about_with(twice, NULL), *no_longitudes = about_with(unknown, NULL);
    double *longitudes = vt_test_owned(vt_fields_about_coordinates(about, true));
    static const double expected[] = {216, 288, 0, 72, 144};
    for (int i = 0; i < 5; i++) EXPECT_NEAR(longitudes[i], expected[i], 0);
    EXPECT(no_longitudes->window.period == COLUMNS);
}

/* What model and data see is the same window, whatever lies around it. */
TEST(a_window_cut_out)
{
    SCOPED(vt_fields_about) *data = about_of_data(), *other = about_of_data();
    SCOPED(vt_text) remarks = {0};
    other->window = (vt_frame_window){.first_row = 1, .rows = 2, .first_column = 2, .width = 3};
    free(data->latitudes);
    free(data->longitudes);
    data->rows = 2;
    data->columns = 3;
    data->window = (vt_frame_window){.rows = 2, .width = 3};
    data->latitudes = numbers_from(25, -50, 2);
    data->longitudes = numbers_from(120, 60, 3);
    EXPECT_OK(compare(VT_RESUMED_AND_DATA, NULL, false, data, other, &remarks));
    other->window.first_row = 0;
    EXPECT_ERROR(compare(VT_RESUMED_AND_DATA, NULL, false, data, other, &remarks),
                 "latitudes differ: those of ./new go from 25 to -25, those of the old from 75 to 25; --accept=grid");
}

TEST(units_by_udunits)
{
    static const char *const same[][2] = {{"K", "kelvin"},     {"degK", "K"},          {"m s**-1", "m/s"},
                                          {"m s-1", "m s^-1"}, {"m**2 s**-2", "J/kg"}, {"hPa", "millibar"},
                                          {"%", "0.01"},       {"(0 - 1)", "(0 - 1)"}};
    static const char *const other[][2] = {
        {"hPa", "Pa"}, {"K", "degC"}, {"m", "m s-1"}, {"(0 - 1)", "1e3"}, {"K", "klevin"}};
    if (!vt_units_agree("K", "kelvin")) vt_test_lacks("libudunits2");
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        EXPECT(vt_units_agree(same[i][0], same[i][1]), "%s, %s", same[i][0], same[i][1]);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        EXPECT(!vt_units_agree(other[i][0], other[i][1]), "%s, %s", other[i][0], other[i][1]);
}

/* ---- as JSON ---- */

TEST(written_and_read_back)
{
    SCOPED(vt_fields_about) *about = about_with(level, mean_of_time), *read = NULL;
    strcpy(about->meanings[1].transform, "log1p(1e-05)");
    about->normalisation.checksums[VT_FILE_OF_STDS] = 0xfedcba98;
    about->normalisation.means[1] = 1.0 / 3;
    about->normalisation.change_stds = numbers_from(1e-30, NAN, CHANNELS);
    about->latitudes[1] = 25.000000000000004;
    about->masked = about->turned = true;
    about->step = 3 * VT_A_MONTH;
    EXPECT_OK(vt_fields_about_write(vt_test_directory(), about));
    EXPECT_OK(vt_fields_about_read(vt_test_directory(), &read));
    EXPECT(read->normalisation.means[1] == 1.0 / 3 && read->latitudes[1] == 25.000000000000004);
    EXPECT(isnan(read->normalisation.change_stds[1]));
    char *texts[2] = {vt_fields_about_text(about), vt_fields_about_text(read)};
    EXPECT_TEXT(texts[0], texts[1]);
    for (int i = 0; i < 2; i++) free(texts[i]);
}

/* Files that this and later versions of the format wrote, by hand: keys that are not known are passed over. */
TEST(versions_of_the_format)
{
    static const char first[] =
        "{\"vitrain_data\": 1, \"channels\": [{\"name\": \"t2m\", \"units\": \"K\", \"level\": {\"value\": 500, "
        "\"units\": \"hPa\"}}],\n"
        " \"grid\": {\"rows\": 2, \"columns\": 3, \"kind\": \"latitude and longitude\", \"window\": {\"first_row\": 0, "
        "\"first_column\": 2, \"rows\": 2, \"columns\": 2}, \"latitudes\": [1, -1.5]},\n"
        " \"time\": {\"calendar\": \"noleap\", \"step_months\": 1, \"dt\": 2, \"count\": 24, \"spans\": [[\"1850-01-16 "
        "12:00\", \"1851-12-16 12:00\"]], \"later\": true},\n"
        " \"origin\": {\"files\": \"tas.nc\"}, \"sun\": [1, 2]}";
    vt_fields_about *about = NULL;
    char date[VT_DATE_SIZE];
    EXPECT_OK(vt_fields_about_parse(first, "first.json", &about));
    EXPECT(about->channels == 1 && strcmp(about->names[0], "t2m") == 0 && about->meanings[0].level == 500);
    EXPECT(about->latitudes[1] == -1.5 && about->longitudes == NULL && about->window.period == 3);
    EXPECT(about->dated && about->calendar == VT_CALENDAR_NO_LEAP && about->step == VT_A_MONTH && about->dt == 2);
    EXPECT(about->span_count == 1 && strcmp(vt_date_format(about->spans[0].last, date), "1851-12-16 12:00") == 0);
    EXPECT(about->normalisation.stds == NULL && about->times == 24 && strcmp(about->files, "tas.nc") == 0);
    vt_fields_about_close(&about);
    static const char *const bad[][2] = {
        {"{\"vitrain_data\": 2}", "x.json describes data in version 2 of the format, this program reads up to 1: it "
                                  "was written by a newer vitrain"},
        {"{\"channels\": []}", "x.json describes no data: it has no key 'vitrain_data'"},
        {"{\"vitrain_data\": 1", "x.json is no JSON: "},
        {"{\"vitrain_data\": 1, \"grid\": {\"rows\": 2, \"columns\": 3}}", "x.json: its window of [0, 0]"},
        {"{\"vitrain_data\": 1, \"time\": {\"calendar\": \"mayan\"}}", "x.json: 'mayan' is no calendar"},
        {"{\"vitrain_data\": 1, \"time\": {\"spans\": [[\"2001-13-01\"]]}}",
         "x.json: '2001-13-01' in its spans is no date"},
        {"{\"vitrain_data\": 1, \"channels\": [{}], \"normalisation\": {\"means\": [1, 2]}}",
         "x.json: 'means' is no list of 1 numbers"},
        {"{\"vitrain_data\": 1, \"channels\": [{}], \"normalisation\": {\"means\": 1}}",
         "x.json: 'means' is no list of 1 numbers"},
        {"{\"vitrain_data\": 1, \"channels\": [{}], \"normalisation\": {\"means\": [1]}}",
         "x.json: its normalisation lacks means or stds"},
        {"{\"vitrain_data\": 1, \"time\": {\"spans\": [[2001]]}}", "x.json: 'null' in its spans is no date"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        EXPECT_ERROR(vt_fields_about_parse(bad[i][0], "x.json", &about), bad[i][1]);
    /* first row, rows, first column, columns of a window that is not in a grid of [4, 6] */
    static const int windows[][4] = {{-1, 2, 0, 6}, {0, 5, 0, 6}, {3, 2, 0, 6}, {0, 4, -1, 6},
                                     {0, 4, 6, 6},  {0, 4, 0, 0}, {0, 4, 0, 7}, {0, 0, 0, 6}};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        const int *window = windows[i];
        char text[256];
        snprintf(
            text, sizeof text,
            "{\"vitrain_data\": 1, \"grid\": {\"rows\": 4, \"columns\": 6, \"window\": {\"first_row\": %d, \"rows\": "
            "%d, \"first_column\": %d, \"columns\": %d}}}",
            window[0], window[1], window[2], window[3]);
        EXPECT_ERROR(vt_fields_about_parse(text, "x.json", &about), "is not in its grid of [4, 6]");
    }
}
