#include "command/command.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* ---- vitrain options --names: what may stand in the place of the last word ---- */

/* The first `length` characters of `word`, if they begin with what was typed, and `end` behind them. */
static void offer(FILE *file, const char *typed, const char *word, size_t length, const char *end, const char *help)
{
    if (strlen(typed) <= length && strncmp(word, typed, strlen(typed)) == 0)
        fprintf(file, "%.*s%s\t%s\n", (int)length, word, end, help);
}

/* Names of configurations, of the file that --yaml_config names among the words. */
static void offer_configurations(FILE *file, const char *typed, const vt_names *words)
{
    static const char flag[] = "--yaml_config";
    const size_t length = strlen(flag);
    const char *path = NULL;
    vt_names names = {0};
    for (int64_t i = 0; i + 1 < words->count; i++) {
        if (strncmp(words->names[i], flag, length) != 0) continue;
        path = words->names[i][length] == '=' ? words->names[i] + length + 1 : words->names[i + 1];
    }
    if (vt_config_names(path, &names) != VT_OK) vt_error_clear();
    for (int64_t i = 0; i < names.count; i++) offer(file, typed, names.names[i], strlen(names.names[i]), "", "");
    vt_names_close(&names);
}

static void offer_values(FILE *file, const vt_row *row, const char *typed, const vt_names *words)
{
    const vt_row *meant = vt_row_meant(row);
    const bool is_path = meant->kind == VT_ROW_OPERAND || (meant->kind == VT_ROW_PATH && !meant->is_text);
    const char *choices = meant->choices != NULL              ? meant->choices
                          : vt_row_is_switch(row) && !is_path ? "true|false"
                                                              : "";
    if (is_path) fputs("/file\n", file);
    if (meant == vt_row_find(vt_options, "config")) offer_configurations(file, typed, words);
    for (size_t length; *choices != '\0'; choices += length + (choices[length] == '|')) {
        length = strcspn(choices, "|");
        offer(file, typed, choices, length, "", "");
    }
}

/* Flags of the subcommand: its own, or the options of a configuration, by their table. */
static void offer_flags(FILE *file, const char *typed, const vt_row *rows, const vt_subcommand *command)
{
    const char *but = command->options == VT_CHECKPOINT_OPTIONS ? "config|yaml_config" : "";
    for (const vt_row *row = rows; row->kind != VT_ROW_END; row++) {
        const bool is_hidden = rows == vt_options && vt_row_find(command->flags(), row->name) != NULL;
        if (row->kind == VT_ROW_SECTION || is_hidden || vt_text_choice(row->name, but) >= 0) continue;
        char *name = vt_text_format("--%s", row->name);
        offer(file, typed, name, strlen(name), vt_row_is_switch(row) ? "[=]" : "=", row->help);
        free(name);
    }
}

static void offer_help(FILE *file, const char *typed)
{
    offer(file, typed, "--help", strlen("--help"), "", "what the subcommand does, and its flags");
}

/* What may stand behind the words of the subcommand's name. */
static void offer_arguments(FILE *file, const vt_subcommand *command, const vt_names *words)
{
    const char *typed = words->names[words->count - 1];
    const char *before = words->count > 1 ? words->names[words->count - 2] : "";
    const bool is_flag = typed[0] == '-', has_value = is_flag && strchr(typed, '=') != NULL;
    const char *flag = has_value ? typed : is_flag || strchr(before, '=') != NULL ? "" : before;
    const vt_row *row = vt_flag_find(command->flags(), flag);
    if (row == NULL && command->options != VT_NO_OPTIONS) row = vt_flag_find(vt_options, flag);
    if (row != NULL && (has_value || !vt_row_is_switch(row))) {
        offer_values(file, row, has_value ? strchr(typed, '=') + 1 : typed, words);
    } else if (command->operands != NULL && !is_flag) {
        fputs("/directory\n", file);
    } else {
        offer_flags(file, typed, command->flags(), command);
        if (command->options != VT_NO_OPTIONS) offer_flags(file, typed, vt_options, command);
        offer_help(file, typed);
        if (command == vt_subcommands) offer(file, typed, "--version", strlen("--version"), "", "the version");
    }
}

void vt_completion_print_names(FILE *file, const char *lines)
{
    vt_names words = {0};
    for (size_t length; lines != NULL; lines = lines[length] != '\0' ? lines + length + 1 : NULL) {
        length = strcspn(lines, "\n");
        vt_names_take(&words, vt_text_format("%.*s", (int)length, lines));
    }
    VT_ASSERT(words.names != NULL);
    const bool helps = words.count > 1 && strcmp(words.names[0], "help") == 0;
    char **first = words.names + helps, *typed = words.names[words.count - 1];
    const int given = (int)words.count - 1 - helps; /* complete words */
    const char *last = "help";
    bool is_known = false;
    if (given == 0 && !helps) offer(file, typed, last, strlen(last), "", "the help of a subcommand");
    for (int i = 0; i < vt_subcommand_count; i++) {
        const vt_subcommand *command = &vt_subcommands[i];
        const char *next;
        const bool follows = vt_subcommand_words(command, given, first, &next) == given;
        const bool is_train = i == 0 && first[0][0] == '-';
        if (follows && next[0] != '\0') { /* those of one first word are neighbours */
            const size_t length = strcspn(next, " ");
            if (strncmp(next, last, length) != 0) offer(file, typed, next, length, "", command->summary);
            last = next;
        }
        if (helps || (next[0] != '\0' && !is_train)) continue;
        offer_arguments(file, command, &words);
        is_known = true;
    }
    if (!helps && !is_known && given > 0) offer_help(file, typed);
    vt_names_close(&words);
}

/* ---- the shells' scripts, which ask it ---- */

static const char bash_script[] =
    "# Completion of vitrain's command lines in bash. Made by `vitrain options --completion=bash`.\n"
    "_vitrain()\n"
    "{\n"
    "    local IFS=$'\\n' line=${COMP_LINE:0:COMP_POINT} typed flag='' i\n"
    "    local -a words\n"
    "    # Words of our own: COMP_WORDS are split at '=', too. Without -r: a blank behind a backslash is part of a "
    "word.\n"
    "    # shellcheck disable=SC2162\n"
    "    IFS=$' \\t\\n' read -a words <<<\"$line\"\n"
    "    if [[ $line == *[[:space:]] ]]; then words+=(''); fi\n"
    "    typed=${words[${#words[@]} - 1]}\n"
    "    if [[ $typed == --*=* ]]; then flag=${typed%%=*}=; fi\n"
    "    mapfile -t COMPREPLY < <(\"${words[0]/#\\~\\//$HOME/}\" options --names=\"${words[*]:1}\" 2>/dev/null | cut "
    "-f1)\n"
    "    if [[ ${COMPREPLY[0]-} == /* ]]; then # a path\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        mapfile -t COMPREPLY < <(compgen -A \"${COMPREPLY[0]#/}\" -- \"${typed#\"$flag\"}\")\n"
    "    else\n"
    "        COMPREPLY=(\"${COMPREPLY[@]%'[=]'}\")\n"
    "        if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi\n"
    "        for i in \"${!COMPREPLY[@]}\"; do COMPREPLY[i]=$(printf %q \"${COMPREPLY[i]}\"); done\n"
    "    fi\n"
    "    if [[ $COMP_WORDBREAKS != *=* ]]; then COMPREPLY=(\"${COMPREPLY[@]/#/$flag}\"); fi # else the word begins "
    "behind it\n"
    "}\n"
    "\n"
    "complete -F _vitrain vitrain\n";

static const char zsh_script[] =
    "#compdef vitrain\n"
    "# Completion of vitrain's command lines in zsh. Made by `vitrain options --completion=zsh`.\n"
    "_vitrain()\n"
    "{\n"
    "    local program=${${(Q)words[1]}/#\\~\\//$HOME/} typed=\"${(F)${(@Q)words[2,CURRENT]}}\" tab=$'\\t' line\n"
    "    local -a lines plain valued switches\n"
    "    lines=(\"${(@f)$(\"$program\" options --names=\"$typed\" 2>/dev/null)}\")\n"
    "    if [[ $PREFIX == --*=* ]]; then compset -P '*='; fi\n"
    "    for line in $lines; do\n"
    "        case ${line%%$tab*} in\n"
    "        /file) _files ;;\n"
    "        /directory) _files -/ ;;\n"
    "        *'[=]') switches+=(\"${line/'[=]'$tab/:}\") ;;\n"
    "        *=) valued+=(\"${line/$tab/:}\") ;;\n"
    "        *) plain+=(\"${line/$tab/:}\") ;;\n"
    "        esac\n"
    "    done\n"
    "    _describe word plain -- valued -S '' -- switches -S = -r ' '\n"
    "}\n"
    "\n"
    "# Installed, this file is the function itself; sourced, it says what it completes.\n"
    "if [[ $funcstack[1] == _vitrain ]]; then _vitrain \"$@\"; else compdef _vitrain vitrain; fi\n";

void vt_completion_print(FILE *file, bool zsh)
{
    fputs(zsh ? zsh_script : bash_script, file);
}
