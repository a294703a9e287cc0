/* The loader's batches are the sampler's, whatever is read ahead; it stops at any moment; errors come out in place. */
#include "data/loader.h"

#include "base/random.h"
#include "config/config.h"
#include "test.h"
#include "unit/data_files.h"

static const test_fields file = {.times = 24, .channels = 2, .height = 3, .width = 4};
enum { SAMPLES = 23 };

/* A set of this file, and its first `limit` samples. */
static vt_dataset *open_some(const test_fields *fields, int64_t limit)
{
    vt_dataset_options options = test_fields_options(fields);
    options.out_channels = 1;
    options.sample_limit = limit;
    test_fields_write(test_path("2001.h5"), fields);
    return test_open(&options);
}

static vt_dataset *open_dataset(const test_fields *fields)
{
    return open_some(fields, VT_UNSET_INTEGER);
}

/* The batch holds exactly the samples order[first] … of the file. */
static void expect_batch(const vt_batch *batch, const int64_t *order, int64_t first, int64_t count)
{
    EXPECT(batch != NULL);
    if (batch == NULL) return;
    EXPECT(batch->sample_count == count, "%ld", batch->sample_count);
    EXPECT(batch->first_sample == first, "%ld", batch->first_sample);
    for (int64_t i = 0; i < count && i < batch->sample_count; i++) {
        int64_t sample = order[first + i];
        EXPECT(batch->samples[i] == sample, "%ld, expected %ld", batch->samples[i], sample);
        EXPECT_NEAR((double)test_input(batch)[i * 24 + 23], test_value(&file, sample, 1, 2, 3), 0);
        EXPECT_NEAR((double)test_target(batch)[i * 12 + 5], test_value(&file, sample + 1, 0, 1, 1), 0);
    }
}

TEST(sampler_is_the_permutation)
{
    int64_t order[SAMPLES];
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        vt_source source = {.sample_count = SAMPLES};
        SCOPED(vt_sampler) *sampler = vt_sampler_open(&(vt_loader_options){
            .source = &source, .global_batch_size = 5, .drop_last = true, .shuffle = true, .seed = 7});
        vt_random_permutation(7, (uint64_t)epoch, SAMPLES, order);
        EXPECT(vt_sampler_batch_count(sampler) == 4);
        for (int64_t b = 3; b >= 0; b--) {
            vt_batch slice = vt_sampler_batch(sampler, epoch, b);
            EXPECT(slice.sample_count == 5 && slice.first_in_batch == 0 && slice.global_count == 5);
            EXPECT(memcmp(slice.samples, order + 5 * b, 5 * sizeof *order) == 0);
        }
    }
}

/* Samples that each part gets of a batch of n out of g: even cuts of full ones, runs of ceil(n / parts) of a partial.
 */
TEST(slices_of_the_parts)
{
    static const struct {
        int64_t samples, size, parts, counts[6]; /* of the last batch, part after part */
    } cases[] = {
        {23, 6, 3, {2, 2, 1}},           {22, 6, 3, {2, 2, 0}},     {19, 6, 3, {1, 0, 0}},   {24, 6, 3, {2, 2, 2}},
        {21, 12, 6, {2, 2, 2, 2, 1, 0}}, {17, 12, 4, {2, 2, 1, 0}}, {3, 8, 4, {1, 1, 1, 0}}, {1, 1, 1, {1}},
        {29, 16, 4, {4, 4, 4, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int64_t size = cases[i].size, parts = cases[i].parts;
        const int64_t batches = (cases[i].samples + size - 1) / size;
        int64_t order[32], seen = 0;
        vt_source source = {.sample_count = cases[i].samples};
        vt_sampler *samplers[6];
        vt_random_permutation(3, 2, cases[i].samples, order);
        for (int64_t p = 0; p < parts; p++) {
            vt_loader_options options = {
                .source = &source, .global_batch_size = size, .part = p, .parts = parts, .shuffle = true, .seed = 3};
            samplers[p] = vt_sampler_open(&options);
            EXPECT(vt_sampler_batch_count(samplers[p]) == batches);
        }
        for (int64_t b = 0; b < batches; b++)
            for (int64_t p = 0; p < parts; p++) {
                vt_batch slice = vt_sampler_batch(samplers[p], 2, b);
                int64_t count = b < batches - 1 ? size / parts : cases[i].counts[p];
                EXPECT(slice.sample_count == count, "case %zu, batch %ld, part %ld: %ld", i, b, p, slice.sample_count);
                EXPECT(slice.first_in_batch == seen - b * size || slice.sample_count == 0);
                EXPECT(slice.global_count == (b < batches - 1 ? size : cases[i].samples - b * size));
                EXPECT(memcmp(slice.samples, order + seen, (size_t)slice.sample_count * sizeof *order) == 0);
                seen += slice.sample_count;
            }
        EXPECT(seen == cases[i].samples); /* the parts together are one rank's order */
        for (int64_t p = 0; p < parts; p++) vt_sampler_close(&samplers[p]);
    }
}

static void expect_epochs(vt_dataset *dataset, bool shuffle, bool drop_last, bool read_ahead, int64_t prefetch)
{
    SCOPED(vt_loader) *loader = TEST_LOADER(dataset, .global_batch_size = 5, .drop_last = drop_last, .shuffle = shuffle,
                                            .seed = 11, .prefetch = prefetch, .workers = read_ahead);
    int64_t batches = drop_last ? 4 : 5, order[SAMPLES];
    EXPECT(vt_loader_batch_count(loader) == batches);
    /* through two epochs, then one of them again from its second batch, then far away, then what follows that */
    const int64_t epochs[5] = {0, 1, 1, 9, 10}, firsts[5] = {0, 0, 1, 3, 0};
    for (int i = 0; i < 5; i++) {
        vt_loader_begin(loader, epochs[i], firsts[i]);
        for (int64_t k = 0; k < SAMPLES; k++) order[k] = k;
        if (shuffle) vt_random_permutation(11, (uint64_t)epochs[i], SAMPLES, order);
        for (int64_t b = firsts[i]; b < batches; b++) expect_batch(test_next(loader), order, 5 * b, b < 4 ? 5 : 3);
        for (int again = 0; again < 2; again++) EXPECT(test_next(loader) == NULL);
    }
}

TEST(order_for_every_prefetch)
{
    SCOPED(vt_dataset) *dataset = open_dataset(&file);
    const int64_t prefetches[] = {1, 2, 3, 7, 50};
    for (int form = 0; form < 4; form++) {
        expect_epochs(dataset, form & 1, form & 2, false, 0);
        for (size_t i = 0; i < sizeof prefetches / sizeof prefetches[0]; i++)
            expect_epochs(dataset, form & 1, form & 2, true, prefetches[i]);
    }
}

/* Three parts of 21 = 3 batches of 6 and one of 3, or of 19, where the last two get nothing; every sample once. */
static void expect_parts(int64_t limit, bool drop_last, bool read_ahead)
{
    enum { PARTS = 3, SIZE = 6 };
    SCOPED(vt_dataset) *dataset = open_some(&file, limit);
    int64_t order[SAMPLES], seen[SAMPLES] = {0};
    vt_random_permutation(5, 0, limit, order);
    const int64_t batches = drop_last ? limit / SIZE : (limit + SIZE - 1) / SIZE;
    for (int64_t part = 0; part < PARTS; part++) {
        SCOPED(vt_loader) *loader =
            TEST_LOADER(dataset, .global_batch_size = SIZE, .part = part, .parts = PARTS, .drop_last = drop_last,
                        .shuffle = true, .seed = 5, .workers = read_ahead);
        EXPECT(vt_loader_batch_count(loader) == batches);
        vt_loader_begin(loader, 0, 0);
        for (int64_t b = 0; b < batches; b++) {
            const int64_t size = limit - b * SIZE < SIZE ? limit - b * SIZE : SIZE, run = (size + PARTS - 1) / PARTS;
            const int64_t begin = part * run < size ? part * run : size,
                          count = size - begin < run ? size - begin : run;
            const vt_batch *batch = test_next(loader);
            expect_batch(batch, order, b * SIZE + begin, count);
            if (batch == NULL) continue;
            EXPECT(batch->first_in_batch == begin && batch->global_count == size);
            EXPECT((test_input(batch) == NULL) == (count == 0) && (test_target(batch) == NULL) == (count == 0));
            for (int64_t i = 0; i < batch->sample_count; i++) seen[batch->samples[i]]++;
        }
        EXPECT(test_next(loader) == NULL);
    }
    for (int64_t i = 0; i < batches * SIZE && i < limit; i++) EXPECT(seen[order[i]] == 1);
}

TEST(parts_of_a_batch)
{
    for (int form = 0; form < 4; form++) {
        expect_parts(21, form & 1, form & 2);
        expect_parts(19, form & 1, form & 2);
    }
}

TEST(many_short_lives)
{
    SCOPED(vt_dataset) *dataset = open_dataset(&file);
    for (int life = 0; life < 200; life++) {
        SCOPED(vt_loader) *loader =
            TEST_LOADER(dataset, .global_batch_size = 2, .prefetch = 1 + life % 4, .workers = 1);
        const int64_t steps = life % 5, first = life % 7, other_epoch = life % 3, other_first = life % 11;
        if (steps > 0) vt_loader_begin(loader, 0, first);
        for (int i = 0; i < steps; i++) {
            test_next(loader);
            if (i == 1) vt_loader_begin(loader, other_epoch, other_first);
        }
    }
}

/* Training and validation each have a reader; both are in HDF5 all the time. */
TEST(two_loaders_at_once)
{
    vt_dataset *first = open_dataset(&file), *datasets[2] = {first, test_open(&first->options)};
    vt_loader *loaders[2];
    int64_t order[SAMPLES];
    vt_random_permutation(0, 0, SAMPLES, order);
    for (int i = 0; i < 2; i++) {
        loaders[i] = TEST_LOADER(datasets[i], .global_batch_size = 1, .shuffle = true, .workers = 1);
        vt_loader_begin(loaders[i], 0, 0);
    }
    for (int64_t b = 0; b < SAMPLES; b++)
        for (int i = 0; i < 2; i++) expect_batch(test_next(loaders[i]), order, b, 1);
    for (int i = 0; i < 2; i++) {
        vt_loader_close(&loaders[i]);
        vt_dataset_close(&datasets[i]);
    }
}

TEST(errors_come_out_in_place)
{
    test_fields poisoned = file;
    poisoned.poison = NAN;
    poisoned.poison_index = 10 * 24 + 12 + 1;
    SCOPED(vt_dataset) *dataset = open_dataset(&poisoned);
    for (int read_ahead = 0; read_ahead < 2; read_ahead++) {
        SCOPED(vt_loader) *loader = TEST_LOADER(dataset, .global_batch_size = 4, .workers = read_ahead);
        for (int again = 0; again < 2; again++) {
            vt_loader_begin(loader, 0, 0);
            for (int b = 0; b < 2; b++) test_next(loader);
            for (int twice = 0; twice < 2; twice++)
                test_expect_bad_batch(loader, "'fields' is NaN at time 10, channel 1");
        }
        vt_loader_begin(loader, 0, 4); /* past the bad sample */
        const vt_batch *batch = test_next(loader);
        EXPECT(batch != NULL && batch->samples[0] == 16);
    }
}

/* Unchecked batches hold what is in the file; a sample is checked on request. Values that stay in memory are always
 * checked.
 */
TEST(unchecked_values_are_reported_on_request)
{
    test_fields poisoned = file;
    poisoned.poison = NAN;
    poisoned.poison_index = 10 * 24 + 12 + 1;
    SCOPED(vt_dataset) *checked = open_dataset(&poisoned);
    vt_dataset_options options = checked->options;
    options.direct = options.unchecked = true;
    for (int keeps = 0; keeps < 2; keeps++) {
        SCOPED(vt_dataset) *dataset = test_open(&options);
        if (keeps) EXPECT_OK(test_keep_frames(dataset));
        SCOPED(vt_loader) *loader = TEST_LOADER(dataset, .global_batch_size = 4, .workers = 1);
        vt_loader_begin(loader, 0, 0);
        for (int b = 0; b < 2; b++) test_next(loader);
        if (keeps) {
            test_expect_bad_batch(loader, "'fields' is NaN at time 10, channel 1");
        } else {
            const vt_batch *batch = test_next(loader);
            EXPECT(isnan(test_input(batch)[2 * 24 + 13]) && isfinite(test_input(batch)[24 + 13]));
            EXPECT_OK(vt_source_check(&dataset->source, 8));
            EXPECT_ERROR(vt_source_check(&dataset->source, 10),
                         "2001.h5: 'fields' is NaN at time 10, channel 1, row 0, column 1");
        }
    }
}

TEST(fewer_samples_than_a_batch)
{
    SCOPED(vt_dataset) *dataset = open_dataset(&file);
    SCOPED(vt_loader) *loader = NULL;
    vt_loader_options options = {.source = &dataset->source, .global_batch_size = 24, .drop_last = true, .prefetch = 1};
    EXPECT_ERROR(vt_loader_open(&options, &loader), "has 23 samples, fewer than one batch of 24");
    options.drop_last = false;
    EXPECT_OK(vt_loader_open(&options, &loader));
    EXPECT(vt_loader_batch_count(loader) == 1);
}

static int memory_balance;

static vt_status count_allocate(vt_backend *backend, size_t bytes, void **memory)
{
    (void)backend;
    memory_balance++;
    *memory = malloc(bytes);
    return VT_OK;
}

static void count_release(vt_backend *backend, void *memory)
{
    (void)backend;
    memory_balance--;
    free(memory);
}

TEST(memory_of_a_back_end)
{
    SCOPED(vt_dataset) *dataset = open_dataset(&file);
    memory_balance = 0;
    vt_backend backend = {.allocate_host = count_allocate, .release_host = count_release};
    vt_loader *loader = TEST_LOADER(dataset, .global_batch_size = 4, .workers = 1, .backend = &backend);
    EXPECT(memory_balance == 4, "%d", memory_balance);
    vt_loader_close(&loader);
    EXPECT(memory_balance == 0, "%d", memory_balance);
}
