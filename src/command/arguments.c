#include "command/command.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

char *vt_subcommand_name(const vt_subcommand *command)
{
    return command->word != NULL ? vt_text_format("%s %s", command->name, command->word) : vt_text_copy(command->name);
}

/* ---- parsing ---- */

/* The row of the flag "--name", "--name=value" or, where a name is one letter, "-n". */
static const vt_row *find_flag(const vt_row *rows, const char *word)
{
    const size_t dashes = strspn(word, "-"), length = strcspn(word, "=");
    if (dashes != 2 && (dashes != 1 || length != 2)) return NULL;
    char *name = vt_text_format("%.*s", (int)(length - dashes), word + dashes);
    const vt_row *row = vt_row_find(rows, name);
    free(name);
    return row;
}

static vt_status fail_unknown(const vt_subcommand *command, const char *word)
{
    vt_status status = VT_OK;
    const bool options = command->options != VT_NO_OPTIONS;
    char *flag = vt_text_format("%.*s", (int)strcspn(word, "="), word), *own = vt_subcommand_name(command);
    char *advice = vt_row_advice(command->flags(), options ? vt_options : NULL, flag + strspn(flag, "-"), "--");
    VT_CHECK(word[0] == '-', "unknown argument '%s'; `vitrain %s --help` lists all", word, own);
    VT_FAIL("unknown flag %s%s `vitrain %s --help` %s", flag, advice[0] != '\0' ? advice : ";", own,
            options ? "says which there are" : "lists all");
done:
    free(advice);
    free(flag);
    free(own);
    return status;
}

/* The path, of which slashes at its end are cut off, in place. */
static vt_status add_operand(const vt_subcommand *command, const char *word, vt_call *call)
{
    vt_status status = VT_OK;
    const int most = command->most;
    char *path = (char *)(uintptr_t)vt_file_of_address(word);
    VT_CHECK(call->operand_count < most, "'%s' after '%s': expected %s%s", word, call->operands[most - 1],
             most == 1 ? "one " : "", command->operands);
    for (size_t length = strlen(path); length > 1 && path[length - 1] == '/';) path[--length] = '\0';
    call->operands[call->operand_count++] = path;
done:
    return status;
}

/* The argument at *at; *at moves to its last word. */
static vt_status take(const vt_subcommand *command, int argument_count, char *const *arguments, int *at, vt_call *call)
{
    vt_status status = VT_OK;
    const char *word = arguments[*at], *value = NULL;
    const vt_row *row = find_flag(command->flags(), word), *option = NULL;
    if (command->options != VT_NO_OPTIONS && strncmp(word, "--", 2) == 0) option = find_flag(vt_options, word);
    if (row != NULL) {
        VT_TRY(vt_flag_value(row, argument_count, arguments, at, &value));
        if (vt_row_meant(row)->kind == VT_ROW_OPERAND)
            VT_TRY(add_operand(command, value, call));
        else
            VT_TRY(vt_flag_assign(row, value, call->flags));
    } else if (option != NULL) {
        const int first = *at;
        VT_TRY(vt_flag_value(option, argument_count, arguments, at, &value));
        for (int i = first; i <= *at; i++) call->options[call->option_count++] = arguments[i];
    } else if (word[0] != '-' && command->most > 0) {
        VT_TRY(add_operand(command, word, call));
    } else {
        /* the configuration's parser says what is wrong with a stray word */
        if (command->options == VT_NO_OPTIONS || strncmp(word, "--", 2) == 0) VT_TRY(fail_unknown(command, word));
        call->options[call->option_count++] = arguments[*at];
    }
done:
    return status;
}

vt_status vt_call_open(const vt_subcommand *command, int argument_count, char *const *arguments, vt_call *call)
{
    vt_status status = VT_OK;
    char *name = vt_subcommand_name(command);
    call->flags = vt_allocate(command->size + 1, 1, "the arguments");
    call->operands = vt_allocate((size_t)argument_count + 1, sizeof *call->operands, "the arguments");
    call->options = vt_allocate((size_t)argument_count + 1, sizeof *call->options, "the arguments");
    vt_rows_start(command->flags(), call->flags);
    for (int i = 0; i < argument_count && status == VT_OK; i++)
        status = take(command, argument_count, arguments, &i, call);
    for (const vt_row *row = command->flags(); row->kind != VT_ROW_END && status == VT_OK; row++)
        status = vt_row_check_scope(row, call->flags);
    if (status == VT_OK && call->operand_count < command->least)
        status = vt_error_note(__FILE__, __LINE__, "no %s given; see `vitrain %s --help`", command->operands, name);
    if (status != VT_OK) vt_error_context("%s", name);
    free(name);
    return status;
}

void vt_call_close(const vt_subcommand *command, vt_call *call)
{
    if (call->flags != NULL) vt_rows_free(command->flags(), call->flags);
    free(call->flags);
    free(call->operands);
    free(call->options);
}

/* ---- help ---- */

bool vt_arguments_ask_help(int argument_count, char *const *arguments)
{
    for (int i = 0; i < argument_count; i++)
        if (strcmp(arguments[i], "--help") == 0 || strcmp(arguments[i], "-h") == 0) return true;
    return false;
}

void vt_arguments_print_help(const vt_subcommand *command)
{
    const vt_row *flags = command->flags();
    vt_print("%s", command->help);
    vt_rows_print(stdout, flags);
    if (flags->kind != VT_ROW_END) vt_print("  --help                            this text\n");
    if (command->help_end != NULL) vt_print("%s", command->help_end);
}
