/* DeepSpeed's configuration (ds_config.json) as a configuration of vitrain. JSON is read as the YAML that it is part
 * of. The keys' meaning: https://www.deepspeed.ai/docs/config-json, version 0.19. */
#ifndef VT_CONFIG_DEEPSPEED_H
#define VT_CONFIG_DEEPSPEED_H

#include "base/status.h"
#include "base/text.h"

/* Appends a YAML file with the configuration `base` to *yaml, and to *notes a line for each key that has no effect
 * here, and for what the file leaves open. Errors, with line and column: a key that could change results and has no
 * counterpart. The texts are the caller's, to be closed in either case. */
vt_status vt_deepspeed_convert(const char *path, vt_text *yaml, vt_text *notes);

#endif
