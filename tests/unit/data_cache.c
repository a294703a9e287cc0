/* Times that stay in memory: the same batches by every reader, each time read once, bad ones never kept. */
#include <math.h>
#include <unistd.h>

#include "config/config.h"
#include "data/loader.h"
#include "operations/paths.h"
#include "parallel/world.h"
#include "source/fields/dataset_inside.h"
#include "test.h"
#include "training/reader.h"
#include "unit/data_files.h"

enum { TIMES = 30, SAMPLES = 28, BATCH = 4 };

static vt_dataset *open_again(bool direct, int64_t limit)
{
    vt_dataset_options options = TEST_OPTIONS(.height = 6, .width = 8, .first_row = 1, .rows = 4, .in_channels = 4,
                                              .out_channels = 3, .history = 1, .direct = direct, .tolerant = true);
    options.sample_limit = limit;
    return test_open(&options);
}

static vt_dataset *open_dataset(const test_fields *fields, bool direct, int64_t limit)
{
    test_fields_write(test_path("2001.h5"), fields);
    return open_again(direct, limit);
}

/* How many stay in memory. */
static int64_t kept_frames(vt_dataset *dataset)
{
    pthread_mutex_lock(&dataset->reading.lock);
    const int64_t kept = dataset->reading.kept_frames;
    pthread_mutex_unlock(&dataset->reading.lock);
    return kept;
}

static int64_t wrong_values(const test_fields *fields, const vt_dataset *dataset, const vt_batch *batch)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < batch->sample_count; i++)
        if (batch->bad == NULL || !batch->bad[i])
            wrong += test_wrong_values(fields, &dataset->options, batch->samples[i] + 1, test_input(batch) + i * 128,
                                       test_target(batch) + i * 96);
    return wrong;
}

static int64_t read_epoch(vt_loader *loader, const test_fields *fields, int64_t epoch, int64_t *batches)
{
    const vt_batch *batch = NULL;
    const vt_dataset *dataset = vt_dataset_of(vt_loader_options_of(loader)->source);
    int64_t wrong = 0;
    *batches = 0;
    vt_loader_begin(loader, epoch, 0);
    for (; (batch = test_next(loader)) != NULL; ++*batches) wrong += wrong_values(fields, dataset, batch);
    return wrong;
}

static vt_loader *open_loader(vt_dataset *dataset, int64_t workers, bool skip_bad, bool indices_only)
{
    return TEST_LOADER(dataset, .global_batch_size = BATCH, .drop_last = true, .shuffle = true, .seed = 5,
                       .workers = workers, .skip_bad = skip_bad, .indices_only = indices_only);
}

/* After two epochs all is in memory: then the file is emptied, and nothing changes. */
TEST(kept_times_are_those_of_the_file)
{
    static const test_fields forms[] = {
        {.times = TIMES, .channels = 3, .height = 6, .width = 8},
        {.times = TIMES, .channels = 3, .height = 6, .width = 8, .chunk = {4, 2, 4, 5}, .deflate = 1, .shuffle = true}};
    static const int64_t workers[] = {0, 1, 5};
    for (int form = 0; form < 2; form++)
        for (int direct = 0; direct < 2; direct++)
            for (int w = 0; w < 3; w++) {
                int64_t batches = 0;
                SCOPED(vt_dataset) *dataset = open_dataset(&forms[form], direct != 0, VT_UNSET_INTEGER);
                EXPECT(dataset->source.frame_count == TIMES && vt_dataset_frame_channels(dataset) == 3);
                EXPECT(dataset->source.frame_bytes == 3 * 32 * 4);
                EXPECT_OK(test_keep_frames(dataset));
                SCOPED(vt_loader) *loader = open_loader(dataset, workers[w], false, false);
                for (int64_t epoch = 0; epoch < 6; epoch++) {
                    if (epoch == 4) vt_loader_rest(loader);
                    if (epoch == 4) EXPECT(kept_frames(dataset) == TIMES, "%ld kept", kept_frames(dataset));
                    if (epoch == 4) EXPECT(truncate(test_path("2001.h5"), 0) == 0);
                    int64_t wrong = read_epoch(loader, &forms[form], epoch, &batches);
                    EXPECT(batches == SAMPLES / BATCH && wrong == 0, "form %d direct %d workers %ld epoch %ld: %ld",
                           form, direct, workers[w], epoch, wrong);
                }
            }
}

/* What can't be read is not kept, and stays bad. */
TEST(bad_times_are_not_kept)
{
    const test_fields poisoned = {
        .times = TIMES, .channels = 3, .height = 6, .width = 8, .poison = NAN, .poison_index = 20 * 144 + 10};
    for (int64_t workers = 0; workers < 4; workers += 3) {
        int64_t batches = 0, kept = 0;
        SCOPED(vt_dataset) *dataset = open_dataset(&poisoned, true, VT_UNSET_INTEGER);
        EXPECT_OK(test_keep_frames(dataset));
        SCOPED(vt_loader) *loader = open_loader(dataset, workers, true, false);
        for (int64_t epoch = 0; epoch < 12; epoch++) {
            EXPECT(read_epoch(loader, &poisoned, epoch, &batches) == 0);
            kept = kept_frames(dataset);
        }
        EXPECT(kept > TIMES / 2 && kept < TIMES, "%ld kept", kept);
    }
}

TEST(frames_of_samples)
{
    const test_fields fields = {.times = TIMES, .channels = 3, .height = 6, .width = 8};
    const test_fields second = {.times = 12, .channels = 3, .height = 6, .width = 8, .offset = 9000};
    int64_t frames[3], wrong = 0;
    float values[3 * 32];
    test_fields_write(test_path("2002.h5"), &second);
    for (int kept = 0; kept < 2; kept++) {
        SCOPED(vt_dataset) *dataset = open_dataset(&fields, true, SAMPLES + 2);
        EXPECT(dataset->source.frame_count == TIMES + 4, "%ld", dataset->source.frame_count);
        if (kept != 0) EXPECT_OK(test_keep_frames(dataset));
        test_frames(dataset, 0, frames);
        EXPECT(frames[0] == 1 && frames[1] == 0 && frames[2] == 2);
        test_frames(dataset, SAMPLES + 1, frames); /* the second one of the second file */
        EXPECT(frames[0] == TIMES + 2 && frames[1] == TIMES + 1 && frames[2] == TIMES + 3);
        for (int again = 0; again < 2; again++)
            for (int64_t f = 0; f < TIMES + 4; f++) {
                EXPECT_OK(test_read_frame(dataset, f, values));
                for (int64_t j = 0; j < 3 * 32; j++)
                    wrong += (double)values[j] != test_value(f < TIMES ? &fields : &second, f < TIMES ? f : f - TIMES,
                                                             j / 32, 1 + j / 8 % 4, j % 8);
            }
        EXPECT(wrong == 0, "%ld", wrong);
        EXPECT(kept_frames(dataset) == (kept != 0 ? TIMES + 4 : 0));
    }
}

TEST(batches_of_indices_only)
{
    const test_fields fields = {.times = TIMES, .channels = 3, .height = 6, .width = 8};
    SCOPED(vt_dataset) *dataset = open_dataset(&fields, true, VT_UNSET_INTEGER);
    for (int64_t workers = 0; workers < 2; workers++) {
        const vt_batch *whole = NULL, *bare = NULL;
        SCOPED(vt_loader) *reading = open_loader(dataset, workers, false, false);
        SCOPED(vt_loader) *loader = open_loader(dataset, workers, false, true);
        vt_loader_begin(reading, 3, 0);
        vt_loader_begin(loader, 3, 0);
        do {
            whole = test_next(reading);
            bare = test_next(loader);
            EXPECT((whole == NULL) == (bare == NULL));
            if (whole == NULL || bare == NULL) break;
            EXPECT(test_input(bare) == NULL && test_target(bare) == NULL && bare->sample_count == whole->sample_count);
            EXPECT(memcmp(bare->samples, whole->samples, (size_t)whole->sample_count * sizeof(int64_t)) == 0);
        } while (true);
    }
}

TEST(a_cache_that_does_not_fit_is_left_out)
{
    const test_fields fields = {.times = TIMES, .channels = 3, .height = 6, .width = 8};
    const vt_config config = {.cache = VT_CACHE_HOST, .ranks = 1};
    for (int fits = 0; fits < 2; fits++) {
        float values[3 * 32];
        SCOPED(vt_dataset) *training = open_dataset(&fields, true, VT_UNSET_INTEGER);
        SCOPED(vt_dataset) *validation = open_again(true, VT_UNSET_INTEGER);
        vt_source *const sets[] = {&training->source, &validation->source};
        bool kept[2];
        EXPECT((vt_reader_keep_sets(&config, VT_CACHE_HOST, fits != 0 ? 1e18 : 100, sets, kept) > 0) == fits);
        EXPECT(kept[0] == fits && kept[1] == fits);
        EXPECT_OK(test_read_frame(training, 0, values));
        EXPECT_OK(test_read_frame(validation, 0, values));
        EXPECT(kept_frames(training) == fits && kept_frames(validation) == fits);
    }
}

/* A batch that is put together in a device's memory is the one that would have been read. */
GPU_TEST(a_devices_cache_gives_the_same_batches)
{
    const test_fields fields = {.times = TIMES, .channels = 3, .height = 6, .width = 8};
    FOR_EACH_CUDA_STEP_PATH(isa)
    {
        SCOPED(vt_backend) *backend = NULL;
        SCOPED(vt_dataset) *dataset = open_dataset(&fields, true, VT_UNSET_INTEGER);
        SCOPED(vt_device_cache) *cache = NULL;
        void *tensors[2] = {NULL};
        float host_input[BATCH * 128], host_target[BATCH * 96];
        EXPECT_OK(path_open_trainers(isa, &backend));
        EXPECT_OK(vt_device_cache_open(backend, &dataset->source, &cache));
        EXPECT_OK(backend->allocate(backend, VT_MEMORY_DATA, sizeof host_input, &tensors[0]));
        EXPECT_OK(backend->allocate(backend, VT_MEMORY_DATA, sizeof host_target, &tensors[1]));
        vt_loader *loader = open_loader(dataset, 1, false, true);
        vt_loader_begin(loader, 0, 0);
        for (int i = 0; i < SAMPLES / BATCH; i++) {
            const vt_batch *batch = test_next(loader);
            VT_ASSERT(batch != NULL);
            EXPECT(batch->source == &dataset->source && test_input(batch) == NULL);
            vt_device_cache_batch(cache, batch, tensors);
            backend->copy_to_host(backend, host_input, tensors[0], sizeof host_input);
            backend->copy_to_host(backend, host_target, tensors[1], sizeof host_target);
            vt_batch read = *batch;
            read.tensors[VT_TENSOR_INPUT] = host_input;
            read.tensors[VT_TENSOR_TARGET] = host_target;
            EXPECT(wrong_values(&fields, dataset, &read) == 0, "batch %d", i);
        }
        vt_loader_close(&loader);
        backend->release(backend, tensors[0]);
        backend->release(backend, tensors[1]);
    }
}
