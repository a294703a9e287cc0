/* .safetensors files: what we write comes back, what the `safetensors` package wrote is read, and no header can harm.
 */
#include "storage/safetensors.h"

#include "test.h"
#include "unit/data_files.h"

static vt_status read_whole(const vt_safetensors *file, const char *name, const vt_tensor_shape *shape, float *values)
{
    return vt_safetensors_read_part(file, name, 0, 1, shape, values);
}

static void write_file(const char *path, const char *header, uint64_t length, int64_t data_bytes)
{
    FILE *file = fopen(path, "wb");
    for (int i = 0; i < 8; i++) fputc((int)(length >> 8 * i & 255), file);
    fputs(header, file);
    for (int64_t i = 0; i < data_bytes; i++) fputc(0, file);
    fclose(file);
}

TEST(written_tensors_read_back)
{
    const float a[6] = {1, 2, 3, 4, 5, 6}, b[2] = {-0.5f, 1e-30f};
    const vt_named_tensor tensors[] = {
        {"blocks.0.a", {2, {2, 3}}, a}, {"b", {1, {2}}, b}, {"conv", {5, {1, 3, 1, 2, 1}}, a}};
    const char *path = test_path("two.safetensors");
    float read[6];
    vt_safetensors *file = NULL;
    EXPECT_OK(vt_safetensors_write(path, tensors, 3));
    EXPECT_OK(vt_safetensors_open(path, &file));
    EXPECT_OK(read_whole(file, "blocks.0.a", &tensors[0].shape, read));
    EXPECT(memcmp(read, a, sizeof a) == 0);
    EXPECT_OK(read_whole(file, "b", &tensors[1].shape, read));
    EXPECT(memcmp(read, b, sizeof b) == 0);
    EXPECT_OK(read_whole(file, "conv", &tensors[2].shape, read));
    EXPECT(memcmp(read, a, sizeof a) == 0);
    EXPECT_ERROR(read_whole(file, "c", &tensors[1].shape, read), "has no tensor 'c'");
    EXPECT_ERROR(read_whole(file, "b", &tensors[0].shape, read), "tensor 'b' is [2], but the model's is [2, 3]");
    vt_safetensors_close(&file);
    EXPECT_ERROR(vt_safetensors_write("/nowhere/x.safetensors", tensors, 3), "can't write");
}

/* Written by the Python package (0.8, with torch): a float32 [2, 3] = 0 … 5 halves, b bfloat16 [4], c float16 [3], d
 * int64. */
TEST(what_the_package_writes)
{
    const vt_tensor_shape a = {2, {2, 3}}, b = {1, {4}}, c = {1, {3}}, d = {1, {1}};
    const float expected_b[4] = {1, -2.5f, 0.15625f, 3.0e38f}, expected_c[3] = {0.5f, -65504, 0x1p-24f};
    float values[6];
    SCOPED(vt_safetensors) *file = NULL;
    EXPECT_OK(vt_safetensors_open("tests/golden/package.safetensors", &file));
    EXPECT_OK(read_whole(file, "a", &a, values));
    for (int i = 0; i < 6; i++) EXPECT_NEAR(values[i], 0.5 * i, 0);
    EXPECT_OK(read_whole(file, "b", &b, values));
    for (int i = 0; i < 4; i++) EXPECT_NEAR(values[i], expected_b[i], 0x1p-8 * fabs((double)expected_b[i]));
    EXPECT_OK(read_whole(file, "c", &c, values));
    for (int i = 0; i < 3; i++) EXPECT_NEAR(values[i], expected_c[i], 0);
    EXPECT_ERROR(read_whole(file, "d", &d, values), "tensor 'd' holds I64");
}

/* A part of the rows; float64 is rounded to the nearest float32, and refused if it is too large. */
TEST(parts_and_float64)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F64\",\"shape\":[3,2],\"data_offsets\":[0,48]}}";
    const double numbers[6] = {0, -0.1, 1 + 0x1p-24 + 0x1p-40, (double)INFINITY, 3e38, -4e38};
    const vt_tensor_shape row = {2, {1, 2}}, whole = {2, {3, 2}};
    const char *path = test_path("wide.safetensors");
    float values[6];
    SCOPED(vt_safetensors) *file = NULL;
    write_file(path, header, sizeof header - 1, 0);
    FILE *more = fopen(path, "ab");
    fwrite(numbers, sizeof *numbers, 6, more);
    fclose(more);
    EXPECT_OK(vt_safetensors_open(path, &file));
    EXPECT(vt_safetensors_find(file, "a")->type == VT_SAFETENSORS_F64 && vt_safetensors_find(file, "b") == NULL);
    EXPECT_OK(vt_safetensors_read_part(file, "a", 0, 3, &row, values));
    EXPECT(values[0] == 0 && values[1] == -0.1f);
    EXPECT_OK(vt_safetensors_read_part(file, "a", 1, 3, &row, values));
    EXPECT(values[0] == 1 + 0x1p-23f && isinf(values[1]));
    EXPECT_ERROR(vt_safetensors_read_part(file, "a", 2, 3, &row, values),
                 "holds -4e+38 (F64), which is too large for float32");
    EXPECT_ERROR(read_whole(file, "a", &whole, values), "too large for float32");
    EXPECT_ERROR(vt_safetensors_read_part(file, "a", 0, 2, &row, values),
                 "tensor 'a' is [3, 2], but the model's is [2, 2]");
    strcpy(file->entries[0].name, "b");
    EXPECT_OK(vt_safetensors_read_part(file, "b", 0, 3, &row, values));
}

static void refuse(const char *header, uint64_t length, int64_t data_bytes, const char *part)
{
    const char *path = test_path("bad.safetensors");
    SCOPED(vt_safetensors) *file = NULL;
    write_file(path, header, length, data_bytes);
    EXPECT_ERROR(vt_safetensors_open(path, &file), part);
    EXPECT(file == NULL);
}

static void refuse_header(const char *header, const char *part)
{
    refuse(header, strlen(header), 24, part);
}

TEST(headers_that_are_refused)
{
    vt_safetensors *file = NULL;
    EXPECT_ERROR(vt_safetensors_open("/nowhere.safetensors", &file), "No such file");
    EXPECT_ERROR(vt_safetensors_open(vt_test_directory(), &file), "no regular file");
    refuse("{}", UINT64_MAX, 0, "not a .safetensors file, or cut short");
    refuse("{}", 100, 0, "not a .safetensors file, or cut short");
    refuse_header("", "the header is not that");
    refuse_header("[]", "the header is not that");
    refuse_header("{} x", "the header is not that");
    refuse_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[6]}}", "the header is not that");
    refuse_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}", "the header is not that");
    refuse_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[-6],\"data_offsets\":[0,24]}}", "the header is not that");
    refuse_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}",
                  "the header is not that");
    refuse_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[7],\"data_offsets\":[0,28]}}", "lies at bytes 0 to 28");
    refuse_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[24,4]}}", "lies at bytes 24 to 4");
    refuse_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,24]}}",
                  "5 elements of F32, but 24 bytes");
    refuse_header(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[999999999999999999,999999999999999999],\"data_offsets\":[0,24]}}",
        "larger than the file");
    refuse_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
                  "\"b\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[12,24]}}",
                  "share bytes");
}

/* Every truncation and every changed byte of a good header either opens or is refused with a message. */
TEST(damaged_headers_do_no_harm)
{
    static const char good[] = "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],"
                               "\"data_offsets\":[0,24]}}";
    const char *path = test_path("damaged.safetensors");
    const vt_tensor_shape shape = {2, {2, 3}};
    for (size_t i = 0; i < sizeof good - 1; i++) {
        for (int change = 0; change < 4; change++) {
            char header[sizeof good];
            float values[6];
            vt_safetensors *file = NULL;
            memcpy(header, good, sizeof good);
            if (change == 0)
                header[i] = '\0';
            else
                header[i] = (char)(change == 1 ? '9' : change == 2 ? '"' : header[i] ^ 0x15);
            write_file(path, header, change == 0 ? i : sizeof good - 1, 24);
            if (vt_safetensors_open(path, &file) == VT_OK) (void)read_whole(file, "a", &shape, values);
            vt_safetensors_close(&file);
            vt_error_clear();
        }
    }
}
