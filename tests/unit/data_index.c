/* The index of a set's times, without a file. */
#include "source/fields/index.h"

#include "config/config.h"
#include "test.h"

enum { SIX_HOURS = 360, DAY = 1440 };

static vt_date day_of(int64_t year, int64_t month, int64_t day)
{
    vt_date date;
    EXPECT(vt_date_make(VT_CALENDAR_STANDARD, year, month, day, &date));
    return date;
}

/* A file that has ten times, of which the first are used: the numbers of its places begin with that of the file. */
static void add(vt_fields_index *index, int64_t times, vt_date date)
{
    int64_t places[10], dates[10];
    for (int64_t i = 0; i < times; i++) {
        places[i] = 10 * index->file_count + i;
        dates[i] = date.minutes + i * SIX_HOURS;
    }
    const vt_time_axis axis = {.known = true, .begin = date, .dates = dates, .minutes = SIX_HOURS};
    EXPECT(vt_index_add_file(index, times, places, &axis) == 1);
}

/* Four times in a file, the next three in another, and after a gap of more than a day five in a third. */
static vt_fields_index three_files(vt_index_rule rule)
{
    vt_fields_index index = {.rule = rule, .step = SIX_HOURS};
    add(&index, 4, day_of(2013, 1, 1));
    add(&index, 3, day_of(2013, 1, 2));
    add(&index, 5, day_of(2013, 1, 4));
    vt_index_join(&index);
    return index;
}

static void expect_place(const vt_fields_index *index, const vt_set_stretch *stretch, int64_t time, int64_t file,
                         int64_t time_in_file)
{
    int64_t found;
    const vt_set_piece *piece = vt_index_piece(index, stretch, time, &found);
    EXPECT(piece->file == file && found == time_in_file, "file %ld, time %ld", piece->file, found);
}

TEST(samples_and_their_times)
{
    vt_fields_index index = three_files((vt_index_rule){1, 2, 1, VT_UNSET_INTEGER, false});
    int64_t time;
    vt_date date;
    EXPECT(vt_index_span(&index.rule) == 4 && index.stretch_count == 2);
    EXPECT(index.samples == 4 && index.frames == 12 && index.crossing == 3);
    const vt_set_stretch *stretch = vt_index_sample(&index, 2, &time);
    EXPECT(stretch == index.stretches && time == 4);
    expect_place(&index, stretch, time - 2, 0, 2); /* the earlier time of its input */
    expect_place(&index, stretch, time, 1, 10);
    expect_place(&index, stretch, time + 2, 1, 12);
    EXPECT(vt_index_date(&index, stretch, 6, &date) && date.minutes == day_of(2013, 1, 2).minutes + 2 * SIX_HOURS);
    stretch = vt_index_sample(&index, 3, &time);
    EXPECT(stretch == index.stretches + 1 && time == 2 && stretch->first_frame == 7);
    expect_place(&index, stretch, time, 2, 22);
    EXPECT(vt_index_frame(&index, 6) == index.stretches && vt_index_frame(&index, 7) == index.stretches + 1);
    vt_index_close(&index);
}

TEST(samples_that_are_limited_or_kept_in_their_files)
{
    vt_fields_index index = three_files((vt_index_rule){1, 2, 1, 1, false});
    EXPECT(index.samples == 4 && index.frames == 5 && index.stretches[1].used == 0);
    vt_index_close(&index);
    index = three_files((vt_index_rule){1, 2, 1, VT_UNSET_INTEGER, true});
    EXPECT(index.stretch_count == 3 && index.samples == 1 && index.crossing == 0);
    for (int file = 0; file < 3; file++)
        EXPECT(index.files[file].pieces == 1 && index.files[file].serves == (file == 2));
    vt_index_close(&index);
}

/* Files of one time each: their dates say how far apart they are, if most agree. */
TEST(steps_between_files_of_one_time)
{
    static const int64_t days[3][4] = {{1, 2, 3, 4}, {1, 2, 4, 5}, {1, 2, 4, 8}};
    for (int i = 0; i < 4; i++) {
        vt_fields_index index = {.rule = {0, 1, 1, VT_UNSET_INTEGER, false}};
        for (int64_t file = 0; file < 4; file++)
            add(&index, 1, i < 3 ? day_of(2013, 1, days[i][file]) : day_of(2013, 1 + file, 16 - file % 2));
        vt_index_join(&index);
        EXPECT(index.step == (i < 2 ? DAY : i == 2 ? 0 : VT_A_MONTH), "%ld", index.step);
        EXPECT(index.samples == (i == 1 ? 2 : i == 2 ? 0 : 3), "%ld samples", index.samples);
        EXPECT(vt_index_minutes(&index) == (i == 2 ? SIX_HOURS : index.step));
        vt_index_close(&index);
    }
}

/* Dates of the files' names don't join files; times of their own are used as they are. */
TEST(dates_that_are_not_proven_and_dates_of_their_own)
{
    int64_t own[3] = {0, 44640, 84960}, place; /* the first of January, February and March */
    vt_fields_index index = {.rule = {0, 1, 1, VT_UNSET_INTEGER, false}, .step = SIX_HOURS};
    vt_time_axis named = {.known = true, .begin = day_of(2013, 1, 1)};
    vt_date date;
    EXPECT(vt_index_add_file(&index, 4, NULL, &named) == 1);
    named.begin = day_of(2013, 1, 2);
    EXPECT(vt_index_add_file(&index, 4, NULL, &named) == 1);
    EXPECT(vt_index_add_file(&index, 3, NULL, &(vt_time_axis){.known = false}) == 1);
    const vt_time_axis months = {
        .known = true, .begin = {VT_CALENDAR_NO_LEAP, own[0]}, .dates = own, .minutes = VT_A_MONTH};
    EXPECT(vt_index_add_file(&index, 3, (int64_t[]){5, 7, 9}, &months) == 1);
    vt_index_join(&index);
    EXPECT(index.stretch_count == 4 && index.samples == 3 + 3 + 2 + 2);
    EXPECT(!vt_index_date(&index, &index.stretches[2], 2, &date) && date.minutes == 2 * SIX_HOURS);
    EXPECT(vt_index_date(&index, &index.stretches[3], 2, &date) && date.minutes == own[2]);
    EXPECT(vt_index_piece(&index, &index.stretches[3], 1, &place)->file == 3 && place == 7);
    vt_index_close(&index);
}

/* A file is cut where a time is more than two minutes from a step after the one before, or not in the next month. */
TEST(gaps_within_a_file)
{
    int64_t dates[7] = {0, 360, 721, 1079, 1443, 1803, 2523};
    vt_fields_index index = {.rule = {0, 1, 1, VT_UNSET_INTEGER, false}, .step = SIX_HOURS};
    const vt_time_axis uneven = {.known = true, .dates = dates, .minutes = SIX_HOURS};
    EXPECT(vt_index_add_file(&index, 7, NULL, &uneven) == 3);
    vt_index_join(&index);
    const int64_t first[4] = {0, 4, 6, 7};
    EXPECT(index.stretch_count == 3 && index.samples == 3 + 1);
    for (int i = 0; i < 3; i++)
        EXPECT(index.pieces[i].first_time == first[i] && index.pieces[i].times == first[i + 1] - first[i] &&
               index.pieces[i].date.minutes == dates[first[i]]);
    vt_index_close(&index);
    int64_t months[4] = {0, 44640, 84960, 172800}; /* the first of January, February, March and May */
    const vt_time_axis lacks_april = {
        .known = true, .begin = {VT_CALENDAR_NO_LEAP, 0}, .dates = months, .minutes = VT_A_MONTH};
    index = (vt_fields_index){.rule = {0, 1, 1, VT_UNSET_INTEGER, false}, .step = VT_A_MONTH};
    EXPECT(vt_index_add_file(&index, 4, NULL, &lacks_april) == 2 && index.pieces[0].times == 3);
    vt_index_close(&index);
}

TEST(times_that_two_sets_or_two_files_have)
{
    const vt_index_rule rule = {0, 1, 1, VT_UNSET_INTEGER, false};
    vt_fields_index one = three_files(rule), other = {.rule = rule, .step = SIX_HOURS};
    EXPECT(vt_index_repeated(&one).count == 0);
    add(&other, 4, day_of(2013, 1, 2));
    add(&other, 4, day_of(2013, 1, 4));
    vt_index_join(&other);
    vt_index_overlap found = vt_index_shared(&one, &other);
    EXPECT(found.count == 2 && found.has_gaps && found.files[0] == 1 && found.files[1] == 0);
    EXPECT(found.from.minutes == day_of(2013, 1, 2).minutes);
    EXPECT(found.to.minutes == day_of(2013, 1, 4).minutes + 3 * SIX_HOURS);
    vt_index_close(&other);
    /* a file of January that begins before the one before it ends; the name of that one says that it doesn't */
    for (int named = 0; named < 2; named++) {
        const vt_time_axis december = {
            .known = true, .begin = day_of(2012, 12, 1), .named = named ? VT_A_MONTH : 24 * 60};
        other = (vt_fields_index){.rule = rule, .step = SIX_HOURS};
        EXPECT(vt_index_add_file(&other, 200, NULL, &december) == 1);
        add(&other, 4, day_of(2013, 1, 1));
        vt_index_join(&other);
        found = vt_index_repeated(&other);
        EXPECT(found.count == !named && found.files[1] == !named, "%ld", found.count);
        vt_index_close(&other);
    }
    vt_index_close(&one);
}
