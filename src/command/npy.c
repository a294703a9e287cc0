#include "command/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "command/arguments.h"
#include "source/volumes/convert.h"

static const char help[] =
    "vitrain npy FILE.h5 [flags]: writes the two fields of a box, [channels, L, L, L], as .npy arrays\n"
    "[L, L, L, channels], which --data_loader_config=dali-lowmem reads: <stem>_data.npy and\n"
    "<stem>_label.npy in the current directory. A layer of the box is in memory at a time. The flags\n"
    "of the 2022 tutorial's convert_to_npy.py are taken, too: -i FILE.h5 -d Nbody -l Hydro.\n\n";

/* convert_to_npy.py's short flags as the long ones; malloc'd words. */
static char **spell_out(int argument_count, char *const *arguments)
{
    static const char *const words[][2] = {{"-i", "--input_file"}, {"-d", "--data_field"}, {"-l", "--label_field"}};
    char **spelt = vt_allocate((size_t)argument_count + 1, sizeof *spelt, "the command line");
    for (int i = 0; i < argument_count; i++) {
        const char *word = arguments[i];
        for (int k = 0; k < 3; k++)
            if (strcmp(word, words[k][0]) == 0) word = words[k][1];
        spelt[i] = vt_text_copy(word);
    }
    return spelt;
}

vt_status vt_command_npy(int argument_count, char *const *arguments)
{
    vt_status status = VT_OK;
    const char *from = NULL, *fields[2] = {"Nbody", "Hydro"};
    static const char *const names[2] = {"data", "label"};
    char **words = spell_out(argument_count, arguments);
    const vt_argument flags[] = {
        {"input_file", VT_ARGUMENT_PATH, &from, 0, 0, "the box; --input_file= may be left out"},
        {"data_field", VT_ARGUMENT_TEXT, &fields[0], 0, 0, "dataset of the input"},
        {"label_field", VT_ARGUMENT_TEXT, &fields[1], 0, 0, "dataset of the target"},
    };
    const vt_command_line line = {
        .command = "npy", .help = help, VT_FLAGS(flags), .operand_name = "box", .operand = &from};
    VT_TRY(vt_arguments_parse(&line, argument_count, words, NULL));
    const char *slash = strrchr(from, '/'), *base = slash != NULL ? slash + 1 : from, *dot = strrchr(base, '.');
    for (int i = 0; i < 2 && status == VT_OK; i++) {
        char *to = vt_text_format("%.*s_%s.npy", (int)(dot != NULL && dot > base ? dot - base : (long)strlen(base)),
                                  base, names[i]);
        status = vt_volumes_convert(from, fields[i], to);
        if (status == VT_OK) vt_print("%s\n", to);
        free(to);
    }
done:
    for (int i = 0; i < argument_count; i++) free(words[i]);
    free(words);
    return status;
}
