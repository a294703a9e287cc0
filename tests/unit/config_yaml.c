/* src/config/yaml: what is read, what is refused, and at which line. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "unit/config_open.h"

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
    SCOPED(vt_config) *config = OPENED(text);
    EXPECT(config->lr == 5e-4 && config->dropout == 0.25 && config->num_iters == 1000);
    EXPECT(config->limit_nsamples == VT_UNSET_INTEGER && config->limit_nsamples_val == VT_UNSET_INTEGER);
    EXPECT(isnan(config->grad_clip) && config->num_threads == VT_UNSET_INTEGER);
    EXPECT(config->num_epochs == VT_UNSET_INTEGER && config->enable_jit && !config->shuffle);
    EXPECT(config->optimizer == VT_OPTIMIZER_AdamW && config->weight_decay == 0.01);
    EXPECT(config->img_size[0] == 180 && config->img_size[1] == 360);
    EXPECT_TEXT(config->expdir, "/logs # not a comment");
    EXPECT_TEXT(config->train_data_path, "it's here/train");
}

TEST(yaml_merges)
{
    static const char text[] = "one: &one {embed_dim: 64, depth: 1, lr: 1e-3}\n"
                               "two: &two\n"
                               "  embed_dim: 128\n"
                               "  <<: *one\n"
                               "  warmup: 2\n"
                               "nested: {<<: *two, depth: 3}\n"
                               "list: {<<: [*one, *two], depth: 5}\n"
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
    EXPECT_GIVES(text, "embed_dim", "64", "--config=list"); /* of a list the earlier one */
    EXPECT_GIVES(text, "warmup", "2", "--config=list");
    EXPECT_GIVES(text, "depth", "5", "--config=list");
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
    SCOPED(vt_text) text = {0};
    vt_text_append(&text, "a0: &a0 {depth: 7}\n");
    for (int i = 1; i < 60; i++) vt_text_append(&text, "a%d: &a%d {<<: [*a%d, *a%d]}\n", i, i, i - 1, i - 1);
    vt_text_append(&text, "base: {<<: *a59}\n");
    EXPECT_GIVES(text.characters, "depth", "7");
    for (int i = 60; i < 110; i++) vt_text_append(&text, "a%d: &a%d {<<: *a%d}\n", i, i, i - 1);
    vt_text_append(&text, "deep: {<<: *a109}\n");
    EXPECT_REFUSED(text.characters, "merged through more than 100 levels", "--config=deep");
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
    EXPECT_REFUSED("base: {img_size: [0, 2]}\n", "img_size: [0, 2] is out of range (expected [a, b], each 1 to");
    EXPECT_REFUSED("base: {enable_jit: maybe}\n", "enable_jit: 'maybe' is not a switch (expected true or false)");
    EXPECT_REFUSED("base: {enable_amp: maybe}\n", "enable_amp: 'maybe' is not a switch (expected true or false)");
    EXPECT_REFUSED(
        "base: {optimizer: adam}\n",
        "optimizer: 'adam' is not one of the choices (expected Adam|AdamW|Adam8bit|AdamW8bit|Muon|Adafactor|SGD)");
    EXPECT_REFUSED("base: {lr: fast}\n", "lr: 'fast' is not a number (expected 0 to 1000000)");
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
    EXPECT_REFUSED("base: {completely_different: 3}\n",
                   "unknown key 'completely_different' in configuration 'base' ('vitrain options' lists all)");
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

/* What a reader of YAML would drop, or keep where nothing reads it. */
TEST(yaml_keys_that_would_be_lost)
{
    EXPECT_REFUSED("base:\n  depth: 3\nlr: 1e-2\n",
                   "/c.yaml:3:1: the option 'lr' is beside the configurations, so none of them has it; indent it below "
                   "the name of its configuration (base:)");
    EXPECT_REFUSED("img_size: [8, 8]\nbase: {}\n", "/c.yaml:1:1: the option 'img_size' is beside");
    EXPECT_REFUSED("base: {}\nenable_amp: true\n", "/c.yaml:2:1: the option 'enable_amp' is beside");
    EXPECT_REFUSED("base: {}\nlr_schedule: {start_lr: 1, end_lr: 0}\n",
                   "/c.yaml:2:1: the option 'lr_schedule' is beside");
    EXPECT_REFUSED("base:\n  depth: 3\n  depth: 4\n",
                   "/c.yaml:3:3: the key depth stands twice, first in line 2; remove or rename one of the two");
    EXPECT_REFUSED("base: {depth: 3, lr: 1, 'depth': 4}\n", "/c.yaml:1:25: the key depth stands twice");
    EXPECT_REFUSED("base: {depth: 3}\nother: {}\nbase: {depth: 4}\n", "/c.yaml:3:1: the key base stands twice");
    EXPECT_REFUSED("other: {depth: 3, depth: 4}\nbase: {}\n", "/c.yaml:1:19: the key depth stands twice");
    EXPECT_REFUSED("base:\n  depth: 3\n\u00a0\u00a0lr: 1e-2\n",
                   "/c.yaml:3:1: the key 'lr' begins with U+00A0, a blank that YAML takes for a letter");
    EXPECT_REFUSED("base:\n  \u3000lr: 1e-2\n", "/c.yaml:2:3: the key 'lr' begins with U+3000");
    EXPECT_REFUSED("base: {}\nlr\u200b: 1e-2\n", "/c.yaml:2:1: the key 'lr' ends with U+200B");
    EXPECT_REFUSED("base: {}\n\u00a0: 1\n", "/c.yaml:2:1: the key '' begins with U+00A0");
    /* what merges override, what an alias uses, and what is no option */
    EXPECT_GIVES("depth: &deep 4\nlr_schedule: &when {start_lr: 1, end_lr: 0}\nversion: 3\nnames: [a, b]\n"
                 "one: &one {depth: 3}\nbase: {<<: *one, depth: *deep, lr_schedule: *when}\n",
                 "depth", "4");
    EXPECT_GIVES("lr: {depth: 3}\n\u00e9t\u00e9: {}\nbase: {depth: 4}\n", "depth", "4");
    EXPECT_GIVES("lr_schedule: {depth: 3}\n", "depth", "3", "--config=lr_schedule");
}

TEST(yaml_cycles_and_depth)
{
    EXPECT_REFUSED("base: &base\n  <<: *base\n",
                   "/c.yaml:2:7: '*base' stands inside of what it refers to, which starts at line 1");
    EXPECT_REFUSED("base: &b {img_size: &s [*s, 3]}\n", "'*s' stands inside of what it refers to");
    EXPECT_REFUSED("&top base: {<<: {depth: *top}}\nx: *unknown\n", "*unknown");
    SCOPED(vt_text) text = {0};
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
}

static vt_status open_path(const char *path)
{
    char *flag = vt_test_owned(vt_text_format("--yaml_config=%s", path));
    char *const arguments[] = {flag};
    SCOPED(vt_config) *config = NULL;
    vt_status status = vt_config_open(1, arguments, 1, &config);
    return status;
}

TEST(yaml_files_that_are_none)
{
    EXPECT_ERROR(open_path(vt_test_directory()), "Is a directory; expected a file");
    EXPECT_ERROR(open_path(test_path("missing.yaml")), "missing.yaml: No such file or directory");
    const char *path = write_yaml("base: {}\n");
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
    char *large = vt_test_owned(malloc((1 << 20) + 2));
    memset(large, '#', (1 << 20) + 2);
    EXPECT_ERROR(open_path(write_bytes(large, (1 << 20) + 1)), "larger than 1048576 bytes");
}

/* Bytes changed at random, and the file cut at every length: an error or a configuration, never a hang or a crash
 * (which the sanitizers would report). */
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
