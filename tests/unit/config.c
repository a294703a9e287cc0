/* src/config: the YAML reader, flags, precedence, checks, saving. Files are written into the test's own directory. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "base/text.h"
#include "config/config.h"
#include "config/yaml.h"
#include "test.h"

/* "c.yaml" with these bytes, in the test's directory; the path is valid until the next call. */
static const char *write_bytes(const void *bytes, size_t count)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/c.yaml", vt_test_directory());
    FILE *file = fopen(path, "wb");
    VT_ASSERT(file != NULL && fwrite(bytes, 1, count, file) == count && fclose(file) == 0);
    return path;
}

static const char *write_yaml(const char *text)
{
    return write_bytes(text, strlen(text));
}

/* The configuration of `yaml` with these flags; NULL ends the list. NULL for yaml: an empty configuration "base". */
static vt_status open_with(const char *yaml, vt_config **config, const char *const *flags)
{
    char *arguments[16];
    int count = 0;
    arguments[count++] = vt_text_format("--yaml_config=%s", write_yaml(yaml != NULL ? yaml : "base: {}\n"));
    for (; flags[count - 1] != NULL; count++) arguments[count] = vt_text_copy(flags[count - 1]);
    vt_status status = vt_config_open(count, arguments, config);
    for (int i = 0; i < count; i++) free(arguments[i]);
    return status;
}
#define OPEN(yaml, config, ...) open_with(yaml, config, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

/* As vt_config_print would show it. */
typedef struct {
    const char *name;
    char *value;
} wanted_line;

static void take_line(const char *text, void *context)
{
    wanted_line *wanted = context;
    size_t length = strlen(wanted->name);
    if (strncmp(text, wanted->name, length) != 0 || text[length] != ':') return;
    free(wanted->value);
    wanted->value = vt_text_copy(text + length + 2);
}

#define EXPECT_VALUE(config, key, text)                                                                                \
    do {                                                                                                               \
        wanted_line wanted_ = {key, NULL};                                                                             \
        vt_config_print(config, take_line, &wanted_);                                                                  \
        EXPECT(wanted_.value != NULL && strcmp(wanted_.value, text) == 0, "%s is %s, expected %s", key, wanted_.value, \
               text);                                                                                                  \
        free(wanted_.value);                                                                                           \
    } while (0)

/* Opening must fail with a message that holds `part`. */
#define EXPECT_REFUSED(yaml, part, ...)                                                                                \
    do {                                                                                                               \
        vt_config *refused_ = NULL;                                                                                    \
        EXPECT_ERROR(OPEN(yaml, &refused_, __VA_ARGS__), part);                                                        \
        EXPECT(refused_ == NULL);                                                                                      \
        vt_config_close(&refused_);                                                                                    \
    } while (0)

/* Opening must succeed, with the option at this value. */
#define EXPECT_GIVES(yaml, key, text, ...)                                                                             \
    do {                                                                                                               \
        vt_config *given_ = NULL;                                                                                      \
        EXPECT_OK(OPEN(yaml, &given_, __VA_ARGS__));                                                                   \
        if (given_ != NULL) EXPECT_VALUE(given_, key, text);                                                           \
        vt_config_close(&given_);                                                                                      \
    } while (0)

/* ---- YAML: what is accepted ---- */

TEST(yaml_scalars_of_every_kind)
{
    static const char text[] = "base:\n"
                               "  lr: 5E-4\n"
                               "  dropout: .25\n"
                               "  num_iters: 1e3\n"
                               "  limit_nsamples: None\n"
                               "  limit_nsamples_val: \"None\"\n"
                               "  grad_clip: ~\n"
                               "  num_threads:\n"
                               "  num_epochs: null\n"
                               "  enable_jit: 'Yes'\n"
                               "  shuffle: off\n"
                               "  optimizer: 'AdamW'\n"
                               "  expdir: \"/lo\\u0067s # not a comment\" # a comment\n"
                               "  data_dir: 'it''s here'\n"
                               "  img_size:\n"
                               "  - 180\n"
                               "  - 3.6e2\n"
                               "  patch_size: 4\n";
    vt_config *config = NULL;
    EXPECT_OK(OPEN(text, &config, ));
    if (config == NULL) return;
    EXPECT(config->lr == 5e-4 && config->dropout == 0.25 && config->num_iters == 1000);
    EXPECT(config->limit_nsamples == VT_UNSET_INTEGER && config->limit_nsamples_val == VT_UNSET_INTEGER);
    EXPECT(isnan(config->grad_clip) && config->num_threads == VT_UNSET_INTEGER);
    EXPECT(config->num_epochs == VT_UNSET_INTEGER && config->enable_jit && !config->shuffle);
    EXPECT(config->optimizer == VT_OPTIMIZER_ADAMW && config->weight_decay == 0.01);
    EXPECT(config->img_size[0] == 180 && config->img_size[1] == 360);
    EXPECT(strcmp(config->expdir, "/logs # not a comment") == 0, "%s", config->expdir);
    EXPECT(strcmp(config->train_data_path, "it's here/train") == 0, "%s", config->train_data_path);
    vt_config_close(&config);
}

TEST(yaml_merges)
{
    static const char text[] = "one: &one {embed_dim: 64, depth: 1, lr: 1e-3}\n"
                               "two: &two\n"
                               "  embed_dim: 128\n"
                               "  <<: *one\n"
                               "  warmup: 2\n"
                               "nested: {<<: *two, depth: 3}\n"
                               "list: {<<: [*one, *two], depth: 4, depth: 5}\n"
                               "both:\n"
                               "  <<: *two\n"
                               "  <<: *one\n"
                               "inline: {<<: {<<: [{lr: 2e-3}, *two]}}\n"
                               "twin: &one {embed_dim: 32}\n"
                               "redefined: {<<: *one}\n"
                               "first: &a {img_size: &size [64, 128], dropout: 0.5}\n"
                               "second: {img_size: *size}\n";
    EXPECT_GIVES(text, "embed_dim", "128", "--config=two"); /* own keys win, also before the merge */
    EXPECT_GIVES(text, "depth", "1", "--config=two");
    EXPECT_GIVES(text, "embed_dim", "128", "--config=nested");
    EXPECT_GIVES(text, "depth", "3", "--config=nested");
    EXPECT_GIVES(text, "lr", "0.001", "--config=nested");
    EXPECT_GIVES(text, "warmup", "2", "--config=nested");
    EXPECT_GIVES(text, "embed_dim", "64", "--config=list"); /* of a list the earlier */
    EXPECT_GIVES(text, "warmup", "2", "--config=list");
    EXPECT_GIVES(text, "depth", "5", "--config=list"); /* of equal keys the later */
    EXPECT_GIVES(text, "embed_dim", "64", "--config=both");
    EXPECT_GIVES(text, "warmup", "2", "--config=both");
    EXPECT_GIVES(text, "lr", "0.002", "--config=inline");
    EXPECT_GIVES(text, "embed_dim", "128", "--config=inline");
    EXPECT_GIVES(text, "embed_dim", "32", "--config=redefined");
    EXPECT_GIVES(text, "depth", "12", "--config=redefined");
    EXPECT_GIVES(text, "img_size", "[64, 128]", "--config=second");
    EXPECT_GIVES(text, "dropout", "0", "--config=second");
}

/* Merges that double at every level: exponential for a reader that expands them. */
TEST(yaml_merges_that_multiply)
{
    vt_text text = {0};
    vt_text_append(&text, "a0: &a0 {depth: 7}\n");
    for (int i = 1; i < 60; i++) vt_text_append(&text, "a%d: &a%d {<<: [*a%d, *a%d]}\n", i, i, i - 1, i - 1);
    vt_text_append(&text, "base: {<<: *a59}\n");
    EXPECT_GIVES(text.characters, "depth", "7");
    for (int i = 60; i < 110; i++) vt_text_append(&text, "a%d: &a%d {<<: *a%d}\n", i, i, i - 1);
    vt_text_append(&text, "deep: {<<: *a109}\n");
    EXPECT_REFUSED(text.characters, "merged through more than 100 levels", "--config=deep");
    vt_text_close(&text);
}

/* ---- YAML: what is refused, and where ---- */

TEST(yaml_errors_name_the_place)
{
    EXPECT_REFUSED("base:\n  depth: [1, 2\nother: 3\n", "/c.yaml:3:6: ");
    EXPECT_REFUSED("base:\n  depth: [1, 2\nother: 3\n", "that starts at line 2");
    EXPECT_REFUSED("base:\n\tdepth: 3\n", "/c.yaml:2:1: ");
    EXPECT_REFUSED("base: {depth: 'abc\n", "/c.yaml:2:1: ");
    EXPECT_REFUSED("base: *nothing\n", "/c.yaml:1:7: '*nothing' refers to an anchor");
    EXPECT_REFUSED("", "/c.yaml:1:1: the file is empty");
    EXPECT_REFUSED("# nothing but a comment\n", "/c.yaml:1:1: the file is empty");
    EXPECT_REFUSED("- base\n- short\n",
                   "/c.yaml:1:1: expected named configurations (base: {embed_dim: 384, ...}), found a list");
    EXPECT_REFUSED("\n embed_dim\n", "/c.yaml:2:2: expected named configurations");
    EXPECT_REFUSED("base: {}\n---\nbase: {}\n", "/c.yaml:2:1: a second document");
    EXPECT_REFUSED("base: 7\n", "/c.yaml:1:1: configuration 'base' should be a mapping of keys, found the text '7'");
    EXPECT_REFUSED("base: {[1, 2]: 3}\n", "/c.yaml:1:8: expected the name of a key, found a list");
    EXPECT_REFUSED("base: {<<: 3}\n",
                   "/c.yaml:1:12: '<<' merges mappings (<<: *name, or <<: [*name, *other]), found the text '3'");
    EXPECT_REFUSED("base: {<<: [[]]}\n", "/c.yaml:1:13: '<<' merges mappings");
    EXPECT_REFUSED("base: {expdir: \"a\\0b\"}\n", "/c.yaml:1:16: this text holds a zero byte");
}

TEST(yaml_values_that_are_refused)
{
    EXPECT_REFUSED("base:\n  depth: 3\n  embed_dim:   abc\n",
                   "/c.yaml:3:16: embed_dim: 'abc' is not a whole number (expected 1 to 65536)");
    EXPECT_REFUSED("base:\n  embed_dim: 70000\n",
                   "/c.yaml:2:14: embed_dim: 70000 is out of range (expected 1 to 65536)");
    EXPECT_REFUSED("base: {embed_dim: 2.5}\n", "'2.5' is not a whole number");
    EXPECT_REFUSED("base: {embed_dim: [384]}\n", "/c.yaml:1:19: embed_dim: found a list, expected 1 to 65536");
    EXPECT_REFUSED("base: {embed_dim: {a: b}}\n", "embed_dim: found a mapping, expected 1 to 65536");
    EXPECT_REFUSED("base: {embed_dim: }\n",
                   "embed_dim: has no value (expected 1 to 65536; None means the default, 384)");
    EXPECT_REFUSED("base: {img_size: [1, 2, 3]}\n", "img_size: '[1, 2, 3]' is not two whole numbers");
    EXPECT_REFUSED("base: {img_size: []}\n", "img_size: '[]' is not two whole numbers");
    EXPECT_REFUSED("base: {img_size: [[1], 2]}\n", "img_size: found a list");
    EXPECT_REFUSED("base: {img_size: [0, 2]}\n",
                   "img_size: '[0, 2]' is not two whole numbers (expected [a, b], each 1 to");
    EXPECT_REFUSED("base: {enable_jit: maybe}\n", "enable_jit: 'maybe' is not a switch (expected true or false)");
    EXPECT_REFUSED("base: {enable_amp: maybe}\n", "enable_amp: 'maybe' is not a switch (expected true or false)");
    EXPECT_REFUSED("base: {optimizer: adam}\n",
                   "optimizer: 'adam' is not one of the choices (expected Adam|AdamW|SGD)");
    EXPECT_REFUSED("base: {lr: fast}\n", "lr: 'fast' is not a number (expected 0 to 1e+06)");
    EXPECT_REFUSED("base: {lr: -1}\n", "lr: -1 is out of range");
    EXPECT_REFUSED("base: {lr: nan}\n", "lr: 'nan' is not a number");
    EXPECT_REFUSED("base: {lr: 0x1p-3}\n", "lr: '0x1p-3' is not a number");
    EXPECT_REFUSED("base: {seed: 9223372036854775808}\n", "seed: '9223372036854775808' is not a whole number");
    EXPECT_REFUSED("base: {limit_nsamples: 0}\n", "limit_nsamples: 0 is out of range (expected 1 or more, or None)");
    EXPECT_REFUSED("base: {expdir: ''}\n", "expdir: has no value (expected text; None means the default, ./runs)");
}

TEST(yaml_keys_that_are_refused)
{
    EXPECT_REFUSED("base:\n  depth: 3\n  embd_dim: 3\n",
                   "/c.yaml:3:3: unknown key 'embd_dim' in configuration 'base'; did you mean 'embed_dim'?");
    EXPECT_REFUSED("base: {completely_different: 3}\n", "unknown key 'completely_different' in configuration 'base' (");
    EXPECT_REFUSED("low: &low\n  dept: 3\nbase: {<<: *low}\n", "/c.yaml:2:3: unknown key 'dept'");
    EXPECT_REFUSED("base:\n  run_num: 3\n", "/c.yaml:2:3: run_num is a command-line flag (--run_num)");
    EXPECT_REFUSED("base: {local_batch_size: 3}\n", "local_batch_size is a command-line flag");
    /* what is not chosen is not checked */
    EXPECT_GIVES("other: {embd_dim: 3, lr: [], <<: 5}\nbase: {depth: 3}\n", "depth", "3");
    EXPECT_REFUSED("base: {}\nshort: {}\n", "--config=shrt: no such configuration in ", "--config=shrt");
    EXPECT_REFUSED("base: {}\nshort: {}\n", "did you mean 'short'? (it holds base, short)", "--config=shrt");
    EXPECT_REFUSED("base: {}\nshort: {}\n", "; it holds base, short", "--config=xxxxxxxxxx");
    EXPECT_REFUSED("{}\n", "; it holds none");
}

TEST(yaml_cycles_and_depth)
{
    EXPECT_REFUSED("base: &base\n  <<: *base\n",
                   "/c.yaml:2:7: '*base' stands inside of what it refers to, which starts at line 1");
    EXPECT_REFUSED("base: &b {img_size: &s [*s, 3]}\n", "'*s' stands inside of what it refers to");
    EXPECT_REFUSED("&top base: {<<: {depth: *top}}\nx: *unknown\n", "*unknown");
    vt_text text = {0};
    vt_text_append(&text, "base: ");
    for (int i = 0; i < 500; i++) vt_text_append(&text, "[");
    EXPECT_REFUSED(text.characters, "nested deeper than 64 levels");
    vt_text_close(&text);
    vt_text_append(&text, "base: {}\n");
    for (int i = 0; i < 1001; i++) vt_text_append(&text, "a%d: &a%d 1\n", i, i);
    EXPECT_REFUSED(text.characters, "more than 1000 anchors");
    vt_text_close(&text);
    vt_text_append(&text, "base: {}\n");
    for (int i = 0; i < 10001; i++) vt_text_append(&text, "a%d: 1\n", i);
    EXPECT_REFUSED(text.characters, "/c.yaml:10001:1: more than 10000 keys");
    vt_text_close(&text);
}

static vt_status open_path(const char *path)
{
    char *flag = vt_text_format("--yaml_config=%s", path);
    char *const arguments[] = {flag};
    vt_config *config = NULL;
    vt_status status = vt_config_open(1, arguments, &config);
    vt_config_close(&config);
    free(flag);
    return status;
}

TEST(yaml_files_that_are_none)
{
    char path[300];
    EXPECT_ERROR(open_path(vt_test_directory()), "is a directory; expected a YAML file");
    snprintf(path, sizeof path, "%s/missing.yaml", vt_test_directory());
    EXPECT_ERROR(open_path(path), "missing.yaml: No such file or directory");
    snprintf(path, sizeof path, "%s", write_yaml("base: {}\n"));
    EXPECT_OK(open_path(path));
    if (geteuid() != 0) {
        EXPECT(chmod(path, 0) == 0);
        EXPECT_ERROR(open_path(path), "c.yaml: Permission denied");
        EXPECT(chmod(path, 0600) == 0);
    }
    static const unsigned char junk[] = "base:\n  expdir: \xff\xfe\x01";
    EXPECT_ERROR(open_path(write_bytes(junk, sizeof junk - 1)), "c.yaml:2:11: not a text file in UTF-8");
    static const unsigned char control[] = {'b', ':', '\n', 'c', ':', ' ', 1, '\n'};
    EXPECT_ERROR(open_path(write_bytes(control, sizeof control)), "c.yaml:2:4: not a text file in UTF-8");
    char *large = malloc((1 << 20) + 2);
    VT_ASSERT(large != NULL);
    memset(large, '#', (1 << 20) + 2);
    EXPECT_ERROR(open_path(write_bytes(large, (1 << 20) + 1)), "larger than 1048576 bytes");
    free(large);
}

/* Bytes changed at random, and the file cut at every length: an error or a configuration, never a crash (which the
 * sanitizers see) nor a hang. */
TEST(yaml_survives_damage)
{
    static const char good[] = "a: &a {embed_dim: 64, <<: &e {lr: 5E-4}, img_size: [64, \"128\"]}\n"
                               "base: &b\n  <<: [*a, *e]\n  expdir: 'x'\n  depth: !!int 3\n  data_dir: |\n    t\n...\n";
    size_t length = sizeof good - 1;
    char damaged[sizeof good];
    for (size_t i = 0; i <= length; i++) {
        (void)open_path(write_bytes(good, i));
        vt_error_clear();
    }
    for (uint64_t trial = 0; trial < 3000; trial++) {
        memcpy(damaged, good, length);
        for (uint64_t i = 0; i < 1 + trial % 4; i++) {
            double where = vt_random_element(trial, 1, i), what = vt_random_element(trial, 2, i);
            static const char marks[] = "&*<:[]{},-'\"|>#!?\n \t%@`~ab";
            damaged[(size_t)(where * (double)length)] =
                trial % 2 == 0 ? (char)(int)(what * 256) : marks[(size_t)(what * (double)(sizeof marks - 1))];
        }
        vt_status status = open_path(write_bytes(damaged, length));
        EXPECT((status == VT_OK) == (vt_error_text()[0] == '\0'), "trial %llu", (unsigned long long)trial);
        vt_error_clear();
    }
}

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
    EXPECT_GIVES(NULL, "enable_fused", "true", "--enable_apex");
}

TEST(flags_that_are_refused)
{
    EXPECT_REFUSED(NULL, "unknown flag --embd_dim; did you mean --embed_dim?", "--embd_dim=3");
    EXPECT_REFUSED(NULL, "unknown flag --run_nm; did you mean --run_num?", "--run_nm", "x");
    EXPECT_REFUSED(NULL, "unknown flag --completely_different (", "--completely_different");
    EXPECT_REFUSED(NULL, "--embed_dim=abc: 'abc' is not a whole number (expected 1 to 65536)", "--embed_dim", "abc");
    EXPECT_REFUSED(NULL, "--embed_dim=0: 0 is out of range (expected 1 to 65536)", "--embed_dim=0");
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
    EXPECT_REFUSED("base: {enable_amp: true}\n", "amp_mode fp16: the CPU computes in float32; add --amp_mode=none");
    EXPECT_REFUSED("base: {enable_amp: true, amp_mode: none}\n", "amp_mode fp16: ");
    EXPECT_REFUSED("base: {enable_amp: true, amp_mode: bf16}\n", "amp_mode bf16: ");
    EXPECT_REFUSED("base: {enable_amp: false, amp_mode: bf16}\n", "amp_mode bf16: ");
    EXPECT_GIVES("base: {enable_amp: true}\n", "amp_mode", "none", "--amp_mode=none");
    EXPECT_GIVES("base: {amp_mode: fp16}\n", "amp_mode", "none", "--enable_amp=false");
}

/* ---- what follows ---- */

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

TEST(batch_and_learning_rate)
{
    EXPECT_GIVES("base: {global_batch_size: 64}\n", "global_batch_size", "4", "--local_batch_size=4");
    EXPECT_GIVES(NULL, "global_batch_size", "4", "--local_batch_size=4", "--global_batch_size=4");
    EXPECT_REFUSED(NULL,
                   "--local_batch_size=4 on 1 data-parallel rank makes a global batch of 4, but --global_batch_size=8",
                   "--local_batch_size=4", "--global_batch_size=8");
    vt_config *config = NULL;
    EXPECT_OK(OPEN("base: {lr: 0.5, lr_scaling: sqrt, base_batch_size: 16}\n", &config, "--local_batch_size=64"));
    if (config == NULL) return;
    EXPECT_NEAR(vt_config_learning_rate(config), 1.0, 1e-15);
    EXPECT(config->lr == 0.5);
    EXPECT_OK(vt_config_set(config, "lr_scaling", "linear"));
    EXPECT_NEAR(vt_config_learning_rate(config), 2.0, 1e-15);
    EXPECT_OK(vt_config_set(config, "lr_scaling", "none"));
    EXPECT_NEAR(vt_config_learning_rate(config), 0.5, 0);
    vt_config_close(&config);
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

TEST(weight_decay_follows_from_the_optimizer)
{
    EXPECT_GIVES(NULL, "weight_decay", "0");
    EXPECT_GIVES(NULL, "weight_decay", "0.01", "--optimizer=AdamW");
    EXPECT_GIVES("base: {weight_decay: 0.5}\n", "weight_decay", "0.5", "--optimizer=AdamW");
    EXPECT_GIVES("base: {weight_decay: 0.5}\n", "weight_decay", "0.01", "--optimizer=AdamW", "--weight_decay=None");
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
    EXPECT_REFUSED(NULL, "amp_mode bf16: the CPU computes in float32; add --amp_mode=none", "--amp_mode=bf16");
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
    vt_config *config = NULL;
    EXPECT_OK(vt_config_open(3, arguments, &config));
    for (int i = 0; i < 3; i++) free(arguments[i]);
    for (; config != NULL && *wanted != NULL; wanted++) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(*wanted, "="), *wanted);
        wanted_line line = {key, NULL};
        vt_config_print(config, take_line, &line);
        EXPECT(line.value != NULL && strcmp(line.value, strchr(*wanted, '=') + 1) == 0, "%s: %s is %s, expected %s",
               name, key, line.value, *wanted);
        free(line.value);
    }
    vt_config_close(&config);
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
        char batch[64], lr[64];
        snprintf(batch, sizeof batch, "global_batch_size=%s", scaled[i].batch);
        snprintf(lr, sizeof lr, "lr=%s", scaled[i].lr);
        CHECK_NAMED(path, scaled[i].name, batch, lr, wide ? "embed_dim=1024" : "embed_dim=384", "enable_fused=true",
                    few ? "limit_nsamples=2048" : "limit_nsamples=None",
                    few ? "limit_nsamples_val=2048" : "limit_nsamples_val=None",
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
    CHECK_NAMED(path, "ncep", "img_size=[24, 48]", "n_history=3", "n_in_channels=4", "n_out_channels=1");
}

/* ---- in code, printed, saved ---- */

TEST(default_configuration)
{
    vt_config *config = NULL;
    EXPECT_OK(vt_config_open_default(&config));
    if (config == NULL) return;
    EXPECT(config->embed_dim == 384 && config->depth == 12 && config->num_heads == 8 && config->patch_size == 8);
    EXPECT(config->img_size[0] == 360 && config->img_size[1] == 720 && config->lr == 5e-4 && config->shuffle);
    EXPECT(config->num_iters == 30000 && config->num_epochs == VT_UNSET_INTEGER && config->seed == 333);
    EXPECT(config->optimizer == VT_OPTIMIZER_ADAM && config->lr_schedule == VT_SCHEDULE_COSINE);
    EXPECT(strcmp(config->train_data_path, "./data/train") == 0 && config->weight_decay == 0);
    EXPECT(config->origin[VT_OPTION_embed_dim] == VT_FROM_DEFAULT);
    /* what was derived is derived anew */
    EXPECT_OK(vt_config_set(config, "data_dir", "elsewhere"));
    EXPECT_OK(vt_config_set(config, "num_epochs", "2"));
    EXPECT_OK(vt_config_set(config, "optimizer", "AdamW"));
    EXPECT_OK(vt_config_set(config, "enable_jit", "true"));
    EXPECT_OK(vt_config_resolve(config));
    EXPECT(config->num_iters == VT_UNSET_INTEGER && config->num_epochs == 2 && config->weight_decay == 0.01);
    EXPECT(strcmp(config->train_data_path, "elsewhere/train") == 0, "%s", config->train_data_path);
    EXPECT(config->origin[VT_OPTION_enable_jit] == VT_FROM_COMMAND_LINE && config->enable_jit);
    EXPECT_ERROR(vt_config_set(config, "embd_dim", "2"), "unknown flag --embd_dim; did you mean --embed_dim?");
    EXPECT_ERROR(vt_config_set(config, "depth", "x"), "--depth=x: 'x' is not a whole number");
    EXPECT(config->depth == 12);
    vt_config_close(&config);
    EXPECT(config == NULL);
    vt_config_close(&config);
}

/* The enumerations of config.h are in the order of the choices in options.def. */
TEST(choices_match_their_enumerations)
{
    vt_config *config = NULL;
    EXPECT_OK(vt_config_open_default(&config));
    if (config == NULL) return;
    const struct {
        const char *name, *choice;
        const int *field;
        int value;
    } choices[] = {
        {"device", "auto", &config->device, VT_DEVICE_AUTO},
        {"device", "cpu", &config->device, VT_DEVICE_CPU},
        {"cpu_isa", "auto", &config->cpu_isa, VT_ISA_AUTO},
        {"cpu_isa", "plain", &config->cpu_isa, VT_ISA_PLAIN},
        {"cpu_isa", "baseline", &config->cpu_isa, VT_ISA_BASELINE},
        {"cpu_isa", "avx2", &config->cpu_isa, VT_ISA_AVX2},
        {"cpu_isa", "avx512", &config->cpu_isa, VT_ISA_AVX512},
        {"model_backend", "pytorch", &config->model_backend, VT_MODEL_PYTORCH},
        {"model_backend", "transformer-engine", &config->model_backend, VT_MODEL_TRANSFORMER_ENGINE},
        {"gelu", "erf", &config->gelu, VT_GELU_ERF},
        {"gelu", "tanh", &config->gelu, VT_GELU_TANH},
        {"amp_mode", "none", &config->amp_mode, VT_AMP_NONE},
        {"amp_mode", "fp16", &config->amp_mode, VT_AMP_FP16},
        {"amp_mode", "bf16", &config->amp_mode, VT_AMP_BF16},
        {"optimizer", "Adam", &config->optimizer, VT_OPTIMIZER_ADAM},
        {"optimizer", "AdamW", &config->optimizer, VT_OPTIMIZER_ADAMW},
        {"optimizer", "SGD", &config->optimizer, VT_OPTIMIZER_SGD},
        {"lr_schedule", "cosine", &config->lr_schedule, VT_SCHEDULE_COSINE},
        {"lr_schedule", "none", &config->lr_schedule, VT_SCHEDULE_NONE},
        {"lr_scaling", "none", &config->lr_scaling, VT_SCALING_NONE},
        {"lr_scaling", "sqrt", &config->lr_scaling, VT_SCALING_SQRT},
        {"lr_scaling", "linear", &config->lr_scaling, VT_SCALING_LINEAR},
        {"data_loader_config", "auto", &config->data_loader_config, VT_LOADER_AUTO},
        {"data_loader_config", "pytorch", &config->data_loader_config, VT_LOADER_PYTORCH},
        {"data_loader_config", "dali", &config->data_loader_config, VT_LOADER_DALI},
        {"data_loader_config", "native", &config->data_loader_config, VT_LOADER_NATIVE},
        {"data_loader_config", "direct", &config->data_loader_config, VT_LOADER_DIRECT},
    };
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        EXPECT_OK(vt_config_set(config, choices[i].name, choices[i].choice));
        EXPECT(*choices[i].field == choices[i].value, "%s=%s is %d, expected %d", choices[i].name, choices[i].choice,
               *choices[i].field, choices[i].value);
        EXPECT_VALUE(config, choices[i].name, choices[i].choice);
    }
    vt_config_close(&config);
}

static void append_line(const char *text, void *context)
{
    if (strncmp(text, "yaml_config:", 12) != 0) vt_text_append(context, "%s\n", text);
}

/* Saves, reads again, and compares everything that is printed but the file's own name. */
static void check_round_trip(vt_config *config)
{
    char path[256];
    snprintf(path, sizeof path, "%s/saved.yaml", vt_test_directory());
    EXPECT_OK(vt_config_save(config, path));
    char *arguments[] = {vt_text_format("--yaml_config=%s", path), vt_text_format("--config=%s", config->config),
                         vt_text_format("--run_num=%s", config->run_num)};
    vt_config *again = NULL;
    EXPECT_OK(vt_config_open(3, arguments, &again));
    for (int i = 0; i < 3; i++) free(arguments[i]);
    if (again == NULL) return;
    vt_text before = {0}, after = {0};
    vt_config_print(config, append_line, &before);
    vt_config_print(again, append_line, &after);
    EXPECT(strcmp(before.characters, after.characters) == 0, "saved\n%s\nread\n%s", before.characters,
           after.characters);
    EXPECT(vt_config_learning_rate(config) == vt_config_learning_rate(again));
    vt_text_close(&before);
    vt_text_close(&after);
    vt_config_close(&again);
}

TEST(saved_and_read_again)
{
    static const char *const lines[][8] = {
        {NULL},
        {"--num_epochs=3", "--optimizer=AdamW", "--lr=1e-5", "--grad_clip=0.1", "--img_size=[64,128]", "--dropout=0.1"},
        {"--lr_scaling=sqrt", "--global_batch_size=64", "--model_backend=transformer-engine", "--limit_nsamples=5"},
        {"--data_dir=/d", "--train_data_path=own", "--enable_apex", "--seed=9223372036854775807", "--shuffle=false"},
        {"--config=with 'quotes' and: colons # é", "--run_num=1"},
        {"--config=123", "--run_num=~x", "--lr=0.1234567890123456789"},
    };
    static const char text[] = "base: &b {model_backend: transformer-engine, enable_apex: true}\n"
                               "\"with 'quotes' and: colons # é\": {<<: *b}\n"
                               "123: {depth: 3}\n";
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        vt_config *config = NULL;
        EXPECT_OK(open_with(text, &config, lines[i]));
        if (config != NULL) check_round_trip(config);
        vt_config_close(&config);
    }
}

/* One code point as UTF-8; 0 and surrogates become 'x'. */
static void append_code_point(vt_text *text, uint32_t code)
{
    if (code == 0 || (code >= 0xD800 && code < 0xE000))
        vt_text_append(text, "x");
    else if (code < 0x80)
        vt_text_append(text, "%c", (int)code);
    else if (code < 0x800)
        vt_text_append(text, "%c%c", 0xC0 | (int)(code >> 6), 0x80 | (int)(code & 63));
    else if (code < 0x10000)
        vt_text_append(text, "%c%c%c", 0xE0 | (int)(code >> 12), 0x80 | (int)(code >> 6 & 63), 0x80 | (int)(code & 63));
    else
        vt_text_append(text, "%c%c%c%c", 0xF0 | (int)(code >> 18), 0x80 | (int)(code >> 12 & 63),
                       0x80 | (int)(code >> 6 & 63), 0x80 | (int)(code & 63));
}

TEST(paths_of_any_characters_are_saved)
{
    static const char *const paths[] = {" leading",
                                        "trailing ",
                                        "a\nb",
                                        "a\r\nb\n",
                                        "\t",
                                        "'",
                                        "\"",
                                        "\\",
                                        "\\n",
                                        "a: b",
                                        "# x",
                                        "[1, 2]",
                                        "{",
                                        "*x",
                                        "&x",
                                        "!x",
                                        "- x",
                                        "%x",
                                        "@x",
                                        "true",
                                        "12",
                                        "1e5",
                                        "none",
                                        "é ß 中 🌍",
                                        "\xef\xbb\xbfx",
                                        "\x7f",
                                        "\x01\x1b",
                                        "\xc2\x85\xe2\x80\xa8",
                                        "a  b",
                                        "a \n b",
                                        "<<",
                                        "---",
                                        "...",
                                        "?",
                                        "="};
    vt_config *config = NULL;
    EXPECT_OK(vt_config_open_default(&config));
    if (config == NULL) return;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        EXPECT_OK(vt_config_set(config, "expdir", paths[i]));
        EXPECT_OK(vt_config_set(config, "data_dir", paths[i]));
        EXPECT_OK(vt_config_resolve(config));
        check_round_trip(config);
    }
    for (uint64_t trial = 0; trial < 300; trial++) {
        static const double limits[] = {0x80, 0x100, 0x3000, 0x10000, 0x110000};
        vt_text path = {0};
        for (uint64_t i = 0; i <= trial % 40; i++)
            append_code_point(&path, (uint32_t)(vt_random_element(trial, 3, i) * limits[(trial + i) % 5]));
        vt_text_append(&path, "."); /* so that it can't be "~" */
        EXPECT_OK(vt_config_set(config, "expdir", path.characters));
        check_round_trip(config);
        vt_text_close(&path);
    }
    vt_config_close(&config);
}

TEST(saving_that_fails)
{
    char path[256];
    vt_config *config = NULL;
    EXPECT_OK(vt_config_open_default(&config));
    if (config == NULL) return;
    snprintf(path, sizeof path, "%s/none/c.yaml", vt_test_directory());
    EXPECT_ERROR(vt_config_save(config, path),
                 "none/c.yaml: the configuration can't be saved: No such file or directory");
    EXPECT_ERROR(vt_config_save(config, vt_test_directory()), "Is a directory");
    if (access("/dev/full", W_OK) == 0)
        EXPECT_ERROR(vt_config_save(config, "/dev/full"), "/dev/full: the configuration can't be saved: No space left");
    vt_config_close(&config);
}

/* Every key is printed, saved and documented. */
TEST(options_are_listed)
{
    static const char *const expected[] = {
        "  --embed_dim=384", "* --run_num=00",  "(whole number, 1 to 65536)", "(pytorch|transformer-engine)",
        "(text, or None)",   "  --enable_apex "};
    static const char *const expected_markdown[] = {
        "\n## Model\n", "| `embed_dim` | whole number, 1 to 65536 | `384` | width of a token |\n",
        "| `run_num` (flag) | text | `00` |", "| erf\\|tanh | `erf` |"};
    char *text = NULL;
    size_t size = 0;
    for (int markdown = 0; markdown < 2; markdown++) {
        FILE *file = open_memstream(&text, &size);
        VT_ASSERT(file != NULL);
        vt_options_print(file, markdown == 1);
        VT_ASSERT(fclose(file) == 0);
        size_t count = markdown == 1 ? sizeof expected_markdown / sizeof expected_markdown[0]
                                     : sizeof expected / sizeof expected[0];
        for (size_t i = 0; i < count; i++) {
            const char *part = markdown == 1 ? expected_markdown[i] : expected[i];
            EXPECT(strstr(text, part) != NULL, "lacks '%s'", part);
        }
        free(text);
        text = NULL;
    }
}
