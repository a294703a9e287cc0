/* `.safetensors` files: named tensors as PyTorch's ecosystem exchanges them. A file is 8 bytes (length of the header,
 * little endian), a JSON header, then the numbers (https://huggingface.co/docs/safetensors, "Format"). Also
 * recognises PyTorch's own files, which are never read. */
#ifndef VT_STORAGE_SAFETENSORS_H
#define VT_STORAGE_SAFETENSORS_H

#include <stdio.h>

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

typedef enum {
    VT_SAFETENSORS_F64,
    VT_SAFETENSORS_F32,
    VT_SAFETENSORS_F16,
    VT_SAFETENSORS_BF16,
    VT_SAFETENSORS_OTHER
} vt_safetensors_type;

/* A tensor of a file. */
enum { VT_SAFETENSORS_NAME = 256 };
typedef struct {
    char name[VT_SAFETENSORS_NAME];
    vt_safetensors_type type;
    char type_name[16]; /* "F32", "BF16", …, as the file has it */
    vt_tensor_shape shape;
    int64_t begin, end; /* bytes, from the end of the header */
} vt_safetensors_entry;

typedef struct {
    char *path;
    FILE *file;
    int64_t data_start, data_size;
    int64_t count;
    vt_safetensors_entry *entries; /* their names may be changed */
} vt_safetensors;

/* Reads and checks the header: lengths and offsets within the file, no two tensors over the same bytes. */
vt_status vt_safetensors_open(const char *path, vt_safetensors **file);
void vt_safetensors_close(vt_safetensors **file);

/* NULL: there is no such tensor. */
const vt_safetensors_entry *vt_safetensors_find(const vt_safetensors *file, const char *name);

/* One of `parts` equal runs of the rows of tensor `name` (part 0, 1, …), which must have this shape, into values
 * [shape]: F32, F64 (rounded), F16 and BF16 (widened). Errors name the file, the tensor and what differs; another type,
 * and an F64 that is too large for float32, are errors. */
vt_status vt_safetensors_read_part(const vt_safetensors *file, const char *name, int part, int parts,
                                   const vt_tensor_shape *shape, float *values);

/* What `path` is, if it is one of PyTorch's own files: "a PyTorch file (a zip archive with data.pkl)". For messages:
 * such files hold pickled Python code, so they are never read. NULL: it is none of them. Recognised by the content, or
 * else by the end of the name (.pt, .pth, .tar, .ckpt). */
const char *vt_pytorch_file_kind(const char *path);

#endif
