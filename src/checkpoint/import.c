/* The names in a .safetensors file that PyTorch's side wrote. */
#include <string.h>

#include "base/text.h"
#include "checkpoint/inside.h"

/* The length of what DistributedDataParallel and torch.compile have put before a name, nested in any order. */
static size_t prefix_length(const char *name)
{
    static const char *const prefixes[] = {"module.", "_orig_mod."};
    size_t length = 0, before;
    do {
        before = length;
        for (int i = 0; i < 2; i++)
            if (strncmp(name + length, prefixes[i], strlen(prefixes[i])) == 0) length += strlen(prefixes[i]);
    } while (length > before);
    return length;
}

char *vt_import_fused_name(const char *parameter, int *part)
{
    static const char *const parts[] = {".attn.q.", ".attn.k.", ".attn.v."};
    for (int i = 0; i < 3; i++) {
        const char *at = strstr(parameter, parts[i]);
        if (at == NULL) continue;
        *part = i;
        return vt_text_format("%.*s.attn.qkv.%s", (int)(at - parameter), parameter, at + strlen(parts[i]));
    }
    return NULL;
}

vt_status vt_import_open(const char *path, vt_safetensors **file, vt_text *changes)
{
    vt_status status = VT_OK;
    bool any = false;
    const char *name;
    VT_TRY(vt_safetensors_open(path, file));
    for (int64_t i = 0; (name = vt_safetensors_name(*file, i)) != NULL; i++) {
        const size_t length = prefix_length(name);
        if (length == 0) continue;
        if (!any) vt_text_append(changes, "; '%.*s' was taken off its names", (int)length, name);
        any = true;
        vt_safetensors_rename(*file, i, name + length);
    }
done:
    return status;
}
