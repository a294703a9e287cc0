#include "report/tensorboard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "base/text.h"
#include "event.pb-c.h"
#include "storage/output_file.h"

struct vt_tensorboard {
    FILE *file;
    char *path;
};

static void put_little_endian(uint8_t *bytes, uint64_t value, int count)
{
    for (int i = 0; i < count; i++) bytes[i] = (uint8_t)(value >> (8 * i));
}

/* One frame: length (8 bytes), masked CRC of it (4), the message, masked CRC of the message (4). */
static vt_status write_event(vt_tensorboard *tensorboard, const Vt__Event *event)
{
    enum { HEADER = 12, FOOTER = 4 };
    vt_status status = VT_OK;
    size_t length = vt__event__get_packed_size(event), total = HEADER + length + FOOTER;
    uint8_t *record = vt_allocate(total, 1, "the event file");
    put_little_endian(record, length, 8);
    put_little_endian(record + 8, vt_crc32c_masked(record, 8), 4);
    vt__event__pack(event, record + HEADER);
    put_little_endian(record + HEADER + length, vt_crc32c_masked(record + HEADER, length), FOOTER);
    VT_CHECK(fwrite(record, 1, total, tensorboard->file) == total && fflush(tensorboard->file) == 0,
             "can't write %s: %s", tensorboard->path, strerror(errno));
done:
    free(record);
    return status;
}

static Vt__Event event_now(int64_t step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    Vt__Event event = VT__EVENT__INIT;
    event.wall_time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    event.step = step;
    return event;
}

/* Files of one second (a run resumed at once) differ in their nanoseconds. */
static vt_status create_file(const char *directory, vt_tensorboard *tensorboard)
{
    vt_status status = VT_OK;
    char host[256] = "localhost";
    struct timespec now;
    gethostname(host, sizeof host - 1);
    clock_gettime(CLOCK_REALTIME, &now);
    tensorboard->path =
        vt_text_format("%s/events.out.tfevents.%010ld.%s.%09ld", directory, now.tv_sec, host, now.tv_nsec);
    tensorboard->file = fopen(tensorboard->path, "wbxe");
    VT_CHECK(tensorboard->file != NULL, "can't write %s: %s", tensorboard->path, strerror(errno));
done:
    return status;
}

vt_status vt_tensorboard_open(const char *directory, int64_t steps, vt_tensorboard **result)
{
    vt_status status = VT_OK;
    vt_tensorboard *tensorboard = vt_allocate(1, sizeof *tensorboard, "the event file");
    VT_TRY(vt_output_make_directory(directory));
    VT_TRY(create_file(directory, tensorboard));
    char version[] = "brain.Event:2"; /* TensorBoard looks for it at the start of a file */
    Vt__Event event = event_now(0), start = event_now(steps + 1);
    Vt__SessionLog log = VT__SESSION_LOG__INIT;
    event.what_case = VT__EVENT__WHAT_FILE_VERSION;
    event.file_version = version;
    VT_TRY(write_event(tensorboard, &event));
    log.status = VT__SESSION_LOG__STATUS__START;
    start.what_case = VT__EVENT__WHAT_SESSION_LOG;
    start.session_log = &log;
    if (steps > 0) VT_TRY(write_event(tensorboard, &start));
done:
    if (status != VT_OK) vt_tensorboard_close(&tensorboard);
    *result = tensorboard;
    return status;
}

void vt_tensorboard_close(vt_tensorboard **tensorboard)
{
    if (*tensorboard == NULL) return;
    if ((*tensorboard)->file != NULL) fclose((*tensorboard)->file);
    free((*tensorboard)->path);
    free(*tensorboard);
    *tensorboard = NULL;
}

static vt_status write_value(vt_tensorboard *tensorboard, const char *tag, int64_t step, Vt__Summary__Value *value)
{
    Vt__Event event = event_now(step);
    Vt__Summary summary = VT__SUMMARY__INIT;
    value->tag = vt_text_clean(tag); /* protobuf's strings are UTF-8 */
    summary.n_value = 1;
    summary.value = &value;
    event.what_case = VT__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    const vt_status status = write_event(tensorboard, &event);
    free(value->tag);
    return status;
}

vt_status vt_tensorboard_scalar(vt_tensorboard *tensorboard, const char *tag, int64_t step, double value)
{
    Vt__Summary__Value entry = VT__SUMMARY__VALUE__INIT;
    entry.value_case = VT__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
    entry.simple_value = (float)value;
    return write_value(tensorboard, tag, step, &entry);
}

vt_status vt_tensorboard_image(vt_tensorboard *tensorboard, const char *tag, int64_t step, const vt_png *png)
{
    enum { RGB = 3 };
    Vt__Summary__Value entry = VT__SUMMARY__VALUE__INIT;
    Vt__Summary__Image image = VT__SUMMARY__IMAGE__INIT;
    image.width = png->width;
    image.height = png->height;
    image.colorspace = RGB;
    image.encoded_image_string.len = png->size;
    image.encoded_image_string.data = png->bytes;
    entry.value_case = VT__SUMMARY__VALUE__VALUE_IMAGE;
    entry.image = &image;
    return write_value(tensorboard, tag, step, &entry);
}
