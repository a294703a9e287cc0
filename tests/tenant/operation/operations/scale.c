/* All that an operation gets from its row: the plain loop's place in the table, 16-bit matrices, what it is planned
 * with, its time, and the tests' mirror. */
#include "backend/half.h"
#include "backend/times.h"
#include "operations/guarded.h"
#include "operations/mirror.h"
#include "operations/paths.h"
#include "test.h"

enum { ROWS = 7, COLUMNS = 13 };

/* What tests/main.c asks of tests that are not among these. */
vt_status path_open_gpu(vt_backend **backend)
{
    return vt_backend_open_cuda(0, true, backend);
}

int vt_test_fault(const char *name)
{
    (void)name;
    return 2;
}

static void expect_scaled(const guarded *x, const guarded *y, const char *name)
{
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < COLUMNS; c++)
            EXPECT(y->matrix.data[r * y->matrix.stride + c] == -2.5f * x->matrix.data[r * x->matrix.stride + c], "%s",
                   name);
    guarded_check(y, name);
}

TEST(the_plain_loop_and_the_mirror)
{
    vt_backend *plain = NULL, *mirror = NULL;
    guarded x = guarded_random(ROWS, COLUMNS, 1, 1), y = guarded_open(ROWS, COLUMNS),
            again = guarded_open(ROWS, COLUMNS);
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_PLAIN, 1, &plain));
    plain->scale(plain, -2.5f, x.matrix, y.matrix);
    expect_scaled(&x, &y, "plain");
    EXPECT_OK(open_mirror(plain, &mirror));
    mirror->scale(mirror, -2.5f, x.matrix, again.matrix);
    expect_scaled(&x, &again, "mirror");
    EXPECT_OK(mirror->check(mirror));
    vt_backend_close(&mirror);
}

TEST(sixteen_bits)
{
    vt_backend *plain = NULL;
    const float wide[3] = {1, -3, 0.5f}, expected[3] = {-2.5f, 7.5f, -1.25f};
    uint16_t x[3], y[3] = {0};
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_PLAIN, 1, &plain));
    vt_half_round_row(VT_BFLOAT16, wide, 3, x);
    vt_matrix in = {.half = x, .rows = 1, .columns = 3, .stride = 3, .type = VT_BFLOAT16}, out = in;
    out.half = y;
    plain->scale(plain, -2.5f, in, out);
    for (int i = 0; i < 3; i++) EXPECT(vt_half_widen(VT_BFLOAT16, y[i]) == expected[i]);
    vt_backend_close(&plain);
}

TEST(plan_and_time)
{
    vt_backend *dry = NULL;
    int count = 0;
    EXPECT_OK(vt_backend_open_dry(&dry));
    vt_times_open(dry);
    const vt_matrix x = vt_matrix_make((float *)256, ROWS, COLUMNS);
    dry->scale(dry, 2, x, x);
    EXPECT(vt_backend_dry_count(dry)->moved[VT_WORK_RESIDUAL] == 2 * 4 * ROWS * COLUMNS);
    const vt_operation_time *times = vt_times_sorted(dry, &count);
    EXPECT(count == 1 && strcmp(times[0].operation, "scale") == 0 && times[0].bytes == 2 * 4 * ROWS * COLUMNS);
    vt_times_close(dry);
    vt_backend_close(&dry);
}
