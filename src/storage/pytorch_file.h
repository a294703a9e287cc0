/* Recognises files that PyTorch writes, for messages. They hold pickled Python code, so they are never read. */
#ifndef VT_STORAGE_PYTORCH_FILE_H
#define VT_STORAGE_PYTORCH_FILE_H

/* What `path` is, "a PyTorch file (a zip archive with data.pkl)"; NULL: nothing of PyTorch's. Recognised by the
 * content, or else by the end of the name (.pt, .pth, .tar, .ckpt). */
const char *vt_pytorch_file_kind(const char *path);

#endif
