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
    if (vt_row_find(vt_options, name) != NULL) VT_FAIL("'%s' is not a flag; did you mean --%s?", word, word + dashes);
    VT_FAIL("'%s' is not a flag; flags are written --name=value ('vitrain options' lists them)", word);
done:
    free(name);
    return status;
}

/* The 2022 tutorial's scripts take 0 as "not given": the file's value counts. */
static bool is_left_to_file(const vt_row *row, const char *value)
{
    const vt_option_id id = vt_row_meant(row)->id;
    return strcmp(value, "0") == 0 && (id == VT_OPTION_num_epochs || id == VT_OPTION_local_batch_size);
}

vt_status vt_flag_value(const vt_row *row, int argument_count, char *const *arguments, int *at, const char **value)
{
    vt_status status = VT_OK;
    vt_text range = {0};
    const char *equals = strchr(arguments[*at], '=');
    *value = equals != NULL ? equals + 1 : "true"; /* of a switch */
    if (equals != NULL || vt_row_is_switch(row)) goto done;
    vt_row_range(vt_row_meant(row), &range);
    VT_CHECK(*at + 1 < argument_count && strncmp(arguments[*at + 1], "--", 2) != 0,
             "--%s: its value is missing (expected %s)", row->name, range.characters);
    *value = arguments[++*at];
done:
    vt_text_close(&range);
    return status;
}

vt_status vt_flag_assign(const vt_row *row, const char *value, void *values)
{
    const vt_status status = vt_row_assign(row, value, values, VT_FROM_COMMAND_LINE);
    return status == VT_OK ? status : vt_error_context("--%s=%.200s", row->name, value);
}

/* The flag at arguments[*at]; *at moves to its last word. */
static vt_status apply_flag(vt_config *config, int argument_count, char *const *arguments, int *at)
{
    vt_status status = VT_OK;
    const char *written = arguments[*at] + 2, *value = NULL;
    char *name = vt_text_format("%.*s", (int)strcspn(written, "="), written), *advice = NULL;
    const vt_row *row = vt_row_find(vt_options, name);
    if (row == NULL) advice = vt_row_advice(vt_options, NULL, name, "--");
    VT_CHECK(row != NULL, "unknown flag --%s%s ('vitrain options' lists all)", name, advice);
    VT_TRY(vt_flag_value(row, argument_count, arguments, at, &value));
    if (is_left_to_file(row, value))
        config->zero = vt_row_meant(row)->name;
    else
        VT_TRY(vt_flag_assign(row, value, config));
done:
    free(name);
    free(advice);
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
        const bool is_switch_alone = arguments[i] == word; /* or it has '=', and then no row is found */
        previous = is_switch_alone ? vt_row_find(vt_options, word + 2) : NULL;
    }
done:
    return status;
}
