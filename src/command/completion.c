#include "command/command.h"

#include <string.h>

#include "command/arguments.h"
#include "config/config.h"

typedef struct {
    const char *name, *help;
    bool is_switch;         /* takes a value only after '=' */
    bool is_path, is_named; /* the value: a path, or the name of a configuration */
    const char *choices;    /* "a|b", or NULL */
} flag;

/* The parts that both shells share: where the text goes, and how a flag is written. */
typedef struct {
    FILE *file;
    void (*print)(FILE *file, const flag *flag);
} output;

static void print_own(const vt_argument *argument, void *context)
{
    const output *out = context;
    const vt_argument_kind kind = argument->kind;
    const flag own = {.name = argument->name,
                      .help = argument->help,
                      .is_switch = kind == VT_ARGUMENT_SWITCH || kind == VT_ARGUMENT_SWITCH_PATH ||
                                   kind == VT_ARGUMENT_SWITCH_CHOICE,
                      .is_path = kind == VT_ARGUMENT_PATH || kind == VT_ARGUMENT_SWITCH_PATH,
                      .choices = kind == VT_ARGUMENT_SWITCH ? "true|false"
                                 : kind == VT_ARGUMENT_CHOICE || kind == VT_ARGUMENT_SWITCH_CHOICE
                                     ? ((const vt_argument_choice *)argument->value)->choices
                                     : NULL};
    out->print(out->file, &own);
}

static void print_own_flags(const vt_subcommand *command, output *out)
{
    char *const arguments[] = {(char *)command->word};
    if (command->run == vt_command_train) return; /* options only */
    vt_arguments_visit(command->run, command->word != NULL, arguments, print_own, out);
}

/* Is it one of --config and --yaml_config? */
static bool chooses_configuration(const vt_option_row *row)
{
    return strcmp(row->name, "config") == 0 || strcmp(row->name, "yaml_config") == 0;
}

static void print_options(const output *out, bool choosing)
{
    vt_option_row row;
    for (size_t i = 0; vt_options_row(i, &row); i++) {
        if (row.section != NULL || chooses_configuration(&row) != choosing) continue;
        const flag option = {.name = row.name,
                             .help = row.help,
                             .is_switch = row.is_switch,
                             .is_path = row.is_path,
                             .is_named = strcmp(row.name, "config") == 0,
                             .choices = row.is_switch && !row.is_path ? "true|false" : row.choices};
        out->print(out->file, &option);
    }
}

/* Each name once: rows with the same name, which differ in the second word, are neighbours. */
static bool is_first_of_name(int index)
{
    return index == 0 || strcmp(vt_subcommands[index].name, vt_subcommands[index - 1].name) != 0;
}

/* ---- bash ---- */

/* --name=VALUES, or --name:VALUES if the value is optional; VALUES: a|b, / (a path), @ (a configuration), nothing */
static void print_bash_flag(FILE *file, const flag *f)
{
    fprintf(file, " --%s%c%s", f->name, f->is_switch ? ':' : '=',
            f->is_named          ? "@"
            : f->is_path         ? "/"
            : f->choices != NULL ? f->choices
                                 : "");
}

static void print_bash_subcommands(FILE *file)
{
    fputs("_vitrain_subcommands()\n{\n    echo", file);
    for (int i = 0; i < vt_subcommand_count; i++)
        if (is_first_of_name(i)) fprintf(file, " %s", vt_subcommands[i].name);
    fputs(" help\n}\n\n", file);
}

static void print_bash_flags(output *out)
{
    FILE *file = out->file;
    fputs(
        "# The flags of a subcommand: --name=VALUES, or --name:VALUES where the value may be left out. VALUES: a|b, /\n"
        "# for a path, @ for a configuration. A / by itself: operands are directories; a word: it comes first.\n"
        "_vitrain_flags()\n{\n    local choosing='",
        file);
    print_options(out, true);
    fputs("' options='", file);
    print_options(out, false);
    fputs("'\n    case $1 in\n", file);
    for (int i = 0; i < vt_subcommand_count; i++) {
        const vt_subcommand *command = &vt_subcommands[i];
        if (command->word != NULL && is_first_of_name(i)) {
            fprintf(file, "    %s) echo '", command->name);
            for (int j = i; j < vt_subcommand_count && strcmp(vt_subcommands[j].name, command->name) == 0; j++)
                fprintf(file, "%s ", vt_subcommands[j].word);
            fputs("--help' ;;\n", file);
        }
        fprintf(file, "    '%s%s%s') echo '", command->name, command->word != NULL ? " " : "",
                command->word != NULL ? command->word : "");
        if (command->operands != NULL) fputs("/", file);
        print_own_flags(command, out);
        fprintf(file, " --help%s'%s%s ;;\n", i == 0 ? " --version" : "",
                command->options == VT_ALL_OPTIONS ? "\"$choosing\"" : "",
                command->options != VT_NO_OPTIONS ? "\"$options\"" : "");
    }
    fputs("    help) _vitrain_subcommands ;;\n    esac\n}\n", file);
}

static const char bash_program[] =
    "\n"
    "# Offers those WORDs that begin with what was typed, each once.\n"
    "_vitrain_offer() # TYPED WORD...\n"
    "{\n"
    "    local typed=$1 word\n"
    "    shift\n"
    "    for word; do\n"
    "        if [[ $word == \"$typed\"* && \" ${COMPREPLY[*]} \" != *\" $word \"* ]]; then COMPREPLY+=(\"$word\"); fi\n"
    "    done\n"
    "}\n"
    "\n"
    "# Offers what follows a flag's '=' or blank.\n"
    "_vitrain_values() # VALUES TYPED\n"
    "{\n"
    "    local values=$1 typed=$2 word before='' name\n"
    "    local -a given=()\n"
    "    case $values in\n"
    "    /)\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        while IFS= read -r name; do COMPREPLY+=(\"$name\"); done < <(compgen -f -- \"$typed\")\n"
    "        ;;\n"
    "    @)\n"
    "        for word in \"${words[@]}\"; do\n"
    "            case $word in --yaml_config=*) given=(\"$word\") ;; esac\n"
    "            if [[ $before == --yaml_config ]]; then given=(\"--yaml_config=$word\"); fi\n"
    "            before=$word\n"
    "        done\n"
    "        while IFS= read -r name; do\n"
    "            if [[ $name == \"$typed\"* ]]; then COMPREPLY+=(\"$(printf %q \"$name\")\"); fi\n"
    "        done < <(\"${words[0]/#\\~\\//$HOME/}\" options --configurations \"${given[@]}\" 2>/dev/null)\n"
    "        ;;\n"
    "    *)\n"
    "        IFS='|' read -ra given <<<\"$values\"\n"
    "        _vitrain_offer \"$typed\" \"${given[@]}\"\n"
    "        ;;\n"
    "    esac\n"
    "}\n"
    "\n"
    "_vitrain()\n"
    "{\n"
    "    local IFS=$' \\t\\n' line=${COMP_LINE:0:COMP_POINT} last typed command flag name i\n"
    "    local -a words flags names=()\n"
    "    COMPREPLY=()\n"
    "    # Words of our own: COMP_WORDS are split at '=', too. Without -r: a blank behind a backslash is part of a "
    "word.\n"
    "    # shellcheck disable=SC2162\n"
    "    read -a words <<<\"$line\"\n"
    "    if [[ $line == *[[:space:]] ]]; then words+=(''); fi\n"
    "    last=$((${#words[@]} - 1))\n"
    "    typed=${words[last]}\n"
    "    if ((last == 1)) && [[ $typed != -* ]]; then\n"
    "        # shellcheck disable=SC2046\n"
    "        _vitrain_offer \"$typed\" $(_vitrain_subcommands)\n"
    "        return\n"
    "    fi\n"
    "    command=${words[1]}\n"
    "    if [[ $command == -* ]]; then command=train; fi\n"
    "    if ((last > 2)) && [[ $command == bench ]]; then command+=\" ${words[2]}\"; fi\n"
    "    read -ra flags <<<\"$(_vitrain_flags \"$command\" | tr '\\n' ' ')\"\n"
    "\n"
    "    if [[ $typed == --*=* ]]; then\n"
    "        name=${typed%%=*}\n"
    "        for flag in \"${flags[@]}\"; do\n"
    "            if [[ $flag == \"$name\"[=:]* ]]; then _vitrain_values \"${flag#*[=:]}\" \"${typed#*=}\"; fi\n"
    "        done\n"
    "        if [[ $COMP_WORDBREAKS != *=* ]]; then # the word that is replaced begins at the dashes\n"
    "            for i in \"${!COMPREPLY[@]}\"; do COMPREPLY[i]=$name=${COMPREPLY[i]}; done\n"
    "        fi\n"
    "        return\n"
    "    fi\n"
    "    if [[ $typed != -* ]]; then\n"
    "        for flag in \"${flags[@]}\"; do\n"
    "            if [[ $flag == \"${words[last - 1]}\"=* ]]; then _vitrain_values \"${flag#*=}\" \"$typed\"; return; "
    "fi\n"
    "        done\n"
    "        if [[ ${flags[0]} == / ]]; then\n"
    "            compopt -o filenames 2>/dev/null\n"
    "            while IFS= read -r name; do COMPREPLY+=(\"$name\"); done < <(compgen -d -- \"$typed\")\n"
    "            return\n"
    "        fi\n"
    "    fi\n"
    "    for flag in \"${flags[@]}\"; do\n"
    "        case $flag in\n"
    "        /) ;;\n"
    "        *=*) names+=(\"${flag%%=*}=\") ;;\n"
    "        *) names+=(\"${flag%%:*}\") ;;\n"
    "        esac\n"
    "    done\n"
    "    _vitrain_offer \"$typed\" \"${names[@]}\"\n"
    "    if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi\n"
    "}\n"
    "\n"
    "complete -F _vitrain vitrain\n";

static void print_bash(FILE *file)
{
    output out = {file, print_bash_flag};
    fputs("# Completion of vitrain's command lines in bash. Made by `vitrain options --completion=bash`.\n\n", file);
    print_bash_subcommands(file);
    print_bash_flags(&out);
    fputs(bash_program, file);
}

/* ---- zsh ---- */

/* Text inside '...'; the characters in `escaped` get a backslash. */
static void print_zsh_text(FILE *file, const char *text, const char *escaped)
{
    for (; *text != '\0'; text++) {
        if (strchr(escaped, *text) != NULL) fputc('\\', file);
        fputs(*text == '\'' ? "'\\'" : "", file);
        fputc(*text, file);
    }
}

/* A specification as _arguments takes it. */
static void print_zsh_flag(FILE *file, const flag *f)
{
    fprintf(file, "        '--%s=%s[", f->name, f->is_switch ? "-" : "");
    print_zsh_text(file, f->help, "[]\\");
    fprintf(file, "]:%s", f->is_switch ? ":" : "");
    if (f->is_named) {
        fputs("configuration:_vitrain_configurations'\n", file);
    } else if (f->is_path) {
        fputs("path:_files'\n", file);
    } else if (f->choices != NULL) {
        fputs("value:(", file);
        for (const char *c = f->choices; *c != '\0'; c++) fputc(*c == '|' ? ' ' : *c, file);
        fputs(")'\n", file);
    } else {
        fputs("value: '\n", file);
    }
}

static void print_zsh_array(output *out, const char *name, bool choosing)
{
    fprintf(out->file, "    %s=(\n", name);
    print_options(out, choosing);
    fputs("    )\n", out->file);
}

static void print_zsh_cases(output *out)
{
    FILE *file = out->file;
    for (int i = 0; i < vt_subcommand_count; i++) {
        const vt_subcommand *command = &vt_subcommands[i];
        fprintf(file, "    '%s%s%s') flags=(\n", command->name, command->word != NULL ? " " : "",
                command->word != NULL ? command->word : "");
        print_own_flags(command, out);
        if (command->operands != NULL)
            fprintf(file, "        '%s:directory:_files -/'\n", strchr(command->operands, '[') != NULL ? "*" : "1");
        if (command->options == VT_ALL_OPTIONS) fputs("        $choosing\n", file);
        if (command->options != VT_NO_OPTIONS) fputs("        $options\n", file);
        if (i == 0) fputs("        '--version[the version]'\n", file);
        fputs("        ) ;;\n", file);
    }
}

static void print_zsh_words(FILE *file)
{
    for (int i = 0; i < vt_subcommand_count; i++) {
        const vt_subcommand *command = &vt_subcommands[i];
        if (command->word == NULL || !is_first_of_name(i)) continue;
        fprintf(file, "    if [[ $words[1] == %s ]]; then\n        if (( CURRENT == 2 )); then\n            compadd",
                command->name);
        for (int j = i; j < vt_subcommand_count && strcmp(vt_subcommands[j].name, command->name) == 0; j++)
            fprintf(file, " %s", vt_subcommands[j].word);
        fputs("\n            return\n        fi\n        subcommand+=\" $words[2]\"\n        shift words\n"
              "        (( CURRENT-- ))\n    fi\n",
              file);
    }
}

static void print_zsh(FILE *file)
{
    output out = {file, print_zsh_flag};
    fputs("#compdef vitrain\n"
          "# Completion of vitrain's command lines in zsh. Made by `vitrain options --completion=zsh`.\n\n"
          "_vitrain_configurations()\n{\n"
          "    local -a given names\n"
          "    given=(${(M)words:#--yaml_config=*})\n"
          "    names=(\"${(@f)$(\"$program\" options --configurations ${(Q)given[-1]} 2>/dev/null)}\")\n"
          "    compadd -a names\n"
          "}\n\n"
          "_vitrain()\n{\n"
          "    local program=${${(Q)words[1]}/#\\~\\//$HOME/} subcommand=train\n"
          "    local -a subcommands flags choosing options\n"
          "    subcommands=(\n",
          file);
    for (int i = 0; i < vt_subcommand_count; i++) {
        if (!is_first_of_name(i)) continue;
        fprintf(file, "        '%s:", vt_subcommands[i].name);
        print_zsh_text(file, vt_subcommands[i].summary, ":\\");
        fputs("'\n", file);
    }
    fputs("        'help:the help of a subcommand'\n    )\n"
          "    if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"
          "        _describe -t commands subcommand subcommands\n"
          "        return\n    fi\n"
          "    if [[ $words[2] != -* ]]; then\n"
          "        subcommand=$words[2]\n"
          "        shift words\n"
          "        (( CURRENT-- ))\n    fi\n"
          "    if [[ $subcommand == help ]]; then\n"
          "        if (( CURRENT == 2 )); then _describe -t commands subcommand subcommands; fi\n"
          "        return\n    fi\n",
          file);
    print_zsh_words(file);
    print_zsh_array(&out, "choosing", true);
    print_zsh_array(&out, "options", false);
    fputs("    case $subcommand in\n", file);
    print_zsh_cases(&out);
    fputs("    esac\n    _arguments $flags '--help[what the subcommand does, and its flags]'\n}\n\n"
          "# Installed, this file is the function itself; sourced, it says what it completes.\n"
          "if [[ $funcstack[1] == _vitrain ]]; then _vitrain \"$@\"; else compdef _vitrain vitrain; fi\n",
          file);
}

void vt_completion_print(FILE *file, bool zsh)
{
    if (zsh)
        print_zsh(file);
    else
        print_bash(file);
}
