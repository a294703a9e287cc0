/* src/config: flags, precedence, what follows from other options, checks, the files of this project. */
#include "backend/backend.h"
#include "unit/config_open.h"

/* ---- flags ---- */

TEST(flags_in_every_form)
{
    EXPECT_GIVES(NULL, "embed_dim", "64", "--embed_dim=64");
    EXPECT_GIVES(NULL, "embed_dim", "64", "--embed_dim", "64");
    EXPECT_GIVES(NULL, "embed_dim", "128", "--embed_dim=64", "--embed_dim", "128");
    EXPECT_GIVES(NULL, "img_size", "[180, 360]", "--img_size=[180,360]", "--patch_size=4");
    EXPECT_GIVES(NULL, "img_size", "[180, 360]", "--img_size", "180, 360", "--patch_size=4");
    EXPECT_GIVES(NULL, "enable_jit", "true", "--enable_jit");
    EXPECT_GIVES(NULL, "enable_jit", "true", "--enable_jit", "--depth=3");
    EXPECT_GIVES(NULL, "enable_jit", "true", "--enable_jit=ON");
    EXPECT_GIVES(NULL, "shuffle", "false", "--shuffle=No");
    EXPECT_GIVES(NULL, "shuffle", "false", "--shuffle=0");
    EXPECT_GIVES(NULL, "enable_jit", "false", "--enable_jit", "--enable_jit=false");
    EXPECT_GIVES(NULL, "expdir", "a=b c", "--expdir=a=b c");
    EXPECT_GIVES(NULL, "lr", "0.0005", "--lr=5E-4");
    EXPECT_GIVES(NULL, "lr", "1.0e-05", "--lr=.1e-4");
    EXPECT_GIVES(NULL, "grad_clip", "10", "--grad_clip=1e1");
    EXPECT_GIVES(NULL, "comm_timeout", "600");
    EXPECT_GIVES(NULL, "enable_fused", "true", "--enable_apex");
}

TEST(flags_that_are_refused)
{
    EXPECT_REFUSED(NULL, "unknown flag --embd_dim; did you mean --embed_dim?", "--embd_dim=3");
    EXPECT_REFUSED(NULL, "unknown flag --run_nm; did you mean --run_num?", "--run_nm", "x");
    EXPECT_REFUSED(NULL, "unknown flag --completely_different ('vitrain options'", "--completely_different");
    EXPECT_REFUSED(NULL, "unknown flag --learning_rate; did you mean --lr?", "--learning_rate=3");
    EXPECT_REFUSED(NULL, "unknown flag --gpus; a launcher starts the ranks: submit/local.sh 4", "--gpus=3");
    EXPECT_REFUSED(NULL, "unknown flag --LR; did you mean --lr?", "--LR=2");
    EXPECT_REFUSED(NULL, "unknown flag --num_ep; did you mean --num_epochs?", "--num_ep", "1");
    EXPECT_REFUSED(NULL, "--resume=: has no value", "--resume=");
    EXPECT_REFUSED(NULL, "--init_from=: has no value", "--init_from", "");
    EXPECT_REFUSED(NULL, "--embed_dim=abc: 'abc' is not a whole number (expected 1 to 65536)", "--embed_dim", "abc");
    EXPECT_REFUSED(NULL, "--embed_dim=0: 0 is out of range (expected 1 to 65536)", "--embed_dim=0");
    EXPECT_REFUSED(NULL, "2000000000000 is out of range (expected 1 to 1099511627776, or None)",
                   "--num_iters=2000000000000");
    EXPECT_REFUSED(NULL, "--embed_dim= 3: ' 3' is not a whole number", "--embed_dim= 3");
    EXPECT_REFUSED(NULL, "--embed_dim=: has no value", "--embed_dim=");
    EXPECT_REFUSED(NULL, "--embed_dim: its value is missing (expected 1 to 65536)", "--embed_dim");
    EXPECT_REFUSED(NULL, "--embed_dim: its value is missing", "--embed_dim", "--depth=3");
    EXPECT_REFUSED(NULL, "a switch takes a value only after '=': --enable_jit=false", "--enable_jit", "false");
    EXPECT_REFUSED(NULL, "--enable_jit=maybe: 'maybe' is not a switch", "--enable_jit=maybe");
    EXPECT_REFUSED(NULL, "'false' is not a flag; flags are written --name=value", "--enable_jit=true", "false");
    EXPECT_REFUSED(NULL, "'short' is not a flag; flags are written --name=value", "short");
    EXPECT_REFUSED(NULL, "'depth=3' is not a flag; did you mean --depth=3?", "depth=3");
    EXPECT_REFUSED(NULL, "'-depth=3' is not a flag; did you mean --depth=3?", "-depth=3");
    EXPECT_REFUSED(NULL, "'--' is not a flag", "--");
    EXPECT_REFUSED(NULL, "unknown flag --", "--=3");
    EXPECT_REFUSED(NULL, "is not text in UTF-8", "--expdir=\xff");
    EXPECT_REFUSED(NULL, "is not text in UTF-8", "--expdir=\xed\xa0\x80"); /* a surrogate */
    EXPECT_REFUSED(NULL, "'[1, 2' is not two whole numbers", "--img_size=[1, 2");
    EXPECT_GIVES(NULL, "lat_range", "[-30.5, 60]", "--lat_range=[-30.5,60]");
    EXPECT_GIVES(NULL, "lon_range", "[350, 10]", "--lon_range", "350,10");
    EXPECT_GIVES(NULL, "lon_range", "None", "--lon_range=None");
    EXPECT_REFUSED(NULL, "'30' is not two numbers (expected [a, b], each -90 to 90, or None)", "--lat_range=30");
    EXPECT_REFUSED(NULL, "lat_range", "--lat_range=[30,91]");
    EXPECT_REFUSED(NULL, "lat_range [60, 30]: expected [south, north]", "--lat_range=[60,30]");
    EXPECT_REFUSED(NULL, "lon_range [-180, 190] goes round the globe more than once", "--lon_range=[-180,190]");
    EXPECT_REFUSED(NULL, "'1, 2]' is not two whole numbers", "--img_size=1, 2]");
    EXPECT_REFUSED(NULL, "'1,2,3' is not two whole numbers", "--img_size=1,2,3");
}

TEST(flags_win_over_the_file_in_both_directions)
{
    static const char text[] = "base: {embed_dim: 64, enable_jit: true, shuffle: false, limit_nsamples: 5, lr: 1}\n";
    EXPECT_GIVES(text, "embed_dim", "64");
    EXPECT_GIVES(text, "embed_dim", "128", "--embed_dim=128");
    EXPECT_GIVES(text, "enable_jit", "false", "--enable_jit=false");
    EXPECT_GIVES(text, "shuffle", "true", "--shuffle");
    EXPECT_GIVES(text, "limit_nsamples", "None", "--limit_nsamples=None");
    EXPECT_GIVES(text, "limit_nsamples", "None", "--limit_nsamples=");
    EXPECT_GIVES(text, "lr", "0.0005", "--lr=None"); /* back to its default */
    EXPECT_GIVES("base: {amp_mode: fp16}\n", "amp_mode", "none", "--amp_mode=none");
    EXPECT_GIVES("base: {amp_mode: fp16}\n", "amp_mode", "none", "--amp_mode=None");
}

TEST(older_names)
{
    EXPECT_GIVES("base: {enable_apex: true}\n", "enable_fused", "true");
    EXPECT_GIVES("base: {enable_apex: true, enable_fused: false}\n", "enable_fused", "true");
    EXPECT_GIVES("base: {enable_apex: false, enable_fused: true}\n", "enable_fused", "true");
    EXPECT_GIVES("base: {enable_apex: true}\n", "enable_fused", "false", "--enable_fused=false");
    EXPECT_GIVES("base: {enable_apex: true}\n", "enable_fused", "false", "--enable_apex=false");
    EXPECT_GIVES("base: {enable_fused: true}\n", "enable_fused", "false", "--enable_apex=false");
    EXPECT_GIVES("base: {enable_apex: None}\n", "enable_fused", "false");
    EXPECT_GIVES("base: {enable_amp: true}\n", "amp_mode", "fp16");
    EXPECT_GIVES("base: {enable_amp: true, amp_mode: none}\n", "amp_mode", "fp16");
    EXPECT_GIVES("base: {enable_amp: true, amp_mode: bf16}\n", "amp_mode", "bf16");
    EXPECT_GIVES("base: {enable_amp: false, amp_mode: bf16}\n", "amp_mode", "bf16");
    EXPECT_GIVES("base: {enable_amp: true}\n", "amp_mode", "none", "--amp_mode=none");
    EXPECT_GIVES("base: {amp_mode: fp16}\n", "amp_mode", "none", "--enable_amp=false");
    EXPECT_GIVES("base: {amp_mode: bf16}\n", "amp_mode", "bf16", "--enable_amp=false"); /* fp16 alone is not kept */
    EXPECT_GIVES(NULL, "amp_mode", "bf16", "--amp_mode=bf16", "--enable_amp=false");
    EXPECT_GIVES(NULL, "amp_mode", "none", "--amp_mode=fp16", "--enable_amp=false");
}

/* ---- derived options ---- */

TEST(paths_follow_from_data_dir)
{
    static const char text[] = "base: {train_data_path: /far/train, data_dir: /near/}\n";
    EXPECT_GIVES(NULL, "valid_data_path", "./data/valid");
    EXPECT_GIVES(text, "train_data_path", "/far/train");
    EXPECT_GIVES(text, "inf_data_path", "/near/test");
    EXPECT_GIVES(text, "global_stds_path", "/near/stats/global_stds.npy");
    EXPECT_GIVES(text, "train_data_path", "d/train", "--data_dir=d");
    EXPECT_GIVES(text, "time_means_path", "d/stats/time_means.npy", "--data_dir=d//");
    EXPECT_GIVES(text, "global_means_path", "/stats/global_means.npy", "--data_dir=/");
    EXPECT_GIVES(text, "train_data_path", "own", "--data_dir=d", "--train_data_path=own");
    EXPECT_GIVES(text, "train_data_path", "own", "--train_data_path=own");
    EXPECT_GIVES(text, "train_data_path", "/near/train", "--train_data_path=None");
}

TEST(length_of_the_run)
{
    static const char iterations[] = "base: {num_iters: 7}\n", epochs[] = "base: {num_epochs: 3}\n";
    EXPECT_GIVES(NULL, "num_iters", "30000");
    EXPECT_GIVES(NULL, "num_epochs", "None");
    EXPECT_GIVES(iterations, "num_iters", "7");
    EXPECT_GIVES(epochs, "num_iters", "None");
    EXPECT_GIVES(iterations, "num_iters", "None", "--num_epochs=2");
    EXPECT_GIVES(iterations, "num_epochs", "2", "--num_epochs=2");
    EXPECT_GIVES(epochs, "num_epochs", "None", "--num_iters=9");
    EXPECT_GIVES(epochs, "num_iters", "9", "--num_iters=9");
    EXPECT_GIVES(epochs, "num_iters", "30000", "--num_epochs=None");
    EXPECT_GIVES(epochs, "num_epochs", "3", "--num_epochs", "0", "--local_batch_size=0");
    EXPECT_GIVES(epochs, "num_epochs", "3", "--num_epochs=0", "--batch_size=0");
    EXPECT_REFUSED(NULL, "--num_iters=0: 0 is out of range", "--num_iters=0");
    EXPECT_GIVES("base: {num_iters: 7, num_epochs: 3}\n", "num_iters", "9", "--num_iters=9", "--num_epochs=None");
    EXPECT_REFUSED("base: {num_iters: 7, num_epochs: 3}\n",
                   "configuration 'base' gives the length of the run by num_iters 7 and by num_epochs 3");
    EXPECT_REFUSED(NULL, "--num_iters=7 and --num_epochs=3 both give the length", "--num_iters=7", "--num_epochs=3");
}

TEST(one_flag_replaces_both_lengths_of_a_file)
{
    static const char both[] = "base: {num_iters: 7, num_epochs: 3}\n";
    EXPECT_GIVES(both, "num_iters", "9", "--num_iters=9");
    EXPECT_GIVES(both, "num_epochs", "None", "--num_iters=9");
    EXPECT_GIVES(both, "num_iters", "None", "--num_epochs=2");
}

TEST(caches_that_are_refused)
{
    EXPECT_REFUSED(NULL, "cache: device keeps the sets in a GPU's memory and needs --device=cuda", "--cache=device",
                   "--device=cpu");
    EXPECT_REFUSED(NULL, "so that skip_bad_samples can't replace samples in batches; use --cache=host",
                   "--cache=device", "--device=cuda", "--skip_bad_samples");
}

TEST(batch_and_learning_rate)
{
    EXPECT_GIVES("base: {global_batch_size: 64}\n", "global_batch_size", "4", "--local_batch_size=4");
    EXPECT_GIVES(NULL, "global_batch_size", "4", "--local_batch_size=4", "--global_batch_size=4");
    EXPECT_REFUSED(NULL,
                   "--local_batch_size=4 on 1 data-parallel rank makes a global batch of 4, but --global_batch_size=8",
                   "--local_batch_size=4", "--global_batch_size=8");
    SCOPED(vt_config) *config =
        OPENED("base: {lr: 0.5, lr_scaling: sqrt, base_batch_size: 16}\n", "--local_batch_size=64");
    EXPECT_NEAR(vt_config_learning_rate(config), 1.0, 1e-15);
    EXPECT(config->lr == 0.5);
    EXPECT_OK(vt_config_set(config, "lr_scaling", "linear"));
    EXPECT_NEAR(vt_config_learning_rate(config), 2.0, 1e-15);
    EXPECT_OK(vt_config_set(config, "lr_scaling", "none"));
    EXPECT_NEAR(vt_config_learning_rate(config), 0.5, 0);
}

TEST(fused_layers)
{
    static const char fused[] = "base: {model_backend: transformer-engine, enable_jit: false}\n";
    EXPECT_GIVES(fused, "enable_jit", "true");
    EXPECT_GIVES(NULL, "enable_jit", "true", "--model_backend=transformer-engine");
    EXPECT_GIVES(fused, "enable_jit", "false", "--enable_jit=false");
    EXPECT_GIVES(fused, "model_backend", "pytorch", "--enable_jit=false");
    EXPECT_GIVES(fused, "enable_jit", "false", "--model_backend=pytorch");
    EXPECT_REFUSED(NULL, "--model_backend=transformer-engine asks for the fused layers that --enable_jit=false",
                   "--model_backend=transformer-engine", "--enable_jit=false");
}

/* The count of `variables` replaces the file's channels, and the configuration knows which. */
TEST(channels_follow_from_variables)
{
    static const char yaml[] = "base: {n_in_channels: 20, n_out_channels: 20}\n";
    SCOPED(vt_config) *config = OPENED(yaml, "--variables=[u10,v10,t2m]", "--n_history=1");
    EXPECT(config->n_in_channels == 6 && config->n_out_channels == 3);
    EXPECT(config->replaced_channels[0] == 20 && config->replaced_channels[1] == 20);
    EXPECT_OK(vt_config_resolve(config));
    EXPECT(config->replaced_channels[0] == 20, "resolving it again does not forget them");
    char *flags = vt_test_owned(vt_config_flags_text(config));
    EXPECT_TEXT(flags, " --variables=[u10,v10,t2m] --n_history=1");
    vt_config_close(&config);
    EXPECT_OK(OPEN(yaml, &config, "--variables=[u10,v10,t2m]", "--n_in_channels=3", "--n_out_channels=2"));
    EXPECT(config->n_in_channels == 3 && config->n_out_channels == 2 && config->replaced_channels[0] == 0);
    vt_config_close(&config);
    EXPECT_OK(OPEN(NULL, &config, "--variables=[u10]"));
    EXPECT(config->n_in_channels == 1 && config->replaced_channels[0] == 0, "a default is not replaced");
    flags = vt_config_flags_text(config);
    EXPECT_TEXT(flags, " --variables=[u10]");
    free(flags);
}

TEST(weight_decay_follows_from_the_optimizer)
{
    EXPECT_GIVES(NULL, "weight_decay", "0");
    EXPECT_GIVES(NULL, "weight_decay", "0.01", "--optimizer=AdamW");
    EXPECT_GIVES("base: {weight_decay: 0.5}\n", "weight_decay", "0.5", "--optimizer=AdamW");
    EXPECT_GIVES("base: {weight_decay: 0.5}\n", "weight_decay", "0.01", "--optimizer=AdamW", "--weight_decay=None");
}

/* The presets are the numbers that were fixed before there were options; what belongs to another kind is refused. */
TEST(numbers_of_the_optimizer)
{
    EXPECT_GIVES(NULL, "betas", "[0.9, 0.95]");
    EXPECT_GIVES(NULL, "eps", "1.0e-08");
    EXPECT_GIVES(NULL, "momentum", "0.9", "--optimizer=SGD");
    EXPECT_GIVES("base: {betas: [0.9, 0.999]}\n", "betas", "[0.9, 0.999]", "--optimizer=AdamW");
    EXPECT_REFUSED(NULL, "--momentum=0.5 is an option of optimizer SGD|Muon, but optimizer is Adam", "--momentum=0.5");
    EXPECT_REFUSED(
        NULL, "--betas=[0.8, 0.9] is an option of optimizer Adam|AdamW|Adam8bit|AdamW8bit|Muon, but optimizer is SGD",
        "--betas=0.8,0.9", "--optimizer=SGD");
    EXPECT_REFUSED(NULL, "nesterov looks ahead along the momentum, but momentum is 0", "--optimizer=SGD",
                   "--momentum=0", "--nesterov");
    EXPECT_REFUSED(NULL, "--loss_scale_window sets fp16's loss scale, but there is none", "--loss_scale_window=100");
    EXPECT_GIVES("base: {loss_scale_window: 100}\n", "loss_scale_window", "100"); /* as a checkpoint's may be */
    EXPECT_REFUSED(NULL,
                   "--loss_scale_power is of a loss scale that follows overflows, but loss_scale 8 is one for good",
                   "--amp_mode=fp16", "--loss_scale=8", "--loss_scale_power=3");
    EXPECT_GIVES("base: {amp_mode: fp16, loss_scale: 8, loss_scale_power: 3}\n", "loss_scale", "8");
    EXPECT_REFUSED(NULL, "loss_scale_min 2 is more than the 1 = 2^0", "--amp_mode=fp16", "--loss_scale_power=0",
                   "--loss_scale_min=2");
    EXPECT_REFUSED(NULL, "(expected [a, b], each 0 to 0.99999999)", "--betas=0.9,1");
}

TEST(newest_checkpoint_implies_resume)
{
    SCOPED(vt_config) *config = OPENED(NULL, "--resume_newest");
    EXPECT_VALUE(config, "resume", "true");
    EXPECT_OK(vt_config_set(config, "resume_newest", "false"));
    EXPECT_OK(vt_config_resolve(config));
    EXPECT_VALUE(config, "resume", "None");
    vt_config_close(&config);
    EXPECT_OK(OPEN("base:\n  resume: there\n", &config, "--resume_newest"));
    EXPECT_VALUE(config, "resume", "there");
    vt_config_close(&config);
    EXPECT_OK(OPEN("base:\n  resume: there\n", &config, "--resume_newest", "--resume=false"));
    EXPECT_VALUE(config, "resume", "true");
}

/* ---- checks of several options together ---- */

TEST(shapes_that_do_not_fit)
{
    EXPECT_REFUSED(NULL, "num_heads 7 does not divide embed_dim 384; use 6 or 8 heads", "--num_heads=7");
    EXPECT_REFUSED(NULL, "num_heads 500 does not divide embed_dim 384; use 384 heads", "--num_heads=500");
    EXPECT_REFUSED(
        NULL,
        "patch_size 7 does not divide both of img_size [360, 720]; use 6 or 8 as patch_size, or img_size [357, 714]",
        "--patch_size=7");
    EXPECT_REFUSED(NULL, "patch_size 16 does not divide both of img_size [8, 720]; use 8 as patch_size",
                   "--patch_size=16", "--img_size=[8,720]");
    EXPECT_REFUSED(
        NULL, "patch_size 8 does not divide both of img_size [181, 360]; use 1 as patch_size, or img_size [176, 360]",
        "--img_size=[181,360]");
    EXPECT_REFUSED(
        NULL,
        "n_in_channels 20 is not a multiple of n_history + 1 = 3, the times that each channel is read at; use 18 or 21",
        "--n_history=2");
    EXPECT_REFUSED(
        NULL,
        "n_in_channels 2 is not a multiple of n_history + 1 = 4, the times that each channel is read at; use 4 or 8",
        "--n_history=3", "--n_in_channels=2");
    EXPECT_GIVES(NULL, "n_in_channels", "80", "--n_history=3", "--n_in_channels=80");
    EXPECT_REFUSED(NULL, "grad_accumulation 3 does not divide a rank's batch of 16 samples; use 2 or 4",
                   "--grad_accumulation=3");
    EXPECT_REFUSED(NULL, "grad_accumulation 32 does not divide a rank's batch of 16 samples; use 16",
                   "--grad_accumulation=32");
}

TEST(names_of_directories)
{
    EXPECT_REFUSED(NULL, "--run_num=a/b: it names a directory", "--run_num=a/b");
    EXPECT_REFUSED(NULL, "--run_num=..: it names a directory", "--run_num=..");
    EXPECT_REFUSED("'a/b': {}\n", "--config=a/b: it names a directory", "--config=a/b");
    char flag[400] = "--run_num=";
    memset(flag + 10, 'x', 300);
    EXPECT_REFUSED(NULL, "300 bytes are too long for the name of a directory", flag);
}

/* ---- the files ---- */

/* "name=value" of a configuration of the file, in the table's order. */
static void check_named(const char *path, const char *name, const char *const *wanted)
{
    char *const arguments[] = {vt_text_format("--yaml_config=%s", path), vt_text_format("--config=%s", name),
                               vt_text_copy("--amp_mode=none")};
    SCOPED(vt_config) *config = NULL;
    EXPECT_OK(vt_config_open(3, arguments, 1, &config));
    for (int i = 0; i < 3; i++) free(arguments[i]);
    for (; config != NULL && *wanted != NULL; wanted++) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(*wanted, "="), *wanted);
        char *value = vt_test_owned(vt_config_value_text(config, key));
        EXPECT(strcmp(value, strchr(*wanted, '=') + 1) == 0, "%s: %s is %s, expected %s", name, key, value, *wanted);
    }
}
#define CHECK_NAMED(path, name, ...) check_named(path, name, (const char *const[]){__VA_ARGS__, NULL})

/* The keys and the structure of the tutorials' file. */
TEST(tutorial_file)
{
    static const char path[] = "tests/commands/tutorial.yaml";
    CHECK_NAMED(path, "base", "expdir=/logs", "model_backend=pytorch", "embed_dim=384", "img_size=[360, 720]",
                "dropout=0", "train_data_path=/data/train", "inf_data_path=/data/test",
                "global_stds_path=/data/stats/global_stds.npy", "limit_nsamples=None", "limit_nsamples_val=None",
                "data_loader_config=pytorch", "num_data_workers=0", "num_iters=30000", "enable_fused=false",
                "lr=0.0005", "wireup_info=env", "wireup_store=tcp");
    CHECK_NAMED(path, "short", "limit_nsamples=512", "limit_nsamples_val=128", "num_iters=128", "enable_jit=false");
    CHECK_NAMED(path, "short_opt", "limit_nsamples=512", "data_loader_config=dali", "num_data_workers=8",
                "enable_fused=true", "enable_jit=true");
    CHECK_NAMED(path, "older", "enable_fused=true", "lr_scaling=sqrt", "base_batch_size=4");
    CHECK_NAMED(path, "wide", "embed_dim=1024", "img_size=[180, 360]", "enable_jit=false", "lr=0.001");
    CHECK_NAMED(path, "wide_te", "embed_dim=1024", "model_backend=transformer-engine", "enable_jit=true");
}

TEST(our_file)
{
    static const char path[] = "config/ViT.yaml";
    static const struct {
        const char *name, *batch, *lr;
    } scaled[] = {{"bs16_opt", "16", "0.0005"},
                  {"bs32_opt", "32", "0.000707"},
                  {"bs64_opt", "64", "0.001"},
                  {"bs128_opt", "128", "0.00141"},
                  {"bs256_opt", "256", "0.002"},
                  {"bs512_opt", "512", "0.00283"},
                  {"bs1024_opt", "1024", "0.004"},
                  {"bs2048_opt", "2048", "0.00566"},
                  {"bs32_opt_short", "32", "0.000707"},
                  {"bs64_opt_short", "64", "0.001"},
                  {"mp", "64", "0.001"},
                  {"mp_bs16", "16", "0.0005"},
                  {"mp_bs32", "32", "0.000707"},
                  {"mp_short", "64", "0.001"},
                  {"mp_bs32_short", "32", "0.000707"},
                  {"mp_te", "64", "0.001"},
                  {"mp_bs32_te", "32", "0.000707"},
                  {"mp_te_short", "64", "0.001"},
                  {"mp_bs32_te_short", "32", "0.000707"},
                  {"mp_patch4", "64", "0.001"}};
    for (size_t i = 0; i < sizeof scaled / sizeof scaled[0]; i++) {
        bool few = strstr(scaled[i].name, "short") != NULL, wide = scaled[i].name[0] == 'm';
        bool fused = !wide || strstr(scaled[i].name, "te") == scaled[i].name + strlen(scaled[i].name) - 2 ||
                     strstr(scaled[i].name, "_te_") != NULL;
        char batch[64], lr[64], samples[64], validation[64];
        snprintf(batch, sizeof batch, "global_batch_size=%s", scaled[i].batch);
        snprintf(lr, sizeof lr, "lr=%s", scaled[i].lr);
        const int64_t four_epochs = 32 * atoll(scaled[i].batch); /* of 32 steps: the 128 of num_iters */
        snprintf(samples, sizeof samples, "limit_nsamples=%ld", four_epochs);
        snprintf(validation, sizeof validation, "limit_nsamples_val=%ld", four_epochs);
        CHECK_NAMED(path, scaled[i].name, batch, lr, wide ? "embed_dim=1024" : "embed_dim=384", "enable_fused=true",
                    few ? samples : "limit_nsamples=None", few ? validation : "limit_nsamples_val=None",
                    few ? "num_iters=128" : "num_iters=30000", "data_loader_config=dali", "num_data_workers=8",
                    fused && !(strcmp(scaled[i].name, "mp_patch4") == 0) ? "enable_jit=true" : "enable_jit=false",
                    strcmp(scaled[i].name, "mp_patch4") == 0 ? "patch_size=4" : "patch_size=8", "expdir=./runs");
    }
    CHECK_NAMED(path, "base", "lr=0.0005", "num_iters=30000", "data_loader_config=auto", "num_data_workers=None",
                "train_data_path=./data/train", "enable_fused=false");
    CHECK_NAMED(path, "short", "limit_nsamples=512", "limit_nsamples_val=128", "num_iters=128", "enable_fused=false");
    CHECK_NAMED(path, "short_opt", "limit_nsamples=512", "limit_nsamples_val=128", "num_iters=128", "enable_fused=true",
                "enable_jit=true", "data_loader_config=dali", "num_data_workers=8");
    CHECK_NAMED(path, "opt", "limit_nsamples=None", "num_iters=30000", "enable_fused=true", "enable_jit=true");
    CHECK_NAMED(path, "demo", "img_size=[32, 64]", "num_iters=None", "train_data_path=./data/demo/train");
    CHECK_NAMED(path, "lab", "img_size=[64, 128]", "global_batch_size=16", "num_iters=64", "limit_nsamples=256");
    CHECK_NAMED(path, "ncep", "img_size=[24, 48]", "n_history=3", "n_in_channels=4", "n_out_channels=1");
}
