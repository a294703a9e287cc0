/* A .safetensors file: its header, and the tensors "a" [2, 3] and "b" [4]. */
#include <stdlib.h>

#include "fuzz.h"
#include "storage/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    SCOPED(vt_safetensors) *file = NULL;
    char *path = vt_fuzz_write("model.safetensors", data, size);
    const vt_tensor_shape a = {.dimensions = 2, .shape = {2, 3}}, b = {.dimensions = 1, .shape = {4}};
    float values[6];
    vt_error_clear();
    if (vt_safetensors_open(path, &file) == VT_OK) {
        vt_safetensors_read_part(file, "a", 1, 2, &a, values);
        vt_error_clear();
        vt_safetensors_read_part(file, "b", 0, 1, &b, values);
    }
    free(path);
    return 0;
}
