/* Scores against numbers computed by hand, dates, names of channels, and the small tools of reports. */
#include "report/page.h"
#include "report/progress.h"
#include "report/table.h"
#include "task/weather/calendar.h"
#include "task/weather/channels.h"
#include "task/weather/scores.h"
#include "test.h"

/* Of a grid of 2 x 2 at 60 and 0 degrees: weights 2/3 and 4/3. climatology must stay. */
static vt_scores *open_small(const float *climatology)
{
    static const double latitudes[] = {60, 0};
    static const float stds[] = {2};
    vt_scores *scores = NULL;
    vt_scores_open(&(vt_scores_options){.leads = 2,
                                        .channels = 1,
                                        .height = 2,
                                        .width = 2,
                                        .latitudes = latitudes,
                                        .climatology = climatology,
                                        .stds = stds},
                   &scores);
    return scores;
}

TEST(scores_by_hand)
{
    const float climatology[] = {0, 0, 0, 0};
    const float forecast[] = {1, 2, 3, 4}, target[] = {1, 1, 1, 1}, persistence[] = {1, 1, -1, -1};
    SCOPED(vt_scores) *scores = open_small(climatology);
    vt_scores_add(scores, 0, &(vt_score_fields){forecast, target, persistence, NULL, {0}});
    vt_scores_add(scores, 1, &(vt_score_fields){target, target, persistence, NULL, {0}});
    /* squares of differences: 0, 1 | 4, 9 */
    EXPECT_NEAR(vt_scores_mean(scores, 0, 0, VT_SCORE_RMSE), sqrt((2 / 3. * 1 + 4 / 3. * 13) / 4), 1e-12);
    EXPECT_NEAR(vt_scores_mean(scores, 0, 0, VT_SCORE_RMSE + VT_SCORE_PERSISTENCE), sqrt(4 / 3. * 8 / 4), 1e-12);
    EXPECT_NEAR(vt_scores_mean(scores, 0, 0, VT_SCORE_RMSE + VT_SCORE_CLIMATOLOGY), 1, 1e-12);
    double product = (2 / 3. * 3 + 4 / 3. * 7) / 4, forecasts = (2 / 3. * 5 + 4 / 3. * 25) / 4;
    EXPECT_NEAR(vt_scores_mean(scores, 0, 0, VT_SCORE_ACC), product / sqrt(forecasts), 1e-12);
    EXPECT_NEAR(vt_scores_mean(scores, 0, 0, VT_SCORE_ACC + VT_SCORE_PERSISTENCE), (2 / 3. * 2 - 4 / 3. * 2) / 4,
                1e-12);
    EXPECT_NEAR(vt_scores_mean(scores, 1, 0, VT_SCORE_RMSE), 0, 0);
    EXPECT_NEAR(vt_scores_mean(scores, 1, 0, VT_SCORE_ACC), 1, 1e-12);
    /* a second initial time, perfect: means over both */
    vt_scores_add(scores, 0, &(vt_score_fields){target, target, NULL, NULL, {0}});
    EXPECT(vt_scores_cell(scores, 0, 0)[VT_SCORE_TIMES] == 2);
    EXPECT_NEAR(vt_scores_mean(scores, 0, 0, VT_SCORE_RMSE), sqrt((2 / 3. * 1 + 4 / 3. * 13) / 4) / 2, 1e-12);
    EXPECT(isnan(vt_scores_mean(scores, 0, 0, VT_SCORE_RMSE + VT_SCORE_PERSISTENCE)));
}

/* Points that are missing in one of a score's fields count for nothing, with their weights; an initial time without any
 * counts in no mean; a forecast that is not finite is not a missing point. */
TEST(scores_leave_gaps_out)
{
    const double low = 2 / 3., high = 4 / 3.;
    const float climatology[] = {0, NAN, 0, 0};
    const float forecast[] = {1, 2, 3, 4}, target[] = {2, 1, NAN, 1}, persistence[] = {NAN, 3, 1, -1};
    const float nothing[] = {NAN, NAN, NAN, NAN}, broken[] = {1, NAN, 3, 4};
    SCOPED(vt_scores) *scores = open_small(climatology);
    vt_scores_add(scores, 0, &(vt_score_fields){forecast, target, persistence, NULL, {0}});
    vt_scores_add(scores, 0, &(vt_score_fields){forecast, nothing, persistence, NULL, {0}});
    EXPECT(vt_scores_cell(scores, 0, 0)[VT_SCORE_TIMES] == 2);
    EXPECT_NEAR(vt_scores_mean(scores, 0, 0, VT_SCORE_RMSE), sqrt((low * 2 + high * 9) / (2 * low + high)), 1e-12);
    EXPECT_NEAR(vt_scores_mean(scores, 0, 0, VT_SCORE_RMSE + VT_SCORE_PERSISTENCE),
                sqrt((low * 4 + high * 4) / (low + high)), 1e-12);
    EXPECT_NEAR(vt_scores_mean(scores, 0, 0, VT_SCORE_RMSE + VT_SCORE_CLIMATOLOGY),
                sqrt((low * 4 + high) / (low + high)), 1e-12);
    EXPECT_NEAR(vt_scores_mean(scores, 0, 0, VT_SCORE_ACC),
                (low * 2 + high * 4) / sqrt((low + high * 16) * (low * 4 + high)), 1e-12);
    EXPECT_NEAR(vt_scores_mean(scores, 0, 0, VT_SCORE_ACC + VT_SCORE_PERSISTENCE), -1, 1e-12); /* at one point only */
    vt_scores_add(scores, 1, &(vt_score_fields){broken, target, persistence, NULL, {0}});
    EXPECT(isnan(vt_scores_mean(scores, 1, 0, VT_SCORE_RMSE)));
}

static const char *shown(vt_date date)
{
    static char text[VT_DATE_SIZE];
    return vt_date_format(date, text);
}

TEST(dates)
{
    vt_date date, other;
    EXPECT(vt_date_parse("2003-01-05T06:30", VT_CALENDAR_STANDARD, &date));
    EXPECT_TEXT(shown(date), "2003-01-05 06:30");
    EXPECT(vt_date_parse("2003-12-31 18:00:00Z", VT_CALENDAR_STANDARD, &date));
    EXPECT(vt_date_parse("2003-12-31T18", VT_CALENDAR_STANDARD, &other) && date.minutes == other.minutes);
    EXPECT_TEXT(shown(vt_date_after(date, 360)), "2004-01-01 00:00");
    EXPECT(vt_date_parse("2004-03-01", VT_CALENDAR_STANDARD, &date)); /* a leap year */
    EXPECT_TEXT(shown(vt_date_after(date, -1080)), "2004-02-29 06:00");
    const char *const wrong[] = {"2003-02-29", "2003-13-01", "2003-01-01T24", "2003-01-01T06:60",
                                 "yesterday",  "2003-01",    "2003-01-01x",   "",
                                 "2003-02-30", "1900-02-29", "2003-00-01",    "2003-01-00"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        EXPECT(!vt_date_parse(wrong[i], VT_CALENDAR_STANDARD, &date), "'%s'", wrong[i]);
}

/* Days from a date to 2000-01-01 in each calendar. Those of the Gregorian and the Julian one from their known day
 * numbers: 2000-01-01 is 2451545, 1582-10-15 is 2299161 (Julian 10-04 the day before), 0001-01-01 Julian 1721424. */
TEST(dates_of_calendars)
{
    static const struct {
        vt_calendar calendar;
        const char *date;
        int64_t days;
    } known[] = {{VT_CALENDAR_STANDARD, "1582-10-15", 2451545 - 2299161},
                 {VT_CALENDAR_STANDARD, "1582-10-04", 2451545 - 2299160},
                 {VT_CALENDAR_STANDARD, "0001-01-01", 2451545 - 1721424},
                 {VT_CALENDAR_STANDARD, "1500-02-29", 2451545 - 2268992},
                 {VT_CALENDAR_PROLEPTIC, "0001-01-01", 2451545 - 1721426},
                 {VT_CALENDAR_PROLEPTIC, "1582-10-10", 2451545 - 2299156},
                 {VT_CALENDAR_PROLEPTIC, "1900-01-01", 36524},
                 {VT_CALENDAR_NO_LEAP, "1900-01-01", 36500},
                 {VT_CALENDAR_NO_LEAP, "1999-02-28", 365 - 58},
                 {VT_CALENDAR_ALL_LEAP, "1900-01-01", 36600},
                 {VT_CALENDAR_ALL_LEAP, "1999-02-29", 366 - 59},
                 {VT_CALENDAR_360_DAY, "1900-01-01", 36000},
                 {VT_CALENDAR_360_DAY, "1999-02-30", 360 - 59}};
    vt_date zero, date;
    char text[VT_DATE_SIZE];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        EXPECT(vt_date_parse("2000-01-01", known[i].calendar, &zero));
        EXPECT(vt_date_parse(known[i].date, known[i].calendar, &date), "%s", known[i].date);
        EXPECT(zero.minutes - date.minutes == 1440 * known[i].days, "%s: %ld days", known[i].date,
               (zero.minutes - date.minutes) / 1440);
        snprintf(text, sizeof text, "%s 00:00", known[i].date);
        EXPECT_TEXT(shown(date), text);
    }
    EXPECT(!vt_date_parse("1582-10-10", VT_CALENDAR_STANDARD, &date)); /* left out when the calendar changed */
    EXPECT(!vt_date_parse("2000-02-29", VT_CALENDAR_NO_LEAP, &date));
    EXPECT(!vt_date_parse("2000-01-31", VT_CALENDAR_360_DAY, &date));
    for (int c = 0; c <= VT_CALENDAR_360_DAY; c++) { /* every day, there and back */
        vt_date_make((vt_calendar)c, 1599, 1, 1, &date);
        for (int64_t day = 0; day < 150000; day++, date.minutes += 1440) {
            vt_date again;
            bool same = vt_date_parse(vt_date_format(date, text), (vt_calendar)c, &again);
            same = same && again.minutes == date.minutes;
            if (!same) EXPECT(same, "%s in calendar %d", text, c);
        }
    }
    vt_calendar calendar;
    for (int c = 0; c <= VT_CALENDAR_360_DAY; c++)
        EXPECT(vt_calendar_of_name(vt_calendar_name((vt_calendar)c), &calendar) && (int)calendar == c);
    EXPECT(vt_calendar_of_name("Gregorian", &calendar) && calendar == VT_CALENDAR_STANDARD);
    EXPECT(vt_calendar_of_name("365_day", &calendar) && calendar == VT_CALENDAR_NO_LEAP);
    EXPECT(!vt_calendar_of_name("julian day", &calendar));
}

TEST(dates_of_files)
{
    static const struct {
        const char *path, *date;
    } files[] = {{"data/era5_2013.h5", "2013-01-01 00:00"}, {"12013.h5", "2013-01-01 00:00"},
                 {"v2_2013.nc", "2013-01-01 00:00"},        {"2010-data/air.2m.gauss.2012.nc4", "2012-01-01 00:00"},
                 {"era5_201302.nc", "2013-02-01 00:00"},    {"era5_2012-03.nc", "2012-03-01 00:00"},
                 {"x/2012_03_02.nc", "2012-03-02 00:00"},   {"20121231.nc", "2012-12-31 00:00"},
                 {"run_1998-2001.nc", "2001-01-01 00:00"}};
    const char *const wrong[] = {"a.h5", "201.nc", "2013", "2013/a.nc", ""};
    vt_date date = {0};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        EXPECT(vt_date_of_file_name(files[i].path, &date) && strcmp(shown(date), files[i].date) == 0, "%s: %s",
               files[i].path, shown(date));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        EXPECT(!vt_date_of_file_name(wrong[i], &date), "%s", wrong[i]);
}

TEST(meanings_of_channels)
{
    EXPECT_TEXT(vt_variable_of("t850").long_name, "temperature at 850 hPa");
    EXPECT_TEXT(vt_variable_of("z500").units, "m2 s-2");
    EXPECT_TEXT(vt_variable_of("u10").standard_name, "eastward_wind");
    EXPECT(vt_variable_of("u10").height == 10 && vt_variable_of("u10").pressure == 0);
    EXPECT(vt_variable_of("u850").height == 0 && vt_variable_of("u850").pressure == 850);
    EXPECT(vt_variable_of("t").standard_name == NULL && vt_variable_of("").standard_name == NULL);
    EXPECT(vt_variable_of("channel 3").units[0] == '\0');
}

TEST(tables)
{
    vt_table table;
    static const char first[] = "step,loss,rest\n1,0.5,\n2,,7\n3,0.25"; /* the last line is still being written */
    static const char second[] = "channel , \"rmse_=a,b\"\r\n\"'=a,\"\"b\",1\r\n'-c,2\n";
    const char *path = test_write("t.csv", first, sizeof first - 1);
    EXPECT_OK(vt_table_open(path, false, &table));
    EXPECT(table.rows == 2 && table.names.count == 3, "%ld rows", table.rows);
    EXPECT_NEAR(vt_table_value(&table, 0, "loss"), 0.5, 0);
    EXPECT(isnan(vt_table_value(&table, 1, "loss")) && isnan(vt_table_value(&table, 0, "rest")));
    EXPECT_NEAR(vt_table_value(&table, -1, "rest"), 7, 0);
    EXPECT(isnan(vt_table_value(&table, 0, "none")) && isnan(vt_table_value(&table, 2, "loss")));
    vt_table_close(&table);
    EXPECT_OK(vt_table_open(test_write("t.csv", second, sizeof second - 1), true, &table));
    EXPECT(vt_table_find(&table, "channel") == 0 && table.rows == 2);
    EXPECT(strcmp(table.labels.names[0], "=a,\"b") == 0 && strcmp(table.labels.names[1], "-c") == 0, "%s",
           table.labels.names[0]);
    vt_table_close(&table);
    EXPECT_ERROR(vt_table_open("/nowhere.csv", false, &table), "/nowhere.csv");
}

TEST(sparklines)
{
    char text[VT_SPARKLINE_SIZE];
    vt_sparkline line = {0};
    vt_sparkline_format(&line, 8, text);
    EXPECT(text[0] == '\0');
    for (int i = 0; i < 8; i++) vt_sparkline_add(&line, i);
    vt_sparkline_format(&line, 8, text);
    EXPECT_TEXT(text, "▁▂▃▄▅▆▇█");
    vt_sparkline many = {0};
    for (int i = 0; i < 100000; i++) vt_sparkline_add(&many, 100000 - i);
    vt_sparkline_add(&many, NAN);
    vt_sparkline_format(&many, 8, text);
    EXPECT_TEXT(text, "█▇▆▅▄▃▂▁");
    vt_sparkline equal = {0}; /* the last sum is of one value, the others of two */
    for (int i = 0; i < VT_SPARKLINE_BUCKETS + 1; i++) vt_sparkline_add(&equal, 3);
    vt_sparkline_format(&equal, 8, text);
    EXPECT_TEXT(text, "▁▁▁▁▁▁▁▁");
}

/* Odd data must not break a chart: no points, one point, constant, NaN, huge. */
TEST(charts_of_odd_data)
{
    const double x[] = {1, 2, 3, 4},
                 odd[][4] = {
                     {0, 0, 0, 0}, {NAN, NAN, NAN, NAN}, {INFINITY, 1, NAN, 2}, {1e-30, 1e30, 1, 5}, {-1, -2, -3, -4}};
    for (int flags = 0; flags < 8; flags++) {
        for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
            for (int64_t count = 0; count <= 4; count++) {
                SCOPED(vt_text) html = {0};
                const vt_line line = {"<a & \"b\">", x, odd[i], count, 1, VT_LINE_DOTS, 0};
                const vt_chart chart = {"c", "<K>", "x", &line, 1, (unsigned)flags * VT_CHART_MAY_BE_LOGARITHMIC};
                vt_chart_append(&html, &chart);
                EXPECT(strstr(html.characters, "nan") == NULL && strstr(html.characters, "inf") == NULL, "%s",
                       html.characters);
                EXPECT(strstr(html.characters, "<a &") == NULL && strstr(html.characters, "<K>") == NULL);
            }
        }
    }
}
