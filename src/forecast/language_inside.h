/* A language model out of a checkpoint: for language.c and generation.c alone. */
#ifndef VT_FORECAST_LANGUAGE_INSIDE_H
#define VT_FORECAST_LANGUAGE_INSIDE_H

#include "forecast/language.h"
#include "training/step.h"

typedef struct {
    const vt_config *config;
    vt_world *world;
    vt_backend *backend;
    vt_task *task;
    vt_trainer *trainer;
} vt_language;

/* Collective. Also to be closed after an error; of zeros nothing is open. */
vt_status vt_language_open(const vt_config *config, const char *checkpoint, const vt_launch *launch,
                           vt_language *language);

/* status: with which its use ended. */
void vt_language_close(vt_language *language, vt_status status);

#endif
