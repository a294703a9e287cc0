/* A .npy file of statistics. */
#include <stdlib.h>

#include "fuzz.h"
#include "storage/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vt_npy array;
    char *path = vt_fuzz_write("array.npy", data, size);
    double sum = 0;
    vt_error_clear();
    if (vt_npy_open(path, &array) == VT_OK) {
        for (int64_t i = 0; i < vt_tensor_count(&array.shape); i++) sum += array.values[i];
        char text[128];
        vt_tensor_shape_text(&array.shape, text);
        vt_npy_close(&array);
    }
    free(path);
    return sum == 0.125; /* so that the values are read */
}
