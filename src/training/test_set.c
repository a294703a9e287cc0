/* The test set of a run. */
#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "checkpoint/find.h"
#include "source/sources.h"
#include "training/run_inside.h"
#include "training/stop.h"

vt_status vt_run_open_test_set(vt_run *run)
{
    const vt_source_kind *kind = vt_source_kind_of(run->config);
    if (!vt_world_any(run->world, kind->has_test_set != NULL && kind->has_test_set(run->config))) return VT_OK;
    vt_status status = vt_reader_open_source(run->config, run->world, VT_SET_TEST, &run->test);
    if (status == VT_OK) status = vt_source_agree(run->training, run->test);
    if (kind->needs_test_set) {
        VT_TRY(vt_world_agree(run->world, status));
    } else {
        run->test_obstacle = vt_world_cause(run->world, status);
        vt_error_clear();
        status = VT_OK;
    }
    if (run->test_obstacle != NULL)
        vt_source_close(&run->test);
    else
        vt_chunk_cache_share(run->test->chunks, run->world);
done:
    return status;
}

void vt_run_log_test_set(const vt_run *run)
{
    if (run->test_obstacle != NULL)
        vt_log_warning("the test set can't be used, so there will be no final test loss: %s", run->test_obstacle);
    if (run->test == NULL) return;
    vt_source_warn_of_shared(run->training, run->test);
    vt_source_warn_of_shared(run->validation, run->test);
}

/* Collective. The loss with the best checkpoint's parameters; NAN: there is none. */
static vt_status score_best(const vt_run *run, vt_loader *loader, double *loss)
{
    vt_status status = VT_OK;
    vt_evaluation result = {0};
    vt_checkpoint_subject subject = run->subject;
    char *above = vt_text_format("%s/checkpoints", run->directory);
    char *path = run->world->rank == 0 ? vt_checkpoint_best(above) : NULL;
    *loss = NAN;
    subject.forecasts = true;
    vt_world_broadcast_text(run->world, &path);
    if (path == NULL) goto done;
    VT_TRY(vt_checkpoint_read_parameters(path, &subject, NULL));
    VT_TRY(vt_validate(run->loop.trainer, loader, false, NULL, NULL, &result));
    *loss = result.loss;
done:
    vt_evaluation_close(&result);
    free(path);
    free(above);
    return status;
}

vt_status vt_run_score_test_set(vt_run *run)
{
    vt_status status = VT_OK;
    const vt_score_names *scores = &run->task->scores;
    const vt_run_progress *progress = &run->loop.progress;
    char number[VT_NUMBER_SIZE];
    vt_loader *loader = NULL;
    vt_evaluation result = {0};
    if (run->test == NULL) return VT_OK;
    vt_log_info("test set %s: going once through its %ld samples", run->test->path, run->test->sample_count);
    VT_TRY(vt_world_agree(run->world, vt_reader_open_loader(run->config, run->world, run->backend, (vt_reader_use){0},
                                                            run->test, &loader)));
    status = vt_validate(run->loop.trainer, loader, false, NULL, NULL, &result);
    if (status == VT_OK) vt_log_script("Final test loss: %s", vt_text_double((double)(float)result.loss, number));
    if (status == VT_OK && scores->tell_test != NULL) {
        double best = result.loss;
        const bool last_is_best = progress->validation_loss <= progress->best_loss; /* false of NaN */
        if (!last_is_best) VT_TRY(score_best(run, loader, &best));
        scores->tell_test(result.loss, best);
    } else if (status == VT_STOPPED) {
        vt_log_info("no final test loss: stopped by %s; `vitrain evaluate %s --split=test` computes it",
                    vt_stop_reason(), run->directory);
        status = VT_OK; /* all steps are done and saved */
    }
done:
    vt_loader_close(&loader);
    vt_evaluation_close(&result);
    return status;
}
