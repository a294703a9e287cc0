/* A stand-in for a profiler: named by NVTX_INJECTION64_PATH, it writes a line for each NVTX range that begins, indented
 * by its nesting depth, to the file that NVTX_LISTENER_OUT names. The protocol: NVTX's nvtxDetail/nvtxInit.h and
 * nvtxTypes.h. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *file;
static int depth;

static int NVTX_API begin(const char *name)
{
    if (file != NULL) fprintf(file, "%*s%s\n", 2 * depth, "", name);
    return depth++;
}

static int NVTX_API end(void)
{
    if (--depth < 0 && file != NULL) fprintf(file, "a range ended that never began\n");
    if (file != NULL) fflush(file);
    return depth;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    const char *path = getenv("NVTX_LISTENER_OUT");
    if (callbacks == NULL || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) ||
        size <= NVTX_CBID_CORE_RangePop)
        return 0;
    *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)begin;
    *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)end;
    if (path != NULL) file = fopen(path, "w");
    return 1;
}
