#include "source/sources.h"

#define DECLARE(name, ...) extern const vt_source_kind vt_source_##name;
VT_SOURCES(DECLARE)

#define ROW(name, help) &vt_source_##name,
static const vt_source_kind *const kinds[] = {VT_SOURCES(ROW)};

const vt_source_kind *vt_source_kind_of(const vt_config *config)
{
    return kinds[config->source];
}

vt_status vt_source_complete(vt_config *config)
{
    const vt_source_kind *kind = vt_source_kind_of(config);
    return kind->complete != NULL ? kind->complete(config) : VT_OK;
}
