/* The source `fields`: what the configuration says of the files. */
#ifndef VT_SOURCE_FIELDS_FIELDS_H
#define VT_SOURCE_FIELDS_FIELDS_H

#include "config/config.h"
#include "source/fields/dataset.h"

/* What a sample of this configuration is: window, channels, times. The caller adds the directory and how to read it. */
vt_dataset_options vt_fields_options(const vt_config *config);

#endif
