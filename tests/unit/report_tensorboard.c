/* The event file, read back byte by byte: frames, checksums, and the field numbers that TensorFlow's messages have. */
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/crc32c.h"
#include "base/text.h"
#include "event.pb-c.h"
#include "report/tensorboard.h"
#include "test.h"

TEST(crc32c_known_answers)
{
    uint8_t bytes[32] = {0};
    EXPECT(vt_crc32c("", 0) == 0);
    EXPECT(vt_crc32c("123456789", 9) == 0xe3069283);
    for (size_t first = 0; first <= 9; first++) /* in two pieces */
        EXPECT(vt_crc32c_more(vt_crc32c("123456789", first), &"123456789"[first], 9 - first) == 0xe3069283, "%zu",
               first);
    EXPECT(vt_crc32c(bytes, 32) == 0x8a9136aa); /* these three: RFC 3720, appendix B.4 */
    memset(bytes, 0xff, 32);
    EXPECT(vt_crc32c(bytes, 32) == 0x62a8ab43);
    for (int i = 0; i < 32; i++) bytes[i] = (uint8_t)i;
    EXPECT(vt_crc32c(bytes, 32) == 0x46dd794e);
    /* The length 24 before the first record of every event file ends in these four bytes: a3 7f 4b 22. */
    const uint8_t length[8] = {24};
    EXPECT(vt_crc32c_masked(length, 8) == 0x224b7fa3, "is %08x", vt_crc32c_masked(length, 8));
}

/* The only file of the directory, whole. */
static uint8_t *read_only_file(const char *directory, size_t *size)
{
    char path[600] = "";
    DIR *listing = opendir(directory);
    for (const struct dirent *entry = readdir(listing); entry != NULL; entry = readdir(listing))
        if (strncmp(entry->d_name, "events.out.tfevents.", 20) == 0)
            snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
    closedir(listing);
    FILE *file = fopen(path, "rb");
    VT_ASSERT(file != NULL);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*size);
    EXPECT(fread(bytes, 1, *size, file) == *size);
    fclose(file);
    return bytes;
}

static uint64_t little_endian(const uint8_t *bytes, int count)
{
    uint64_t value = 0;
    for (int i = 0; i < count; i++) value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

/* The next frame's message, its checksums checked; NULL at the end. */
static const uint8_t *next_message(const uint8_t *bytes, size_t size, size_t *position, size_t *length)
{
    if (*position == size) return NULL;
    const uint8_t *frame = bytes + *position;
    EXPECT(*position + 16 <= size);
    *length = (size_t)little_endian(frame, 8);
    EXPECT(little_endian(frame + 8, 4) == vt_crc32c_masked(frame, 8));
    EXPECT(*position + 16 + *length <= size);
    EXPECT(little_endian(frame + 12 + *length, 4) == vt_crc32c_masked(frame + 12, *length));
    *position += 16 + *length;
    return frame + 12;
}

TEST(tensorboard_event_file_reads_back)
{
    static uint8_t picture[] = {0x89, 'P', 'N', 'G', 0, 255};
    /* Event: 9 wall_time (double), 0x10 step, 0x2a summary { 0x0a value { 0x0a tag, 0x15 simple_value (float) } } */
    static const uint8_t scalar_start[] = {0x10, 0xac, 0x02, 0x2a, 0x0a, 0x0a, 0x08, 0x0a, 1, 'a', 0x15, 0, 0, 0xc0};
    vt_tensorboard *tensorboard = NULL;
    size_t size = 0, position = 0, length = 0;
    char *directory = NULL;
    directory = vt_text_format("%s/logs", vt_test_directory());
    EXPECT_OK(vt_tensorboard_open(directory, 0, &tensorboard));
    EXPECT_OK(vt_tensorboard_scalar(tensorboard, "a\n", 300, -1.5)); /* tags are clean */
    EXPECT_OK(vt_tensorboard_scalar(tensorboard, "Loss/train", 0, 0));
    EXPECT_OK(vt_tensorboard_image(tensorboard, "picture", 7, &(vt_png){64, 32, picture, sizeof picture}));
    vt_tensorboard_close(&tensorboard);

    uint8_t *bytes = vt_test_owned(read_only_file(directory, &size));
    const uint8_t *message = next_message(bytes, size, &position, &length);
    EXPECT(length == 24 && message[0] == 9 && message[9] == 0x1a && memcmp(message + 11, "brain.Event:2", 13) == 0);
    message = next_message(bytes, size, &position, &length);
    EXPECT(length == 9 + 15 && memcmp(message + 9, scalar_start, sizeof scalar_start) == 0 && message[23] == 0xbf);
    message = next_message(bytes, size, &position, &length);
    Vt__Event *event = vt__event__unpack(NULL, length, message); /* a value of 0 must be there, too */
    EXPECT(event != NULL && event->step == 0 && event->wall_time > 1.7e9);
    EXPECT(event->summary->value[0]->value_case == VT__SUMMARY__VALUE__VALUE_SIMPLE_VALUE);
    EXPECT(strcmp(event->summary->value[0]->tag, "Loss/train") == 0 && event->summary->value[0]->simple_value == 0);
    vt__event__free_unpacked(event, NULL);
    message = next_message(bytes, size, &position, &length);
    event = vt__event__unpack(NULL, length, message);
    EXPECT(event != NULL && event->step == 7);
    const Vt__Summary__Image *image = event->summary->value[0]->image;
    EXPECT(image->width == 64 && image->height == 32 && image->colorspace == 3);
    EXPECT(image->encoded_image_string.len == sizeof picture &&
           memcmp(image->encoded_image_string.data, picture, sizeof picture) == 0);
    vt__event__free_unpacked(event, NULL);
    EXPECT(next_message(bytes, size, &position, &length) == NULL);
    free(directory);
}

/* A run continues after 41 steps: earlier files' points from step 42 on are dropped. */
TEST(tensorboard_of_a_resumed_run)
{
    vt_tensorboard *tensorboard = NULL;
    size_t size = 0, position = 0, length = 0;
    EXPECT_OK(vt_tensorboard_open(vt_test_directory(), 41, &tensorboard));
    vt_tensorboard_close(&tensorboard);
    uint8_t *bytes = vt_test_owned(read_only_file(vt_test_directory(), &size));
    next_message(bytes, size, &position, &length);
    const uint8_t *message = next_message(bytes, size, &position, &length);
    Vt__Event *event = vt__event__unpack(NULL, length, message);
    EXPECT(event->step == 42 && event->what_case == VT__EVENT__WHAT_SESSION_LOG);
    EXPECT(event->session_log->status == VT__SESSION_LOG__STATUS__START);
    vt__event__free_unpacked(event, NULL);
    EXPECT(next_message(bytes, size, &position, &length) == NULL);
}

TEST(tensorboard_files_of_one_second_do_not_meet)
{
    SCOPED(vt_tensorboard) *first = NULL, *second = NULL;
    EXPECT_OK(vt_tensorboard_open(vt_test_directory(), 0, &first));
    EXPECT_OK(vt_tensorboard_open(vt_test_directory(), 0, &second));
}

TEST(tensorboard_on_a_full_disk)
{
    vt_tensorboard *tensorboard = NULL;
    struct rlimit before, small;
    EXPECT_OK(vt_tensorboard_open(vt_test_directory(), 0, &tensorboard));
    getrlimit(RLIMIT_FSIZE, &before);
    small = (struct rlimit){64, before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    vt_status status = vt_tensorboard_scalar(tensorboard, "Loss/train", 1, 1);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    EXPECT_ERROR(status, "File too large");
    vt_tensorboard_close(&tensorboard);
    EXPECT_ERROR(vt_tensorboard_open("/proc/nothing/here", 0, &tensorboard), "can't make the directory");
}
