/* What command tests want to know of an HDF5 file, so that they need no other program. */
#include <hdf5.h>

#include "test.h"

/* `count` (0: all) numbers of the dataset from number `first` on, in the order of the file, one a line. */
static bool print_values(hid_t dataset, int64_t first, int64_t count)
{
    const hid_t space = H5Dget_space(dataset);
    const int64_t all = H5Sget_simple_extent_npoints(space);
    if (count == 0) count = all - first;
    if (first < 0 || count < 0 || first + count > all) return false;
    double *values = vt_test_owned(malloc((size_t)all * sizeof *values + 1));
    if (H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0) return false;
    for (int64_t i = first; i < first + count; i++) printf("%.9g\n", values[i]);
    return H5Sclose(space) >= 0;
}

/* All bytes of the dataset, in this machine's order. */
static bool print_bytes(hid_t dataset)
{
    const hid_t type = H5Dget_type(dataset), native = H5Tget_native_type(type, H5T_DIR_ASCEND);
    const hid_t space = H5Dget_space(dataset);
    const size_t bytes = (size_t)H5Sget_simple_extent_npoints(space) * H5Tget_size(native);
    char *memory = vt_test_owned(malloc(bytes + 1));
    return H5Dread(dataset, native, H5S_ALL, H5S_ALL, H5P_DEFAULT, memory) >= 0 &&
           fwrite(memory, 1, bytes, stdout) == bytes;
}

int vt_test_values(int count, char *const *words)
{
    const hid_t file = count < 3 ? -1 : H5Fopen(words[1], H5F_ACC_RDONLY, H5P_DEFAULT);
    const hid_t dataset = file < 0 ? -1 : H5Dopen2(file, words[2], H5P_DEFAULT);
    bool done = false;
    if (dataset >= 0 && strcmp(words[0], "values") == 0) {
        done = print_values(dataset, count > 3 ? atoll(words[3]) : 0, count > 4 ? atoll(words[4]) : 0);
    } else if (dataset >= 0 && strcmp(words[0], "bytes") == 0) {
        done = print_bytes(dataset);
    } else if (dataset >= 0 && strcmp(words[0], "offset") == 0) {
        haddr_t offset = H5Dget_offset(dataset);
        if (offset == HADDR_UNDEF) /* of its first chunk */
            H5Dget_chunk_info(dataset, H5Dget_space(dataset), 0, NULL, NULL, &offset, NULL);
        done = offset != HADDR_UNDEF && printf("%llu\n", (unsigned long long)offset) > 0;
    }
    if (!done) fprintf(stderr, "vitrain-tests --hdf5 values|bytes|offset FILE DATASET [FIRST [COUNT]]: failed\n");
    return done ? 0 : 1;
}
