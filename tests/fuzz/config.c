/* YAML, options and flags: lines before the first "%%" are flags, the rest is the YAML file, whose `base` is used. An
 * accepted configuration must be accepted again after it is saved. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "config/config.h"
#include "fuzz.h"

enum { MOST_FLAGS = 16 };

static void save_and_read_again(const vt_config *config)
{
    SCOPED(vt_config) *again = NULL;
    char *text = vt_config_text(config), *path = vt_fuzz_write("saved.yaml", text, strlen(text));
    char *file = vt_text_format("--yaml_config=%s", path), *name = vt_text_format("--config=%s", config->config);
    char *const arguments[] = {file, name};
    if (vt_config_open(2, arguments, 1, &again) != VT_OK) {
        fprintf(stderr, "%s\n%s\n", vt_error_text(), text);
        abort();
    }
    free(text);
    free(path);
    free(file);
    free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = vt_text_format("%.*s", (int)size, (const char *)data), *arguments[MOST_FLAGS + 1];
    size_t yaml = 0;
    int count = 1;
    char *marker = strstr(text, "%%\n");
    if (marker != NULL) {
        yaml = (size_t)(marker - text) + 3;
        *marker = '\0';
        for (char *rest = NULL, *line = strtok_r(text, "\n", &rest); line != NULL && count < MOST_FLAGS;
             line = strtok_r(NULL, "\n", &rest))
            arguments[count++] = line;
    }
    char *path = vt_fuzz_write("config.yaml", data + yaml, size - yaml);
    arguments[0] = vt_text_format("--yaml_config=%s", path);
    vt_config *config = NULL;
    vt_error_clear();
    if (vt_config_open(count, arguments, 1, &config) == VT_OK) save_and_read_again(config);
    vt_config_close(&config);
    free(arguments[0]);
    free(path);
    free(text);
    return 0;
}
