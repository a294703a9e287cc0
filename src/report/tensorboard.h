/* The event file that TensorBoard reads: scalars and images over the iterations done. TFRecord frames around protobuf
 * messages (event.proto). Every call writes through to the file, and fails when it can't (a full disk, say). */
#ifndef VT_REPORT_TENSORBOARD_H
#define VT_REPORT_TENSORBOARD_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct vt_tensorboard vt_tensorboard;

/* Makes the directory when it isn't there, and in it a new file events.out.tfevents.<seconds since 1970>.<host>; older
 * ones stay, and TensorBoard draws them as one run. What they say of steps beyond `steps`, those that the run goes on
 * behind, is void (a SessionLog says so): these come again. */
vt_status vt_tensorboard_open(const char *directory, int64_t steps, vt_tensorboard **tensorboard);
void vt_tensorboard_close(vt_tensorboard **tensorboard);

vt_status vt_tensorboard_scalar(vt_tensorboard *tensorboard, const char *tag, int64_t step, double value);

/* An RGB picture, already encoded as PNG. */
vt_status vt_tensorboard_image(vt_tensorboard *tensorboard, const char *tag, int64_t step, int width, int height,
                               const void *png, size_t png_size);

#endif
