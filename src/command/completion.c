#include "command/command.h"

#include <string.h>

#include "base/text.h"

/* ---- vitrain options --names: what may follow ---- */

/* The lines of a table's flags. '=': a value must follow, ':': it may; then "a|b", "/" (a path) or "@" (a
 * configuration). `but`: a list of those that are left out. */
static void print_flags(FILE *file, const vt_row *rows, const char *but)
{
    for (const vt_row *row = rows; row->kind != VT_ROW_END; row++) {
        if (row->kind == VT_ROW_SECTION || vt_text_choice(row->name, but) >= 0) continue;
        const bool is_switch = vt_row_is_switch(row);
        const vt_row *meant = vt_row_meant(row);
        const bool is_path = meant->kind == VT_ROW_OPERAND || (meant->kind == VT_ROW_PATH && !meant->is_text);
        const char *values = is_path ? "/" : meant->choices != NULL ? meant->choices : is_switch ? "true|false" : "";
        if (rows == vt_options && strcmp(row->name, "config") == 0) values = "@";
        fprintf(file, "--%s%c%s\t%s\n", row->name, is_switch ? ':' : '=', values, row->help);
    }
}

static void print_command(FILE *file, const vt_subcommand *command)
{
    if (command->operands != NULL) fprintf(file, "/\t%s\n", command->operands);
    print_flags(file, command->flags(), "");
    if (command->options == VT_ALL_OPTIONS) print_flags(file, vt_options, "");
    if (command->options == VT_CHECKPOINT_OPTIONS) print_flags(file, vt_options, "config|yaml_config");
}

void vt_completion_print_names(FILE *file, const char *words)
{
    const size_t length = strcspn(words, " ");
    const char *second = words + length + (words[length] == ' '), *last = "";
    const bool first_is_asked = length == 0 || strcmp(words, "help") == 0;
    for (int i = 0; i < vt_subcommand_count; i++) {
        const vt_subcommand *command = &vt_subcommands[i];
        if (first_is_asked) { /* rows of one name are neighbours */
            if (strcmp(command->name, last) != 0) fprintf(file, "%s\t%s\n", command->name, command->summary);
            last = command->name;
        } else if (strncmp(words, command->name, length) == 0 && command->name[length] == '\0') {
            if (command->word == NULL || strcmp(second, command->word) == 0)
                print_command(file, command);
            else if (*second == '\0')
                fprintf(file, "%s\t%s\n", command->word, command->summary);
        }
    }
    if (length == 0)
        fputs("help\tthe help of a subcommand\n", file);
    else if (!first_is_asked)
        fputs("--help\twhat the subcommand does, and its flags\n", file);
    if (strncmp(words, "train", length) == 0 && length == strlen("train")) fputs("--version\tthe version\n", file);
}

/* ---- the shells' scripts, which ask it ---- */

static const char bash_script[] =
    "# Completion of vitrain's command lines in bash. Made by `vitrain options --completion=bash`.\n"
    "\n"
    "# Offers what begins with TYPED: words, separated by blanks or '|'; a path (/), a directory (/directory), or a\n"
    "# configuration (@).\n"
    "_vitrain_offer() # VALUES TYPED\n"
    "{\n"
    "    local word before='' name action=${1#/}\n"
    "    local -a given=()\n"
    "    case $1 in\n"
    "    /*)\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        mapfile -t COMPREPLY < <(compgen -A \"${action:-file}\" -- \"$2\")\n"
    "        ;;\n"
    "    @)\n"
    "        for word in \"${words[@]}\"; do\n"
    "            case $word in --yaml_config=*) given=(\"$word\") ;; esac\n"
    "            if [[ $before == --yaml_config ]]; then given=(\"--yaml_config=$word\"); fi\n"
    "            before=$word\n"
    "        done\n"
    "        while IFS= read -r name; do\n"
    "            if [[ $name == \"$2\"* ]]; then COMPREPLY+=(\"$(printf %q \"$name\")\"); fi\n"
    "        done < <(\"$program\" options --configurations \"${given[@]}\" 2>/dev/null)\n"
    "        ;;\n"
    "    *) mapfile -t COMPREPLY < <(compgen -W \"${1//|/ }\" -- \"$2\" | sort -u) ;;\n"
    "    esac\n"
    "}\n"
    "\n"
    "_vitrain()\n"
    "{\n"
    "    local IFS=$' \\t\\n' line=${COMP_LINE:0:COMP_POINT} program last typed before='' flag i\n"
    "    local -a words flags names=()\n"
    "    COMPREPLY=()\n"
    "    # Words of our own: COMP_WORDS are split at '=', too. Without -r: a blank behind a backslash is part of a "
    "word.\n"
    "    # shellcheck disable=SC2162\n"
    "    read -a words <<<\"$line\"\n"
    "    if [[ $line == *[[:space:]] ]]; then words+=(''); fi\n"
    "    program=${words[0]/#\\~\\//$HOME/}\n"
    "    last=$((${#words[@]} - 1))\n"
    "    typed=${words[last]}\n"
    "    if ((last > 1)); then before=${words[1]}; fi\n"
    "    if ((last > 2)); then before+=\" ${words[2]}\"; fi\n"
    "    if [[ ${words[1]} == -* ]]; then before=train; fi\n"
    "    mapfile -t flags < <(\"$program\" options --names=\"$before\" 2>/dev/null | cut -f1)\n"
    "\n"
    "    for flag in \"${flags[@]}\"; do\n"
    "        case $flag in\n"
    "        \"${typed%%=*}\"[=:]*)\n"
    "            if [[ $typed == --*=* ]]; then _vitrain_offer \"${flag#*[=:]}\" \"${typed#*=}\"; fi ;;\n"
    "        \"${words[last - 1]}\"=*)\n"
    "            if [[ $typed != -* ]]; then _vitrain_offer \"${flag#*=}\" \"$typed\"; return; fi ;;\n"
    "        esac\n"
    "        case $flag in\n"
    "        /) ;;\n"
    "        *=*) names+=(\"${flag%%=*}=\") ;;\n"
    "        *) names+=(\"${flag%%:*}\") ;;\n"
    "        esac\n"
    "    done\n"
    "    if [[ $typed == --*=* ]]; then\n"
    "        if [[ $COMP_WORDBREAKS != *=* ]]; then # the word that is replaced begins at the dashes\n"
    "            for i in \"${!COMPREPLY[@]}\"; do COMPREPLY[i]=${typed%%=*}=${COMPREPLY[i]}; done\n"
    "        fi\n"
    "    elif [[ $typed != -* && ${flags[0]} == / ]]; then\n"
    "        _vitrain_offer /directory \"$typed\"\n"
    "    else\n"
    "        _vitrain_offer \"${names[*]}\" \"$typed\"\n"
    "        if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi\n"
    "    fi\n"
    "}\n"
    "\n"
    "complete -F _vitrain vitrain\n";

static const char zsh_script[] =
    "#compdef vitrain\n"
    "# Completion of vitrain's command lines in zsh. Made by `vitrain options --completion=zsh`.\n"
    "\n"
    "_vitrain_configurations()\n"
    "{\n"
    "    local -a given names\n"
    "    given=(${(M)words:#--yaml_config=*})\n"
    "    names=(\"${(@f)$(\"$program\" options --configurations ${(Q)given[-1]} 2>/dev/null)}\")\n"
    "    compadd -a names\n"
    "}\n"
    "\n"
    "_vitrain()\n"
    "{\n"
    "    local program=${${(Q)words[1]}/#\\~\\//$HOME/} tab=$'\\t' before='' name values help line\n"
    "    local -a lines flags\n"
    "    if [[ $words[2] == -* ]]; then before=train; fi\n"
    "    # as long as words follow, like `bench io`: those that were typed, or what may be typed\n"
    "    while lines=(\"${(@f)$(\"$program\" options --names=\"$before\" 2>/dev/null)}\"); [[ $lines[1] == [a-z]* ]]; "
    "do\n"
    "        if (( CURRENT == 2 )); then\n"
    "            lines=(\"${(@)lines:#--*}\")\n"
    "            lines=(\"${(@)lines/$tab/:}\")\n"
    "            _describe -t commands subcommand lines\n"
    "            return\n"
    "        fi\n"
    "        before+=\"${before:+ }$words[2]\"\n"
    "        shift words\n"
    "        (( CURRENT-- ))\n"
    "        if [[ $before == help\\ * ]]; then return; fi\n"
    "    done\n"
    "    for line in $lines; do\n"
    "        name=${line%%[=:$tab]*} values=${${line%%$tab*}#$name} help=${line#*$tab}\n"
    "        help=${${${help//\\\\/\\\\\\\\}//\\[/\\\\[}//\\]/\\\\]}\n"
    "        case $values in\n"
    "        ?/) values=$values[1]'path:_files' ;;\n"
    "        ?@) values=$values[1]'configuration:_vitrain_configurations' ;;\n"
    "        ?*\\|*) values=\"$values[1]value:(${${values#?}//|/ })\" ;;\n"
    "        ?) values+='value: ' ;;\n"
    "        esac\n"
    "        case $name$values in\n"
    "        /*) flags+=('*:directory:_files -/') ;;\n"
    "        *=*) flags+=(\"$name=[$help]:${values#=}\") ;;\n"
    "        *:*) flags+=(\"$name=-[$help]::${values#:}\") ;;\n"
    "        *) flags+=(\"${name}[$help]\") ;;\n"
    "        esac\n"
    "    done\n"
    "    _arguments $flags\n"
    "}\n"
    "\n"
    "# Installed, this file is the function itself; sourced, it says what it completes.\n"
    "if [[ $funcstack[1] == _vitrain ]]; then _vitrain \"$@\"; else compdef _vitrain vitrain; fi\n";

void vt_completion_print(FILE *file, bool zsh)
{
    fputs(zsh ? zsh_script : bash_script, file);
}
