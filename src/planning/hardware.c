#include "planning/hardware.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "config/yaml.h"
#include "storage/output_file.h"

typedef struct {
    const char *key;
    size_t offset;
    bool required;
    double least, most;
} field;

#define FIELD(member) offsetof(vt_hardware, member)
static const field fields[] = {
    {"memory_gib", FIELD(memory_gib), true, 1e-3, 1e6},
    {"reserved_gib", FIELD(reserved_gib), false, 0, 1e6},
    {"ranks_per_node", FIELD(ranks_per_node), true, 0, 1e6},
    {"power_w", FIELD(power_w), false, 0, 1e6},
    {"matrix_float32_tflops", FIELD(matrix_tflops[VT_FLOAT32]), true, 1e-6, 1e6},
    {"matrix_bf16_tflops", FIELD(matrix_tflops[VT_BFLOAT16]), true, 1e-6, 1e6},
    {"matrix_float32_fraction", FIELD(matrix_fraction[VT_FLOAT32]), true, 1e-6, 1},
    {"matrix_bf16_fraction", FIELD(matrix_fraction[VT_BFLOAT16]), true, 1e-6, 1},
    {"attention_float32_fraction", FIELD(attention_fraction[VT_FLOAT32]), true, 1e-6, 10},
    {"attention_bf16_fraction", FIELD(attention_fraction[VT_BFLOAT16]), true, 1e-6, 10},
    {"matrix_fp16_tflops", FIELD(matrix_tflops[VT_FLOAT16]), false, 1e-6, 1e6}, /* not given: as bf16 */
    {"matrix_fp16_fraction", FIELD(matrix_fraction[VT_FLOAT16]), false, 1e-6, 1},
    {"attention_fp16_fraction", FIELD(attention_fraction[VT_FLOAT16]), false, 1e-6, 10},
    {"head_multiple", FIELD(head_multiple), false, 1, 1024},
    {"memory_gb_s", FIELD(memory_gb_s), true, 1e-3, 1e6},
    {"memory_fraction", FIELD(memory_fraction), true, 1e-6, 10},
    {"norm_fraction", FIELD(work_fraction[VT_WORK_NORM]), false, 1e-6, 10},
    {"gelu_fraction", FIELD(work_fraction[VT_WORK_GELU]), false, 1e-6, 10},
    {"residual_fraction", FIELD(work_fraction[VT_WORK_RESIDUAL]), false, 1e-6, 10},
    {"patches_fraction", FIELD(work_fraction[VT_WORK_PATCHES]), false, 1e-6, 10},
    {"optimizer_fraction", FIELD(work_fraction[VT_WORK_OPTIMIZER]), false, 1e-6, 10},
    {"operation_us", FIELD(operation_us), true, 0, 1e6},
    {"within_gb_s", FIELD(within_gb_s), true, 1e-6, 1e6},
    {"within_us", FIELD(within_us), true, 0, 1e6},
    {"between_gb_s", FIELD(between_gb_s), true, 1e-6, 1e6},
    {"between_us", FIELD(between_us), true, 0, 1e6},
    {"host_gb_s", FIELD(host_gb_s), false, 0, 1e6},
    {"overlap", FIELD(overlap), true, 0, 1},
};
enum { FIELD_COUNT = sizeof fields / sizeof fields[0] };

static double *place_of(const vt_hardware *hardware, const field *f)
{
    return (double *)(void *)((char *)(uintptr_t)hardware + f->offset);
}

/* given [FIELD_COUNT]: notes which one it is. */
static vt_status take_value(const vt_yaml_entry *entry, vt_hardware *hardware, bool *given)
{
    vt_status status = VT_OK;
    char found[96];
    double value = 0;
    const vt_yaml_node *key = entry->key, *node = entry->value;
    const char *names[FIELD_COUNT + 1], *nearest = NULL;
    int i = 0;
    if (strcmp(key->text, "kind") == 0) {
        const int kind = node->kind == VT_YAML_SCALAR ? vt_text_choice(node->text, "cpu|gpu") : -1;
        VT_CHECK(kind >= 0, "%s:%zu:%zu: kind: found %s, expected cpu or gpu", VT_YAML_PLACE(node),
                 vt_yaml_describe(node, found));
        hardware->host_memory = kind == 0;
        goto done;
    }
    for (int n = 0; n <= FIELD_COUNT; n++) names[n] = n < FIELD_COUNT ? fields[n].key : "kind";
    while (i < FIELD_COUNT && strcmp(names[i], key->text) != 0) i++;
    if (i == FIELD_COUNT) nearest = vt_text_nearest(key->text, names, FIELD_COUNT + 1);
    VT_CHECK(i < FIELD_COUNT, "%s:%zu:%zu: unknown key '%.80s'%s%s%s", VT_YAML_PLACE(key), key->text,
             nearest != NULL ? "; did you mean '" : "", nearest != NULL ? nearest : "", nearest != NULL ? "'?" : "");
    const field *f = &fields[i];
    VT_CHECK(node->kind == VT_YAML_SCALAR && vt_text_to_double(node->text, &value) && value >= f->least &&
                 value <= f->most,
             "%s:%zu:%zu: %s: found %s, expected a number from %g to %g", VT_YAML_PLACE(node), f->key,
             vt_yaml_describe(node, found), f->least, f->most);
    *place_of(hardware, f) = value;
    given[i] = true;
done:
    return status;
}

static vt_status read_entry(const vt_yaml_entry *entry, vt_hardware *hardware)
{
    vt_status status = VT_OK;
    char found[96];
    bool given[FIELD_COUNT] = {false};
    VT_CHECK(entry->value->kind == VT_YAML_MAPPING, "%s:%zu:%zu: '%.60s' should be a mapping of keys, found %s",
             VT_YAML_PLACE(entry->value), entry->key->text, vt_yaml_describe(entry->value, found));
    VT_TRY(vt_yaml_entries(entry->value));
    *hardware = (vt_hardware){.head_multiple = 1};
    snprintf(hardware->name, sizeof hardware->name, "%.60s", entry->key->text);
    for (size_t i = 0; i < entry->value->entry_count; i++)
        VT_TRY(take_value(&entry->value->entries[i], hardware, given));
    for (int i = 0; i < FIELD_COUNT; i++)
        VT_CHECK(given[i] || !fields[i].required, "%s:%zu:%zu: '%.60s' lacks %s", VT_YAML_PLACE(entry->key),
                 entry->key->text, fields[i].key);
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
    fprintf(file, "%s%s:\n  kind: %s\n", comment, hardware->name, hardware->host_memory ? "cpu" : "gpu");
    for (int i = 0; i < FIELD_COUNT; i++) {
        float value = (float)*place_of(hardware, &fields[i]);
        if (fields[i].required || value > 0) fprintf(file, "  %s: %s\n", fields[i].key, vt_text_float(value, number));
    }
    VT_TRY(vt_output_close(file, path));
done:
    return status;
}
