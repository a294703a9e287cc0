/* Files that PyTorch writes: told from ours, for messages. They hold pickled Python code, so none is read. */
#ifndef VT_STORAGE_PYTORCH_FILE_H
#define VT_STORAGE_PYTORCH_FILE_H

/* "a PyTorch file (a zip archive with data.pkl)", or another such name of what `path` is; NULL: nothing of PyTorch's.
 * Told by the content, and where that says nothing, by the end of the name (.pt, .pth, .tar, .ckpt). */
const char *vt_pytorch_file_kind(const char *path);

#endif
