/* `.safetensors` files: named tensors as PyTorch's ecosystem exchanges them. A file is 8 bytes (length of the header,
 * little endian), a JSON header, then the numbers (https://huggingface.co/docs/safetensors, "Format"). */
#ifndef VT_STORAGE_SAFETENSORS_H
#define VT_STORAGE_SAFETENSORS_H

#include "base/text.h"
#include "storage/tensor_file.h"

/* Does the path end in .safetensors, which distinguishes such files from checkpoints? */
static inline bool vt_safetensors_is_name(const char *path)
{
    return vt_text_ends_with(path, ".safetensors");
}

typedef struct {
    const char *name;
    vt_tensor_shape shape;
    const float *values;
} vt_named_tensor;

/* Writes float32 tensors (F32); whole or not at all. */
vt_status vt_safetensors_write(const char *path, const vt_named_tensor *tensors, int64_t count);

typedef struct vt_safetensors vt_safetensors;

/* Reads and checks the header: lengths and offsets within the file, no two tensors over the same bytes. */
vt_status vt_safetensors_open(const char *path, vt_safetensors **file);
void vt_safetensors_close(vt_safetensors **file);

/* The names of its tensors, by 0, 1, …; NULL after the last. */
const char *vt_safetensors_name(const vt_safetensors *file, int64_t index);

/* Renames a tensor; the new name must not be longer. */
void vt_safetensors_rename(vt_safetensors *file, int64_t index, const char *name);

/* The shape of a tensor that is there. */
const vt_tensor_shape *vt_safetensors_shape(const vt_safetensors *file, const char *name);

/* "F32", "BF16", …, as the file has it; NULL when there is no such tensor. */
const char *vt_safetensors_type(const vt_safetensors *file, const char *name);

/* One of `parts` equal runs of the rows of tensor `name` (part 0, 1, …), which must have this shape, into values
 * [shape]: F32, F64 (rounded), F16 and BF16 (widened). Errors name the file, the tensor and what differs; another type,
 * and an F64 that is too large for float32, are errors. */
vt_status vt_safetensors_read_part(const vt_safetensors *file, const char *name, int part, int parts,
                                   const vt_tensor_shape *shape, float *values);

#endif
