/* A file of training data, with `fields` or the netCDF variable `t`: it is opened through our reader, and its first and
 * last time are read. */
#include <stdlib.h>

#include "fuzz.h"
#include "source/fields/fields_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vt_fields_file *file = NULL;
    char *path = vt_fuzz_write("2001.h5", data, size);
    vt_error_clear();
    vt_status status = vt_fields_file_open((const char *const[]){path}, 1, NULL, &file);
    vt_error_clear();
    if (status != VT_OK)
        status = vt_fields_file_open((const char *const[]){path}, 1, &(vt_fields_form){.variables = "[t]"}, &file);
    if (status == VT_OK) {
        vt_fields_shape shape = file->shape;
        const vt_frame_window whole = {.rows = shape.height, .width = shape.width};
        int64_t points = shape.height <= 1024 && shape.width <= 1024 ? shape.height * shape.width : 0;
        float *values = points > 0 && shape.times > 0 ? malloc((size_t)points * sizeof *values) : NULL;
        for (int last = 0; last < 2 && values != NULL; last++) {
            vt_fields_file_read(file, last ? shape.times - 1 : 0, 1, &whole, true, values);
            vt_error_clear();
        }
        free(values);
    }
    vt_fields_file_close(&file);
    free(path);
    return 0;
}
