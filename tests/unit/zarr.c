/* Zarr stores that Python's zarr and xarray wrote (tests/zarr/make_stores.py): their values are to the bit those of the
 * netCDF copies, and what is damaged, missing or unknown in them becomes one sentence. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "settings.h"
#include "source/fields/dataset.h"
#include "source/fields/fields_file.h"
#include "storage/store.h"
#include "test.h"
#include "unit/data_files.h"

enum { ROWS = 8, COLUMNS = 12, POINTS = ROWS * COLUMNS };

/* The archive's `names`, in the test's directory; false, and the test is skipped, without the libraries. */
static bool unpack(const char *names)
{
    char *command = vt_test_owned(
        vt_text_format("tar -xzf tests/zarr/stores.tar.gz -C '%s' v2_blosc_lz4_1.zarr v2_zstd.zarr v2_lz4.zarr %s",
                       vt_test_directory(), names));
    EXPECT(system(command) == 0, "%s", command);
    static const char *const probes[] = {"v2_blosc_lz4_1.zarr", "v2_zstd.zarr", "v2_lz4.zarr"};
    for (int i = 0; i < 3; i++) {
        vt_fields_file *file = NULL;
        const char *path = test_path(probes[i]);
        const vt_status status = vt_fields_file_open_again(&path, 1, &(vt_fields_form){.variables = "t2m"}, &file);
        vt_fields_file_close(&file);
        if (status != VT_OK && strstr(vt_error_text(), "was built without") != NULL) {
            vt_test_lacks(vt_error_text());
            return false;
        }
        vt_error_clear();
    }
    return true;
}

static vt_fields_file *open_one(const char *name, const vt_fields_form *form)
{
    vt_fields_file *file = NULL;
    const char *path = test_path(name);
    EXPECT(vt_fields_file_open_again(&path, 1, form, &file) == VT_OK, "%s: %s", name, vt_error_text());
    return file;
}

/* All times of all channels must be the same numbers, and missing in the same places. Read past the library, as
 * training does, and through the store's own function. */
static void expect_alike(const char *name, const char *variables, const char *reference, const char *of_reference)
{
    SCOPED(vt_fields_file) *own = open_one(name, &(vt_fields_form){.variables = variables, .masked = true});
    SCOPED(vt_fields_file) *other = open_one(reference, &(vt_fields_form){.variables = of_reference, .masked = true});
    const int64_t size = own != NULL && other != NULL ? own->about->channels * POINTS : 0;
    float *values[3];
    SCOPED(vt_chunk_cache) cache;
    vt_chunk_cache_open(&cache, 4000); /* not all of them */
    for (int i = 0; i < 3; i++) values[i] = vt_test_owned(malloc((size_t)size * sizeof(float) + 1));
    const vt_frame_window whole = {.rows = ROWS, .width = COLUMNS}, part = {2, 4, 10, 5, COLUMNS};
    for (int64_t time = 0; size > 0 && time < own->about->times; time++) {
        for (int windowed = 0; windowed < 2; windowed++) {
            const vt_frame_window *window = windowed ? &part : &whole;
            const size_t bytes = (size_t)(own->about->channels * window->rows * window->width) * sizeof(float);
            const vt_read_manner direct = {.direct = true, .tolerant = true, .checked = true, .cache = &cache};
            vt_decoder decoder = {0};
            vt_read_plan *plan = vt_fields_plan_open(NULL);
            vt_fields_plan_add(
                plan, &(vt_frame){.opened = own, .time = time, .channels = own->about->channels, .values = values[0]});
            EXPECT_OK(vt_fields_plan_make(plan, window, &direct));
            for (int64_t i = 0; i < plan->item_count; i++) EXPECT_OK(vt_fields_plan_run(plan, i, &decoder));
            vt_fields_plan_close(plan);
            vt_decoder_close(&decoder);
            EXPECT_OK(vt_fields_file_read(own, time, own->about->channels, window, true, values[1]));
            EXPECT_OK(vt_fields_file_read(other, time, own->about->channels, window, true, values[2]));
            EXPECT(memcmp(values[0], values[2], bytes) == 0, "%s, time %ld, window %d: other values", name, time,
                   windowed);
            EXPECT(memcmp(values[1], values[2], bytes) == 0, "%s, time %ld, window %d: the store reads others", name,
                   time, windowed);
        }
    }
    for (int64_t row = 0; size > 0 && row < ROWS; row++)
        EXPECT(own->about->latitudes != NULL && own->about->latitudes[row] == other->about->latitudes[row]);
    EXPECT(size == 0 || (own->about->times == other->about->times && own->times.minutes == other->times.minutes &&
                         memcmp(own->times.dates, other->times.dates, (size_t)own->about->times * 8) == 0),
           "%s: other times", name);
}

TEST(zarr_codecs_and_orders)
{
    char stores[] = "v2_blosc_lz4_0 v2_blosc_lz4_1 v2_blosc_lz4_2 v2_blosc_zstd_0 v2_blosc_zstd_1 "
                    "v2_blosc_zstd_2 v2_blosc_zlib_0 v2_blosc_zlib_1 v2_blosc_zlib_2 v2_blosc_blosclz_0 "
                    "v2_blosc_blosclz_1 v2_blosc_blosclz_2 v2_blosc_lz4hc_0 v2_blosc_lz4hc_1 "
                    "v2_blosc_lz4hc_2 v2_zstd v2_lz4 v2_gzip v2_zlib v2_none v2_crc32c v2_crc32c_last v2_F "
                    "v2_big v2_slash v2_apart v2_lon_lat v2_level_last v2_whole v2_south v2_xarray "
                    "v3_blosc_noshuffle v3_blosc_shuffle v3_blosc_bitshuffle v3_zstd v3_gzip v3_none "
                    "v3_crc32c v3_lz4 v3_zlib v3_big v3_apart v3_keys v3_lon_lat v3_shards_start "
                    "v3_shards_end v3_transposed v3_xarray",
         *rest = NULL;
    if (!unpack("--wildcards 'v2_*' 'v3_*' small_2001.nc")) return;
    for (char *store = strtok_r(stores, " ", &rest); store != NULL; store = strtok_r(NULL, " ", &rest))
        expect_alike(SETTINGS("%s.zarr", store), "[t2m, z@850, z@500]", "small_2001.nc", "[t2m, z@850, z@500]");
    expect_alike("v2_xarray.zarr", "[geopotential@500, 2t, z@850]", "small_2001.nc", "[z@500, t2m, z@850]");
}

TEST(zarr_cells_of_anemoi)
{
    if (!unpack("v2_anemoi.zarr small_2001.nc")) return;
    expect_alike("v2_anemoi.zarr", NULL, "small_2001.nc", "[t2m, z@500, z@850]");
    SCOPED(vt_fields_file) *file = open_one("v2_anemoi.zarr", &(vt_fields_form){.masked = true});
    EXPECT(strcmp(file->about->names[0], "2t") == 0 && strcmp(file->about->names[2], "z_850") == 0);
    EXPECT(file->about->longitudes != NULL && file->about->longitudes[1] == 30);
}

TEST(zarr_types)
{
    static const char types[] = "[f2, f4, f8, i2, i4, u1, i1]";
    if (!unpack("v2_types.zarr v3_types.zarr types_2001.nc v2_hourly.zarr v3_hourly.zarr hourly_2001.nc")) return;
    expect_alike("v2_types.zarr", types, "types_2001.nc", types);
    expect_alike("v3_types.zarr", types, "types_2001.nc", types);
    expect_alike("v2_types.zarr", "[big_f2, big_f4, big_f8, big_i2, big_i4]", "types_2001.nc", "[f2, f4, f8, i2, i4]");
    expect_alike("v2_hourly.zarr", "t", "hourly_2001.nc", "t");
    expect_alike("v3_hourly.zarr", "t", "hourly_2001.nc", "t");
}

TEST(zarr_periods_and_every_nth_time)
{
    if (!unpack("v2_hourly.zarr hourly_2001.nc")) return;
    static const char *const stores[] = {"v2_hourly.zarr", "hourly_2001.nc"};
    static const struct {
        const char *period, *step, *from;
        int64_t times, first, minutes;
    } rows[] = {{NULL, NULL, "2001-12-31 00:00", 48, 0, 60},
                {"2001", NULL, "2001-12-31 00:00", 24, 0, 60},
                {"2002..", NULL, "2002-01-01 00:00", 24, 24, 60},
                {"..2001-12-31T05:00", NULL, "2001-12-31 00:00", 6, 0, 60},
                {"2001-12-31T05..2002-01-01", NULL, "2001-12-31 05:00", 43, 5, 60},
                {"2001-12", NULL, "2001-12-31 00:00", 24, 0, 60},
                {NULL, "6h", "2001-12-31 00:00", 8, 0, 360},
                {"2001-12-31T05:00..2001-12-31T19:00", "6h", "2001-12-31 06:00", 3, 6, 360},
                {"1979..2000", NULL, NULL, 0, 0, 60}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int s = 0; s < 2; s++) {
            SCOPED(vt_fields_file) *file = open_one(stores[s], &(vt_fields_form){.variables = "t",
                                                                                 .period = rows[i].period,
                                                                                 .period_option = "train_period",
                                                                                 .time_step = rows[i].step,
                                                                                 .masked = true});
            char text[VT_DATE_SIZE];
            float chosen[POINTS], expected[POINTS];
            const vt_frame_window whole = {.rows = ROWS, .width = COLUMNS};
            EXPECT(file->about->times == rows[i].times, "row %zu: %ld times", i, file->about->times);
            EXPECT(file->times.minutes == rows[i].minutes, "row %zu", i);
            if (rows[i].times > 0 && file->about->times > 0) {
                SCOPED(vt_fields_file) *all = open_one(stores[s], &(vt_fields_form){.variables = "t", .masked = true});
                vt_date_format(file->times.begin, text);
                EXPECT(strcmp(text, rows[i].from) == 0, "row %zu begins at %s", i, text);
                const int64_t last = file->times.dates[rows[i].times - 1] - file->times.begin.minutes;
                EXPECT(last == (rows[i].times - 1) * rows[i].minutes, "row %zu", i);
                EXPECT_OK(vt_fields_file_read(file, 1, 1, &whole, false, chosen));
                EXPECT_OK(vt_fields_file_read(all, rows[i].first + rows[i].minutes / 60, 1, &whole, false, expected));
                EXPECT(memcmp(chosen, expected, sizeof chosen) == 0, "row %zu", i);
            }
        }
    static const char *const wrong[][2] = {{"soon", "train_period: 'soon' is no period; expected one like 1979..2015"},
                                           {"2001-13", "is no period"},
                                           {"2002..2001", "'2002..2001' ends before it begins"},
                                           {"..", "is no period"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        vt_fields_file *file = NULL;
        const char *path = test_path("v2_hourly.zarr");
        const vt_fields_form form = {.variables = "t", .period = wrong[i][0], .period_option = "train_period"};
        EXPECT_ERROR(vt_fields_file_open_again(&path, 1, &form, &file), wrong[i][1]);
    }
}

/* ---- what is wrong ---- */

static void write_text(const char *name, const char *text)
{
    test_write(name, text, strlen(text));
}

/* The first (or last) byte of a file is changed, or the file cut by one. */
static void damage(const char *name, bool cut)
{
    const char *path = test_path(name);
    struct stat info;
    unsigned char byte;
    EXPECT(stat(path, &info) == 0, "%s", name);
    if (cut) {
        EXPECT(truncate(path, info.st_size - 1) == 0);
        return;
    }
    const int file = open(path, O_RDWR);
    EXPECT(pread(file, &byte, 1, info.st_size / 2) == 1);
    byte ^= 0x55;
    EXPECT(pwrite(file, &byte, 1, info.st_size / 2) == 1);
    close(file);
}

/* Opening the store, or reading all of it, fails with the message. */
static void expect_error(const char *name, const char *variables, const char *message)
{
    SCOPED(vt_fields_file) *file = NULL;
    float *values = vt_test_owned(malloc(POINTS * sizeof(float)));
    const char *path = test_path(name);
    vt_status status = vt_fields_file_open_again(&path, 1, &(vt_fields_form){.variables = variables}, &file);
    for (int64_t time = 0; status == VT_OK && time < file->about->times; time++) {
        const vt_frame_window whole = {.rows = file->about->rows, .width = file->about->columns};
        status = vt_fields_file_read(file, time, 1, &whole, true, values);
    }
    EXPECT(status != VT_OK && strstr(vt_error_text(), message) != NULL, "%s: '%s', expected '%s'", name,
           status != VT_OK ? vt_error_text() : "no error", message);
    vt_error_clear();
}

TEST(zarr_damaged_and_unknown)
{
    if (!unpack("--wildcards 'v2_*' 'v3_*'")) return;
    expect_error("v2_filter.zarr", "t2m",
                 "'t2m': it is compressed with the codec or filter 'delta', which is not read");
    expect_error("v2_bz2.zarr", "t2m", "'t2m': it is compressed with the codec or filter 'bz2', which is not read");
    expect_error("v2_zstd.zarr", "q", "no variable 'q'; found: t2m, z");
    static const char *const damaged[][2] = {
        {"v2_zstd.zarr/t2m/0.0.0", "t2m/0.0.0: the chunk is damaged: its zstd data"},
        {"v2_lz4.zarr/t2m/0.0.0", "t2m/0.0.0: the chunk is damaged"},
        {"v2_gzip.zarr/t2m/0.0.0", "the chunk is damaged: its gzip data"},
        {"v2_zlib.zarr/t2m/0.0.0", "the chunk is damaged: its zlib data"},
        {"v2_none.zarr/t2m/0.0.0", "the chunk is damaged: it holds 719 bytes, but its shape needs 720"},
        {"v2_blosc_lz4_1.zarr/t2m/0.0.0", "the chunk is damaged: its blosc data"},
        {"v3_crc32c.zarr/t2m/c/0/0/0", "t2m/c/0/0/0: the chunk is damaged: its crc32c checksum is wrong"},
        {"v3_shards_start.zarr/t2m/c/0/0/0", "(was it cut short?)"},
        {"v3_shards_end.zarr/t2m/c/0/0/0", "the index of the shard is damaged: its crc32c checksum is wrong"}};
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        char *store = vt_test_owned(vt_text_copy(damaged[i][0]));
        damage(store, true);
        *strstr(store, "/t2m") = '\0';
        expect_error(store, "t2m", damaged[i][1]);
    }
    damage("v3_zlib.zarr/t2m/c/0/0/0", false);
    expect_error("v3_zlib.zarr", "t2m", "the chunk is damaged: its zlib data");
    damage("v3_shards_start.zarr/z/c/0/0/0/0", false);
    expect_error("v3_shards_start.zarr", "z@850", "is damaged");
    EXPECT(truncate(test_path("v3_shards_end.zarr/z/c/0/0/0/0"), 5) == 0);
    expect_error("v3_shards_end.zarr", "z@850", "the shard has 5 bytes, fewer than its index needs");
    write_text("v2_lz4.zarr/.zmetadata", "{\"metadata\": {");
    expect_error("v2_lz4.zarr", "t2m", "v2_lz4.zarr/.zmetadata is not JSON (damaged or cut short?): line 1");
    write_text("v3_zstd.zarr/zarr.json", "[]");
    expect_error("v3_zstd.zarr", "t2m", "v3_zstd.zarr/zarr.json is no Zarr metadata: it is not a JSON object");
    EXPECT(mkdir(test_path("empty.zarr"), 0777) == 0);
    expect_error("empty.zarr", "t2m", "empty.zarr is no Zarr store: it has none of .zmetadata, .zgroup and zarr.json");
    write_text("file.zarr", "");
    expect_error("file.zarr", "t2m", "file.zarr is a file, but a Zarr store is a directory");
    vt_store *store = NULL;
    EXPECT_ERROR(vt_store_open("gs://weatherbench2/era5.zarr", &store),
                 "gs://weatherbench2/era5.zarr is a remote store, and only files on disk are read; copy the part");
}

/* Halves of `fields` are floating-point numbers, too: 1, -2, 65504, the smallest above 0. */
TEST(zarr_fields_of_float16)
{
    static const uint16_t halves[] = {0x3c00, 0xc000, 0x7bff, 0x0001};
    static const float expected[] = {1, -2, 65504, 0x1p-24F};
    float values[4];
    write_text("half.zarr/.zgroup", "{\"zarr_format\": 2}");
    write_text("half.zarr/fields/.zarray",
               "{\"zarr_format\": 2, \"shape\": [1, 1, 2, 2], \"chunks\": [1, 1, 2, 2], \"dtype\": \"<f2\", "
               "\"order\": \"C\", \"compressor\": null, \"filters\": null, \"fill_value\": 0}");
    test_write("half.zarr/fields/0.0.0.0", halves, sizeof halves);
    SCOPED(vt_fields_file) *file = open_one("half.zarr", &(vt_fields_form){0});
    if (file == NULL) return;
    EXPECT_OK(vt_fields_file_read(file, 0, 1, &(vt_frame_window){.rows = 2, .width = 2}, true, values));
    EXPECT(memcmp(values, expected, sizeof values) == 0);
}

enum { TIMES = 1460 };

/* A store of 1460 times of one number, a file or shard of `each` chunks each, of the names that `format` makes; every
 * `gap`-th of its chunks was never written. */
static void write_long_store(const char *name, const char *metadata, const char *format, int each, int gap)
{
    const char *const is_root[2][2] = {{".zgroup", "{\"zarr_format\": 2}"},
                                       {"zarr.json", "{\"zarr_format\": 3, \"node_type\": \"group\"}"}};
    const int version = strstr(metadata, "data_type") != NULL ? 3 : 2;
    const float value = 280;
    char *path = vt_test_owned(vt_text_format("%s/%s", name, is_root[version - 2][0]));
    write_text(path, is_root[version - 2][1]);
    path = vt_test_owned(vt_text_format("%s/t2m/%s", name, version == 2 ? ".zarray" : "zarr.json"));
    write_text(path, metadata);
    for (int file = 0; file < TIMES / each; file++) {
        if (each == 1 && file % gap == 0) continue;
        char *chunk = vt_test_owned(vt_text_format(format, name, file));
        FILE *opened = fopen(test_path(chunk), "w");
        uint64_t places[2 * 20], end = 0;
        for (int c = 0; c < each; c++) {
            const bool is_written = (file * each + c) % gap != 0;
            places[2 * c] = is_written ? end : UINT64_MAX;
            places[2 * c + 1] = is_written ? sizeof value : UINT64_MAX;
            end += is_written ? sizeof value : 0;
            if (is_written) EXPECT(fwrite(&value, sizeof value, 1, opened) == 1);
        }
        if (each > 1) EXPECT(fwrite(places, 16, (size_t)each, opened) == (size_t)each);
        fclose(opened);
    }
}

/* Chunks that were never written are counted however many files an array has, in all layouts and within shards. */
TEST(zarr_chunks_never_written)
{
#define OF_2(MORE)                                                                                                     \
    "{\"zarr_format\": 2, \"shape\": [1460, 1, 1], \"chunks\": [1, 1, 1], \"dtype\": \"<f4\", \"order\": \"C\", "      \
    "\"compressor\": null, \"filters\": null, \"fill_value\": 0" MORE "}"
#define OF_3(CHUNK, KEYS, CODECS)                                                                                      \
    "{\"zarr_format\": 3, \"node_type\": \"array\", \"shape\": [1460, 1, 1], \"data_type\": \"float32\", "             \
    "\"fill_value\": 0, "                                                                                              \
    "\"chunk_grid\": {\"name\": \"regular\", \"configuration\": {\"chunk_shape\": [" CHUNK ", 1, 1]}}, "               \
    "\"chunk_key_encoding\": " KEYS ", \"codecs\": [" CODECS "]}"
#define BYTES "{\"name\": \"bytes\", \"configuration\": {\"endian\": \"little\"}}"
#define SHARDS                                                                                                         \
    "{\"name\": \"sharding_indexed\", \"configuration\": {\"chunk_shape\": [1, 1, 1], \"codecs\": [" BYTES             \
    "], \"index_codecs\": [" BYTES "]}}"
    static const struct {
        const char *metadata, *format;
        int each;
    } known[] = {
        {OF_2(""), "%s/t2m/%d.0.0", 1},
        {OF_2(", \"dimension_separator\": \"/\""), "%s/t2m/%d/0/0", 1},
        {OF_3("1", "{\"name\": \"default\"}", BYTES), "%s/t2m/c/%d/0/0", 1},
        {OF_3("1", "{\"name\": \"default\", \"configuration\": {\"separator\": \".\"}}", BYTES), "%s/t2m/c.%d.0.0", 1},
        {OF_3("1", "{\"name\": \"v2\"}", BYTES), "%s/t2m/%d.0.0", 1},
        {OF_3("20", "{\"name\": \"default\"}", SHARDS), "%s/t2m/c/%d/0/0", 20}};
    if (!unpack("v2_none.zarr")) return;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        char *name = vt_test_owned(vt_text_format("%zu.zarr", i));
        write_long_store(name, known[i].metadata, known[i].format, known[i].each, 73);
        char *stray = vt_test_owned(vt_text_format("%s/t2m/9999999.0.0", name));
        write_text(stray, "of an array that was longer");
        SCOPED(vt_fields_file) *file = open_one(name, &(vt_fields_form){.variables = "t2m"});
        test_log_begin();
        EXPECT_OK(vt_fields_file_check_written(file));
        EXPECT_PART(test_log_end(),
                    "only 1440 of the 1460 chunks of 't2m' were ever written, the others read as the fill value");
    }
}

/* A store of version 3 with the array t2m of this shape and these dimensions (lists in JSON), in chunks of one number,
 * and further keys of its metadata. */
static void write_store(const char *name, const char *shape, const char *dimensions, const char *chunk,
                        const char *more)
{
    char *text = vt_test_owned(vt_text_format(
        "{\"zarr_format\": 3, \"node_type\": \"array\", \"shape\": [%s], \"data_type\": \"float32\", \"fill_value\": "
        "0, "
        "\"chunk_grid\": {\"name\": \"regular\", \"configuration\": {\"chunk_shape\": [%s]}}, \"chunk_key_encoding\": "
        "{\"name\": \"v2\"}, \"codecs\": [{\"name\": \"bytes\", \"configuration\": {\"endian\": \"little\"}}], "
        "\"dimension_names\": [%s]%s}",
        shape, chunk, dimensions, more));
    write_text(vt_test_owned(vt_text_format("%s/zarr.json", name)), "{\"zarr_format\": 3, \"node_type\": \"group\"}");
    write_text(vt_test_owned(vt_text_format("%s/t2m/zarr.json", name)), text);
}

/* Shapes that no file has are refused before anything is as large as they are. */
TEST(zarr_absurd_shapes)
{
    static const char *const shapes[][3] = {
        {"1000000000000, 1, 1", "\"time\", \"lat\", \"lon\"", "1, 1, 1"},
        {"2, 1000000000000, 1", "\"time\", \"lat\", \"lon\"", "1, 1000, 1"},
        {"2, 1000000, 1000000", "\"time\", \"lat\", \"lon\"", "1, 1000, 1000"},
        {"2, 1000000000000, 1, 1", "\"time\", \"level\", \"lat\", \"lon\"", "1, 1, 1, 1"}};
    if (!unpack("v2_none.zarr")) return;
    for (int i = 0; i < 4; i++) {
        char *message = vt_test_owned(
            vt_text_format("'t2m' is [%s", i == 0 ? "1000000000000, 1, 1, 1] (time, channel, lat, lon)" : "2, "));
        write_store("absurd.zarr", shapes[i][0], shapes[i][1], shapes[i][2], "");
        expect_error("absurd.zarr", i < 3 ? "t2m" : "t2m@5", message);
        expect_error("absurd.zarr", i < 3 ? "t2m" : "t2m@5", "more than can be read; is its shape right?");
    }
}

TEST(zarr_extensions_of_version_3)
{
    static const struct {
        const char *more, *message; /* NULL: none */
    } known[] = {
        {", \"folded\": {\"must_understand\": true}", "'t2m': its metadata have the extension 'folded', which is not"},
        {", \"folded\": {\"name\": \"folded\"}", "'t2m': its metadata have the extension 'folded', which is not"},
        {", \"folded\": 1", "'t2m': its metadata have the extension 'folded', which is not"},
        {", \"folded\": {\"must_understand\": false}", NULL},
        {", \"storage_transformers\": [{\"name\": \"folded\"}]", "the storage transformer 'folded', which is not read"},
        {", \"storage_transformers\": []", NULL}};
    if (!unpack("v2_none.zarr")) return;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        write_store("odd.zarr", "2, 1, 1", "\"time\", \"lat\", \"lon\"", "1, 1, 1", known[i].more);
        if (known[i].message != NULL) {
            expect_error("odd.zarr", "t2m", known[i].message);
        } else {
            SCOPED(vt_fields_file) *file = open_one("odd.zarr", &(vt_fields_form){.variables = "t2m"});
        }
    }
    write_text("odd.zarr/zarr.json", "{\"zarr_format\": 3, \"node_type\": \"group\", \"folded\": {}}");
    expect_error("odd.zarr", "t2m",
                 "odd.zarr/zarr.json: its metadata have the extension 'folded', which is not known here");
}

typedef struct {
    const char *key, *value;
} pair;

/* Metadata of the array t2m, [4, 2, 2], in which one key has another value. */
static void write_changed(const char *path, const pair *pairs, size_t count, pair changed)
{
    SCOPED(vt_text) text = {0};
    for (size_t i = 0; i < count; i++) {
        const bool is_changed = strcmp(pairs[i].key, changed.key) == 0;
        vt_text_append(&text, "%s\"%s\": %s", i == 0 ? "{" : ", ", pairs[i].key,
                       is_changed ? changed.value : pairs[i].value);
    }
    vt_text_append(&text, "}");
    write_text(path, text.characters);
}

/* Metadata that writers may write but vitrain does not read, and damaged ones, each with a part of the message. */
TEST(zarr_metadata_that_are_refused)
{
#define AS_BYTES "{\"name\": \"bytes\"}"
#define GZIP "{\"name\": \"gzip\"}"
#define FOUR ", " GZIP ", " GZIP ", " GZIP ", " GZIP
#define REGULAR(size) "{\"name\": \"regular\", \"configuration\": {\"chunk_shape\": " size "}}"
#define ORDER(order) "[{\"name\": \"transpose\", \"configuration\": {\"order\": " order "}}, " AS_BYTES "]"
#define IN_SHARDS(size, codecs, index)                                                                                 \
    "{\"name\": \"sharding_indexed\", \"configuration\": {\"chunk_shape\": " size ", \"codecs\": [" codecs             \
    "], \"index_codecs\": [" index "]}}"
    static const pair usual3[] = {{"zarr_format", "3"},
                                  {"node_type", "\"array\""},
                                  {"shape", "[4, 2, 2]"},
                                  {"data_type", "\"float32\""},
                                  {"fill_value", "0"},
                                  {"chunk_grid", REGULAR("[2, 2, 2]")},
                                  {"chunk_key_encoding", "{\"name\": \"default\"}"},
                                  {"codecs", "[" AS_BYTES "]"},
                                  {"dimension_names", "[\"time\", \"lat\", \"lon\"]"}};
    static const pair usual2[] = {{"zarr_format", "2"},   {"shape", "[4, 2, 2]"},  {"dtype", "\"<f4\""},
                                  {"fill_value", "0"},    {"chunks", "[2, 2, 2]"}, {"order", "\"C\""},
                                  {"compressor", "null"}, {"filters", "null"},     {"dimension_separator", "\".\""}};
    static const struct {
        pair changed;
        const char *message;
    } refused3[] = {
        {{"zarr_format", "2"}, "its zarr_format is not 3, as the store's is"},
        {{"shape", "4"}, "its metadata have no shape"},
        {{"shape", "[4, -2, 2]"}, "its shape"},
        {{"shape", "[1, 1, 1, 1, 1, 1, 1, 1, 1]"}, "it has 9 dimensions, and "},
        {{"fill_value", "\"nothing\""}, "its fill_value is no number"},
        {{"chunk_grid", "{\"name\": \"rectilinear\"}"}, "its chunk grid 'rectilinear' is not read; 'regular' is"},
        {{"chunk_grid", "1"}, "its chunk grid '(without a name)' is not read"},
        {{"chunk_grid", REGULAR("[2, 2]")}, "its chunk_shape is no list of 3 numbers"},
        {{"chunk_grid", REGULAR("[2, 2, 0]")}, "its chunk_shape"},
        {{"chunk_grid", REGULAR("[2, 2, \"2\"]")}, "its chunk_shape"},
        {{"chunk_grid", REGULAR("[1048576, 1024, 1024]")}, "its chunks are larger than 2 GB"},
        {{"chunk_grid", REGULAR("[1099511627776, 1099511627776, 4]")}, "its chunks are larger than 2 GB"},
        {{"chunk_key_encoding", "{\"name\": \"hashed\"}"}, "its chunk_key_encoding 'hashed' is not read"},
        {{"chunk_key_encoding", "{\"name\": \"default\", \"configuration\": {\"separator\": \"_\"}}"},
         "the separator of its chunks' names is not . or /"},
        {{"codecs", "null"}, "its metadata have no list of codecs"},
        {{"codecs", "[]"}, "its codecs lack 'bytes'"},
        {{"codecs", "[" GZIP ", " AS_BYTES "]"}, "its codec or filter 'gzip' is not read there"},
        {{"codecs", "[1]"}, "its codec or filter '(without a name)' is not read there"},
        {{"codecs", "[" AS_BYTES ", " AS_BYTES "]"}, "the codec or filter 'bytes', which is not read"},
        {{"codecs", "[" AS_BYTES ", {}]"}, "the codec or filter '(without a name)', which is not read"},
        {{"codecs", "[" AS_BYTES ", {\"name\": \"blosc\", \"configuration\": {\"cname\": \"snappy\"}}]"},
         "it is compressed with blosc's snappy, which is not read"},
        {{"codecs", "[" AS_BYTES FOUR FOUR ", " GZIP "]"}, "it has more than "},
        {{"codecs", ORDER("[0, 1, 1]")}, "its transpose's order is no permutation"},
        {{"codecs", ORDER("[0, 1, 3]")}, "its transpose's order is no permutation"},
        {{"codecs", ORDER("[0, 1]")}, "its transpose's order is no list of 3 numbers"},
        {{"codecs", "[" IN_SHARDS("[2, 2, 3]", AS_BYTES, AS_BYTES) "]"}, "its shards hold no whole number of chunks"},
        {{"codecs", "[" IN_SHARDS("[1, 1, 2]", AS_BYTES, AS_BYTES ", " GZIP) "]"},
         "the index of its shards is compressed"},
        {{"codecs",
          "[" IN_SHARDS("[1, 1, 2]", AS_BYTES, "{\"name\": \"bytes\", \"configuration\": {\"endian\": \"big\"}}") "]"},
         "the index of its shards is big endian"},
        {{"codecs", "[{\"name\": \"transpose\", \"configuration\": {\"order\": [2, 1, 0]}}, " IN_SHARDS(
                        "[1, 1, 2]", AS_BYTES, AS_BYTES) "]"},
         "its shards are transposed as a whole, which is not read"},
        {{"codecs", "[" IN_SHARDS("[1, 1, 2]", AS_BYTES, AS_BYTES) ", " GZIP "]"},
         "its codec or filter 'gzip' is not read there"},
        {{"codecs", "[" IN_SHARDS("[1, 1, 2]", IN_SHARDS("[1, 1, 1]", AS_BYTES, AS_BYTES), AS_BYTES) "]"},
         "its codec or filter 'sharding_indexed' is not read there"}};
    static const struct {
        pair changed;
        const char *message;
    } refused2[] = {{{"order", "\"A\""}, "its order is neither C nor F"},
                    {{"order", "null"}, "its order is neither C nor F"},
                    {{"dimension_separator", "\"_\""}, "the separator of its chunks' names is not . or /"},
                    {{"filters", "{\"id\": \"zlib\"}"}, "its filters are no list"},
                    {{"compressor", "\"zlib\""}, "its compressor has no settings"},
                    {{"compressor", "{}"}, "the codec or filter '(without a name)', which is not read"},
                    {{"chunks", "[2, 2]"}, "its chunks is no list of 3 numbers"},
                    {{"zarr_format", "3"}, "its zarr_format is not 2, as the store's is"}};
    if (!unpack("v2_none.zarr")) return;
    EXPECT(mkdir(test_path("three.zarr"), 0777) == 0 && mkdir(test_path("three.zarr/t2m"), 0777) == 0);
    EXPECT(mkdir(test_path("two.zarr"), 0777) == 0 && mkdir(test_path("two.zarr/t2m"), 0777) == 0);
    write_text("three.zarr/zarr.json", "{\"zarr_format\": 3, \"node_type\": \"group\"}");
    write_text("two.zarr/.zgroup", "{\"zarr_format\": 2}");
    write_text("two.zarr/t2m/.zattrs", "{\"_ARRAY_DIMENSIONS\": [\"time\", \"lat\", \"lon\"]}");
    write_changed("three.zarr/t2m/zarr.json", usual3, sizeof usual3 / sizeof *usual3, (pair){"", ""});
    expect_error("three.zarr", "q", "no variable 'q'; found: t2m");
    write_changed("two.zarr/t2m/.zarray", usual2, sizeof usual2 / sizeof *usual2, (pair){"", ""});
    expect_error("two.zarr", "q", "no variable 'q'; found: t2m");
    for (size_t i = 0; i < sizeof refused3 / sizeof *refused3; i++) {
        write_changed("three.zarr/t2m/zarr.json", usual3, sizeof usual3 / sizeof *usual3, refused3[i].changed);
        expect_error("three.zarr", "t2m", refused3[i].message);
    }
    for (size_t i = 0; i < sizeof refused2 / sizeof *refused2; i++) {
        write_changed("two.zarr/t2m/.zarray", usual2, sizeof usual2 / sizeof *usual2, refused2[i].changed);
        expect_error("two.zarr", "t2m", refused2[i].message);
    }
}

/* The names of dimensions say which they are, also where all are as long. */
TEST(zarr_dimensions_by_name)
{
    static const char *const names[3] = {"time", "latitude", "longitude"};
    static const int orders[][3] = {{1, 2, 0}, {0, 2, 1}, {2, 1, 0}, {1, 0, 2}, {2, 0, 1}};
    if (!unpack("v2_none.zarr")) return;
    for (int i = 0; i < 5; i++) {
        const int *order = orders[i];
        char *dimensions =
            vt_test_owned(vt_text_format("\"%s\", \"%s\", \"%s\"", names[order[0]], names[order[1]], names[order[2]]));
        float values[27], read[9];
        write_store("turned.zarr", "3, 3, 3", dimensions, "3, 3, 3", "");
        for (int at = 0; at < 27; at++) {
            int place[3] = {0};
            place[order[0]] = at / 9, place[order[1]] = at / 3 % 3, place[order[2]] = at % 3;
            values[at] = (float)(100 * place[0] + 10 * place[1] + place[2]);
        }
        FILE *chunk = fopen(test_path("turned.zarr/t2m/0.0.0"), "w");
        EXPECT(fwrite(values, sizeof values, 1, chunk) == 1 && fclose(chunk) == 0);
        SCOPED(vt_fields_file) *file = open_one("turned.zarr", &(vt_fields_form){.variables = "t2m"});
        const vt_frame_window whole = {.rows = 3, .width = 3};
        for (int time = 0; time < 3; time++) {
            EXPECT_OK(vt_fields_file_read(file, time, 1, &whole, true, read));
            int wrong = 0;
            for (int p = 0; p < 9; p++) wrong += read[p] != (float)(100 * time + 10 * (p / 3) + p % 3);
            EXPECT(wrong == 0, "%s: %d", dimensions, wrong);
        }
    }
}

/* .zmetadata that were not made anew after the arrays grew: the arrays' own count, and the log says so. */
TEST(zarr_consolidated_metadata_that_are_older)
{
    if (!unpack("v2_none.zarr v2_slash.zarr small_2001.nc")) return;
    char *command =
        vt_test_owned(vt_text_format("cd '%s' && tr -d ' \\n' <v2_none.zarr/.zmetadata | sed "
                                     "'s/\"shape\":\\[7/\"shape\":[5/g' >older && cp older v2_none.zarr/.zmetadata",
                                     vt_test_directory()));
    EXPECT(system(command) == 0, "%s", command);
    static const char *const stores[] = {"v2_none.zarr", "v2_slash.zarr"};
    for (int i = 0; i < 2; i++) {
        expect_alike(stores[i], "[t2m, z@850, z@500]", "small_2001.nc", "[t2m, z@850, z@500]");
        SCOPED(vt_fields_file) *file = open_one(stores[i], &(vt_fields_form){.variables = "t2m"});
        EXPECT(file->about->times == 7);
        test_log_begin();
        EXPECT_OK(vt_fields_file_check_written(file));
        const char *text = test_log_end();
        EXPECT((strstr(text, "v2_none.zarr/.zmetadata says something else of 't2m' than its own metadata (the shape "
                             "[5, 8, 12], they [7, 8, 12]): they were changed later, and are used") != NULL) ==
                   (i == 0),
               "%s", text);
        EXPECT((text[0] == '\0') == (i == 1), "%s", text);
    }
    write_text("v2_slash.zarr/.zattrs", "{\"missing_dates\": [\"2001-12-20\"]}"); /* of the store */
    SCOPED(vt_fields_file) *file = open_one("v2_slash.zarr", &(vt_fields_form){.variables = "t2m"});
    EXPECT(file->about->times == 6);
    test_log_begin();
    EXPECT_OK(vt_fields_file_check_written(file));
    EXPECT_PART(test_log_end(), "v2_slash.zarr/.zmetadata says something else of '/' than its own metadata: they");
}

/* The store's attribute missing_dates becomes this JSON. */
static void say_missing(const char *json)
{
    char *text =
        vt_test_owned(vt_text_format("{\"variables\": [\"2t\", \"z_500\", \"z_850\"], \"field_shape\": [8, 12], "
                                     "\"missing_dates\": %s}",
                                     json));
    write_text("v2_anemoi.zarr/.zattrs", text);
}

/* No sample touches the times of missing_dates, and neither do the statistics. */
TEST(zarr_missing_dates_of_anemoi)
{
    static const char *const wrong[][2] = {
        {"[\"soon\"]", "the attribute 'missing_dates' holds 'soon', which is no date"},
        {"[5]", "the attribute 'missing_dates' is no list of dates"}};
    if (!unpack("v2_anemoi.zarr small_2001.nc")) return;
    vt_fields_file *all = open_one("v2_anemoi.zarr", &(vt_fields_form){0});
    say_missing("[\"2030-01-01T00:00:00\", \"2001-12-20T18:00:00.000\"]"); /* the fourth of seven */
    vt_fields_file *file = open_one("v2_anemoi.zarr", &(vt_fields_form){0});
    float found[3 * POINTS], expected[3 * POINTS];
    const vt_frame_window whole = {.rows = ROWS, .width = COLUMNS};
    EXPECT(file->about->times == 6 && file->times.minutes == 360);
    for (int time = 0; time < 6; time++)
        EXPECT(file->times.dates[time] == file->times.begin.minutes + (time + (time > 2)) * 360);
    for (int time = 0; time < 6; time++) {
        EXPECT_OK(vt_fields_file_read(file, time, 3, &whole, true, found));
        EXPECT_OK(vt_fields_file_read(all, time + (time > 2), 3, &whole, true, expected));
        EXPECT(memcmp(found, expected, sizeof found) == 0, "time %d", time);
    }
    vt_fields_file_close(&file);
    vt_fields_file_close(&all);
    vt_dataset_options options = TEST_OPTIONS(.height = ROWS, .width = COLUMNS, .in_channels = 3, .out_channels = 3);
    options.directory = test_path("v2_anemoi.zarr");
    vt_dataset *dataset = test_open(&options);
    EXPECT(dataset->source.sample_count == 2 + 2);
    vt_dataset_close(&dataset);
    say_missing("[]");
    dataset = test_open(&options);
    EXPECT(dataset->source.sample_count == 6);
    vt_dataset_close(&dataset);
    for (int i = 0; i < 2; i++) {
        say_missing(wrong[i][0]);
        expect_error("v2_anemoi.zarr", NULL, wrong[i][1]);
    }
}

/* NaN, Infinity and escapes in attributes; a missing chunk; fill values of any form. */
TEST(zarr_missing_chunks_and_words_of_python)
{
    if (!unpack("v2_missing.zarr v2_apart.zarr v3_none.zarr small_2001.nc")) return;
    vt_fields_file *file = open_one("v2_missing.zarr", &(vt_fields_form){.variables = "t2m", .masked = true});
    float values[POINTS];
    const vt_frame_window whole = {.rows = ROWS, .width = COLUMNS};
    EXPECT_OK(vt_fields_file_read(file, 3, 1, &whole, true, values));
    EXPECT(isnan(values[0]) && isnan(values[4 * COLUMNS + 11]) && !isnan(values[5 * COLUMNS]));
    char *storage = vt_test_owned(vt_fields_file_storage(file));
    EXPECT_PART(storage, "5 of 6 chunks written");
    vt_fields_file_close(&file);
    write_text("v2_apart.zarr/t2m/.zattrs",
               "{\"_ARRAY_DIMENSIONS\": [\"time\", \"lat\", \"lon\"], \"valid_min\": -Infinity, "
               "\"a\": \"NaN \\\" NaN\", \"missing_value\": NaN, \"units\": \"K\"}");
    expect_alike("v2_apart.zarr", "t2m", "small_2001.nc", "t2m");
    /* a store that changes */
    file = open_one("v2_zstd.zarr", &(vt_fields_form){.variables = "t2m"});
    EXPECT_OK(vt_fields_file_check_size(file, 0));
    write_text("v2_zstd.zarr/.zmetadata", "{}");
    EXPECT_ERROR(vt_fields_file_check_size(file, 0), "v2_zstd.zarr/.zmetadata was written anew while it was in use");
    vt_fields_file_close(&file);
    static const char *const removed[][2] = {{"v2_lz4.zarr", "v2_lz4.zarr/t2m/1.0.0"},
                                             {"v3_none.zarr", "v3_none.zarr/t2m/c/new"}};
    for (int i = 0; i < 2; i++) { /* a chunk that is removed; a file beside those of version 3 */
        file = open_one(removed[i][0], &(vt_fields_form){.variables = "t2m"});
        EXPECT_OK(vt_fields_file_check_size(file, 0));
        if (i == 0) EXPECT(unlink(test_path(removed[i][1])) == 0);
        if (i == 1) write_text(removed[i][1], "x");
        EXPECT_ERROR(vt_fields_file_check_size(file, 0),
                     "/t2m: files in it were written or removed while it was in use");
        vt_fields_file_close(&file);
    }
}
