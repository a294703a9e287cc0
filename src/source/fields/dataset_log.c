/* The grid and the times of a set, and what there is to say of them: files too short for a sample, times that come
 * twice, what is assumed if the files don't say it. */
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "source/fields/dataset_inside.h"

/* ---- the grid ---- */

vt_status vt_dataset_check_round(const vt_dataset *dataset)
{
    vt_status status = VT_OK;
    const double *longitudes = dataset->longitudes;
    const int64_t width = dataset->options.width;
    VT_CHECK(!dataset->options.round || longitudes == NULL || vt_window_period(longitudes, width) > 0,
             "pad: wrap is for grids that go round the globe, but the longitudes of %s '%s' go from %g to %g%s; use "
             "--pad=edge",
             dataset->options.option_name, dataset->options.directory, longitudes[0], longitudes[width - 1],
             width < dataset->about->columns ? " in the window" : "");
done:
    return status;
}

void vt_dataset_take_coordinates(vt_dataset *dataset)
{
    const vt_fields_about *about = dataset->about;
    const int64_t height = dataset->options.height, rows = dataset->options.synthetic ? height : about->rows;
    dataset->longitudes = vt_fields_about_coordinates(about, true);
    dataset->latitudes = vt_fields_about_coordinates(about, false);
    if (dataset->latitudes != NULL) return;
    dataset->latitudes = vt_allocate((size_t)height, sizeof *dataset->latitudes, "the grid of a data set");
    for (int64_t row = 0; row < height; row++) {
        const int64_t at = about->window.first_row + row;
        double even = rows > 1 ? 90.0 - 180.0 * (double)at / (double)(rows - 1) : 0.0;
        dataset->latitudes[row] = about->no_latitudes ? 0 : even;
    }
}

static void log_step(const vt_dataset *dataset)
{
    const vt_dataset_options *options = &dataset->options;
    const vt_fields_index *index = &dataset->index;
    const vt_set_stretch *last = index->stretches + index->stretch_count - 1;
    const int64_t minutes = vt_index_minutes(index), usual = 60 * VT_HOURS_A_TIME;
    char dates[2][VT_DATE_SIZE], steps[2][VT_DATE_SIZE];
    vt_date from, to;
    vt_length_format(minutes, steps[0]);
    if (dataset->about->step == 0)
        vt_log_info("times: every %s is assumed, as the files don't say it; --time_step=24h would say another",
                    steps[0]);
    else if (vt_index_date(index, index->stretches, 0, &from) && vt_index_date(index, last, last->times - 1, &to))
        vt_log_info("times: %s to %s, every %s%s", vt_date_format(from, dates[0]), vt_date_format(to, dates[1]),
                    steps[0],
                    options->form.time_step != NULL ? ", by time_step"
                    : index->pieces[0].proven       ? ""
                                                    : ", by their number, or the attribute time_step");
    if (dataset->source.crossing_samples > 0)
        vt_log_info("%ld of the %ld samples reach from one file into the next, whose times follow",
                    dataset->source.crossing_samples, dataset->source.sample_count);
    if (minutes == usual || options->dt * minutes == usual || options->form.time_step != NULL) return;
    char *advice = usual % minutes == 0
                       ? vt_text_format("; %d hours would be --dt=%ld", VT_HOURS_A_TIME, usual / minutes)
                       : vt_text_copy("");
    vt_log_warning("the files have a time every %s, not every %d h: with dt %ld a forecast reaches %s ahead%s",
                   steps[0], VT_HOURS_A_TIME, options->dt, vt_length_format(options->dt * minutes, steps[1]), advice);
    free(advice);
}

const char *vt_dataset_assumed_weights(const vt_dataset *dataset)
{
    if (dataset->about->latitudes != NULL || dataset->options.synthetic) return NULL;
    return dataset->about->no_latitudes
               ? "all rows alike, as the files say that they run along no latitudes"
               : "rows as if they ran evenly from 90 to -90 degrees, as the files say no latitudes";
}

static void warn_of_repeated_column(const vt_dataset *dataset)
{
    const vt_dataset_options *options = &dataset->options;
    const double *longitudes = dataset->longitudes;
    const int64_t again = longitudes != NULL ? vt_window_repeats(longitudes, options->width) : 0;
    if (again == 0) return;
    vt_log_warning("grid: column %ld of %s '%s' (longitude %g) is column 0 (%g) once more, so losses, scores and pad: "
                   "wrap have it twice; --img_size=[%ld,%ld] leaves it out",
                   again, options->option_name, options->directory, longitudes[again], longitudes[0], options->height,
                   again);
}

void vt_dataset_log_coordinates(const vt_dataset *dataset)
{
    const char *assumed = vt_dataset_assumed_weights(dataset);
    warn_of_repeated_column(dataset);
    if (dataset->time_doubt != NULL)
        vt_log_warning("%s; so dates follow from the names of the files, and whether times are missing isn't known",
                       dataset->time_doubt);
    if (dataset->index.piece_count > 0) log_step(dataset);
    vt_log_lines(dataset->remarks.characters);
    if (dataset->about->turned) vt_log_info("grid: rows that run from south to north are turned round");
    if (dataset->grid_doubt != NULL) vt_log_warning("%s; --coordinates=[lat=NAME] names another", dataset->grid_doubt);
    if (assumed != NULL) vt_log_info("grid: RMSE weighs %s; --coordinates=[lat=NAME] would name them", assumed);
    if (dataset->options.round && dataset->longitudes == NULL && !dataset->options.synthetic)
        vt_log_info("grid: pad: wrap takes it to go round the globe, as the files say no longitudes");
    if (dataset->about->rotated)
        vt_log_info("grid: latitudes are those of a rotated pole; by them RMSE weighs the rows");
}

/* ---- times ---- */

static void warn_of_short_files(const vt_dataset *dataset)
{
    const vt_dataset_options *options = &dataset->options;
    const int64_t span = vt_index_span(&dataset->index.rule);
    int64_t count = 0;
    for (int64_t file = 0; file < dataset->index.file_count; file++) {
        const vt_set_file *own = &dataset->index.files[file];
        if (own->serves || count++ > 0) continue;
        vt_log_warning("%s has %ld times%s, too few for a sample, which spans %ld (n_history %ld, dt %ld): not used",
                       vt_file_list_path(&dataset->reading.list, file), own->times,
                       own->pieces > 1 ? " with gaps between them" : "", span + 1, options->history, options->dt);
    }
    if (count > 1) vt_log_warning("%ld files of %s in all are too short for a sample", count, options->directory);
}

static void warn_of_repeated_times(const vt_dataset *dataset)
{
    const vt_index_overlap found = vt_index_repeated(&dataset->index);
    char dates[2][VT_DATE_SIZE];
    if (found.count > 0)
        vt_log_warning("the times from %s to %s come twice: %s and %s both hold them, so samples are used twice; keep "
                       "each time in one file",
                       vt_date_format(found.from, dates[0]), vt_date_format(found.to, dates[1]),
                       vt_file_list_path(&dataset->reading.list, found.files[0]),
                       vt_file_list_path(&dataset->reading.list, found.files[1]));
    if (found.count > 1)
        vt_log_warning("%ld files of %s in all begin before another one ends", found.count, dataset->options.directory);
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
                          vt_file_list_path(&one->reading.list, found.files[0]),
                          vt_file_list_path(&other->reading.list, found.files[1]));
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
