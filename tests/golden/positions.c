/* Position embeddings of another grid against PyTorch's: positions.h5, made by make_positions_golden.py. */
#include "checkpoint/inside.h"
#include "golden/golden_file.h"
#include "test.h"

/* Both of PyTorch's: float64, from which two roundings to float32 and a sum of up to 4 · 2.25 weights of one sign or
 * the other keep the result within 1e-6 of numbers of about 1; and float32, whose weights are rounded, too. */
TEST(positions_of_another_grid)
{
    hid_t file = golden_open("positions.h5");
    const int64_t dim = (int64_t)golden_attribute(file, "/", "dim");
    for (int i = 0; i < (int)golden_attribute(file, "/", "cases"); i++) {
        int64_t count = 0;
        const double *sides = golden_read(file, NULL, "%d/grids", i);
        const int64_t old[2] = {(int64_t)sides[0], (int64_t)sides[1]}, new[2] = {(int64_t)sides[2], (int64_t)sides[3]};
        const float *there = golden_read_float(file, &count, "%d/there", i);
        EXPECT(count == old[0] * old[1] * dim);
        float *here = vt_test_owned(calloc((size_t)(new[0] * new[1] * dim), sizeof *here));
        vt_positions_resample(there, old, dim, new, here);
        for (int single = 0; single < 2; single++) {
            const double *expected = golden_read(file, &count, "%d/here%s", i, single ? "_float32" : "");
            EXPECT(count == new[0] * new[1] * dim);
            for (int64_t j = 0; j < count; j++)
                EXPECT(fabs((double)here[j] - expected[j]) <= (single ? 3e-6 : 1e-6), "case %d, number %ld: %g, not %g",
                       i, j, (double)here[j], expected[j]);
        }
    }
}
