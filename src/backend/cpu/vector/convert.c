#include "backend/cpu/vector/vector.h"

#include "backend/half.h"

static void convert(vt_backend *backend, vt_matrix from, vt_matrix to)
{
    (void)backend;
    vt_half_convert(from, to);
}

void VT_KERNEL(vt_vector_convert_fill)(vt_backend *backend)
{
    backend->convert = convert;
}
