/* vitrain options: every option, from the table that the parser uses; man page and completions, from the same table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "command/arguments.h"
#include "command/command.h"
#include "config/config.h"
#include "config/deepspeed.h"
#include "source/fields/about.h"

static const char help[] =
    "usage: vitrain options [--markdown | --rules | --man | --completion=SHELL | --names=WORDS | "
    "--configurations | --deepspeed=FILE]\n\n"
    "Prints every option of a configuration with type, default, range and meaning; or one of these:\n\n";
static const char help_end[] = "\nTo read the man page:              vitrain options --man | man -l -\n"
                               "Completion in this shell (bash):   source <(vitrain options --completion=bash)\n"
                               "Completion in this shell (zsh):    source <(vitrain options --completion=zsh)\n"
                               "`make install` installs all three.\n";

static void print_name(const char *name, void *context)
{
    (void)context;
    vt_print("%s\n", name);
}

/* The configuration on standard output, the notes on standard error. */
static vt_status print_deepspeed(const char *path)
{
    vt_status status = VT_OK;
    vt_text yaml = {0}, notes = {0};
    VT_TRY(vt_deepspeed_convert(path, &yaml, &notes));
    vt_print("%s", yaml.characters);
    if (notes.characters != NULL) fputs(notes.characters, stderr);
done:
    vt_text_close(&yaml);
    vt_text_close(&notes);
    return status;
}

static void print_rules(void)
{
    char *table = vt_fields_rules_table();
    fputs(table, stdout);
    free(table);
}

vt_status vt_command_options(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    bool markdown = false, rules = false, man = false, configurations = false;
    vt_argument_choice shell = {NULL, "bash|zsh"};
    const char *yaml_config = NULL, *deepspeed = NULL, *words = NULL;
    const vt_argument flags[] = {
        {"markdown", VT_ARGUMENT_SWITCH, &markdown, 0, 0, "the options as docs/options.md"},
        {"rules", VT_ARGUMENT_SWITCH, &rules, 0, 0,
         "what is compared where data meet statistics or a checkpoint, as in docs/data.md"},
        {"man", VT_ARGUMENT_SWITCH, &man, 0, 0, "the man page, in troff"},
        {"completion", VT_ARGUMENT_CHOICE, &shell, 0, 0, "completion of command lines for that shell"},
        {"names", VT_ARGUMENT_ANY_TEXT, &words, 0, 0,
         "for completion: what may follow these words of a command line, such as \"bench io\"; empty: subcommands"},
        {"configurations", VT_ARGUMENT_SWITCH, &configurations, 0, 0, "the names that --config takes"},
        {"deepspeed", VT_ARGUMENT_PATH, &deepspeed, 0, 0,
         "DeepSpeed's JSON file as a YAML file for --yaml_config; what has no effect here is listed on standard error"},
        {"yaml_config", VT_ARGUMENT_PATH, &yaml_config, 0, 0,
         "with --configurations: those of this file (else of every model's, as for train)"},
    };
    const vt_command_line line = {.command = "options", .help = help, .help_end = help_end, VT_FLAGS(flags)};
    VT_TRY(vt_arguments_parse(&line, argument_count, arguments, NULL));
    VT_CHECK(markdown + rules + man + configurations + (shell.chosen != NULL) + (words != NULL) + (deepspeed != NULL) <=
                 1,
             "options: --markdown, --rules, --man, --completion, --names, --configurations and --deepspeed each print "
             "something else: give one");
    VT_CHECK(yaml_config == NULL || configurations, "options: --yaml_config goes with --configurations only");
    if (man)
        vt_man_page_print(stdout);
    else if (shell.chosen != NULL)
        vt_completion_print(stdout, strcmp(shell.chosen, "zsh") == 0);
    else if (words != NULL)
        vt_completion_print_names(stdout, words);
    else if (rules)
        print_rules();
    else if (configurations)
        VT_TRY(vt_config_names(yaml_config, print_name, NULL));
    else if (deepspeed != NULL)
        VT_TRY(print_deepspeed(deepspeed));
    else
        vt_options_print(stdout, markdown);
done:
    return status;
}
