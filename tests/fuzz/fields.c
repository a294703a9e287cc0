/* A file of training data, with `fields` or the netCDF variable `t`: it is opened through our reader, and its first and
 * last time are read. */
#include <stdlib.h>

#include "fuzz.h"
#include "source/fields/fields_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    SCOPED(vt_fields_file) *file = NULL;
    char *path = vt_fuzz_write("2001.h5", data, size);
    vt_error_clear();
    vt_status status = vt_fields_file_open((const char *const[]){path}, 1, &(vt_fields_form){0}, &file);
    vt_error_clear();
    if (status != VT_OK)
        status = vt_fields_file_open((const char *const[]){path}, 1, &(vt_fields_form){.variables = "[t]"}, &file);
    if (status == VT_OK) {
        const vt_fields_about *about = file->about;
        int64_t points = about->rows <= 1024 && about->columns <= 1024 ? about->rows * about->columns : 0;
        float *values = points > 0 && about->times > 0 ? malloc((size_t)points * sizeof *values) : NULL;
        for (int last = 0; last < 2 && values != NULL; last++) {
            vt_fields_file_read(file, last ? about->times - 1 : 0, 1, &about->window, true, values);
            vt_error_clear();
        }
        free(values);
    }
    free(path);
    return 0;
}
