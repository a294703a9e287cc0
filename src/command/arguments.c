#include "command/arguments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static vt_status show_flags(const vt_argument *flags, int64_t count)
{
    for (int64_t i = 0; i < count; i++) visitor.visit(&flags[i], visitor.context);
    return VT_STOPPED;
}

/* ---- parsing ---- */

static const vt_argument *find_flag(const vt_argument *flags, int64_t count, const char *name, size_t length)
{
    for (int64_t i = 0; i < count; i++)
        if (strncmp(flags[i].name, name, length) == 0 && flags[i].name[length] == '\0') return &flags[i];
    return NULL;
}

static vt_status unknown_flag(const char *command, const vt_argument *flags, int64_t count, const char *word)
{
    const char *names[MOST_FLAGS];
    VT_ASSERT(count <= MOST_FLAGS);
    for (int64_t i = 0; i < count; i++) names[i] = flags[i].name;
    char *name = vt_text_format("%.*s", (int)strcspn(word, "="), word);
    const char *nearest = vt_text_nearest(name + strspn(name, "-"), names, (size_t)count);
    vt_status status = VT_OK;
    VT_CHECK(nearest == NULL, "%s: unknown flag %s; did you mean --%s? `vitrain %s --help` lists all", command, name,
             nearest, command);
    VT_FAIL("%s: unknown flag %s; `vitrain %s --help` lists all", command, name, command);
done:
    free(name);
    return status;
}

/* Is the flag one of the configuration's options, rather than a misspelt flag of this subcommand? */
static vt_status check_other(const char *command, const vt_argument *flags, int64_t count, const char *word)
{
    vt_status status = VT_OK;
    const char *names[MOST_FLAGS];
    VT_ASSERT(count <= MOST_FLAGS);
    if (strncmp(word, "--", 2) != 0 || strcmp(word, "--help") == 0) return VT_OK;
    for (int64_t i = 0; i < count; i++) names[i] = flags[i].name;
    char *name = vt_text_format("%.*s", (int)strcspn(word + 2, "="), word + 2);
    const char *own = vt_text_nearest(name, names, (size_t)count);
    const char *const nearest[] = {own != NULL ? own : vt_config_nearest(name), vt_config_nearest(name)};
    VT_CHECK(strcmp(nearest[1], name) == 0,
             "%s: unknown flag --%s; did you mean --%s? `vitrain %s --help` says which there are", command, name,
             vt_text_closest(name, nearest, 2), command);
done:
    free(name);
    return status;
}

/* "[32, 64]" or "32,64" */
static bool parse_pair(const char *text, int64_t pair[2])
{
    long long first, second;
    int end = -1;
    bool bracket = *text == '[';
    if (sscanf(text + bracket, "%lld ,%lld %n", &first, &second, &end) != 2 || end < 0) return false;
    text += bracket + end;
    if (strcmp(text, bracket ? "]" : "") != 0) return false;
    pair[0] = first;
    pair[1] = second;
    return true;
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
    bool known = false;
    for (const char *word = choice->choices; !known && *word != '\0'; word += *word == '|') {
        const size_t length = strcspn(word, "|");
        known = strlen(text) == length && strncmp(word, text, length) == 0;
        word += length;
    }
    VT_CHECK(known, "%s: --%s=%s: expected %s", command, flag->name, text, list);
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
    VT_ASSERT(text != NULL);
    switch (flag->kind) {
    case VT_ARGUMENT_INTEGER:
        VT_CHECK(vt_text_to_integer(text, &integer) && in_range(flag, (double)integer),
                 "%s: --%s=%s: expected a whole number from %.0f to %.0f", command, flag->name, text, flag->least,
                 flag->most);
        *(int64_t *)flag->value = integer;
        break;
    case VT_ARGUMENT_REAL:
        VT_CHECK(vt_text_to_double(text, &real) && in_range(flag, real), "%s: --%s=%s: expected a number from %g to %g",
                 command, flag->name, text, flag->least, flag->most);
        *(double *)flag->value = real;
        break;
    case VT_ARGUMENT_SWITCH:
        VT_CHECK(strcmp(text, "true") == 0 || strcmp(text, "false") == 0, "%s: --%s=%s: expected true or false",
                 command, flag->name, text);
        *(bool *)flag->value = text[0] == 't';
        break;
    case VT_ARGUMENT_PATH:
    case VT_ARGUMENT_TEXT:
        VT_CHECK(text[0] != '\0', "%s: --%s= has no value; see `vitrain %s --help`", command, flag->name, command);
        *(const char **)flag->value = text;
        break;
    case VT_ARGUMENT_SWITCH_PATH:
        *(const char **)flag->value = text;
        break;
    case VT_ARGUMENT_PAIR:
        VT_CHECK(parse_pair(text, pair) && in_range(flag, (double)pair[0]) && in_range(flag, (double)pair[1]),
                 "%s: --%s=%s: expected two whole numbers from %.0f to %.0f, like [32,64]", command, flag->name, text,
                 flag->least, flag->most);
        memcpy(flag->value, pair, sizeof pair);
        break;
    case VT_ARGUMENT_CHOICE:
        status = parse_choice(command, flag, text);
        break;
    }
done:
    return status;
}

/* The value follows "=", or is the next word unless that is a flag; a switch needs none. */
static vt_status find_value(const char *command, const vt_argument *flag, const char *behind_name, int argument_count,
                            char *const *arguments, int *i, const char **value)
{
    vt_status status = VT_OK;
    *value = *behind_name == '=' ? behind_name + 1 : NULL;
    if (*value == NULL && flag->kind == VT_ARGUMENT_SWITCH) *value = "true";
    if (*value == NULL && flag->kind == VT_ARGUMENT_SWITCH_PATH) *value = "";
    if (*value == NULL) {
        VT_CHECK(*i + 1 < argument_count && strncmp(arguments[*i + 1], "--", 2) != 0, "%s: --%s needs a value", command,
                 flag->name);
        *value = arguments[++*i];
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

/* A word without dashes becomes *operand. */
static vt_status take_operand(const char *command, const char *operand_name, const char *word, const char **operand)
{
    vt_status status = VT_OK;
    VT_CHECK(*operand == NULL, "%s: '%s' after '%s': expected one %s", command, word, *operand, operand_name);
    *operand = word;
done:
    return status;
}

/* The flag at *i. At most one of the flags that name the operand may be given, or the operand itself. */
static vt_status take_flag(const char *command, const vt_argument *flag, int argument_count, char *const *arguments,
                           int *i, const char *operand_name, const char **operand)
{
    vt_status status = VT_OK;
    const char *value = NULL, *name = arguments[*i] + 2;
    VT_TRY(find_value(command, flag, name + strcspn(name, "="), argument_count, arguments, i, &value));
    VT_ASSERT(value != NULL);
    if (operand != NULL && flag->value == (void *)operand && *operand != NULL)
        VT_TRY(take_operand(command, operand_name, value, operand));
    VT_TRY(parse_value(command, flag, value));
done:
    return status;
}

static vt_status take(const char *command, int argument_count, char *const *arguments, const vt_argument *flags,
                      int64_t flag_count, const char *operand_name, const char **operand, bool options,
                      int *other_count, char ***others, bool *help)
{
    vt_status status = VT_OK;
    *help = vt_arguments_ask_help(argument_count, arguments);
    *other_count = 0;
    *others = NULL;
    if (visitor.visit != NULL) return show_flags(flags, flag_count);
    *others = vt_allocate((size_t)argument_count + 1, sizeof **others, "the arguments");
    for (int i = 0; !*help && i < argument_count; i++) {
        const char *word = arguments[i], *name = word + (strncmp(word, "--", 2) == 0 ? 2 : 0);
        const vt_argument *flag = name != word ? find_flag(flags, flag_count, name, strcspn(name, "=")) : NULL;
        if (flag != NULL) {
            VT_TRY(take_flag(command, flag, argument_count, arguments, &i, operand_name, operand));
        } else if (operand != NULL && word[0] != '-') {
            VT_TRY(take_operand(command, operand_name, word, operand));
        } else if (word[0] == '-' && !options) {
            status = unknown_flag(command, flags, flag_count, word);
            goto done;
        } else {
            VT_TRY(check_other(command, flags, flag_count, word));
            (*others)[(*other_count)++] = arguments[i];
            const bool ends = i + 1 == argument_count || strncmp(arguments[i + 1], "--", 2) == 0;
            if (name != word && !ends && vt_config_takes_next(name)) (*others)[(*other_count)++] = arguments[++i];
        }
    }
done:
    return status;
}

vt_status vt_arguments_take_with(const char *command, int argument_count, char *const *arguments,
                                 const vt_argument *flags, int64_t flag_count, const char *operand_name,
                                 const char **operand, int *other_count, char ***others, bool *help)
{
    return take(command, argument_count, arguments, flags, flag_count, operand_name, operand, true, other_count, others,
                help);
}

vt_status vt_arguments_take(const char *command, int argument_count, char *const *arguments, const vt_argument *flags,
                            int64_t flag_count, int *other_count, char ***others, bool *help)
{
    return take(command, argument_count, arguments, flags, flag_count, "", NULL, true, other_count, others, help);
}

vt_status vt_arguments_words(const char *command, int argument_count, char *const *arguments, const vt_argument *flags,
                             int64_t flag_count, int *word_count, char ***words, bool *help)
{
    return take(command, argument_count, arguments, flags, flag_count, "", NULL, false, word_count, words, help);
}

vt_status vt_arguments_parse(const char *command, int argument_count, char *const *arguments, const vt_argument *flags,
                             int64_t flag_count, const char *operand_name, const char **operand, bool *help)
{
    vt_status status = VT_OK;
    int other_count;
    char **others;
    *operand = NULL;
    VT_TRY(take(command, argument_count, arguments, flags, flag_count, operand_name, operand, false, &other_count,
                &others, help));
    VT_CHECK(*help || *operand != NULL, "%s: no %s given; see `vitrain %s --help`", command, operand_name, command);
done:
    free(others);
    return status;
}

char *vt_argument_form(const vt_argument *flag)
{
    static const char *const forms[] = {
        [VT_ARGUMENT_INTEGER] = "=N",          [VT_ARGUMENT_REAL] = "=X",    [VT_ARGUMENT_SWITCH] = "",
        [VT_ARGUMENT_PATH] = "=PATH",          [VT_ARGUMENT_TEXT] = "=TEXT", [VT_ARGUMENT_PAIR] = "=[N,N]",
        [VT_ARGUMENT_SWITCH_PATH] = "[=PATH]",
    };
    if (flag->kind != VT_ARGUMENT_CHOICE) return vt_text_copy(forms[flag->kind]);
    return vt_text_format("=%s", ((const vt_argument_choice *)flag->value)->choices);
}

char *vt_argument_default(const vt_argument *flag)
{
    char number[VT_NUMBER_SIZE];
    const int64_t *pair = flag->value;
    const char *chosen = flag->kind == VT_ARGUMENT_CHOICE ? ((const vt_argument_choice *)flag->value)->chosen : NULL;
    if (flag->kind == VT_ARGUMENT_INTEGER && in_range(flag, (double)pair[0])) /* out of range: means "not given" */
        return vt_text_format("%lld", (long long)pair[0]);
    if (flag->kind == VT_ARGUMENT_REAL)
        return vt_text_format("%s", vt_text_double(*(const double *)flag->value, number));
    if (flag->kind == VT_ARGUMENT_PAIR) return vt_text_format("[%lld,%lld]", (long long)pair[0], (long long)pair[1]);
    return vt_text_copy(chosen != NULL ? chosen : "");
}

void vt_arguments_print(const vt_argument *flags, int64_t flag_count)
{
    for (int64_t i = 0; i < flag_count; i++) {
        char *value = vt_argument_form(&flags[i]);
        char *form = vt_text_format("--%s%s", flags[i].name, value);
        char *preset = vt_argument_default(&flags[i]);
        printf(preset[0] != '\0' ? "  %-22s %s (default %s)\n" : "  %-22s %s\n", form, flags[i].help, preset);
        free(preset);
        free(form);
        free(value);
    }
    printf("  %-22s this text\n", "--help");
}
