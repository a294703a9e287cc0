/* The lock of the HDF5 library. HDF5 keeps global state and most builds of it are not thread-safe (those that are
 * serialise every call anyway), so every caller holds this process-wide lock: training and validation may each have a
 * reader thread. Included only by the files that read and write HDF5. */
#ifndef VT_STORAGE_HDF5_ACCESS_H
#define VT_STORAGE_HDF5_ACCESS_H

#include <hdf5.h>
#include <stdbool.h>

#include "base/status.h"
#include "base/text.h"

/* Takes the lock, and silences HDF5's own printing of errors in the calling thread, which may enter more than once and
 * leaves as often. */
void vt_hdf5_enter(void);
void vt_hdf5_leave(void);

/* From the next vt_hdf5_enter on, HDF5 calls `told` when one of its functions fails; NULL, as at first: it calls
 * nothing. */
void vt_hdf5_tell_failures(H5E_auto2_t told);

/* For a thread that has entered once, and will do much: lets those in that wait. */
void vt_hdf5_let_others(void);

/* The innermost message of the HDF5 call that has just failed: the root cause. Valid until the next call of HDF5, so
 * take it at once. Without a message, the text of errno. */
const char *vt_hdf5_reason(void);

/* Does that message tell of a system call that failed? Else the file is at fault. */
bool vt_hdf5_was_refused(void);

/* Up to `most` numbers of an object's attribute, converted to `type`; 0: there is no such attribute; -1: it is
 * something else, or damaged. *is_float: are they stored as floating-point numbers? */
int vt_hdf5_numbers(hid_t object, const char *name, hid_t type, int most, void *values, bool *is_float);

/* Adds the texts of an object's attribute, none if there is no such attribute; false: it is something else, or damaged.
 */
bool vt_hdf5_texts(hid_t object, const char *name, vt_names *texts);

/* Access properties for opening and making files: no file locking, which parallel file systems often refuse. */
hid_t vt_hdf5_file_access(void);

/* Access properties (of class H5P_LINK_ACCESS, or H5P_DATASET_ACCESS, which contains it) that don't follow links into
 * other files: what is opened must not decide which files are read. */
hid_t vt_hdf5_link_access(hid_t class);

/* The file that such a link named since vt_hdf5_link_access was last called; "" when there was none. */
const char *vt_hdf5_refused_file(void);

/* A space of these extents; rank 0: a scalar. Selects the box [count] of it that begins at `start`. */
hid_t vt_hdf5_space(int rank, const int64_t *extent);
void vt_hdf5_select(hid_t space, int rank, const int64_t *start, const int64_t *count);

/* ---- writing, by a caller that has entered; the error is a cause ---- */

/* Makes a dataset of these extents. It has no time stamps, so that the same values give the same bytes. Closes the
 * properties, of class H5P_DATASET_CREATE. *dataset is negative when it can't be made. */
vt_status vt_hdf5_make_dataset(hid_t file, const char *name, hid_t type, hid_t properties, int rank,
                               const int64_t *extent, hid_t *dataset);

/* Writes values [count] to the box of a dataset that begins at `start`. */
vt_status vt_hdf5_write_box(hid_t dataset, int rank, const int64_t *start, const int64_t *count, const float *values);

/* Gives an object an attribute of values that are of `type` in memory, and of type `stored` in the file: a list of
 * `count`, or, if that is negative, one value. */
vt_status vt_hdf5_write_attribute(hid_t object, const char *name, hid_t stored, hid_t type, int64_t count,
                                  const void *values);

#endif
