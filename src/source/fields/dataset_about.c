/* The description of a set, made of those of its files. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "source/fields/dataset_inside.h"

vt_status vt_fields_about_add_file(vt_fields_about **set, const vt_fields_file *file, const vt_fields_form *form,
                                   const vt_frame_window *window, vt_text *remarks)
{
    vt_status status = VT_OK;
    vt_fields_about *own = vt_fields_about_copy(file->about), *all = *set;
    own->window = *window;
    if (all == NULL) {
        *set = own;
        return VT_OK;
    }
    const vt_fields_rules rules = {.use = VT_FILES_OF_A_SET, .accepted = form->accept};
    const vt_fields_side sides[2] = {{own, file->path}, {all, "the files before it"}};
    vt_text said = {0};
    VT_TRY(vt_fields_compare(&rules, &sides[0], &sides[1], &said));
    if (remarks->length == 0 && said.length > 0) vt_text_append(remarks, "%s", said.characters);
    vt_fields_about_add_grid(all, own);
    if (all->step == 0) {
        all->step = own->step;
        all->step_from = own->step_from;
    }
    if (!all->dated) all->calendar = own->calendar;
    all->dated = all->dated || own->dated;
    for (int64_t i = 0; i < own->span_count; i++)
        vt_fields_about_add_span(all, own->spans[i].first, own->spans[i].last);
    all->times += own->times;
    char *first = all->files;
    all->files = vt_text_format("%.*s … %s", (int)strcspn(first, " "), first, own->files);
    all->file_count++;
    free(first);
done:
    vt_text_close(&said);
    vt_fields_about_close(&own);
    return status;
}

vt_status vt_fields_about_of_set(const char *directory, const char *option_name, const vt_fields_form *form,
                                 vt_fields_about **about)
{
    vt_status status = VT_OK;
    vt_dataset *dataset = NULL;
    const vt_dataset_options options = {.directory = directory,
                                        .option_name = option_name,
                                        .sample_limit = VT_UNSET_INTEGER,
                                        .dt = 1,
                                        .form = *form,
                                        .quiet = true,
                                        .whole = true};
    VT_TRY(vt_dataset_open(&options, &dataset));
    *about = dataset->about;
    dataset->about = NULL;
done:
    vt_dataset_close(&dataset);
    return status;
}

/* ---- a set that was opened ---- */

void vt_dataset_settle_about(vt_dataset *dataset)
{
    vt_fields_about *about = dataset->about;
    vt_date first, last;
    vt_fields_about_limit(about, 0, vt_dataset_frame_channels(dataset));
    about->dt = dataset->options.dt;
    about->span_count = about->times = 0;
    for (int64_t s = 0; s < dataset->index.stretch_count; s++) {
        const vt_set_stretch *stretch = &dataset->index.stretches[s];
        const int64_t used = dataset->options.whole ? stretch->times : stretch->used;
        about->times += used;
        if (used == 0 || !vt_index_date(&dataset->index, stretch, 0, &first) ||
            !vt_index_date(&dataset->index, stretch, used - 1, &last))
            continue;
        vt_fields_about_add_span(about, first, last);
    }
}

void vt_dataset_list_files(const vt_source *source, vt_text *lines)
{
    const vt_dataset *dataset = (const vt_dataset *)source;
    const vt_fields_about *about = dataset->about;
    char dates[2][VT_DATE_SIZE];
    const vt_file_list *list = &dataset->reading.list;
    for (const vt_file_group *own = list->groups; own < list->groups + list->group_count; own++)
        for (int64_t i = 0; i < own->count; i++) vt_source_add_file(list->paths[own->first + i], lines);
    if (about->span_count > 0)
        vt_text_append(lines, "%s: times from %s to %s\n", source->path,
                       vt_date_format(about->spans[0].first, dates[0]),
                       vt_date_format(about->spans[about->span_count - 1].last, dates[1]));
}

vt_status vt_dataset_agree(const vt_source *training, const vt_source *other)
{
    const vt_dataset *one = (const vt_dataset *)training, *second = (const vt_dataset *)other;
    const vt_fields_rules rules = {.use = VT_SETS_OF_A_RUN, .accepted = one->options.form.accept};
    const vt_fields_side sides[2] = {{second->about, other->path}, {one->about, training->path}};
    return vt_fields_agree(&rules, &sides[0], &sides[1]);
}

vt_status vt_dataset_join_forcings(const vt_dataset *dataset, vt_dataset *forcings)
{
    const vt_dataset_options *options = &dataset->options;
    const vt_fields_rules rules = {.use = VT_SETS_OF_A_RUN, .accepted = options->form.accept};
    vt_fields_about *own = vt_fields_about_copy(dataset->about);
    const int64_t first = vt_dataset_first_forcing(options), count = options->forcing_channels;
    vt_fields_about_limit(own, first, count);
    if (dataset->transforms != NULL) {
        forcings->transforms =
            vt_copy(dataset->transforms + first, (size_t)count, sizeof *forcings->transforms, "the forcings");
        for (int64_t c = 0; c < count; c++)
            vt_transform_name(&forcings->transforms[c], forcings->about->meanings[c].transform);
    }
    const vt_fields_side sides[2] = {{forcings->about, forcings->options.directory}, {own, options->directory}};
    const vt_status status = vt_fields_agree(&rules, &sides[0], &sides[1]);
    vt_fields_about_close(&own);
    return status;
}
