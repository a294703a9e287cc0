#include "source/fields/index.h"

#include <stdlib.h>

#include "base/memory.h"
#include "config/config.h"

static const char purpose[] = "the times of data files";

/* The end of the times from `first` on that follow one another; where no coordinate dates them, all do. */
static int64_t end_of_piece(const vt_time_axis *axis, int64_t times, int64_t first)
{
    if (axis->dates == NULL) return times;
    int64_t end = first + 1;
    while (end < times &&
           vt_time_follows(vt_time_axis_date(axis, end - 1), vt_time_axis_date(axis, end), 1, axis->minutes))
        end++;
    return end;
}

int64_t vt_index_add_file(vt_fields_index *index, int64_t times, const int64_t *places, const vt_time_axis *axis)
{
    vt_set_file file = {.times = times, .last_by_name = INT64_MAX};
    file.places = vt_copy(places, (size_t)times, sizeof *places, purpose);
    file.dates = vt_copy(axis->dates, (size_t)times, sizeof *axis->dates, purpose);
    /* 2013.h5 and 201301.h5 end with the year and the month; other names don't say when */
    if (axis->named >= VT_A_MONTH) file.last_by_name = vt_date_after(axis->begin, axis->named).minutes - 1;
    for (int64_t first = 0, end; first < times; first = end) {
        end = end_of_piece(axis, times, first);
        const vt_set_piece piece = {.file = index->file_count,
                                    .first_time = first,
                                    .times = end - first,
                                    .dated = axis->known,
                                    .proven = axis->dates != NULL,
                                    .date = vt_time_axis_date(axis, first)};
        index->pieces = vt_grow(index->pieces, (size_t)index->piece_count, sizeof piece, purpose);
        index->pieces[index->piece_count++] = piece;
        file.pieces++;
    }
    index->files = vt_grow(index->files, (size_t)index->file_count, sizeof file, purpose);
    index->files[index->file_count++] = file;
    return file.pieces;
}

void vt_index_close(vt_fields_index *index)
{
    for (int64_t i = 0; i < index->file_count; i++) {
        free(index->files[i].places);
        free(index->files[i].dates);
    }
    free(index->files);
    free(index->pieces);
    free(index->stretches);
    *index = (vt_fields_index){0};
}

int64_t vt_index_minutes(const vt_fields_index *index)
{
    return index->step > 0 ? index->step : 60 * VT_HOURS_A_TIME;
}

int64_t vt_index_span(const vt_index_rule *rule)
{
    return rule->dt * (rule->history + rule->reach);
}

/* ---- stretches ---- */

static int64_t find_step(const vt_fields_index *index)
{
    enum { MOST_DAYS = 3 }; /* by which the middles or ends of months differ */
    int64_t monthly = 0, alike = 0, count = 0, first_day = 0, day = 0;
    double *minutes = vt_allocate((size_t)index->piece_count + 1, sizeof *minutes, purpose);
    for (int64_t i = 0; i < index->piece_count; i++) {
        const vt_set_piece *own = &index->pieces[i];
        if (!own->proven) continue;
        vt_date_month(own->date, &day);
        if (count == 0) first_day = day;
        minutes[count++] = (double)own->date.minutes;
        monthly += i > 0 && own[-1].proven && llabs(day - first_day) <= MOST_DAYS &&
                   vt_date_steps(own[-1].date, own->date, VT_A_MONTH) == 1;
    }
    const int64_t step = vt_time_step(minutes, count, 0, &alike);
    free(minutes);
    if (2 * monthly > index->piece_count - 1) return VT_A_MONTH;
    return 2 * alike > index->piece_count - 1 ? step : 0;
}

static bool follows(const vt_fields_index *index, const vt_set_piece *before, const vt_set_piece *own)
{
    if (index->rule.files_apart || !before->proven || !own->proven || index->step == 0) return false;
    return vt_time_follows(before->date, own->date, before->times, index->step);
}

static void add_stretch(vt_fields_index *index, vt_set_stretch *stretch)
{
    const int64_t span = vt_index_span(&index->rule), samples = stretch->times - span, limit = index->rule.limit;
    int64_t within = samples;
    stretch->first_sample = index->samples;
    stretch->first_frame = index->frames;
    if (limit != VT_UNSET_INTEGER && limit - index->samples < within) within = limit - index->samples;
    stretch->used = within > 0 ? within + span : 0;
    for (int64_t p = 0; p < stretch->pieces && samples > 0; p++)
        index->files[index->pieces[stretch->first_piece + p].file].serves = true;
    index->samples += samples > 0 ? samples : 0;
    index->frames += stretch->used;
    index->stretches[index->stretch_count++] = *stretch;
}

static int64_t count_crossing(const vt_fields_index *index)
{
    const int64_t span = vt_index_span(&index->rule);
    int64_t count = 0, unused;
    for (const vt_set_stretch *s = index->stretches; s < index->stretches + index->stretch_count; s++)
        for (int64_t first = 0; first < s->used - span && s->pieces > 1; first++)
            count += vt_index_piece(index, s, first, &unused) != vt_index_piece(index, s, first + span, &unused);
    return count;
}

void vt_index_join(vt_fields_index *index)
{
    if (index->step == 0) index->step = find_step(index);
    index->stretches = vt_allocate((size_t)index->piece_count + 1, sizeof *index->stretches, purpose);
    for (int64_t i = 0, next; i < index->piece_count; i = next) {
        vt_set_stretch stretch = {.first_piece = i, .pieces = 1, .times = index->pieces[i].times};
        for (next = i + 1; next < index->piece_count; next++, stretch.pieces++) {
            vt_set_piece *piece = &index->pieces[next];
            if (!follows(index, piece - 1, piece)) break;
            piece->first = stretch.times;
            stretch.times += piece->times;
        }
        add_stretch(index, &stretch);
    }
    index->crossing = count_crossing(index);
}

/* ---- where a time is ---- */

/* The last of `count` records of `size` bytes whose beginning is `value` or less, as that of the first one is, which
 * `begins` points to. */
static int64_t last_begun(const int64_t *begins, size_t size, int64_t count, int64_t value)
{
    int64_t low = 0, high = count;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (*(const int64_t *)(const void *)((const char *)begins + (size_t)middle * size) <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}

const vt_set_piece *vt_index_piece(const vt_fields_index *index, const vt_set_stretch *stretch, int64_t time,
                                   int64_t *place)
{
    VT_ASSERT(time >= 0 && time < stretch->times);
    const vt_set_piece *piece = index->pieces + stretch->first_piece;
    piece += last_begun(&piece->first, sizeof *piece, stretch->pieces, time);
    const int64_t *places = index->files[piece->file].places;
    *place = piece->first_time + time - piece->first;
    if (places != NULL) *place = places[*place];
    return piece;
}

const vt_set_stretch *vt_index_sample(const vt_fields_index *index, int64_t sample, int64_t *time)
{
    VT_ASSERT(sample >= 0 && sample < index->samples);
    const vt_set_stretch *stretch = index->stretches;
    stretch += last_begun(&stretch->first_sample, sizeof *stretch, index->stretch_count, sample);
    *time = sample - stretch->first_sample + index->rule.history * index->rule.dt;
    return stretch;
}

const vt_set_stretch *vt_index_frame(const vt_fields_index *index, int64_t frame)
{
    const vt_set_stretch *stretch = index->stretches;
    return stretch + last_begun(&stretch->first_frame, sizeof *stretch, index->stretch_count, frame);
}

vt_date vt_index_date_in(const vt_fields_index *index, const vt_set_piece *piece, int64_t time)
{
    const int64_t *dates = index->files[piece->file].dates;
    vt_date date = vt_date_after(piece->date, time * vt_index_minutes(index));
    if (dates != NULL) date.minutes = dates[piece->first_time + time];
    return date;
}

bool vt_index_date(const vt_fields_index *index, const vt_set_stretch *stretch, int64_t time, vt_date *date)
{
    int64_t unused;
    const vt_set_piece *piece = vt_index_piece(index, stretch, time, &unused);
    *date = vt_index_date_in(index, piece, time - piece->first);
    return piece->dated;
}

/* ---- times that occur twice ---- */

/* Times of a piece, from `from` to `to`, both included. */
typedef struct {
    int64_t from, to; /* minutes */
    vt_calendar calendar;
    int64_t file;
} period;

static int by_beginning(const void *left, const void *right)
{
    const period *a = left, *b = right;
    if (a->from != b->from) return a->from < b->from ? -1 : 1;
    return a->file < b->file ? -1 : a->file > b->file;
}

/* Those of all pieces with dates, sorted by their beginnings; malloc'd. Times without a coordinate may be nearer to one
 * another than is assumed, so they end no later than the file's name says. */
static period *periods_of(const vt_fields_index *index, bool used_only, int64_t *count)
{
    period *periods = vt_allocate((size_t)index->piece_count + 1, sizeof *periods, purpose);
    *count = 0;
    for (const vt_set_stretch *s = index->stretches; s < index->stretches + index->stretch_count; s++)
        for (int64_t p = s->first_piece; p < s->first_piece + s->pieces; p++) {
            const vt_set_piece *piece = &index->pieces[p];
            const int64_t used = s->used - piece->first < piece->times ? s->used - piece->first : piece->times;
            const int64_t times = used_only ? used : piece->times;
            if (!piece->dated || times <= 0) continue;
            int64_t end = vt_index_date_in(index, piece, times - 1).minutes;
            const int64_t last = index->files[piece->file].last_by_name;
            if (!piece->proven && last < end) end = last;
            periods[(*count)++] = (period){piece->date.minutes, end, piece->date.calendar, piece->file};
        }
    if (*count > 0) qsort(periods, (size_t)*count, sizeof *periods, by_beginning);
    return periods;
}

vt_index_overlap vt_index_repeated(const vt_fields_index *index)
{
    vt_index_overlap found = {0};
    int64_t count = 0;
    period *periods = periods_of(index, false, &count);
    const period *latest = periods;
    for (int64_t i = 1; i < count; i++) {
        const period *own = &periods[i];
        if (own->calendar == latest->calendar && own->from <= latest->to && found.count++ == 0) {
            found.from = (vt_date){own->calendar, own->from};
            found.to = (vt_date){own->calendar, own->to < latest->to ? own->to : latest->to};
            found.files[0] = latest->file;
            found.files[1] = own->file;
        }
        if (own->to > latest->to) latest = own;
    }
    free(periods);
    return found;
}

vt_index_overlap vt_index_shared(const vt_fields_index *one, const vt_fields_index *other)
{
    vt_index_overlap found = {0};
    int64_t counts[2] = {0};
    period *a = periods_of(one, true, &counts[0]), *b = periods_of(other, true, &counts[1]);
    for (int64_t i = 0, j = 0; i < counts[0] && j < counts[1];) {
        const int64_t begin = a[i].from > b[j].from ? a[i].from : b[j].from;
        const int64_t end = a[i].to < b[j].to ? a[i].to : b[j].to;
        if (begin <= end && a[i].calendar == b[j].calendar) {
            if (found.count++ == 0) {
                found.from = (vt_date){a[i].calendar, begin};
                found.files[0] = a[i].file;
                found.files[1] = b[j].file;
            } else if (begin > vt_date_after(found.to, vt_index_minutes(one)).minutes) {
                found.has_gaps = true;
            }
            found.to = (vt_date){a[i].calendar, end};
        }
        if (a[i].to < b[j].to)
            i++;
        else
            j++;
    }
    free(a);
    free(b);
    return found;
}
