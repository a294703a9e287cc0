#include "planning/hardware.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/option.h"
#include "storage/output_file.h"

/* clang-format off */
#define PLACE(member) .offset = offsetof(vt_hardware, member), .origin = offsetof(vt_hardware, origin)
#define NUMBER(text, member, value, from, to) {.kind = VT_ROW_REAL, .name = text, .preset = value, PLACE(member), \
                                                  .least = from, .most = to}
/* clang-format on */
/* What has no default must be given. */
static const vt_row table[] = {
    {.kind = VT_ROW_END},
    {.kind = VT_ROW_CHOICE, .name = "kind", .preset = "gpu", .choices = "gpu|cpu", PLACE(kind)},
    NUMBER("memory_gib", memory_gib, "None", 1e-3, 1e6),
    NUMBER("reserved_gib", reserved_gib, "0", 0, 1e6),
    NUMBER("ranks_per_node", ranks_per_node, "None", 0, 1e6),
    NUMBER("power_w", power_w, "0", 0, 1e6),
    NUMBER("matrix_float32_tflops", matrix_tflops[VT_FLOAT32], "None", 1e-6, 1e6),
    NUMBER("matrix_bf16_tflops", matrix_tflops[VT_BFLOAT16], "None", 1e-6, 1e6),
    NUMBER("matrix_float32_fraction", matrix_fraction[VT_FLOAT32], "None", 1e-6, 1),
    NUMBER("matrix_bf16_fraction", matrix_fraction[VT_BFLOAT16], "None", 1e-6, 1),
    NUMBER("attention_float32_fraction", attention_fraction[VT_FLOAT32], "None", 1e-6, 1e4),
    NUMBER("attention_bf16_fraction", attention_fraction[VT_BFLOAT16], "None", 1e-6, 1e4),
    NUMBER("matrix_fp16_tflops", matrix_tflops[VT_FLOAT16], "0", 0, 1e6), /* not given: as bf16 */
    NUMBER("matrix_fp16_fraction", matrix_fraction[VT_FLOAT16], "0", 0, 1),
    NUMBER("attention_fp16_fraction", attention_fraction[VT_FLOAT16], "0", 0, 1e4),
    NUMBER("head_multiple", head_multiple, "1", 1, 1024),
    NUMBER("memory_gb_s", memory_gb_s, "None", 1e-3, 1e6),
    NUMBER("memory_fraction", memory_fraction, "None", 1e-6, 1e4),
    NUMBER("norm_fraction", work_fraction[VT_WORK_NORM], "0", 0, 1e4),
    NUMBER("gelu_fraction", work_fraction[VT_WORK_GELU], "0", 0, 1e4),
    NUMBER("residual_fraction", work_fraction[VT_WORK_RESIDUAL], "0", 0, 1e4),
    NUMBER("patches_fraction", work_fraction[VT_WORK_PATCHES], "0", 0, 1e4),
    NUMBER("optimizer_fraction", work_fraction[VT_WORK_OPTIMIZER], "0", 0, 1e4),
    NUMBER("operation_us", operation_us, "None", 0, 1e6),
    NUMBER("within_gb_s", within_gb_s, "None", 1e-6, 1e6),
    NUMBER("within_us", within_us, "None", 0, 1e6),
    NUMBER("between_gb_s", between_gb_s, "None", 1e-6, 1e6),
    NUMBER("between_us", between_us, "None", 0, 1e6),
    NUMBER("host_gb_s", host_gb_s, "0", 0, 1e6),
    NUMBER("overlap", overlap, "None", 0, 1),
    {.kind = VT_ROW_END}};
static const vt_row *const rows = &table[1];

static vt_status read_entry(const vt_yaml_entry *entry, vt_hardware *hardware)
{
    vt_status status = VT_OK;
    char found[96], *advice = NULL;
    VT_CHECK(entry->value->kind == VT_YAML_MAPPING, "%s:%zu:%zu: '%.60s' should be a mapping of keys, found %s",
             VT_YAML_PLACE(entry->value), entry->key->text, vt_yaml_describe(entry->value, found));
    VT_TRY(vt_yaml_entries(entry->value));
    *hardware = (vt_hardware){.name = ""};
    vt_rows_start(rows, hardware);
    snprintf(hardware->name, sizeof hardware->name, "%.60s", entry->key->text);
    for (size_t i = 0; i < entry->value->entry_count; i++) {
        const vt_yaml_entry *given = &entry->value->entries[i];
        const vt_row *row = vt_row_find(rows, given->key->text);
        if (row == NULL) advice = vt_row_advice(rows, NULL, given->key->text, "");
        VT_CHECK(row != NULL, "%s:%zu:%zu: unknown key '%.80s'%s", VT_YAML_PLACE(given->key), given->key->text, advice);
        VT_TRY(vt_row_read(row, given->value, hardware));
    }
    for (const vt_row *row = rows; row->kind != VT_ROW_END; row++)
        VT_CHECK(!vt_row_is_unset(row, hardware), "%s:%zu:%zu: '%.60s' lacks %s", VT_YAML_PLACE(entry->key),
                 entry->key->text, row->name);
    const double per_node = hardware->ranks_per_node;
    VT_CHECK(per_node == floor(per_node),
             "%s:%zu:%zu: '%.60s': ranks_per_node is %g, expected a whole number (0: all ranks on one node)",
             VT_YAML_PLACE(entry->key), entry->key->text, per_node);
    VT_CHECK(hardware->reserved_gib < hardware->memory_gib,
             "%s:%zu:%zu: '%.60s': reserved_gib %g leaves nothing of memory_gib %g", VT_YAML_PLACE(entry->key),
             entry->key->text, hardware->reserved_gib, hardware->memory_gib);
    double *const by_type[] = {hardware->matrix_tflops, hardware->matrix_fraction, hardware->attention_fraction};
    for (size_t i = 0; i < sizeof by_type / sizeof by_type[0]; i++)
        if (by_type[i][VT_FLOAT16] == 0) by_type[i][VT_FLOAT16] = by_type[i][VT_BFLOAT16];
    for (int i = 0; i < VT_WORK_COUNT; i++)
        if (hardware->work_fraction[i] == 0) hardware->work_fraction[i] = hardware->memory_fraction;
done:
    free(advice);
    return status;
}

static vt_status no_such_entry(const char *path, const char *wanted, const vt_yaml_node *top)
{
    vt_status status = VT_OK;
    vt_text list = {0};
    if (top->entry_count == 0) vt_text_append(&list, "nothing");
    for (size_t i = 0; i < top->entry_count; i++)
        vt_text_append(&list, "%s%s", i > 0 ? ", " : "", top->entries[i].key->text);
    if (wanted == NULL)
        VT_FAIL("--hardware=%s: the file holds %s; add which, as in %s:NAME", path, list.characters, path);
    VT_FAIL(
        "--hardware: '%.60s' is not in %s, which holds %s; it may also be the path of a file that --calibrate wrote",
        wanted, path, list.characters);
done:
    vt_text_close(&list);
    return status;
}

/* `wanted` NULL: the only entry. */
static vt_status read_file(const char *path, const char *wanted, vt_hardware *hardware)
{
    vt_status status = VT_OK;
    vt_yaml *yaml = NULL;
    VT_TRY(vt_yaml_open(path, NULL, "machines (cpu: {memory_gib: 24, ...}), like config/hardware.yaml", &yaml));
    const vt_yaml_node *top = vt_yaml_top(yaml);
    const vt_yaml_entry *only = top->entry_count == 1 ? &top->entries[0] : NULL;
    const vt_yaml_entry *entry = wanted != NULL ? vt_yaml_find(top, wanted) : only;
    status = entry != NULL ? read_entry(entry, hardware) : no_such_entry(path, wanted, top);
done:
    vt_yaml_close(&yaml);
    return status;
}

vt_status vt_hardware_read(const char *name, vt_hardware *hardware)
{
    vt_status status = VT_OK;
    const char *dot = strrchr(name, '.');
    const bool is_path = strchr(name, '/') != NULL || (dot != NULL && strncmp(dot, ".yaml", 5) == 0);
    char *path = is_path ? vt_text_copy(name) : vt_config_find("config/hardware.yaml");
    VT_CHECK(path != NULL, "there is no config/hardware.yaml here, nor beside the program; name a file with "
                           "--hardware=PATH");
    char *colon = is_path && access(name, F_OK) != 0 ? strrchr(path, ':') : NULL;
    if (colon != NULL) *colon = '\0';
    VT_TRY(read_file(path, !is_path ? name : colon != NULL ? colon + 1 : NULL, hardware));
done:
    free(path);
    return status;
}

vt_status vt_hardware_write(const vt_hardware *hardware, const char *comment, const char *path)
{
    vt_status status = VT_OK;
    char number[VT_NUMBER_SIZE];
    FILE *file = NULL;
    VT_TRY(vt_output_open(path, &file));
    fprintf(file, "%s%s:\n  kind: %s\n", comment, hardware->name, hardware->kind == VT_MACHINE_CPU ? "cpu" : "gpu");
    for (const vt_row *row = rows + 1; row->kind != VT_ROW_END; row++) {
        const double value = *(const double *)(const void *)((const char *)hardware + row->offset);
        if (vt_row_may_be_unset(row) || value > 0)
            fprintf(file, "  %s: %s\n", row->name, vt_text_float((float)value, number));
    }
    VT_TRY(vt_output_close(file, path));
done:
    return status;
}
