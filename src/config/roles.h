/* The option roles: which variables the model sees, and which it forecasts. */
#ifndef VT_CONFIG_ROLES_H
#define VT_CONFIG_ROLES_H

#include "config/config.h"

/* Puts `variables` into the order of the channels: prognostic ones, which input and output hold, then diagnostic ones,
 * which only the output holds, then forcings, which only the input holds. Without roles it changes nothing. Fails where
 * a variable or a role is not known, where one has two, and where nothing is prognostic. */
vt_status vt_config_resolve_roles(vt_config *config);

/* How many of `variables` have this role. */
int64_t vt_config_role_count(const vt_config *config, vt_role role);

/* Channels of a time that a model sees or forecasts: those of input and output, then the forcings. */
int64_t vt_config_frame_channels(const vt_config *config);

/* The variables that are forcings, "[sst, ice]"; malloc'd. */
char *vt_config_forcing_variables(const vt_config *config);

#endif
