/* A source that knows nothing of files, fields or plans (tests/tenant/source_numbers.c), through the loader. */
#include "data/source.h"

#include "base/random.h"
#include "data/loader.h"
#include "test.h"
#include "unit/data_files.h"

extern const vt_source_kind vt_source_numbers;

enum { SAMPLES = 23, BATCH = 5, HEIGHT = 6, WIDTH = 4, IN = 3, OUT = 2, POINTS = HEIGHT * WIDTH };

static vt_source *open_numbers(vt_set set, vt_span rows)
{
    vt_source *source = NULL;
    const vt_config config = {.img_size = {HEIGHT, WIDTH},
                              .n_in_channels = IN,
                              .n_out_channels = OUT,
                              .limit_nsamples = SAMPLES,
                              .limit_nsamples_val = SAMPLES,
                              .seed = 7};
    EXPECT_OK(vt_source_numbers.open(&config, set, rows, &source));
    return source;
}

static void expect_batch(const vt_batch *batch, const int64_t *order, vt_source *source)
{
    float input[IN * POINTS], target[OUT * POINTS];
    void *const places[] = {input, target};
    EXPECT(batch != NULL && batch->sample_count == BATCH);
    for (int64_t i = 0; batch != NULL && i < batch->sample_count; i++) {
        EXPECT(batch->samples[i] == order[i], "%ld, expected %ld", batch->samples[i], order[i]);
        EXPECT_OK(source->kind->read(source, order[i], NULL, places));
        EXPECT(memcmp(vt_batch_tensor(batch, source->specs, VT_TENSOR_INPUT, i), input, sizeof input) == 0);
        EXPECT(memcmp(vt_batch_tensor(batch, source->specs, VT_TENSOR_TARGET, i), target, sizeof target) == 0);
    }
}

/* Two epochs, and then again from the middle of the first one, as a resumed run begins. */
static void expect_epochs(vt_source *source, int64_t workers, int64_t prefetch)
{
    static const int64_t epochs[3] = {0, 1, 0}, firsts[3] = {0, 0, 2};
    SCOPED(vt_loader) *loader = test_loader((vt_loader_options){.source = source,
                                                                .global_batch_size = BATCH,
                                                                .drop_last = true,
                                                                .shuffle = true,
                                                                .seed = 3,
                                                                .prefetch = prefetch,
                                                                .workers = workers});
    EXPECT(vt_loader_batch_count(loader) == SAMPLES / BATCH);
    for (int i = 0; i < 3; i++) {
        int64_t order[SAMPLES];
        vt_random_permutation(3, (uint64_t)epochs[i], SAMPLES, order);
        vt_loader_begin(loader, epochs[i], firsts[i]);
        for (int64_t b = firsts[i]; b < SAMPLES / BATCH; b++)
            expect_batch(test_next(loader), order + b * BATCH, source);
        EXPECT(test_next(loader) == NULL);
    }
}

TEST(samples_that_are_read_one_by_one)
{
    vt_source *source = open_numbers(VT_SET_TRAINING, (vt_span){0, HEIGHT});
    for (int64_t prefetch = 1; prefetch < 4; prefetch++)
        for (int64_t workers = 0; workers < 4; workers++) expect_epochs(source, workers, prefetch);
    vt_source_close(&source);
    EXPECT(source == NULL);
}

/* The sets differ, the target is the map of the input, and the parts of a sample make up the whole. */
TEST(numbers_are_what_they_are_said_to_be)
{
    float input[2][IN * POINTS], target[OUT * POINTS], part[IN * POINTS], unused[OUT * POINTS];
    const vt_span whole = {0, HEIGHT}, south = {2, 4};
    vt_source *sets[] = {open_numbers(VT_SET_TRAINING, whole), open_numbers(VT_SET_VALIDATION, whole),
                         open_numbers(VT_SET_TRAINING, south)};
    EXPECT_OK(sets[0]->kind->read(sets[0], 4, NULL, (void *const[]){input[0], target}));
    EXPECT_OK(sets[1]->kind->read(sets[1], 4, NULL, (void *const[]){input[1], unused}));
    EXPECT_OK(sets[2]->kind->read(sets[2], 4, NULL, (void *const[]){part, unused}));
    EXPECT(memcmp(input[0], input[1], sizeof input[0]) != 0);
    EXPECT(vt_tensor_values(&sets[2]->specs[VT_TENSOR_INPUT]) == IN * 4 * WIDTH);
    for (int c = 0; c < IN; c++)
        EXPECT(memcmp(part + c * 4 * WIDTH, input[0] + c * POINTS + 2 * WIDTH, 4 * WIDTH * sizeof *part) == 0);
    for (int i = 0; i < OUT * POINTS; i++)
        EXPECT_NEAR((double)target[i], 0.5 * (double)input[0][i] - 0.25 * (double)input[0][i + POINTS], 1e-6);
    for (int i = 0; i < 3; i++) vt_source_close(&sets[i]);
}

/* ---- typed tensors, and samples that cannot be read ---- */

/* Three tensors of different types and sizes, the last of no dimension; sample 4 cannot be read. */
static vt_status read_typed(vt_source *source, int64_t sample, vt_decoder *decoder, void *const *tensors)
{
    vt_status status = VT_OK;
    (void)source, (void)decoder;
    VT_CHECK(sample != 4, "sample %ld is bad", sample);
    for (int i = 0; i < 3; i++) ((int32_t *)tensors[0])[i] = (int32_t)(sample * 10 + i);
    for (int i = 0; i < 35; i++) ((float *)tensors[1])[i] = (float)sample + (float)i / 64;
    *(int32_t *)tensors[2] = (int32_t)-sample;
done:
    return status;
}

static const vt_source_kind typed = {.name = "typed", .read = read_typed};

static vt_source typed_source(void)
{
    return (vt_source){.kind = &typed,
                       .option_name = "source",
                       .path = "typed",
                       .sample_count = 9,
                       .tensor_count = 3,
                       .specs = {{VT_TENSOR_INT32, 1, {3}}, {VT_TENSOR_FLOAT32, 2, {5, 7}}, {VT_TENSOR_INT32, 0, {0}}}};
}

static void expect_typed(const vt_batch *batch, const vt_source *source, int64_t place, int64_t sample)
{
    const int32_t *tokens = vt_batch_tensor(batch, source->specs, 0, place);
    const float *weights = vt_batch_tensor(batch, source->specs, 1, place);
    const int32_t *label = vt_batch_tensor(batch, source->specs, 2, place);
    for (int i = 0; i < 3; i++) EXPECT(tokens[i] == sample * 10 + i, "%d", tokens[i]);
    for (int i = 0; i < 35; i++) EXPECT_NEAR((double)weights[i], (double)sample + (double)i / 64, 0);
    EXPECT(*label == -sample, "%d", *label);
}

TEST(tensors_of_several_types)
{
    vt_source source = typed_source();
    for (int skip = 0; skip < 2; skip++)
        for (int64_t workers = 0; workers < 3; workers++) {
            SCOPED(vt_loader) *loader = test_loader(
                (vt_loader_options){.source = &source, .global_batch_size = 3, .workers = workers, .skip_bad = skip});
            vt_loader_begin(loader, 0, 0);
            for (int64_t b = 0; b < 3; b++) {
                if (b == 1 && !skip) {
                    test_expect_bad_batch(loader, "sample 4 is bad");
                    break;
                }
                const vt_batch *batch = test_next(loader);
                VT_ASSERT(batch != NULL);
                EXPECT(((uintptr_t)batch->tensors[1] & 63) == ((uintptr_t)batch->tensors[0] & 63));
                if (skip) EXPECT_OK(vt_loader_replace_bad(loader, batch, batch->bad));
                for (int64_t i = 0; i < 3; i++) expect_typed(batch, &source, i, b * 3 + i == 4 ? 5 : b * 3 + i);
            }
        }
}
