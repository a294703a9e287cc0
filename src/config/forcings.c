#include "config/forcings.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "config/roles.h"

#define WORD(enumerator, word) word,
static const char *const words[] = {VT_FORCINGS(WORD) NULL};

const char *vt_forcing_name(vt_forcing forcing)
{
    return words[forcing];
}

static vt_status fail_unknown(const char *at, size_t length)
{
    vt_status status = VT_OK;
    char *word = vt_text_format("%.*s", (int)length, at);
    vt_text known = {0};
    for (int kind = 0; kind < VT_FORCING_COUNT; kind++)
        vt_text_append(&known, "%s%s", kind > 0 ? ", " : "", words[kind]);
    VT_FAIL("forcings: there is no '%s'; there are %s", word, known.characters);
done:
    vt_text_close(&known);
    free(word);
    return status;
}

static vt_status parse(const char *text, vt_forcing_list *list)
{
    vt_status status = VT_OK;
    const char *rest = text, *word;
    size_t length;
    list->count = 0;
    while (rest != NULL && (word = vt_text_next_word(&rest, &length)) != NULL) {
        const int kind = vt_text_place(word, length, words);
        if (kind < 0) return fail_unknown(word, length);
        for (int i = 0; i < list->count; i++)
            VT_CHECK(list->kinds[i] != (vt_forcing)kind, "forcings: %s comes twice; name each one once", words[kind]);
        list->kinds[list->count++] = (vt_forcing)kind;
    }
    VT_CHECK(text == NULL || list->count > 0,
             "forcings: '%s' names none; leave the option out, or name some, like [cos_zenith,sin_lat]", text);
done:
    return status;
}

vt_forcing_list vt_config_forcings(const vt_config *config)
{
    vt_forcing_list list;
    VT_ASSERT(parse(config->forcings, &list) == VT_OK);
    return list;
}

int64_t vt_config_forcing_channels(const vt_config *config)
{
    const int64_t fixed = config->n_static_fields != VT_UNSET_INTEGER ? config->n_static_fields : 0;
    return vt_config_forcings(config).count + (config->static_fields != NULL ? fixed : 0) +
           vt_config_role_count(config, VT_ROLE_FORCING);
}

/* In one form, so that texts can be compared. A text that has it already may be another configuration's, too. */
static void write_list(const vt_forcing_list *list, char **text)
{
    vt_text written = {0};
    for (int i = 0; i < list->count; i++) vt_text_append(&written, "%s%s", i == 0 ? "[" : ", ", words[list->kinds[i]]);
    vt_text_append(&written, "]");
    if (strcmp(*text, written.characters) != 0) {
        free(*text);
        *text = vt_text_copy(written.characters);
    }
    vt_text_close(&written);
}

vt_status vt_config_resolve_forcings(vt_config *config)
{
    vt_status status = VT_OK;
    vt_forcing_list list;
    VT_TRY(parse(config->forcings, &list));
    if (list.count > 0) write_list(&list, &config->forcings);
    VT_CHECK(config->static_fields != NULL ||
                 (config->static_variables == NULL && config->n_static_fields == VT_UNSET_INTEGER),
             "%s without a file: name it by --static_fields=PATH",
             config->static_variables != NULL ? "static_variables" : "n_static_fields");
done:
    return status;
}
