#include "training/test_set.h"

#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/find.h"
#include "source/sources.h"
#include "training/reader.h"
#include "training/step.h"
#include "training/stop.h"
#include "training/trainer_inside.h"

struct vt_test_set {
    vt_source *source;
    char *obstacle; /* why it can't be used; of one that can, NULL */
};

vt_status vt_test_set_open(const vt_config *config, vt_world *world, const vt_source *training, vt_test_set **result)
{
    vt_status status = VT_OK;
    *result = NULL;
    const vt_source_kind *kind = vt_source_kind_of(config);
    if (!vt_world_any(world, kind->has_test_set != NULL && kind->has_test_set(config))) return VT_OK;
    vt_test_set *set = vt_allocate(1, sizeof *set, "the test set");
    *result = set;
    status = vt_reader_open_source(config, world, VT_SET_TEST, &set->source);
    if (status == VT_OK) status = vt_source_agree(training, set->source);
    if (kind->needs_test_set) {
        VT_TRY(vt_world_agree(world, status));
    } else {
        set->obstacle = vt_world_cause(world, status);
        vt_error_clear();
        status = VT_OK;
    }
    if (set->obstacle == NULL) vt_reader_share(world, set->source);
done:
    return status;
}

void vt_test_set_close(vt_test_set **set)
{
    if (*set == NULL) return;
    vt_source_close(&(*set)->source);
    free((*set)->obstacle);
    free(*set);
    *set = NULL;
}

const vt_source *vt_test_set_source(const vt_test_set *set)
{
    return set != NULL && set->obstacle == NULL ? set->source : NULL;
}

void vt_test_set_log(const vt_test_set *set, const vt_source *training, const vt_source *validation)
{
    if (set == NULL) return;
    if (set->obstacle != NULL) {
        vt_log_warning("the test set can't be used, so there will be no final test loss: %s", set->obstacle);
        return;
    }
    vt_source_warn_of_shared(training, set->source);
    vt_source_warn_of_shared(validation, set->source);
}

/* Collective. The loss with the best checkpoint's parameters; NAN: there is none. */
static vt_status score_best(vt_trainer *trainer, vt_loader *loader, const char *run_directory, double *loss)
{
    vt_status status = VT_OK;
    vt_evaluation result = {0};
    vt_checkpoint_subject subject = vt_trainer_subject(trainer);
    char *above = vt_text_format("%s/checkpoints", run_directory);
    char *path = vt_world_rank(subject.world) == 0 ? vt_checkpoint_best(above) : NULL;
    *loss = NAN;
    subject.forecasts = true;
    vt_world_broadcast_text(subject.world, &path);
    if (path == NULL) goto done;
    VT_TRY(vt_checkpoint_read_parameters(path, &subject, NULL));
    VT_TRY(vt_validate(trainer, loader, false, &result));
    *loss = result.loss;
done:
    vt_evaluation_close(&result);
    free(path);
    free(above);
    return status;
}

vt_status vt_test_set_score(vt_test_set *set, vt_trainer *trainer, const char *run_directory, bool last_is_best)
{
    vt_status status = VT_OK;
    const vt_score_names *scores = &trainer->task->scores;
    double best = NAN;
    const vt_config *config = trainer->config;
    vt_world *world = trainer->world;
    char number[VT_NUMBER_SIZE];
    vt_loader *loader = NULL;
    vt_evaluation result = {0};
    if (set == NULL || set->obstacle != NULL) return VT_OK;
    vt_log_info("test set %s: going once through its %lld samples", set->source->path,
                (long long)set->source->sample_count);
    VT_TRY(vt_world_agree(world,
                          vt_reader_open_loader(config, world, trainer->backend, false, false, set->source, &loader)));
    status = vt_validate(trainer, loader, false, &result);
    if (status == VT_OK) vt_log_script("Final test loss: %s", vt_text_double((double)(float)result.loss, number));
    if (status == VT_OK && scores->tell_test != NULL) {
        if (last_is_best)
            best = result.loss;
        else
            status = score_best(trainer, loader, run_directory, &best);
        if (status == VT_OK) scores->tell_test(result.loss, best);
    } else if (status == VT_STOPPED) {
        vt_log_info("no final test loss: stopped by %s; `vitrain evaluate %s --split=test` computes it",
                    vt_stop_requested() ? vt_stop_reason() : "a signal to another rank", run_directory);
        status = VT_OK; /* all steps are done and saved */
    }
done:
    vt_loader_close(&loader);
    vt_evaluation_close(&result);
    return status;
}
