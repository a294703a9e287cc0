/* The table of sources: option `source` chooses one. */
#ifndef VT_SOURCE_SOURCES_H
#define VT_SOURCE_SOURCES_H

#include "data/source.h"

const vt_source_kind *vt_source_kind_of(const vt_config *config);

/* Sets options that follow from the data, see vt_source_kind.complete. */
vt_status vt_source_complete(vt_config *config);

#endif
