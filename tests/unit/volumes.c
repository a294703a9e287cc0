/* Cubes of boxes: their draws, the tutorial's 24 ways to turn them, and its learning rates. */
#include "source/volumes/volumes.h"

#include <hdf5.h>

#include "optimizer/optimizer.h"
#include "settings.h"
#include "test.h"
#include "unit/config_open.h"
#include "unit/data_files.h"

/* What each entry of the tutorial's list makes of the cube 01234567 (the last axis fastest), as its code does. */
TEST(turns_of_the_tutorial)
{
    static const char *const results[VT_TURNS] = {
        "67452301", "54761032", "32107654", "23670145", "32761054", "45016723", "54107632", "15370426",
        "37152604", "40625173", "62407351", "13025746", "57461302", "20316475", "64752031", "37261504",
        "51407362", "62734051", "73625140", "57134602", "31752064", "64207531", "75316420", "01234567"};
    float cube[8], turned[8];
    for (int i = 0; i < 8; i++) cube[i] = (float)i;
    const vt_cube_part part = {.values = cube, .count = {2, 2, 2}, .stride = {4, 2, 1}, .fields = 1};
    for (int t = 0; t < VT_TURNS; t++) {
        vt_turn_part(&(vt_cube){.side = 2, .fields = 1, .turn = &vt_turns[t], .rotate_vectors = true}, &part, turned);
        for (int i = 0; i < 8; i++)
            EXPECT((int)turned[i] == results[t][i] - '0', "entry %d, place %d: %g", t + 1, i, (double)turned[i]);
    }
}

/* A cube in parts is the cube at once, whatever fields a part holds. */
TEST(parts_make_the_cube)
{
    enum { SIDE = 6, FIELDS = 5, POINTS = SIDE * SIDE * SIDE };
    float cube[FIELDS * POINTS], whole[FIELDS * POINTS], pieces[FIELDS * POINTS];
    for (int i = 0; i < FIELDS * POINTS; i++) cube[i] = (float)i;
    for (int t = 0; t < VT_TURNS; t++) {
        vt_cube_part part = {.values = cube,
                             .count = {SIDE, SIDE, SIDE},
                             .stride = {SIDE * SIDE, SIDE, 1},
                             .fields = FIELDS,
                             .field_stride = POINTS};
        const vt_cube own = {.side = SIDE, .fields = FIELDS, .turn = &vt_turns[t]};
        vt_turn_part(&own, &part, whole);
        for (int i = 0; i < FIELDS * POINTS; i++) pieces[i] = -1;
        for (int first_field = 0; first_field < FIELDS; first_field += 3)
            for (int x = 0; x < SIDE; x += 2) {
                part.first[0] = x;
                part.count[0] = 2;
                part.first_field = first_field;
                part.fields = first_field == 0 ? 3 : 2;
                part.values = cube + first_field * POINTS + x * SIDE * SIDE;
                vt_turn_part(&own, &part, pieces);
            }
        EXPECT(memcmp(whole, pieces, sizeof whole) == 0, "entry %d", t + 1);
    }
}

/* A field whose vectors point away from the middle still does so when its vectors are turned with it. */
TEST(turned_vectors)
{
    enum { SIDE = 4, FIELDS = 4, POINTS = SIDE * SIDE * SIDE };
    float cube[FIELDS * POINTS], turned[FIELDS * POINTS];
    for (int i = 0; i < POINTS; i++) {
        const int at[3] = {i / (SIDE * SIDE), i / SIDE % SIDE, i % SIDE};
        cube[i] = 1;
        for (int a = 0; a < 3; a++) cube[(1 + a) * POINTS + i] = (float)(2 * at[a] + 1 - SIDE);
    }
    const vt_cube_part part = {.values = cube,
                               .count = {SIDE, SIDE, SIDE},
                               .stride = {SIDE * SIDE, SIDE, 1},
                               .fields = FIELDS,
                               .field_stride = POINTS};
    for (int t = 0; t < VT_TURNS; t++) {
        const vt_cube own = {.side = SIDE, .fields = FIELDS, .turn = &vt_turns[t], .rotate_vectors = true};
        vt_turn_part(&own, &part, turned);
        for (int i = 0; i < POINTS; i++)
            for (int c = 0; c < FIELDS; c++)
                EXPECT(turned[FIELDS * i + c] == cube[c * POINTS + i], "entry %d, point %d, field %d", t + 1, i, c);
    }
}

TEST(draws)
{
    enum { BOX = 35, SIDE = 32, DRAWS = 4000 };
    int corners[3][BOX - SIDE + 1] = {{0}}, turns[VT_TURNS] = {0}, same = 0;
    for (int i = 0; i < DRAWS; i++) {
        const vt_cube draw = vt_volume_draw(333, VT_SET_TRAINING, 2, i, BOX, SIDE);
        const vt_cube other = vt_volume_draw(333, VT_SET_VALIDATION, 2, i, BOX, SIDE);
        for (int a = 0; a < 3; a++) {
            EXPECT(draw.corner[a] >= 0 && draw.corner[a] <= BOX - SIDE);
            corners[a][draw.corner[a]]++;
        }
        turns[draw.turn - vt_turns]++;
        same += draw.turn == other.turn && memcmp(draw.corner, other.corner, sizeof draw.corner) == 0;
    }
    for (int a = 0; a < 3; a++)
        for (int x = 0; x <= BOX - SIDE; x++) EXPECT(abs(corners[a][x] - DRAWS / 4) < 150, "%d", corners[a][x]);
    for (int t = 0; t < VT_TURNS; t++) EXPECT(abs(turns[t] - DRAWS / VT_TURNS) < 70, "turn %d: %d", t, turns[t]);
    EXPECT(same < 20);
    EXPECT(vt_volume_draw(1, VT_SET_TRAINING, 0, 0, SIDE, SIDE).corner[0] == 0);
}

/* The values of shared/spec/unet3d.md, §5, which a script with the tutorial's formula printed. */
TEST(learning_rates_of_the_tutorial)
{
    static const struct {
        int64_t batch, run, step;
        double rate;
    } known[] = {{64, 256, 1, 1.999924702e-4},      {64, 256, 64, 1.707106781e-4},    {64, 256, 128, 1e-4},
                 {64, 256, 192, 2.928932188e-5},    {64, 256, 255, 7.529816e-9},      {64, 256, 256, 0},
                 {64, 10240, 1024, 1.951057e-4},    {64, 10240, 2048, 1.809017e-4},   {512, 5120, 1, 4.419417382e-6},
                 {512, 5120, 127, 5.612660076e-4},  {512, 5120, 128, 5.656854249e-4}, {512, 5120, 129, 5.656853717e-4},
                 {512, 5120, 2560, 3.050342959e-4}, {512, 5120, 5120, 8.719097e-7}};
    SCOPED(vt_config) *config =
        OPENED("base: {weight_init: {conv_bias: null}, lr_schedule: {scaling: 'sqrt', start_lr: 2.E-4, end_lr: 0., "
               "warmup_steps: 128}}\n");
    EXPECT_VALUE(config, "model", "unet3d");
    EXPECT_VALUE(config, "betas", "[0.9, 0.999]");
    EXPECT_VALUE(config, "lr_schedule", "parts");
    EXPECT_VALUE(config, "weight_init.conv_bias", "None");
    EXPECT_VALUE(config, "num_epochs", "10");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        config->global_batch_size = known[i].batch;
        const vt_run_length length = {.run = known[i].run, .epoch = known[i].run};
        EXPECT_NEAR(vt_learning_rate_at(config, length, known[i].step - 1), known[i].rate,
                    1e-6 * known[i].rate + 1e-15);
    }
}

TEST(models_by_their_keys)
{
    EXPECT_GIVES("base: {}\n", "model", "vit");
    EXPECT_GIVES("base: {Nsamples: 5}\n", "task", "cosmology");
    EXPECT_GIVES("base: {}\n", "model", "unet3d", "--box_size=64,32");
    EXPECT_GIVES("base: {task: cosmology}\n", "source", "volumes");
    EXPECT_REFUSED("base: {lr_schedule: {start_lr: 1}}\n", "start_lr: 1 is an option of lr_schedule parts",
                   "--lr_schedule=cosine");
    EXPECT_GIVES("base: {lr_schedule: {start_lr: 1}}\n", "lr_schedule.start_lr", "0.25", "--lr_schedule.start_lr=0.25");
    EXPECT_REFUSED("base: {Nsamples: 5, embed_dim: 8}\n",
                   "embed_dim: 8 is an option of model vit|transformer|encoder, but model is unet3d");
    EXPECT_REFUSED("base: {lr_schedule: {start: 1}}\n", "unknown key 'lr_schedule.start'");
    EXPECT_REFUSED("base: {lr_schedule: {scaling: sqrt}}\n", "no start_lr");
    EXPECT_REFUSED("base: {lr_schedule: {start_lr: 1, scaling: cubic}}\n", "lr_schedule.scaling");
    EXPECT_REFUSED("base: {weight_init: {conv_init: uniform}}\n", "weight_init.conv_init");
    EXPECT_REFUSED("base: {data_loader_config: lowmem}\n", "source fields has no such reader");
    EXPECT_REFUSED("base: {Nsamples: 5}\n", "source volumes has no such reader", "--data_loader_config=dali");
    EXPECT_REFUSED("base: {weight_init: 0.02}\n", "did you mean 'weight_init.conv_init'?");
    EXPECT_GIVES("base: {Nsamples: 5}\n", "lr", "0.0002");
    EXPECT_REFUSED("base: {}\n", "give one of the two", "--enable_benchy", "--enable_manual_profiling");
}

TEST(boxes_that_do_not_fit)
{
    static const float zeros[5 * 4 * 4 * 4];
    const hsize_t four[] = {4, 2, 2, 2}, five[] = {5, 4, 4, 4};
    char *path = vt_test_owned(vt_text_format("%s/box.h5", vt_test_directory()));
    vt_box *box = NULL;
    vt_source *source = NULL;
    hid_t file = test_create(path);
    test_dataset(file, "Nbody", H5T_NATIVE_FLOAT, 4, four, H5T_NATIVE_FLOAT, zeros);
    test_dataset(file, "Hydro", H5T_NATIVE_FLOAT, 4, five, H5T_NATIVE_FLOAT, zeros);
    test_dataset(file, "wide", H5T_NATIVE_DOUBLE, 4, four, H5T_NATIVE_DOUBLE, NULL);
    test_dataset(file, "whole", H5T_NATIVE_SHORT, 4, four, H5T_NATIVE_SHORT, NULL);
    test_dataset(file, "text", H5T_C_S1, 4, four, H5T_C_S1, NULL);
    H5Fclose(file);
    EXPECT_ERROR(vt_box_open(path, "wide", 4, VT_UNSET_INTEGER, true, &box),
                 "'wide' holds floating-point numbers (8 bytes each), expected float32");
    EXPECT_ERROR(vt_box_open(path, "whole", 4, VT_UNSET_INTEGER, true, &box), "whole numbers (2 bytes each)");
    EXPECT_ERROR(vt_box_open(path, "text", 4, VT_UNSET_INTEGER, true, &box), "values that are no numbers");
    char *flag = vt_test_owned(vt_text_format("--train_path=%s", path));
    SCOPED(vt_config) *config = OPENED(NULL, "--data_size=32", flag);
    EXPECT_ERROR(vt_source_volumes.open(config, VT_SET_TRAINING, (vt_span){0}, &source),
                 "box.h5: Nbody has 2 points along each axis, but Hydro has 4");
}

static vt_status fill_with_count(void *memory, void *context)
{
    int *count = context;
    *(int *)memory = ++*count;
    return VT_OK;
}

/* As two ranks do: one that comes when the other has filled the memory neither waits nor fills it again. */
TEST(shared_memory_is_filled_once)
{
    char *key = vt_test_owned(vt_text_format("test %s", vt_test_directory()));
    vt_shared_box *boxes[2] = {NULL, NULL};
    int count = 0;
    for (int round = 1; round <= 2; round++) {
        for (int i = 0; i < 2; i++) {
            EXPECT_OK(vt_shared_box_open(key, 100, fill_with_count, &count, &boxes[i]));
            EXPECT(boxes[i] != NULL && *(const int *)(const void *)boxes[i]->memory == round);
        }
        EXPECT(count == round); /* the last one that closes it removes it */
        for (int i = 0; i < 2; i++) vt_shared_box_close(&boxes[i]);
    }
}

/* A box of 8 x 8 x 8 points in 8 chunks, of which the first `written` were ever written. */
static void write_box(const char *path, int written)
{
    const hsize_t extent[4] = {4, 8, 8, 8}, chunk[4] = {4, 4, 4, 4};
    float values[4 * 4 * 4 * 4] = {1};
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(4, extent, NULL), memory = H5Screate_simple(4, chunk, NULL);
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(creation, 4, chunk);
    const hid_t box = H5Dcreate2(file, "Nbody", H5T_IEEE_F32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    for (hsize_t i = 0; i < (hsize_t)written; i++) {
        const hsize_t start[4] = {0, i / 4 * 4, i / 2 % 2 * 4, i % 2 * 4};
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, chunk, NULL);
        EXPECT(H5Dwrite(box, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, values) >= 0);
    }
    H5Dclose(box);
    H5Pclose(creation);
    H5Sclose(memory);
    H5Sclose(space);
    H5Fclose(file);
}

/* What was never written reads as zeros, as if it were data. */
TEST(boxes_never_written)
{
    const char *path = test_path("box.h5");
    vt_box *box = NULL;
    write_box(path, 0);
    EXPECT_ERROR(vt_box_open(path, "Nbody", 4, 8, true, &box),
                 "box.h5: 'Nbody' has a shape, but no value of it was ever written; make the file again");
    for (int written = 5; written <= 8; written += 3) {
        write_box(path, written);
        test_log_begin();
        EXPECT_OK(vt_box_open(path, "Nbody", 4, 8, true, &box));
        const char *text = test_log_end();
        EXPECT((strstr(text, "only 5 of the 8 chunks of 'Nbody' were ever written") != NULL) == (written == 5), "%s",
               text);
        vt_box_close(&box);
    }
}
