/* The fields that the model sees beside the data: forcings (task/weather/forcings.h), which follow from date and
 * coordinates, and static fields, which a file holds once. All are normalised. They are a sample's tensor
 * VT_TENSOR_FORCINGS: the forcings in the order of the option, then the static fields. */
#ifndef VT_SOURCE_FIELDS_KNOWN_FIELDS_H
#define VT_SOURCE_FIELDS_KNOWN_FIELDS_H

#include "config/roles.h"
#include "parallel/layout.h"
#include "source/fields/fields_file.h"

/* What is wished; the texts outlive what is opened with it. */
typedef struct {
    vt_forcing_list forcings;
    const char *static_path; /* NULL: no static fields */
    vt_fields_form form;     /* of that file: its variables, coordinates, gaps */
    int64_t static_count;    /* the first so many of its channels */
} vt_known_options;

typedef struct vt_known_fields vt_known_fields;

vt_known_options vt_known_options_of(const vt_config *config);

/* Of `options`: how many fields there are, and how many of them are the same at all times. */
int64_t vt_known_count(const vt_known_options *options);
int64_t vt_known_fixed_count(const vt_known_options *options);

/* Of the rows `rows` of the data's window. Fails where a forcing needs coordinates that are not known; where the static
 * fields are not there, have another grid, miss values or are the same everywhere. */
vt_status vt_known_fields_open(const vt_known_options *options, const vt_fields_side *data, vt_span rows,
                               vt_known_fields **known);
void vt_known_fields_close(vt_known_fields **known);

/* fields [count, rows, width] of a date, or of those that change alone, [count - fixed_count, rows, width]. Any thread.
 */
void vt_known_fields_take(const vt_known_fields *known, vt_date date, bool changing_only, float *fields);

/* Those that don't change, [fixed_count, rows, width], in the order of all; the caller's to read only. */
const float *vt_known_fields_fixed(const vt_known_fields *known);

/* Does field `field` of all change? *place: its place among those that do, or that don't. */
bool vt_known_field_changes(const vt_known_options *options, int64_t field, int64_t *place);

/* Fills in n_static_fields where it isn't set: the channels that the file of static_fields holds. */
vt_status vt_known_fields_complete(vt_config *config);

#endif
