/* vitrain options: every option, from the table that the parser uses; man page and completions, from the same table. */
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "command/command.h"
#include "source/fields/about.h"

static vt_status print_configurations(const char *yaml_config)
{
    vt_names names = {0};
    const vt_status status = vt_config_names(yaml_config, &names);
    for (int64_t i = 0; i < names.count; i++) vt_print("%s\n", names.names[i]);
    vt_names_close(&names);
    return status;
}

/* The configuration on standard output, the notes on standard error. */
static vt_status print_deepspeed(const char *path)
{
    vt_text yaml = {0}, notes = {0};
    const vt_status status = vt_deepspeed_convert(path, &yaml, &notes);
    if (status == VT_OK) vt_print("%s", yaml.characters);
    if (status == VT_OK && notes.characters != NULL) fputs(notes.characters, stderr);
    vt_text_close(&yaml);
    vt_text_close(&notes);
    return status;
}

vt_status vt_command_options(const vt_call *call)
{
    vt_status status = VT_OK;
    const vt_options_flags *flags = call->flags;
    char *table = flags->rules ? vt_fields_rules_table() : NULL;
    VT_CHECK(flags->markdown + flags->rules + flags->man + flags->configurations + (flags->completion >= 0) +
                     (flags->names != NULL) + (flags->deepspeed != NULL) <=
                 1,
             "options: --markdown, --rules, --man, --completion, --names, --configurations and --deepspeed each print "
             "something else: give one");
    if (flags->man)
        vt_man_page_print(stdout);
    else if (flags->completion >= 0)
        vt_completion_print(stdout, flags->completion == VT_SHELL_ZSH);
    else if (flags->names != NULL)
        vt_completion_print_names(stdout, flags->names);
    else if (flags->rules)
        fputs(table, stdout);
    else if (flags->configurations)
        VT_TRY(print_configurations(flags->yaml_config));
    else if (flags->deepspeed != NULL)
        VT_TRY(print_deepspeed(flags->deepspeed));
    else
        vt_options_print(stdout, flags->markdown);
done:
    free(table);
    return status;
}
