#include "command/arguments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "config/config.h"

enum { MOST_FLAGS = 32 };

/* ---- showing the flags instead of using them ---- */

static struct {
    void (*visit)(const vt_argument *flag, void *context);
    void *context;
} visitor;

void vt_arguments_visit(vt_status (*run)(int argument_count, char *const *arguments), int argument_count,
                        char *const *arguments, void (*visit)(const vt_argument *flag, void *context), void *context)
{
    visitor.visit = visit;
    visitor.context = context;
    const vt_status status = run(argument_count, arguments);
    VT_ASSERT(status == VT_STOPPED);
    visitor.visit = NULL;
}

/* ---- parsing ---- */

static const vt_argument *find_flag(const vt_command_line *line, const char *name, size_t length)
{
    for (int64_t i = 0; i < line->flag_count; i++)
        if (strncmp(line->flags[i].name, name, length) == 0 && line->flags[i].name[length] == '\0')
            return &line->flags[i];
    return NULL;
}

/* Of a word that is none of the subcommand's flags: is it an option of the configuration, where those are taken? */
static vt_status check_option(const vt_command_line *line, const char *word)
{
    vt_status status = VT_OK;
    const char *names[MOST_FLAGS];
    VT_ASSERT(line->flag_count <= MOST_FLAGS);
    for (int64_t i = 0; i < line->flag_count; i++) names[i] = line->flags[i].name;
    char *flag = vt_text_format("%.*s", (int)strcspn(word, "="), word);
    const char *name = flag + strspn(flag, "-"), *option = line->options ? vt_config_nearest(name) : NULL;
    const char *nearest = vt_text_nearest(name, names, (size_t)line->flag_count);
    if (option != NULL && strcmp(option, name) == 0) goto done;
    if (option != NULL)
        nearest = vt_text_closest(name, (const char *[]){nearest != NULL ? nearest : option, option}, 2);
    VT_CHECK(nearest == NULL, "%s: unknown flag %s; did you mean --%s? `vitrain %s --help` %s", line->command, flag,
             nearest, line->command, line->options ? "says which there are" : "lists all");
    VT_FAIL("%s: unknown flag %s; `vitrain %s --help` lists all", line->command, flag, line->command);
done:
    free(flag);
    return status;
}

static bool in_range(const vt_argument *flag, double value)
{
    return value >= flag->least && value <= flag->most;
}

/* The words of a choice as they appear in a sentence: "a, b or c"; malloc'd. */
static char *list_choices(const char *choices)
{
    vt_text list = {0};
    vt_text_append(&list, "%s", ""); /* not NULL */
    for (const char *word = choices; *word != '\0'; word += *word == '|') {
        const size_t length = strcspn(word, "|");
        const char *before = word == choices ? "" : word[length] == '\0' ? " or " : ", ";
        vt_text_append(&list, "%s%.*s", before, (int)length, word);
        word += length;
    }
    return list.characters;
}

static vt_status parse_choice(const char *command, const vt_argument *flag, const char *text)
{
    vt_status status = VT_OK;
    vt_argument_choice *choice = flag->value;
    char *list = list_choices(choice->choices);
    bool on = text[0] == '\0';
    if (flag->kind == VT_ARGUMENT_SWITCH_CHOICE && (on || vt_boolean_parse(text, &on))) {
        choice->chosen = on ? "" : NULL;
        goto done;
    }
    VT_CHECK(vt_text_choice(text, choice->choices) >= 0, "%s: --%s=%s: expected %s", command, flag->name, text, list);
    choice->chosen = text;
done:
    free(list);
    return status;
}

static vt_status parse_value(const char *command, const vt_argument *flag, const char *text)
{
    vt_status status = VT_OK;
    int64_t integer, pair[2];
    double real;
    bool on;
    switch (flag->kind) {
    case VT_ARGUMENT_INTEGER:
        VT_CHECK(vt_integer_parse(text, &integer) && in_range(flag, (double)integer),
                 "%s: --%s=%s: expected a whole number from %.0f to %.0f", command, flag->name, text, flag->least,
                 flag->most);
        *(int64_t *)flag->value = integer;
        break;
    case VT_ARGUMENT_REAL:
        VT_CHECK(vt_real_parse(text, &real) && in_range(flag, real), "%s: --%s=%s: expected a number from %g to %g",
                 command, flag->name, text, flag->least, flag->most);
        *(double *)flag->value = real;
        break;
    case VT_ARGUMENT_SWITCH:
        VT_CHECK(vt_boolean_parse(text, flag->value), "%s: --%s=%s: expected true or false", command, flag->name, text);
        break;
    case VT_ARGUMENT_PATH:
    case VT_ARGUMENT_TEXT:
        VT_CHECK(text[0] != '\0', "%s: --%s= has no value; see `vitrain %s --help`", command, flag->name, command);
        *(const char **)flag->value = text;
        break;
    case VT_ARGUMENT_ANY_TEXT:
        *(const char **)flag->value = text;
        break;
    case VT_ARGUMENT_SWITCH_PATH:
        *(const char **)flag->value = !vt_boolean_parse(text, &on) ? text : on ? "" : NULL;
        break;
    case VT_ARGUMENT_PAIR:
        VT_CHECK(vt_integers_parse(text, pair) && in_range(flag, (double)pair[0]) && in_range(flag, (double)pair[1]),
                 "%s: --%s=%s: expected two whole numbers from %.0f to %.0f, like [32,64]", command, flag->name, text,
                 flag->least, flag->most);
        memcpy(flag->value, pair, sizeof pair);
        break;
    case VT_ARGUMENT_CHOICE:
    case VT_ARGUMENT_SWITCH_CHOICE:
        status = parse_choice(command, flag, text);
        break;
    }
done:
    return status;
}

bool vt_arguments_ask_help(int argument_count, char *const *arguments)
{
    for (int i = 0; i < argument_count; i++)
        if (strcmp(arguments[i], "--help") == 0 || strcmp(arguments[i], "-h") == 0) return true;
    return false;
}

static vt_status take_operand(const vt_command_line *line, const char *word)
{
    vt_status status = VT_OK;
    VT_CHECK(*line->operand == NULL, "%s: '%s' after '%s': expected one %s", line->command, word, *line->operand,
             line->operand_name);
    *line->operand = vt_file_of_address(word);
done:
    return status;
}

/* The flag at *i. Its value follows "=", or is the next word unless that is a flag; a switch needs none. */
static vt_status take_flag(const vt_command_line *line, const vt_argument *flag, int argument_count,
                           char *const *arguments, int *i)
{
    vt_status status = VT_OK;
    const char *equals = strchr(arguments[*i], '=');
    const char *value = equals != NULL                                                                     ? equals + 1
                        : flag->kind == VT_ARGUMENT_SWITCH                                                 ? "true"
                        : flag->kind == VT_ARGUMENT_SWITCH_PATH || flag->kind == VT_ARGUMENT_SWITCH_CHOICE ? ""
                                                                                                           : NULL;
    if (value == NULL) {
        VT_CHECK(*i + 1 < argument_count && strncmp(arguments[*i + 1], "--", 2) != 0, "%s: --%s needs a value",
                 line->command, flag->name);
        value = arguments[++*i];
    }
    if (line->operand != NULL && flag->value == (void *)line->operand && *line->operand != NULL)
        VT_TRY(take_operand(line, value));
    VT_TRY(parse_value(line->command, flag, value));
done:
    return status;
}

static void print_help(const vt_command_line *line)
{
    fputs(line->help, stdout);
    for (int64_t i = 0; i < line->flag_count; i++) {
        const vt_argument *flag = &line->flags[i];
        char *value = vt_argument_form(flag), *preset = vt_argument_default(flag);
        char *form = vt_text_format("--%s%s", flag->name, value);
        vt_print(preset[0] != '\0' ? "  %-22s %s (default %s)\n" : "  %-22s %s\n", form, flag->help, preset);
        free(form);
        free(preset);
        free(value);
    }
    if (line->flag_count > 0) vt_print("  %-22s this text\n", "--help");
    if (line->help_end != NULL) fputs(line->help_end, stdout);
}

vt_status vt_arguments_parse(const vt_command_line *line, int argument_count, char *const *arguments, vt_words *others)
{
    vt_status status = VT_OK;
    if (visitor.visit != NULL) {
        for (int64_t i = 0; i < line->flag_count; i++) visitor.visit(&line->flags[i], visitor.context);
        return VT_STOPPED;
    }
    if (vt_arguments_ask_help(argument_count, arguments)) {
        print_help(line);
        return VT_STOPPED;
    }
    if (others != NULL) others->words = vt_allocate((size_t)argument_count, sizeof *others->words, "the arguments");
    for (int i = 0; i < argument_count; i++) {
        const char *word = arguments[i], *name = word + (strncmp(word, "--", 2) == 0 ? 2 : 0);
        const vt_argument *flag = name != word ? find_flag(line, name, strcspn(name, "=")) : NULL;
        if (flag != NULL) {
            VT_TRY(take_flag(line, flag, argument_count, arguments, &i));
            continue;
        }
        const bool is_another = others != NULL && !line->options && line->operand != NULL && *line->operand != NULL;
        if (line->operand != NULL && word[0] != '-' && !is_another) {
            VT_TRY(take_operand(line, word));
            continue;
        }
        if (name != word || (word[0] == '-' && !line->options)) VT_TRY(check_option(line, word));
        VT_CHECK(others != NULL, "%s: unknown argument '%s'; `vitrain %s --help` lists all", line->command, word,
                 line->command);
        others->words[others->count++] = arguments[i];
        const bool ends = i + 1 == argument_count || strncmp(arguments[i + 1], "--", 2) == 0;
        if (name != word && !ends && vt_config_takes_next(name)) others->words[others->count++] = arguments[++i];
    }
    VT_CHECK(line->operand == NULL || line->operand_is_optional || *line->operand != NULL,
             "%s: no %s given; see `vitrain %s --help`", line->command, line->operand_name, line->command);
done:
    return status;
}

char *vt_argument_form(const vt_argument *flag)
{
    static const char *const forms[] = {
        [VT_ARGUMENT_INTEGER] = "=N",          [VT_ARGUMENT_REAL] = "=X",        [VT_ARGUMENT_SWITCH] = "",
        [VT_ARGUMENT_PATH] = "=PATH",          [VT_ARGUMENT_TEXT] = "=TEXT",     [VT_ARGUMENT_PAIR] = "=[N,N]",
        [VT_ARGUMENT_SWITCH_PATH] = "[=PATH]", [VT_ARGUMENT_ANY_TEXT] = "=TEXT",
    };
    const bool optional = flag->kind == VT_ARGUMENT_SWITCH_CHOICE;
    if (flag->kind != VT_ARGUMENT_CHOICE && !optional) return vt_text_copy(forms[flag->kind]);
    return vt_text_format(optional ? "[=%s]" : "=%s", ((const vt_argument_choice *)flag->value)->choices);
}

char *vt_argument_default(const vt_argument *flag)
{
    char number[VT_NUMBER_SIZE];
    const int64_t *pair = flag->value;
    const char *chosen = flag->kind == VT_ARGUMENT_CHOICE ? ((const vt_argument_choice *)flag->value)->chosen : NULL;
    if (flag->kind == VT_ARGUMENT_INTEGER && in_range(flag, (double)pair[0])) /* out of range: means "not given" */
        return vt_text_format("%lld", (long long)pair[0]);
    if (flag->kind == VT_ARGUMENT_REAL && in_range(flag, *(const double *)flag->value))
        return vt_text_format("%s", vt_text_double(*(const double *)flag->value, number));
    if (flag->kind == VT_ARGUMENT_PAIR) return vt_text_format("[%lld,%lld]", (long long)pair[0], (long long)pair[1]);
    return vt_text_copy(chosen != NULL ? chosen : "");
}
