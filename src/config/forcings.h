/* The options forcings and static_fields: what the model sees beside the data. */
#ifndef VT_CONFIG_FORCINGS_H
#define VT_CONFIG_FORCINGS_H

#include "config/config.h"

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

/* Writes the list of forcings as "[a, b]". Fails where one is not known or comes twice, and where options of static
 * fields come without a file. */
vt_status vt_config_resolve_forcings(vt_config *config);

#endif
