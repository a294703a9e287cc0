#include "config/roles.h"

#include <stdlib.h>
#include <string.h>

#include "config/option.h"

#define WORD(enumerator, word) word,
static const char *const words[] = {VT_ROLES(WORD) NULL};
static const char *const forcings[] = {VT_FORCINGS(WORD) NULL};

/* ---- roles ---- */

/* "tp=diagnostic" is of the variable tp, and of all levels of it, "tp@500". */
static bool is_of(const char *entry, const char *variable, size_t length)
{
    const size_t named = strcspn(entry, "=");
    return named <= length && strncmp(entry, variable, named) == 0 && (named == length || variable[named] == '@');
}

/* The role of a variable; *count: how many entries give it one. */
static vt_role role_of(const vt_config *config, const char *variable, size_t length, int *count)
{
    const char *rest = config->roles, *entry;
    vt_role role = VT_ROLE_PROGNOSTIC;
    size_t size;
    *count = 0;
    while ((entry = vt_text_next_word(&rest, &size)) != NULL) {
        if (!is_of(entry, variable, length)) continue;
        const size_t named = strcspn(entry, "=") + 1;
        role = (vt_role)vt_text_place(entry + named, size - named, words);
        ++*count;
    }
    return role;
}

static vt_status check_entry(const vt_config *config, const char *entry, size_t size)
{
    vt_status status = VT_OK;
    const char *rest = config->variables, *variable, *equals = memchr(entry, '=', size);
    size_t length;
    bool any = false;
    VT_CHECK(equals != NULL && vt_text_place(equals + 1, size - (size_t)(equals + 1 - entry), words) >= 0,
             "roles: '%.*s' is no role of a variable; expected NAME=ROLE, in a file NAME: ROLE, with one of the roles "
             "prognostic, diagnostic and forcing",
             (int)size, entry);
    while ((variable = vt_text_next_word(&rest, &length)) != NULL) any = any || is_of(entry, variable, length);
    VT_CHECK(any, "roles: '%.*s' is none of the variables %s", (int)(equals - entry), entry, config->variables);
done:
    return status;
}

static vt_status check(const vt_config *config)
{
    vt_status status = VT_OK;
    const char *rest = config->roles, *word;
    size_t length;
    int count;
    VT_CHECK(config->variables != NULL,
             "roles are those of variables, but variables names none; of files that hold `fields`, the first "
             "n_in_channels are the input and the first n_out_channels are forecast");
    while ((word = vt_text_next_word(&rest, &length)) != NULL) VT_TRY(check_entry(config, word, length));
    for (rest = config->variables; (word = vt_text_next_word(&rest, &length)) != NULL;) {
        role_of(config, word, length, &count);
        VT_CHECK(count < 2, "roles: the variable %.*s is given %d roles; give it one", (int)length, word, count);
    }
    VT_CHECK(vt_config_role_count(config, VT_ROLE_PROGNOSTIC) > 0,
             "roles: no variable is prognostic, so there is nothing that a forecast can go on from");
done:
    return status;
}

/* Appends the variables of one role; returns how many there are. */
static int64_t append(const vt_config *config, vt_role role, vt_text *text)
{
    const char *rest = config->variables, *word;
    size_t length;
    int64_t found = 0;
    for (int entries; (word = vt_text_next_word(&rest, &length)) != NULL;) {
        if (role_of(config, word, length, &entries) != role) continue;
        vt_text_append(text, "%s%.*s", text->length > 0 ? ", " : "[", (int)length, word);
        found++;
    }
    return found;
}

int64_t vt_config_role_count(const vt_config *config, vt_role role)
{
    vt_text names = {0};
    const int64_t count = append(config, role, &names);
    vt_text_close(&names);
    return count;
}

int64_t vt_config_frame_channels(const vt_config *config)
{
    const int64_t in = vt_config_channels_a_time(config), out = config->n_out_channels;
    return (in > out ? in : out) + vt_config_role_count(config, VT_ROLE_FORCING);
}

char *vt_config_forcing_variables(const vt_config *config)
{
    vt_text text = {0};
    append(config, VT_ROLE_FORCING, &text);
    vt_text_append(&text, "]");
    return text.characters;
}

/* Puts `variables` into the order of the channels, where there are roles. */
static vt_status sort_variables(vt_config *config)
{
    vt_status status = VT_OK;
    vt_text sorted = {0};
    if (config->roles == NULL) return VT_OK;
    VT_TRY(check(config));
    for (int role = 0; words[role] != NULL; role++) append(config, (vt_role)role, &sorted);
    vt_text_append(&sorted, "]");
    free(config->variables);
    config->variables = sorted.characters;
done:
    return status;
}

/* ---- forcings ---- */

const char *vt_forcing_name(vt_forcing forcing)
{
    return forcings[forcing];
}

static vt_status parse(const char *text, vt_forcing_list *list)
{
    vt_status status = VT_OK;
    const char *rest = text, *word;
    size_t length;
    list->count = 0;
    VT_TRY(vt_config_check_words("forcings", text, forcings));
    while ((word = vt_text_next_word(&rest, &length)) != NULL) {
        const vt_forcing kind = (vt_forcing)vt_text_place(word, length, forcings);
        for (int i = 0; i < list->count; i++)
            VT_CHECK(list->kinds[i] != kind, "forcings: %s comes twice; name each one once", forcings[kind]);
        list->kinds[list->count++] = kind;
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
    for (int i = 0; i < list->count; i++)
        vt_text_append(&written, "%s%s", i == 0 ? "[" : ", ", forcings[list->kinds[i]]);
    vt_text_append(&written, "]");
    if (strcmp(*text, written.characters) != 0) {
        free(*text);
        *text = vt_text_copy(written.characters);
    }
    vt_text_close(&written);
}

vt_status vt_config_resolve_variables(vt_config *config)
{
    vt_status status = VT_OK;
    vt_forcing_list list;
    VT_TRY(sort_variables(config));
    VT_TRY(parse(config->forcings, &list));
    if (list.count > 0) write_list(&list, &config->forcings);
    VT_CHECK(config->static_fields != NULL ||
                 (config->static_variables == NULL && config->n_static_fields == VT_UNSET_INTEGER),
             "%s without a file: name it by --static_fields=PATH",
             config->static_variables != NULL ? "static_variables" : "n_static_fields");
done:
    return status;
}
