/* The real data set, if present: NCEP/NCAR reanalysis, air temperature, 24x48 over North America (Kalnay et al.
 * 1996). */
#include <unistd.h>

#include "data/loader.h"
#include "source/fields/statistics.h"
#include "test.h"
#include "unit/data_files.h"

static const char *ncep_directory(void)
{
    const char *directory = getenv("VITRAIN_NCEP");
    if (directory == NULL) directory = "../shared/data/ncep_air6h";
    if (access(directory, R_OK) == 0) return directory;
    vt_test_skip("no real data in %s (VITRAIN_NCEP names it)", directory);
    return NULL;
}

/* Loss of the forecast "as it is now": mean over samples of |x(t+1) - x(t)| / |x(t+1)|, normalised. */
TEST(persistence)
{
    enum { POINTS = 24 * 48 };
    const char *directory = ncep_directory();
    if (directory == NULL) return;
    char valid[512], means[512], stds[512];
    snprintf(valid, sizeof valid, "%s/valid", directory);
    snprintf(means, sizeof means, "%s/stats/global_means.npy", directory);
    snprintf(stds, sizeof stds, "%s/stats/global_stds.npy", directory);
    float mean, std;
    EXPECT_OK(test_read_pair(means, stds, 1, &mean, &std));
    vt_dataset_options options =
        TEST_OPTIONS(.height = 24, .width = 48, .in_channels = 4, .out_channels = 1, .history = 3);
    options.directory = valid;
    SCOPED(vt_dataset) *dataset = test_open(&options);
    EXPECT(dataset->source.sample_count == 1456, "%ld", dataset->source.sample_count);
    SCOPED(vt_loader) *loader = TEST_LOADER(dataset, .global_batch_size = 16, .workers = 1);
    vt_loader_begin(loader, 0, 0);
    double loss = 0;
    const vt_batch *batch = NULL;
    while ((batch = test_next(loader)) != NULL) {
        for (int64_t s = 0; s < batch->sample_count; s++) {
            const float *now = (const float *)batch->tensors[VT_TENSOR_INPUT] + s * 4 * POINTS,
                        *next = (const float *)batch->tensors[VT_TENSOR_TARGET] + s * POINTS;
            double difference = 0, norm = 0;
            for (int i = 0; i < POINTS; i++) {
                double change = (double)(next[i] - now[i]) / (double)std,
                       anomaly = (double)(next[i] - mean) / (double)std;
                difference += change * change;
                norm += anomaly * anomaly;
            }
            loss += sqrt(difference / norm);
        }
    }
    EXPECT_NEAR(loss / 1456, 0.1681, 1e-4);
    EXPECT(dataset->latitudes[0] > dataset->latitudes[23]);
}

TEST(statistics_are_those_of_training)
{
    const char *directory = ncep_directory();
    if (directory == NULL) return;
    char path[512];
    float mean, std;
    SCOPED(vt_statistics) *statistics = NULL;
    snprintf(path, sizeof path, "%s/train", directory);
    const vt_statistics_source source = {.directory = path, .option_name = "data directory"};
    EXPECT_OK(vt_statistics_gather(&source, &statistics));
    VT_ASSERT(statistics != NULL);
    snprintf(path, sizeof path, "%s/stats/global_means.npy", directory);
    EXPECT_OK(test_read_statistics(path, VT_FILE_OF_MEANS, 1, &mean));
    snprintf(path, sizeof path, "%s/stats/global_stds.npy", directory);
    EXPECT_OK(test_read_statistics(path, VT_FILE_OF_STDS, 1, &std));
    EXPECT_NEAR(vt_statistics_mean(statistics, 0), (double)mean, 1e-4);
    EXPECT_NEAR(vt_statistics_std(statistics, 0), (double)std, 1e-4);
    EXPECT_TEXT(statistics->about->names[0], "air_sig995");
}
