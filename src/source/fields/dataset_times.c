/* What there is to say of a set's times: files too short for a sample, times that come twice. */
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "source/fields/dataset_inside.h"

static void warn_of_short_files(const vt_dataset *dataset)
{
    const vt_dataset_options *options = &dataset->options;
    const int64_t files = dataset->list.groups, span = vt_index_span(&dataset->index.rule);
    int64_t *pieces = vt_allocate((size_t)files + 1, sizeof *pieces, "the times of data files"), count = 0;
    bool *serves = vt_allocate((size_t)files + 1, sizeof *serves, "the times of data files");
    vt_index_count_pieces(&dataset->index, pieces, serves);
    for (int64_t file = 0; file < files; file++) {
        if (serves[file] || count++ > 0) continue;
        vt_log_warning(
            "%s has %lld times%s, too few for a sample, which spans %lld (n_history %lld, dt %lld): not used",
            vt_dataset_group_path(dataset, file), (long long)dataset->files[file].times,
            pieces[file] > 1 ? " with gaps between them" : "", (long long)(span + 1), (long long)options->history,
            (long long)options->dt);
    }
    if (count > 1)
        vt_log_warning("%lld files of %s in all are too short for a sample", (long long)count, options->directory);
    free(pieces);
    free(serves);
}

static void warn_of_repeated_times(const vt_dataset *dataset)
{
    const vt_index_overlap found = vt_index_repeated(&dataset->index);
    char dates[2][VT_DATE_SIZE];
    if (found.count > 0)
        vt_log_warning("the times from %s to %s come twice: %s and %s both hold them, so samples are used twice; keep "
                       "each time in one file",
                       vt_date_format(found.from, dates[0]), vt_date_format(found.to, dates[1]),
                       vt_dataset_group_path(dataset, found.files[0]), vt_dataset_group_path(dataset, found.files[1]));
    if (found.count > 1)
        vt_log_warning("%lld files of %s in all begin before another one ends", (long long)found.count,
                       dataset->options.directory);
}

char *vt_dataset_shared_times(const vt_source *source, const vt_source *other_source)
{
    static const char *const names[] = {"training", "validation", "test"};
    const vt_dataset *one = (const vt_dataset *)source, *other = (const vt_dataset *)other_source;
    const vt_index_overlap found = vt_index_shared(&one->index, &other->index);
    char dates[2][VT_DATE_SIZE];
    if (found.count == 0) return NULL;
    return vt_text_format("%s and %s overlap: the times from %s to %s%s are in both, first in %s and %s. Scores on "
                          "times that the model was trained on, or chosen by, look better than its forecasts are; "
                          "keep each time in one of the two",
                          names[source->set], names[other_source->set], vt_date_format(found.from, dates[0]),
                          vt_date_format(found.to, dates[1]), found.has_gaps ? ", with gaps," : "",
                          vt_dataset_group_path(one, found.files[0]), vt_dataset_group_path(other, found.files[1]));
}

void vt_dataset_join(vt_dataset *dataset)
{
    const vt_dataset_options *options = &dataset->options;
    dataset->index.rule =
        (vt_index_rule){options->history, options->dt, options->reach, options->sample_limit, options->files_apart};
    dataset->index.step = dataset->about->step;
    vt_index_join(&dataset->index);
    dataset->about->step = dataset->index.step;
    dataset->source.sample_count = dataset->index.samples;
    dataset->source.frame_count = dataset->index.frames;
    dataset->source.crossing_samples = dataset->index.crossing;
    if (options->quiet || options->whole) return;
    warn_of_short_files(dataset);
    warn_of_repeated_times(dataset);
}
