/* Which times are samples: pieces of files that follow one another become stretches. Finds times that occur twice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "config/config.h"
#include "source/fields/dataset_inside.h"

void vt_dataset_add_piece(vt_dataset *dataset, const vt_set_piece *piece)
{
    const int64_t count = dataset->piece_count;
    dataset->pieces = vt_grow(dataset->pieces, (size_t)count, sizeof *piece, "the times of data files");
    dataset->pieces[dataset->piece_count++] = *piece;
}

/* ---- stretches ---- */

/* Times between the first time of an input and its last target. */
static int64_t span_of(const vt_dataset *dataset)
{
    return dataset->options.dt * (dataset->options.history + dataset->options.reach);
}

/* Finds how far apart times are if files hold one time each: their dates tell it if most of them are alike, or a
 * calendar month apart at about the same day, as monthly means are. */
static void settle_minutes(vt_dataset *dataset)
{
    enum { MOST_DAYS = 3 }; /* by which the middles or ends of months differ */
    int64_t monthly = 0, alike = 0, count = 0, first_day = 0, day = 0;
    if (dataset->about->step > 0) return;
    double *minutes = vt_allocate((size_t)dataset->piece_count + 1, sizeof *minutes, "the times of data files");
    for (int64_t i = 0; i < dataset->piece_count; i++) {
        const vt_set_piece *own = &dataset->pieces[i];
        if (!own->proven) continue;
        vt_date_month(own->date, &day);
        if (count == 0) first_day = day;
        minutes[count++] = (double)own->date.minutes;
        monthly += i > 0 && own[-1].proven && llabs(day - first_day) <= MOST_DAYS &&
                   vt_date_steps(own[-1].date, own->date, VT_A_MONTH) == 1;
    }
    const int64_t step = vt_time_step(minutes, count, 0, &alike);
    free(minutes);
    if (2 * monthly > dataset->piece_count - 1)
        dataset->about->step = VT_A_MONTH;
    else if (2 * alike > dataset->piece_count - 1)
        dataset->about->step = step;
}

static bool follows(const vt_dataset *dataset, const vt_set_piece *before, const vt_set_piece *own)
{
    if (dataset->options.files_apart || !before->proven || !own->proven || dataset->about->step == 0) return false;
    return vt_time_follows(before->date, own->date, before->times, dataset->about->step);
}

static void add_stretch(vt_dataset *dataset, vt_set_stretch *stretch)
{
    const vt_dataset_options *options = &dataset->options;
    int64_t samples = stretch->times - span_of(dataset), within = samples;
    stretch->first_sample = dataset->source.sample_count;
    stretch->first_frame = dataset->source.frame_count;
    if (options->sample_limit != VT_UNSET_INTEGER && options->sample_limit - dataset->source.sample_count < within)
        within = options->sample_limit - dataset->source.sample_count;
    stretch->used = within > 0 ? within + span_of(dataset) : 0;
    dataset->source.sample_count += samples > 0 ? samples : 0;
    dataset->source.frame_count += stretch->used;
    dataset->stretches[dataset->stretch_count++] = *stretch;
}

static void warn_of_short_files(const vt_dataset *dataset)
{
    const vt_dataset_options *options = &dataset->options;
    int64_t count = 0;
    for (int64_t file = 0, s = 0, p = 0; file < dataset->list.groups; file++) {
        bool serves = false;
        int64_t pieces = 0;
        for (; p < dataset->piece_count && dataset->pieces[p].file == file; p++, pieces++) {
            while (dataset->stretches[s].first_piece + dataset->stretches[s].pieces <= p) s++;
            serves = serves || dataset->stretches[s].times > span_of(dataset);
        }
        if (serves || count++ > 0) continue;
        vt_log_warning(
            "%s has %lld times%s, too few for a sample, which spans %lld (n_history %lld, dt %lld): not used",
            vt_dataset_group_path(dataset, file), (long long)dataset->files[file].times,
            pieces > 1 ? " with gaps between them" : "", (long long)(span_of(dataset) + 1), (long long)options->history,
            (long long)options->dt);
    }
    if (count > 1)
        vt_log_warning("%lld files of %s in all are too short for a sample", (long long)count, options->directory);
}

const vt_set_piece *vt_dataset_piece(const vt_dataset *dataset, const vt_set_stretch *stretch, int64_t time)
{
    VT_ASSERT(time >= 0 && time < stretch->times);
    const vt_set_piece *pieces = dataset->pieces + stretch->first_piece;
    int64_t low = 0, high = stretch->pieces; /* pieces[low].first <= time */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (pieces[middle].first <= time)
            low = middle;
        else
            high = middle;
    }
    return &pieces[low];
}

const vt_set_stretch *vt_dataset_find_sample(const vt_dataset *dataset, int64_t sample, int64_t *time)
{
    VT_ASSERT(sample >= 0 && sample < dataset->source.sample_count);
    int64_t low = 0, high = dataset->stretch_count; /* stretches[low].first_sample <= sample */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (dataset->stretches[middle].first_sample <= sample)
            low = middle;
        else
            high = middle;
    }
    const vt_set_stretch *found = &dataset->stretches[low];
    *time = sample - found->first_sample + dataset->options.history * dataset->options.dt;
    return found;
}

/* Samples that reach from one file into the next. */
static int64_t count_crossing(const vt_dataset *dataset)
{
    int64_t count = 0;
    for (int64_t s = 0; s < dataset->stretch_count; s++) {
        const vt_set_stretch *stretch = &dataset->stretches[s];
        const int64_t span = span_of(dataset);
        for (int64_t first = 0; first < stretch->used - span && stretch->pieces > 1; first++)
            count += vt_dataset_piece(dataset, stretch, first) != vt_dataset_piece(dataset, stretch, first + span);
    }
    return count;
}

/* ---- times that occur twice ---- */

/* Times of a file that samples use, from `from` to `to`, both included. */
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

/* The end of a file without a time coordinate, whose times may be nearer to one another than is assumed: those of
 * 2013.h5 and 201301.h5 end with the year and the month. */
static int64_t end_by_name(const char *path, int64_t end)
{
    vt_date begin = {0};
    const int64_t length = vt_date_of_file_name(path, &begin);
    const int64_t next = vt_date_after(begin, length).minutes;
    return length >= VT_A_MONTH && next <= end ? next - 1 : end;
}

/* Those of all pieces with dates, sorted by their beginnings; malloc'd. */
static period *periods_of(const vt_dataset *dataset, bool used_only, int64_t *count)
{
    period *periods = vt_allocate((size_t)dataset->piece_count + 1, sizeof *periods, "the times of data files");
    *count = 0;
    for (int64_t s = 0; s < dataset->stretch_count; s++) {
        const vt_set_stretch *stretch = &dataset->stretches[s];
        for (int64_t p = stretch->first_piece; p < stretch->first_piece + stretch->pieces; p++) {
            const vt_set_piece *piece = &dataset->pieces[p];
            const int64_t used =
                stretch->used - piece->first < piece->times ? stretch->used - piece->first : piece->times;
            const int64_t times = used_only ? used : piece->times;
            if (!piece->dated || times <= 0) continue;
            int64_t end = vt_dataset_date_in(dataset, piece, times - 1).minutes;
            if (!piece->proven) end = end_by_name(vt_dataset_group_path(dataset, piece->file), end);
            periods[(*count)++] = (period){piece->date.minutes, end, piece->date.calendar, piece->file};
        }
    }
    if (*count > 0) qsort(periods, (size_t)*count, sizeof *periods, by_beginning);
    return periods;
}

static const char *date_text(vt_calendar calendar, int64_t minutes, char text[VT_DATE_SIZE])
{
    return vt_date_format((vt_date){calendar, minutes}, text);
}

static void warn_of_repeated_times(const vt_dataset *dataset)
{
    int64_t count = 0, files = 0;
    char dates[2][VT_DATE_SIZE];
    period *periods = periods_of(dataset, false, &count);
    const period *latest = periods;
    for (int64_t i = 1; i < count; i++) {
        const period *own = &periods[i];
        const int64_t end = own->to < latest->to ? own->to : latest->to;
        if (own->from <= latest->to && files++ == 0)
            vt_log_warning(
                "the times from %s to %s come twice: %s and %s both hold them, so samples are used twice; keep "
                "each time in one file",
                date_text(own->calendar, own->from, dates[0]), date_text(own->calendar, end, dates[1]),
                vt_dataset_group_path(dataset, latest->file), vt_dataset_group_path(dataset, own->file));
        if (own->to > latest->to) latest = own;
    }
    if (files > 1)
        vt_log_warning("%lld files of %s in all begin before another one ends", (long long)files,
                       dataset->options.directory);
    free(periods);
}

char *vt_dataset_shared_times(const vt_source *source, const vt_source *other_source)
{
    static const char *const names[] = {"training", "validation", "test"};
    const vt_dataset *one = (const vt_dataset *)source, *other = (const vt_dataset *)other_source;
    int64_t counts[2] = {0}, from = 0, to = 0, minutes = 0;
    char dates[2][VT_DATE_SIZE], *sentence = NULL;
    const period *first[2] = {NULL, NULL};
    period *a = periods_of(one, true, &counts[0]), *b = periods_of(other, true, &counts[1]);
    for (int64_t i = 0, j = 0; i < counts[0] && j < counts[1];) {
        const int64_t begin = a[i].from > b[j].from ? a[i].from : b[j].from;
        const int64_t end = a[i].to < b[j].to ? a[i].to : b[j].to;
        if (begin <= end && a[i].calendar == b[j].calendar) {
            if (first[0] == NULL) {
                first[0] = &a[i];
                first[1] = &b[j];
                from = begin;
            }
            to = end;
            minutes += end - begin;
        }
        if (a[i].to < b[j].to)
            i++;
        else
            j++;
    }
    if (first[0] != NULL)
        sentence =
            vt_text_format("%s and %s overlap: the times from %s to %s%s are in both, first in %s and %s. Scores on "
                           "times that the model was trained on, or chosen by, look better than its forecasts are; "
                           "keep each time in one of the two",
                           names[source->set], names[other_source->set], date_text(first[0]->calendar, from, dates[0]),
                           date_text(first[0]->calendar, to, dates[1]), to - from > minutes ? ", with gaps," : "",
                           vt_dataset_group_path(one, first[0]->file), vt_dataset_group_path(other, first[1]->file));
    free(a);
    free(b);
    return sentence;
}

void vt_dataset_join_pieces(vt_dataset *dataset)
{
    settle_minutes(dataset);
    dataset->stretches =
        vt_allocate((size_t)dataset->piece_count + 1, sizeof *dataset->stretches, "the times of data files");
    for (int64_t i = 0, next; i < dataset->piece_count; i = next) {
        vt_set_stretch stretch = {.first_piece = i, .pieces = 1, .times = dataset->pieces[i].times};
        for (next = i + 1; next < dataset->piece_count; next++, stretch.pieces++) {
            vt_set_piece *piece = &dataset->pieces[next];
            if (!follows(dataset, piece - 1, piece)) break;
            piece->first = stretch.times;
            stretch.times += piece->times;
        }
        add_stretch(dataset, &stretch);
    }
    dataset->source.crossing_samples = count_crossing(dataset);
    if (dataset->options.quiet || dataset->options.whole) return;
    warn_of_short_files(dataset);
    warn_of_repeated_times(dataset);
}
