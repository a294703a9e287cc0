/* The event file that TensorBoard reads: scalars and images over the iterations done. TFRecord frames around protobuf
 * messages (event.proto). Every call writes to the file at once, and fails if it can't (a full disk, say). */
#ifndef VT_REPORT_TENSORBOARD_H
#define VT_REPORT_TENSORBOARD_H

#include "report/image.h"

typedef struct vt_tensorboard vt_tensorboard;

/* Makes the directory if needed, and in it a new file events.out.tfevents.<seconds since 1970>.<host>.<nanoseconds>.
 * Older files stay, and TensorBoard draws all of them as one run; a SessionLog makes it drop their points after step
 * `steps`, which the resumed run writes again. */
vt_status vt_tensorboard_open(const char *directory, int64_t steps, vt_tensorboard **tensorboard);
void vt_tensorboard_close(vt_tensorboard **tensorboard);

vt_status vt_tensorboard_scalar(vt_tensorboard *tensorboard, const char *tag, int64_t step, double value);

vt_status vt_tensorboard_image(vt_tensorboard *tensorboard, const char *tag, int64_t step, const vt_png *png);

#endif
