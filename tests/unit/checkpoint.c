#define _GNU_SOURCE /* memmem */
/* Checkpoints: what is saved comes back to the bit, and what is wrong with one is said. */
#include "checkpoint/checkpoint.h"

#include <fcntl.h>
#include <hdf5.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/choices.h"
#include "base/text.h"
#include "checkpoint/find.h"
#include "checkpoint/inside.h"
#include "checkpoint/store.h"
#include "small_model.h"
#include "storage/safetensors.h"
#include "test.h"

enum { SAMPLES = 2 * BATCH }; /* of an epoch */

static const char *const channel_names[] = {"u10", "t2m"};

/* What the model's data say of their channels. */
static void name_channels(model *m, const char *const *names, int64_t count)
{
    vt_fields_about_close(&m->rig.task->about);
    m->rig.task->about = vt_fields_about_of_names(names, count);
}

static void open_model(model *m, const char *name, const char *value)
{
    static const char own[] = "depth=2 dropout=0.2";
    open_small(m, name != NULL ? SETTINGS("%s %s=%s", own, name, value) : own);
    m->subject.training_samples = SAMPLES;
    name_channels(m, channel_names, 2);
}

static bool same_bits(const model *a, const model *b)
{
    vt_optimizer *const optimizers[] = {vt_trainer_subject(a->rig.trainer).optimizer,
                                        vt_trainer_subject(b->rig.trainer).optimizer};
    bool same = rig_same_values(&a->rig, &b->rig);
    for (int i = 0; i < VT_KEPT_PLACES; i++) { /* two moments, or one, and an average */
        const vt_kept_place *places[] = {&optimizers[0]->kept->places[i], &optimizers[1]->kept->places[i]};
        const float *moment = places[0]->is_block ? places[0]->memory.numbers : NULL,
                    *other = places[1]->is_block ? places[1]->memory.numbers : NULL;
        same = same && (moment == NULL) == (other == NULL) &&
               (moment == NULL || memcmp(moment, other, rig_value_bytes(&a->rig)) == 0);
    }
    return same && vt_optimizer_progress_of(optimizers[0]).updates == vt_optimizer_progress_of(optimizers[1]).updates &&
           a->rig.trainer->steps_started == b->rig.trainer->steps_started;
}

static const vt_run_progress somewhere = {
    .step = 3,
    .epoch = 1,
    .epoch_steps = 2, /* one before num_iters ended the epoch early */
    .restart_step = 2,
    .batch = 4, /* the configuration's */
    .training_samples = SAMPLES,
    .unlogged = {.steps = 3, .samples = 12, .updates = 2, .seconds = 0.25, .loss = 1.0 / 7, .waited = 0.125},
    .epoch_sums = {.steps = 1, .samples = BATCH, .updates = 1, .seconds = 1e-9, .loss = 1.0 / 3, .waited = 0.5},
    .epoch_times = {.forward = 1, .backward = 2, .communication = 3, .optimizer = 4},
    .validation_loss = NAN,
    .best_loss = INFINITY,
    .persistence_loss = 0.1};

/* Saves into a fresh directory `name`, whose path is returned. */
static const char *save(const model *m, const char *name)
{
    static char path[512];
    SCOPED(vt_checkpoint_store) *store = NULL;
    SCOPED(vt_checkpoint_saver) *saver = NULL;
    vt_run_progress progress = somewhere;
    const char *run = SETTINGS("%s/run of %s", vt_test_directory(), name);
    const char *saved = SETTINGS("%s/checkpoints/step-00000003", run);
    EXPECT_OK(vt_checkpoint_store_open(run, 1, &store));
    EXPECT_OK(vt_checkpoint_saver_open(&m->subject, store, &saver));
    EXPECT_OK(vt_checkpoint_saver_save(saver, &progress, 0));
    snprintf(path, sizeof path, "%s/%s", vt_test_directory(), name);
    EXPECT(rename(saved, path) == 0);
    return path;
}

/* Opens a model of these settings and takes over the run. */
static vt_run_progress load(const char *path, model *m, const char *name, const char *value)
{
    vt_run_progress progress = {0};
    bool damaged = true;
    open_model(m, name, value);
    EXPECT_OK(vt_checkpoint_read(path, &m->subject, &progress, &damaged));
    EXPECT(!damaged);
    vt_trainer_resume(m->rig.trainer, progress.step, (vt_run_length){.run = 10});
    return progress;
}

static void check_round_trip(const char *name, const char *value)
{
    SCOPED(model) saved, loaded;
    open_model(&saved, name, value);
    train_steps(&saved, 3);
    const vt_run_progress progress = load(save(&saved, value), &loaded, name, value);
    EXPECT(same_bits(&saved, &loaded));
    EXPECT(memcmp(&progress, &somewhere, sizeof progress) == 0, "step %ld, loss %g", progress.step,
           progress.epoch_sums.loss);
    train_steps(&saved, 3); /* dropout goes on where it was, too */
    train_steps(&loaded, 3);
    EXPECT(same_bits(&saved, &loaded));
}

/* What is written while the model already changes is the model that it was copied from; the next one waits for it. */
TEST(checkpoints_written_beside_steps)
{
    static const char *const kinds[] = {"Adam", "Adam8bit embed_dim=64", "Adafactor adafactor_beta1=0.9"};
    for (int i = 0; i < 3; i++) {
        SCOPED(model) saved;
        SCOPED(vt_checkpoint_store) *store = NULL;
        SCOPED(vt_checkpoint_saver) *saver = NULL;
        vt_run_progress progress = somewhere;
        char path[600], elsewhere[600], run[500];
        const char *settings = SETTINGS("%s async_checkpoint=true ema_decay=0.9", kinds[i]);
        snprintf(run, sizeof run, "%s/%d", vt_test_directory(), i);
        EXPECT(mkdir(run, 0777) == 0);
        open_model(&saved, "optimizer", settings);
        EXPECT_OK(vt_checkpoint_store_open(run, 2, &store));
        EXPECT_OK(vt_checkpoint_saver_open(&saved.subject, store, &saver));
        train_steps(&saved, 3);
        EXPECT_OK(vt_checkpoint_saver_save(saver, &progress, 0));
        EXPECT(vt_checkpoint_saver_busy(saver) == 3);
        train_steps(&saved, 2);
        progress.step = 5;
        progress.validation_loss = 0.5; /* the best so far */
        EXPECT_OK(vt_checkpoint_saver_save(saver, &progress, 0));
        EXPECT(progress.best_loss == 0.5 && vt_checkpoint_saver_busy(saver) == 5);
        while (vt_checkpoint_saver_busy(saver) >= 0) EXPECT_OK(vt_checkpoint_saver_look(saver));
        for (int step = 3; step <= 5; step += 2) {
            SCOPED(model) then;
            SCOPED(model) loaded;
            open_model(&then, "optimizer", settings);
            train_steps(&then, step);
            snprintf(path, sizeof path, "%s/checkpoints/%s", run, step == 3 ? "step-00000003" : "best");
            load(path, &loaded, "optimizer", settings);
            EXPECT(same_bits(&then, &loaded), "%s, step %d", kinds[i], step);
        }
        progress.step = 7; /* its directory goes before the index is written */
        snprintf(path, sizeof path, "%s/checkpoints", run);
        EXPECT_OK(vt_checkpoint_saver_save(saver, &progress, 0));
        snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", run);
        EXPECT(rename(path, elsewhere) == 0);
        EXPECT_ERROR(vt_checkpoint_saver_wait(saver), "checkpoint of step 7");
        vt_checkpoint_saver_close(&saver);
        vt_checkpoint_store_close(&store);
        EXPECT_OK(vt_checkpoint_store_open("/dev/null/run", 2, &store));
        EXPECT_OK(vt_checkpoint_saver_open(&saved.subject, store, &saver));
        EXPECT_ERROR(vt_checkpoint_saver_save(saver, &progress, 0), "can't make the directory /dev/null");
        EXPECT(vt_checkpoint_saver_busy(saver) < 0);
    }
}

/* One that a program holds is not removed, until the first save after that. */
TEST(a_checkpoint_that_is_read_stays)
{
    SCOPED(model) saved;
    SCOPED(vt_checkpoint_store) *store = NULL;
    SCOPED(vt_checkpoint_saver) *saver = NULL;
    vt_run_progress progress = somewhere;
    const char *first = SETTINGS("%s/checkpoints/step-00000003", vt_test_directory());
    const char *second = SETTINGS("%s/checkpoints/step-00000005", vt_test_directory());
    int held = -1;
    open_model(&saved, NULL, NULL);
    EXPECT_OK(vt_checkpoint_store_open(vt_test_directory(), 1, &store));
    EXPECT_OK(vt_checkpoint_saver_open(&saved.subject, store, &saver));
    for (progress.step = 3; progress.step <= 7; progress.step += 2) {
        EXPECT_OK(vt_checkpoint_saver_save(saver, &progress, 0));
        EXPECT((access(first, F_OK) == 0) == (progress.step < 7), "step %ld", progress.step);
        if (progress.step == 3) held = vt_checkpoint_hold(first);
        if (progress.step == 5) EXPECT(held >= 0 && close(held) == 0);
    }
    EXPECT(vt_checkpoint_hold(first) < 0);
    EXPECT(access(second, F_OK) != 0);
}

TEST(a_saved_checkpoint_reads_back)
{
    check_round_trip("optimizer", "Adam");
    check_round_trip("optimizer", "SGD"); /* one moment */
    check_round_trip("optimizer", "Adam8bit embed_dim=64");
    check_round_trip("optimizer", "Muon");
    check_round_trip("optimizer", "Adafactor lr=1e-2");
    check_round_trip("optimizer", "Adafactor lr=1e-2 adafactor_beta1=0.9");
    check_round_trip("betas", "[0.8,0.999]");
    check_round_trip("ema_decay", "0.9");
}

static const float *average_of(const model *m)
{
    vt_optimizer *optimizer = vt_trainer_subject(m->rig.trainer).optimizer;
    return optimizer->kept->places[VT_KEPT_AVERAGE].memory.numbers;
}

static bool has_values(const model *m, const float *values)
{
    return memcmp(rig_parameters(&m->rig)->values, values, rig_value_bytes(&m->rig)) == 0;
}

/* Whoever takes parameters alone gets their average, unless they ask for the live ones; an average of their own then
 * begins there. */
TEST(parameters_alone_are_averages)
{
    SCOPED(model) saved, averaged, live;
    SCOPED(vt_text) changes = {0};
    open_model(&saved, "ema_decay", "0.9");
    train_steps(&saved, 3);
    const char *path = save(&saved, "averages");
    open_model(&averaged, "ema_decay", "0.5");
    open_model(&live, "weights", "live");
    EXPECT(!has_values(&saved, average_of(&saved)));
    EXPECT_OK(vt_checkpoint_read_parameters(path, &averaged.subject, &changes));
    EXPECT(has_values(&averaged, average_of(&saved)) && has_values(&averaged, average_of(&averaged)));
    EXPECT_TEXT(changes.characters, "; the average of its weights (--weights=live: not)");
    EXPECT_OK(vt_checkpoint_read_parameters(path, &live.subject, &changes));
    EXPECT(rig_same_values(&saved.rig, &live.rig));
}

/* A run that begins to average, and one that no longer does. */
TEST(a_checkpoint_with_or_without_an_average)
{
    for (int i = 0; i < 2; i++) {
        SCOPED(model) saved, loaded;
        open_model(&saved, "ema_decay", i == 0 ? "None" : "0.9");
        train_steps(&saved, 3);
        load(save(&saved, i == 0 ? "without" : "with"), &loaded, "ema_decay", i == 0 ? "0.9" : "None");
        EXPECT(rig_same_values(&saved.rig, &loaded.rig));
        if (i == 0) EXPECT(has_values(&loaded, average_of(&loaded)));
        train_steps(&saved, 2);
        train_steps(&loaded, 2);
        EXPECT(rig_same_values(&saved.rig, &loaded.rig)); /* an average changes nothing */
    }
}

/* What a GPU's back end chose by timing; a back end that chooses nothing saves none and wants none. */
TEST(choices_come_back)
{
    const int64_t key = 2;
    for (int i = 0; i < 3; i++) {
        SCOPED(model) saved, loaded;
        vt_run_progress progress = {0};
        vt_choices *chosen = vt_choices_open("a machine", NULL), *taken = vt_choices_open("a machine", NULL);
        uint64_t value = 3;
        bool damaged = true;
        vt_choices_add(chosen, "product", &key, 1, &value, 1);
        open_model(&saved, NULL, NULL);
        if (i > 0) saved.rig.backend->choices = chosen;
        const char *path = save(&saved, i == 0 ? "none" : i == 1 ? "some" : "ignored");
        open_model(&loaded, NULL, NULL);
        if (i < 2) loaded.rig.backend->choices = taken;
        EXPECT_OK(vt_checkpoint_read(path, &loaded.subject, &progress, &damaged));
        vt_trainer_resume(loaded.rig.trainer, progress.step, (vt_run_length){.run = 10});
        value = 0;
        EXPECT(vt_choices_find(taken, "product", &key, 1, &value, 1) == (i == 1), "case %d", i);
        EXPECT(value == (i == 1 ? 3 : 0), "case %d", i);
        vt_choices_close(&chosen);
        vt_choices_close(&taken);
    }
}

/* SGD without momentum keeps nothing, so a run with momentum finds nothing there to go on with. */
TEST(momentum_that_was_not_kept)
{
    SCOPED(model) saved, loaded;
    vt_run_progress progress;
    bool damaged;
    open_model(&saved, "optimizer", "SGD momentum=0");
    EXPECT(vt_trainer_subject(saved.rig.trainer).optimizer->kept->places[0].state == NULL);
    train_steps(&saved, 3);
    const char *path = save(&saved, "momentum");
    load(path, &loaded, "optimizer", "SGD momentum=0");
    EXPECT(same_bits(&saved, &loaded));
    model_close(&loaded);
    open_model(&loaded, "optimizer", "SGD");
    EXPECT_ERROR(vt_checkpoint_read(path, &loaded.subject, &progress, &damaged),
                 "was made with SGD and momentum 0, not 0.9");
}

/* The dynamic scale goes on where it was, with the overflows that it still tolerates; a fixed one is the
 * configuration's. */
TEST(the_loss_scale_goes_on)
{
    SCOPED(model) saved;
    const vt_optimizer_progress then = {
        .updates = 5, .loss_scale = 1024, .clean_steps = 7, .tolerated = 2, .averaged = 5};
    open_model(&saved, "amp_mode", "fp16 loss_scale_hysteresis=3");
    vt_optimizer_set_progress(vt_trainer_subject(saved.rig.trainer).optimizer, &then);
    const char *path = save(&saved, "scale");
    const struct {
        const char *more;
        double scale;
        int64_t tolerated;
    } cases[] = {{"loss_scale_hysteresis=3", 1024, 2},
                 {"loss_scale_hysteresis=2", 1024, 2},
                 {"loss_scale_hysteresis=1", 1024, 1},
                 {"loss_scale=8", 8, 1}};
    for (int i = 0; i < 4; i++) {
        SCOPED(model) loaded;
        load(path, &loaded, "amp_mode", SETTINGS("fp16 %s", cases[i].more));
        const vt_optimizer_progress now = vt_optimizer_progress_of(vt_trainer_subject(loaded.rig.trainer).optimizer);
        EXPECT(now.updates == 5 && now.loss_scale == cases[i].scale && now.clean_steps == 7 &&
                   now.tolerated == cases[i].tolerated,
               "%s: scale %g, %ld tolerated", cases[i].more, now.loss_scale, now.tolerated);
    }
}

TEST(parameters_alone)
{
    SCOPED(model) saved, loaded;
    open_model(&saved, NULL, NULL);
    train_steps(&saved, 3);
    const char *path = save(&saved, "parameters");
    open_model(&loaded, "optimizer", "SGD");
    EXPECT_OK(vt_checkpoint_read_parameters(path, &loaded.subject, NULL));
    EXPECT(rig_same_values(&saved.rig, &loaded.rig));
    EXPECT(loaded.rig.trainer->steps_started == 0 &&
           vt_optimizer_progress_of(vt_trainer_subject(loaded.rig.trainer).optimizer).updates == 0);
}

/* A .safetensors file with the model's parameters and one tensor more. */
static const char *export_with(const model *m, const char *more)
{
    static char path[512];
    vt_named_tensor tensors[64];
    int64_t count = rig_parameters(&m->rig)->count;
    for (int64_t i = 0; i < count; i++) {
        const vt_parameter *parameter = rig_parameters(&m->rig)->list[i];
        tensors[i] = (vt_named_tensor){parameter->name, {.dimensions = parameter->dimensions}, parameter->value};
        memcpy(tensors[i].shape.shape, parameter->shape, (size_t)parameter->dimensions * sizeof(int64_t));
    }
    tensors[count] = (vt_named_tensor){more, {.dimensions = 1, .shape = {2}}, m->input};
    snprintf(path, sizeof path, "%s/%s.safetensors", vt_test_directory(), more);
    EXPECT_OK(vt_safetensors_write(path, tensors, count + 1));
    return path;
}

TEST(tensors_beside_the_models)
{
    static const char *const beside[] = {"blocks.2.norm1.bias", "head.bias", "optimizer.blocks.0.norm1.bias", "step"};
    SCOPED(model) m;
    open_model(&m, NULL, NULL);
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        SCOPED(vt_text) changes = {0};
        EXPECT_OK(vt_checkpoint_read_parameters(export_with(&m, beside[i]), &m.subject, &changes));
        const char *told = SETTINGS("\ninit_from: not used: %s", beside[i]);
        EXPECT_TEXT(changes.characters, told);
    }
}

/* How PyTorch's side may have written them. */
typedef struct {
    const char *prefix;
    bool fused, float64; /* q, k and v in one tensor */
} form;

/* The data of one tensor, and its entry in the header. */
static void put_tensor(const form *as, const char *name, const int64_t *shape, int dimensions, const float *values,
                       vt_text *header, FILE *data)
{
    const int64_t begin = ftell(data);
    int64_t count = 1;
    for (int d = 0; d < dimensions; d++) count *= shape[d];
    for (int64_t i = 0; i < count; i++) {
        const double wide = (double)values[i] * (1 + 0x1p-40); /* to be rounded */
        if (as->float64)
            fwrite(&wide, sizeof wide, 1, data);
        else
            fwrite(&values[i], sizeof values[i], 1, data);
    }
    vt_text_append(header, "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[", header->length > 0 ? "," : "{", as->prefix, name,
                   as->float64 ? "F64" : "F32");
    for (int d = 0; d < dimensions; d++) vt_text_append(header, "%s%ld", d > 0 ? "," : "", shape[d]);
    vt_text_append(header, "],\"data_offsets\":[%ld,%ld]}", begin, ftell(data));
}

/* q, k and v lie one behind another, as the parameters do. */
static void put_parameters(const model *m, const form *as, vt_text *header, FILE *data)
{
    const vt_parameters *parameters = rig_parameters(&m->rig);
    for (int64_t i = 0; i < parameters->count; i++) {
        const vt_parameter *parameter = parameters->list[i];
        const char *q = strstr(parameter->name, ".attn.q.");
        int64_t shape[VT_PARAMETER_DIMENSIONS];
        memcpy(shape, parameter->shape, sizeof shape);
        if (as->fused && (strstr(parameter->name, ".attn.k.") || strstr(parameter->name, ".attn.v."))) continue;
        if (!as->fused || q == NULL) {
            put_tensor(as, parameter->name, shape, parameter->dimensions, parameter->value, header, data);
            continue;
        }
        float *whole = vt_test_owned(calloc((size_t)(3 * parameter->count), sizeof *whole));
        const int block = (int)(q - parameter->name);
        const char *kind = q + strlen(".attn.q"); /* .weight or .bias */
        for (int third = 0; third < 3; third++) {
            const char *name = SETTINGS("%.*s.attn.%c%s", block, parameter->name, "qkv"[third], kind);
            const vt_parameter *own = find_parameter(parameters, name);
            memcpy(whole + third * parameter->count, own->value, (size_t)own->count * sizeof *whole);
        }
        shape[0] *= 3;
        put_tensor(as, SETTINGS("%.*s.attn.qkv%s", block, parameter->name, kind), shape, parameter->dimensions, whole,
                   header, data);
    }
}

static const char *write_as(const model *m, const form *as)
{
    static char path[512];
    char *bytes = NULL;
    size_t size = 0;
    SCOPED(vt_text) header = {0};
    FILE *data = open_memstream(&bytes, &size);
    put_parameters(m, as, &header, data);
    vt_text_append(&header, "}");
    fclose(data);
    snprintf(path, sizeof path, "%s/as.safetensors", vt_test_directory());
    FILE *file = fopen(path, "wb");
    for (int i = 0; i < 8; i++) fputc((int)(header.length >> 8 * i & 255), file);
    fwrite(header.characters, 1, header.length, file);
    fwrite(bytes, 1, size, file);
    fclose(file);
    free(bytes);
    return path;
}

/* Is a parameter of both to the bit the same? */
static bool same_parameter(const model *a, const model *b, const char *name)
{
    const vt_parameter *one = find_parameter(rig_parameters(&a->rig), name);
    const vt_parameter *other = find_parameter(rig_parameters(&b->rig), name);
    return one->count == other->count && memcmp(one->value, other->value, (size_t)one->count * sizeof(float)) == 0;
}

/* What fits by name and shape is taken, of a checkpoint and of a file, and the rest begins as it would without. */
TEST(parameters_of_another_model)
{
    static const struct {
        const char *settings, *told; /* of a checkpoint */
        const char *anew;            /* parameters */
        bool as_file;                /* the same is told of a file */
    } cases[] = {
        {"depth=4",
         "\ninit_from: 38 of 70 parameters are taken"
         "\ninit_from: begins anew: 32 of blocks.2 to blocks.3, such as blocks.2.norm1.weight (not there)",
         "[blocks.2.*, blocks.3.*]", true},
        {"depth=1", "\ninit_from: not used: 16 of blocks.1, such as blocks.1.attn.k.bias", NULL, false},
        {"n_in_channels=3",
         "\ninit_from: 37 of 38 parameters are taken"
         "\ninit_from: begins anew: patch_embed.proj.weight ([16, 2, 4, 4] there, [16, 3, 4, 4] here)",
         "patch_embed.proj.weight", true},
        {"patch_size=2",
         "\ninit_from: pos_embed is interpolated from 2×3 tokens to 4×6"
         "\ninit_from: 36 of 38 parameters are taken"
         "\ninit_from: begins anew: patch_embed.proj.weight ([16, 2, 4, 4] there, [16, 2, 2, 2] here)"
         "\ninit_from: begins anew: head.weight ([32, 16] there, [8, 16] here)",
         "[patch_embed.proj.weight, head.weight]", true},
        {"img_size=[8,24]",
         "\n!init_from: it was made with img_size [8, 12], not [8, 24]: what is taken may mean something else here"
         "\ninit_from: pos_embed is interpolated from 2×3 tokens to 2×6",
         NULL, false},
        {"img_size=[4,24]",
         "\n!init_from: it was made with img_size [8, 12], not [4, 24]: what is taken may mean something else here"
         "\ninit_from: pos_embed is interpolated from 2×3 tokens to 1×6",
         NULL, false},
        {"num_heads=4 dt=2",
         "\n!init_from: it was made with num_heads 2, not 4, and dt 1, not 2: what is taken may mean something else "
         "here",
         NULL, false},
    };
    SCOPED(model) saved;
    open_model(&saved, NULL, NULL);
    train_steps(&saved, 3);
    char *paths[] = {vt_test_owned(vt_text_copy(save(&saved, "saved"))),
                     vt_test_owned(vt_text_copy(write_as(&saved, &(form){"", true, false})))};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int file = 0; file < (cases[i].as_file ? 2 : 1); file++) {
            SCOPED(model) loaded, initial;
            SCOPED(vt_text) changes = {0};
            open_model(&loaded, "seed", SETTINGS("5 %s", cases[i].settings));
            open_model(&initial, "seed", SETTINGS("5 %s", cases[i].settings));
            EXPECT_OK(vt_checkpoint_read_parameters(paths[file], &loaded.subject, &changes));
            const char *told = changes.characters + (file ? strcspn(changes.characters, "\n") : 0);
            EXPECT(strcmp(told, cases[i].told) == 0, "%s: %s", cases[i].settings, told);
            for (int64_t p = 0; p < rig_parameters(&loaded.rig)->count; p++) {
                const char *name = rig_parameters(&loaded.rig)->list[p]->name;
                const bool anew = vt_parameters_freezes(cases[i].anew, name); /* the same kind of list */
                if (strcmp(name, "pos_embed") == 0 && strstr(told, "interpolated") != NULL) continue;
                EXPECT(same_parameter(&loaded, anew ? &initial : &saved, name), "%s: %s", cases[i].settings, name);
            }
        }
    }
}

TEST(parameters_that_fit_nowhere)
{
    static const char *const others[] = {"u10", "sp"};
    SCOPED(model) saved, wide, far;
    SCOPED(vt_text) changes = {0};
    open_model(&saved, NULL, NULL);
    open_model(&wide, "embed_dim", "32");
    const char *path = save(&saved, "saved");
    EXPECT_ERROR(vt_checkpoint_read_parameters(path, &wide.subject, NULL),
                 "none of its 38 tensors fits a parameter of the model by name and shape: patch_embed.proj.weight is "
                 "[16, 2, 4, 4] there, [32, 2, 4, 4] here");
    name_channels(&saved, others, 2); /* as many, so that no shape shows it */
    EXPECT_OK(vt_checkpoint_read_parameters(path, &saved.subject, &changes));
    EXPECT_PART(changes.characters, "\n!init_from: its channels are others, or in another order");
    vt_text_close(&changes);
    open_model(&far, "img_size", "[8,24]"); /* a file doesn't say on which grid its tokens are */
    EXPECT_OK(vt_checkpoint_read_parameters(write_as(&saved, &(form){"", false, false}), &far.subject, &changes));
    EXPECT_PART(changes.characters, "\ninit_from: begins anew: pos_embed ([1, 6, 16] there, [1, 12, 16] here, and "
                                    "on a grid of tokens that is not known)");
}

/* Whatever PyTorch's side put round them, the parameters arrive to the bit, and the log has what was done. */
TEST(parameters_as_pytorch_writes_them)
{
    static const struct {
        form as;
        const char *changes;
    } cases[] = {
        {{"", false, false}, ""},
        {{"module.", false, false}, "; 'module.' was taken off its names"},
        {{"_orig_mod.", false, false}, "; '_orig_mod.' was taken off its names"},
        {{"module._orig_mod.", false, false}, "; 'module._orig_mod.' was taken off its names"},
        {{"_orig_mod.module.", false, false}, "; '_orig_mod.module.' was taken off its names"},
        {{"", true, false}, "; its attn.qkv was split into q, k and v"},
        {{"", false, true}, "; 38 parameters were rounded from float64 to float32"},
        {{"module.", true, true},
         "; 'module.' was taken off its names; its attn.qkv was split into q, k and v; 38 parameters were rounded from "
         "float64 to float32"},
    };
    SCOPED(model) saved;
    open_model(&saved, NULL, NULL);
    train_steps(&saved, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SCOPED(model) loaded;
        SCOPED(vt_text) changes = {0};
        open_model(&loaded, "seed", "5");
        EXPECT_OK(vt_checkpoint_read_parameters(write_as(&saved, &cases[i].as), &loaded.subject, &changes));
        const char *said = changes.length > 0 ? changes.characters : "";
        EXPECT(strcmp(said, cases[i].changes) == 0, "case %zu: %s", i, said);
        EXPECT(rig_same_values(&saved.rig, &loaded.rig), "case %zu", i);
    }
}

/* q, k and v beside all three in one, and one name twice. */
TEST(parameters_that_are_there_twice)
{
    SCOPED(vt_text) changes = {0};
    SCOPED(model) m;
    open_model(&m, NULL, NULL);
    EXPECT_OK(vt_checkpoint_read_parameters(export_with(&m, "blocks.0.attn.qkv.weight"), &m.subject, &changes));
    EXPECT_TEXT(changes.characters, "\ninit_from: not used: blocks.0.attn.qkv.weight");
    EXPECT_ERROR(vt_checkpoint_read_parameters(export_with(&m, "module.head.weight"), &m.subject, &changes),
                 "two of its tensors are 'head.weight' once");
}

/* ---- damage ---- */

/* Until the test ends. */
static const char *below(const char *directory, const char *name)
{
    return SETTINGS("%s/%s", directory, name);
}

static const char shard[] = "shard-00000-of-00001.h5";

static void expect_refused(const char *path, const model *m, bool damage, const char *message)
{
    vt_run_progress progress;
    bool damaged = !damage;
    EXPECT_ERROR(vt_checkpoint_read(path, &m->subject, &progress, &damaged), message);
    EXPECT(damaged == damage, "%s", message);
}

static void flip_byte(const char *path, off_t at)
{
    unsigned char byte = 0;
    int file = open(path, O_RDWR);
    EXPECT(file >= 0 && pread(file, &byte, 1, at) == 1);
    byte ^= 0x10;
    EXPECT(pwrite(file, &byte, 1, at) == 1);
    close(file);
}

/* Where in the file the first values of a tensor lie; -1 when they are nowhere. */
static off_t find_values(const char *path, const float *values, size_t bytes)
{
    struct stat info;
    EXPECT(stat(path, &info) == 0);
    char *all = vt_test_owned(malloc((size_t)info.st_size));
    FILE *file = fopen(path, "rb");
    EXPECT(fread(all, 1, (size_t)info.st_size, file) == (size_t)info.st_size);
    fclose(file);
    const char *found = memmem(all, (size_t)info.st_size, values, bytes);
    off_t at = found == NULL ? -1 : (off_t)(found - all);
    return at;
}

TEST(damaged_shards_are_noticed)
{
    SCOPED(model) m;
    struct stat info;
    open_model(&m, NULL, NULL);
    const char *first_shard = below(save(&m, "first"), shard), *path = save(&m, "missing");
    unlink(below(path, shard));
    expect_refused(path, &m, true, "shard-00000-of-00001.h5: No such file or directory");

    path = save(&m, "truncated");
    const char *file = below(path, shard);
    EXPECT(stat(file, &info) == 0 && truncate(file, info.st_size - 1) == 0);
    expect_refused(path, &m, true, "it is cut off or of another checkpoint");

    path = save(&m, "foreign");
    EXPECT(rename(first_shard, below(path, shard)) == 0); /* the same size, another id */
    expect_refused(path, &m, true, "is damaged or another checkpoint's: its checksum is ");

    path = save(&m, "flipped");
    file = below(path, shard);
    const vt_parameter *weight = find_parameter(rig_parameters(&m.rig), "blocks.1.mlp.fc1.weight");
    flip_byte(file, find_values(file, weight->value, 64) + 70);
    expect_refused(path, &m, true, "shard-00000-of-00001.h5 is damaged or another checkpoint's: its checksum is ");
}

TEST(damaged_descriptions_are_noticed)
{
    SCOPED(model) m;
    struct stat info;
    open_model(&m, NULL, NULL);
    const char *path = save(&m, "missing");
    unlink(below(path, "checkpoint.h5"));
    expect_refused(path, &m, true, "can't open ");

    path = save(&m, "truncated");
    const char *file = below(path, "checkpoint.h5");
    EXPECT(stat(file, &info) == 0 && truncate(file, info.st_size / 2) == 0);
    expect_refused(path, &m, true, "checkpoint.h5");

    path = save(&m, "newer");
    const int64_t version = 7;
    hid_t opened = H5Fopen(below(path, "checkpoint.h5"), H5F_ACC_RDWR, H5P_DEFAULT),
          attribute = H5Aopen(opened, "format_version", H5P_DEFAULT);
    EXPECT(H5Awrite(attribute, H5T_NATIVE_INT64, &version) >= 0);
    H5Aclose(attribute);
    H5Fclose(opened);
    expect_refused(path, &m, true, "checkpoint.h5 is damaged or another checkpoint's: its checksum is ");
    unlink(below(path, "checkpoint.crc32c"));
    expect_refused(path, &m, false, "has format version 7, this program reads versions 1 to 2");

    path = save(&m, "unchecked");
    unlink(below(path, "checkpoint.crc32c"));
    expect_refused(path, &m, true, "checkpoint.crc32c is missing");

    path = save(&m, "empty");
    EXPECT(truncate(below(path, "checkpoint.crc32c"), 0) == 0);
    expect_refused(path, &m, true, "checkpoint.crc32c is damaged: it holds no checksum");
}

/* Replaces an attribute of a checkpoint's index, and the index's checksum. */
static void describe_otherwise(const char *path, const char *name, hid_t type, hsize_t count, const void *values)
{
    const hid_t file = H5Fopen(below(path, "checkpoint.h5"), H5F_ACC_RDWR, H5P_DEFAULT),
                space = H5Screate_simple(1, &count, NULL);
    EXPECT(H5Adelete(file, name) >= 0);
    const hid_t attribute = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    EXPECT(H5Awrite(attribute, type, values) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Fclose(file);
    EXPECT_OK(vt_checkpoint_write_checksum(path));
}

/* Every checksum is right, but what the index says of the shards is not. */
TEST(descriptions_of_other_shards)
{
    static const int64_t two[] = {0, 0};
    SCOPED(model) m;
    open_model(&m, NULL, NULL);
    const char *path = save(&m, "two");
    describe_otherwise(path, "shard_crc32c", H5T_NATIVE_INT64, 2, two);
    expect_refused(path, &m, true, "two names 1 shards and 2 checksums");

    path = save(&m, "another");
    const hid_t text = H5Tcopy(H5T_C_S1);
    EXPECT(H5Tset_size(text, 4) >= 0);
    describe_otherwise(path, "id", text, 1, "feed");
    H5Tclose(text);
    expect_refused(path, &m, true, "shard-00000-of-00001.h5 is of another checkpoint: its id is ");
}

/* Wherever it is, before anything is read. */
TEST(every_flipped_byte_is_noticed)
{
    SCOPED(model) m;
    struct stat info;
    vt_run_progress progress;
    open_model(&m, NULL, NULL);
    const char *path = save(&m, "flipped"), *const names[] = {"checkpoint.h5", shard};
    for (int i = 0; i < 2; i++) {
        const char *file = below(path, names[i]);
        EXPECT(stat(file, &info) == 0);
        for (off_t at = 0; at < info.st_size; at += info.st_size / 97) {
            bool damaged = false;
            flip_byte(file, at);
            EXPECT_ERROR(vt_checkpoint_read(path, &m.subject, &progress, &damaged), "its checksum is ");
            EXPECT(damaged, "%s, byte %ld", names[i], at);
            flip_byte(file, at);
        }
    }
}

/* ---- what doesn't fit ---- */

TEST(another_model_or_other_channels)
{
    static const char *const others[] = {"u10", "sp"}, *const three[] = {"u10", "t2m", "sp"};
    SCOPED(model) m, wide, deep, more;
    open_model(&m, NULL, NULL);
    open_model(&more, "n_in_channels", "3");
    open_model(&wide, "embed_dim", "32");
    open_model(&deep, "depth", "3");
    const char *path = save(&m, "saved");
    expect_refused(path, &wide, false,
                   "patch_embed.proj.weight is [16, 2, 4, 4] in the checkpoint, [32, 2, 4, 4] in the model");
    expect_refused(path, &deep, false, "holds 38 parameters, the model has 54");
    name_channels(&m, others, 2);
    expect_refused(path, &m, false, "channel 1 is 'sp' in the data, but 't2m' in the checkpoint");
    name_channels(&more, three, 3);
    expect_refused(path, &more, false, "the data has 3 channels, the checkpoint");
    vt_fields_about_close(&m.rig.task->about); /* nothing to compare */
    vt_run_progress progress;
    bool damaged;
    EXPECT_OK(vt_checkpoint_read(path, &m.subject, &progress, &damaged));
}

/* What no shape shows. `somewhere` was saved in the middle of an epoch. */
TEST(other_settings_than_the_checkpoints)
{
    static const struct {
        const char *option, *value, *message;
        bool of_model;
    } others[] = {
        {"img_size", "[4,24]", "made with img_size [8, 12], not [4, 24]: its parameters are those of another", true},
        {"num_heads", "4", "saved was made with num_heads 2, not 4: its parameters are those of another model", true},
        {"gelu", "tanh", "was made with gelu erf, not tanh", true},
        {"dt", "2", "was made with dt 1, not 2: a run can't change its task; --init_from takes the parameters", false},
        {"seed", "5", "was made with seed 333, not 5: it was saved in the middle of an epoch", false},
        {"shuffle", "false", "was made with shuffle true, not false: it was saved in the middle", false},
        {"limit_nsamples", "7", "was made with limit_nsamples None, not 7: it was saved in the middle", false},
    };
    SCOPED(model) m;
    open_model(&m, NULL, NULL);
    const char *path = save(&m, "saved");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        SCOPED(model) other;
        open_model(&other, others[i].option, others[i].value);
        expect_refused(path, &other, false, others[i].message);
        other.subject.forecasts = true;
        if (others[i].of_model)
            EXPECT_ERROR(vt_checkpoint_read_parameters(path, &other.subject, NULL), others[i].message);
        else
            EXPECT_OK(vt_checkpoint_read_parameters(path, &other.subject, NULL));
    }
}

/* `somewhere` lies two batches of four into its epoch. Earlier checkpoints don't say how many samples there were. */
TEST(other_training_samples_than_the_checkpoints)
{
    SCOPED(model) m;
    vt_run_progress progress;
    bool damaged;
    open_model(&m, NULL, NULL);
    m.subject.training_samples = 20;
    const char *path = save(&m, "saved");
    EXPECT_OK(vt_checkpoint_read(path, &m.subject, &progress, &damaged));
    m.subject.training_samples = 16;
    expect_refused(path, &m, false,
                   "saved was saved in the middle of an epoch of 20 training samples, but the data now have 16");
    m.subject.training_samples = 23;
    m.subject.crossing_samples = 3; /* of files that used to be apart */
    expect_refused(path, &m, false,
                   "saved was saved in the middle of an epoch of 20 training samples, each within one file; now 3 more "
                   "reach from one file into the next: continue with --cross_files=false");
    m.subject.training_samples = 16;
    m.subject.crossing_samples = 0;
    const char *file = below(path, "checkpoint.h5");
    hid_t opened = H5Fopen(file, H5F_ACC_RDWR, H5P_DEFAULT);
    EXPECT(H5Adelete(opened, "training_samples") >= 0);
    H5Fclose(opened);
    EXPECT_OK(vt_checkpoint_write_checksum(path));
    EXPECT_OK(vt_checkpoint_read(path, &m.subject, &progress, &damaged));
    m.subject.training_samples = 7;
    expect_refused(path, &m, false, "of 8 training samples, but the data now have 7");
}

TEST(a_checkpoint_where_it_cannot_be_written)
{
    SCOPED(model) m;
    open_model(&m, NULL, NULL);
    vt_checkpoint_work work = {.subject = &m.subject, .directory = (char[]){"/nowhere"}, .id = "any"};
    EXPECT_ERROR(vt_checkpoint_work_shard(&work), "can't write /nowhere/shard-00000-of-00001.h5");
}
