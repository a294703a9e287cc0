/* The options roles, forcings and static_fields: which variables the model sees, which it forecasts, and what it sees
 * beside them. */
#ifndef VT_CONFIG_ROLES_H
#define VT_CONFIG_ROLES_H

#include "config/config.h"

/* Puts `variables` into the order of the channels: prognostic ones, which input and output hold, then diagnostic ones,
 * which only the output holds, then forcings, which only the input holds. Without roles it leaves them as they are.
 * Writes the list of forcings as "[a, b]". Fails where a variable, a role or a forcing is not known, where a variable
 * has two roles or a forcing comes twice, where nothing is prognostic, and where options of static fields come without
 * a file. */
vt_status vt_config_resolve_variables(vt_config *config);

/* How many of `variables` have this role. */
int64_t vt_config_role_count(const vt_config *config, vt_role role);

/* Channels of a time that a model sees or forecasts: those of input and output, then the forcings. */
int64_t vt_config_frame_channels(const vt_config *config);

/* The variables that are forcings, "[sst, ice]"; malloc'd. */
char *vt_config_forcing_variables(const vt_config *config);

/* Which forcings, in the order of their channels. */
typedef struct {
    int count;
    vt_forcing kinds[VT_FORCING_COUNT];
} vt_forcing_list;

/* Of a configuration that was resolved. */
vt_forcing_list vt_config_forcings(const vt_config *config);

/* Channels of the input's second tensor: the forcings, the static fields, and the variables that are forcings. 0: there
 * is no such tensor. */
int64_t vt_config_forcing_channels(const vt_config *config);

/* "cos_zenith" */
const char *vt_forcing_name(vt_forcing forcing);

#endif
