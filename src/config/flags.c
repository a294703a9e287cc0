/* The command line: "--name=value", "--name value", "--switch". */
#include <stdlib.h>
#include <string.h>

#include "config/option.h"

/* The error of a word that is no flag: says what was probably meant. */
static vt_status stray_word(const char *word, const vt_row *previous)
{
    vt_status status = VT_OK;
    size_t dashes = strspn(word, "-");
    char *name = vt_text_format("%.*s", (int)strcspn(word + dashes, "="), word + dashes);
    if (dashes == 0 && previous != NULL && vt_row_is_switch(previous))
        VT_FAIL("'%s' after --%s: a switch takes a value only after '=': --%s=%s", word, previous->name, previous->name,
                word);
    if (vt_row_find(name) != NULL) VT_FAIL("'%s' is not a flag; did you mean --%s?", word, word + dashes);
    VT_FAIL("'%s' is not a flag; flags are written --name=value ('vitrain options' lists them)", word);
done:
    free(name);
    return status;
}

/* The 2022 tutorial's scripts take 0 as "not given": the file's value counts. */
static bool is_left_to_file(const vt_row *row, const char *value)
{
    return strcmp(value, "0") == 0 && (row->id == VT_OPTION_num_epochs || row->id == VT_OPTION_local_batch_size);
}

/* The flag at arguments[*at]; *at moves to its last word. */
static vt_status apply_flag(vt_config *config, int argument_count, char *const *arguments, int *at)
{
    vt_status status = VT_OK;
    const char *written = arguments[*at] + 2;
    const char *value = strchr(written, '=');
    vt_text range = {0};
    char *name = vt_text_format("%.*s", (int)strcspn(written, "="), written);
    const vt_row *row = vt_row_find(name);
    VT_CHECK(row != NULL, "unknown flag --%s; did you mean --%s? ('vitrain options' lists all)", name,
             vt_row_nearest(name, true));
    if (value != NULL) {
        value++;
    } else if (vt_row_is_switch(row)) {
        value = "true";
    } else {
        const vt_row *target = row->kind == VT_ROW_ALIAS ? vt_row_find(row->target) : row;
        vt_row_range(target, &range);
        VT_CHECK(*at + 1 < argument_count && strncmp(arguments[*at + 1], "--", 2) != 0,
                 "--%s: its value is missing (expected %s)", name, range.characters);
        value = arguments[++*at];
    }
    if (is_left_to_file(row, value)) goto done;
    status = vt_row_assign(row, value, config, VT_FROM_COMMAND_LINE);
    if (status != VT_OK) vt_error_context("--%s=%.200s", name, value);
done:
    vt_text_close(&range);
    free(name);
    return status;
}

vt_status vt_flags_apply(vt_config *config, int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    const vt_row *previous = NULL;
    for (int i = 0; i < argument_count; i++) {
        const char *word = arguments[i];
        if (strncmp(word, "--", 2) != 0 || word[2] == '\0') VT_TRY(stray_word(word, previous));
        VT_TRY(apply_flag(config, argument_count, arguments, &i));
        previous = arguments[i] == word ? vt_row_find(word + 2) : NULL; /* NULL unless it is a switch without a value */
    }
done:
    return status;
}
