/* src/config: built in code, printed, saved and read again, documented. */
#include <unistd.h>

#include "base/random.h"
#include "config/option.h"
#include "settings.h"
#include "unit/config_open.h"

/* ---- in code, printed, saved ---- */

TEST(default_configuration)
{
    SCOPED(vt_config) *config = default_config();
    EXPECT(config->embed_dim == 384 && config->depth == 12 && config->num_heads == 8 && config->patch_size == 8);
    EXPECT(config->img_size[0] == 360 && config->img_size[1] == 720 && config->lr == 5e-4 && config->shuffle);
    EXPECT(config->num_iters == 30000 && config->num_epochs == VT_UNSET_INTEGER && config->seed == 333);
    EXPECT(config->optimizer == VT_OPTIMIZER_Adam && config->lr_schedule == VT_SCHEDULE_COSINE);
    EXPECT(strcmp(config->train_data_path, "./data/train") == 0 && config->weight_decay == 0);
    EXPECT(config->origin[VT_OPTION_embed_dim] == VT_FROM_DEFAULT);
    EXPECT(config->ranks == 1 && config->data_parallel == 1 && config->comm_timeout == 600);
    /* derived options are derived again */
    EXPECT_OK(vt_config_set(config, "data_dir", "elsewhere"));
    EXPECT_OK(vt_config_set(config, "num_epochs", "2"));
    EXPECT_OK(vt_config_set(config, "optimizer", "AdamW"));
    EXPECT_OK(vt_config_set(config, "enable_jit", "true"));
    EXPECT_OK(vt_config_resolve(config));
    EXPECT(config->num_iters == VT_UNSET_INTEGER && config->num_epochs == 2 && config->weight_decay == 0.01);
    EXPECT_TEXT(config->train_data_path, "elsewhere/train");
    EXPECT(config->origin[VT_OPTION_enable_jit] == VT_FROM_COMMAND_LINE && config->enable_jit);
    EXPECT_ERROR(vt_config_set(config, "embd_dim", "2"), "unknown flag --embd_dim; did you mean --embed_dim?");
    EXPECT_ERROR(vt_config_set(config, "depth", "x"), "--depth=x: 'x' is not a whole number");
    EXPECT(config->depth == 12);
    vt_config_close(&config);
    EXPECT(config == NULL);
}

/* Each word of each choice, and the enumerations, which come from the same lists. */
TEST(choices_are_set_by_their_words)
{
    SCOPED(vt_config) *config = default_config();
    for (const vt_row *row = vt_options; row->kind != VT_ROW_END; row++) {
        if (row->kind == VT_ROW_SECTION || row->choices == NULL) continue;
        for (const char *word = row->choices; *word != '\0'; word += *word == '|') {
            char *copy = vt_test_owned(vt_text_format("%.*s", (int)strcspn(word, "|"), word));
            EXPECT_OK(vt_config_set(config, row->name, copy));
            EXPECT_VALUE(config, row->name, copy);
            word += strlen(copy);
        }
    }
    EXPECT(config->optimizer == VT_OPTIMIZER_SGD && config->cpu_isa == VT_ISA_AMX && config->comm == VT_COMM_NCCL);
    EXPECT(config->data_loader_config == VT_LOADER_DALI_LOWMEM && config->lr_scaling == VT_SCALING_LINEAR);
}

TEST(options_of_kinds_that_are_not_chosen)
{
    const vt_row *row = vt_row_find(vt_options, "momentum");
    SCOPED(vt_config) *config = default_config();
    for (const vt_row *scope = vt_options; scope->kind != VT_ROW_END; scope++) /* they name options and their words */
        for (const char *word = scope->kind == VT_ROW_SECTION ? scope->choices : NULL; word != NULL;) {
            char *one = vt_test_owned(vt_text_format("%.*s", (int)strcspn(word, "|"), word));
            EXPECT(vt_text_choice(one, vt_row_beside(scope, scope->target)->choices) >= 0, "%s", scope->name);
            word = strchr(word, '|') != NULL ? strchr(word, '|') + 1 : NULL;
        }
    EXPECT_OK(vt_config_set(config, "optimizer", "SGD"));
    EXPECT_OK(vt_row_assign(row, "0.1", config, VT_FROM_COMMAND_LINE));
    EXPECT_OK(vt_row_check_scope(row, config));
    EXPECT_OK(vt_config_set(config, "optimizer", "Adam"));
    EXPECT_ERROR(vt_row_check_scope(row, config), "--momentum=0.1 is an option of optimizer SGD|Muon, but optimizer is "
                                                  "Adam; leave it out, or choose --optimizer=SGD");
    EXPECT_OK(vt_row_assign(row, "0.1", config, VT_FROM_YAML));
    EXPECT_ERROR(vt_row_check_scope(row, config), "momentum: 0.1 is an option of optimizer SGD|Muon, but optimizer is "
                                                  "Adam; leave it out of the configuration, or choose");
    EXPECT_OK(vt_row_assign(row, "0.9", config, VT_FROM_YAML)); /* a file may hold defaults */
    EXPECT_OK(vt_row_check_scope(row, config));
}

/* Saves, reads again, and compares everything that is printed except the file's own name. */
static void check_round_trip(vt_config *config)
{
    const char *path = test_path("saved.yaml");
    EXPECT_OK(vt_config_save(config, path));
    char *arguments[] = {vt_text_format("--yaml_config=%s", path), vt_text_format("--config=%s", config->config),
                         vt_text_format("--run_num=%s", config->run_num)};
    SCOPED(vt_config) *again = NULL;
    EXPECT_OK(vt_config_open(3, arguments, config->ranks, &again));
    for (int i = 0; i < 3; i++) free(arguments[i]);
    if (again == NULL) return;
    SCOPED(vt_names) before = vt_config_lines(config), after = vt_config_lines(again);
    EXPECT(before.count == after.count);
    for (int64_t i = 0; i < before.count && i < after.count; i++)
        EXPECT(strcmp(before.names[i], after.names[i]) == 0 || strncmp(before.names[i], "yaml_config:", 12) == 0,
               "saved %s, read %s", before.names[i], after.names[i]);
    EXPECT(vt_config_learning_rate(config) == vt_config_learning_rate(again));
}

TEST(saved_and_read_again)
{
    static const char *const lines[][8] = {
        {NULL},
        {"--num_epochs=3", "--optimizer=AdamW", "--lr=1e-5", "--grad_clip=0.1", "--img_size=[64,128]", "--dropout=0.1"},
        {"--lr_scaling=sqrt", "--global_batch_size=64", "--model_backend=transformer-engine", "--limit_nsamples=5"},
        {"--data_dir=/d", "--train_data_path=own", "--enable_apex", "--seed=9223372036854775807", "--shuffle=false"},
        {"--config=with 'quotes' and: colons # é", "--run_num=1"},
        {"--zero_stage=3", "--zero_group=node", "--cp_comm=ring", "--comm=mpi", "--comm_timeout=2.5", "--comm_trace"},
        {"--parallel_order=dp-cp-tp", "--sequence_parallel", "--bucket_cap_mb=0.5"},
        {"--config=123", "--run_num=~x", "--lr=0.1234567890123456789"},
    };
    static const char text[] = "base: &b {model_backend: transformer-engine, enable_apex: true}\n"
                               "\"with 'quotes' and: colons # é\": {<<: *b}\n"
                               "123: {depth: 3}\n";
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        SCOPED(vt_config) *config = NULL;
        EXPECT_OK(open_with(text, &config, lines[i]));
        if (config != NULL) check_round_trip(config);
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
    char paths[] = " leading|trailing |a\nb|a\r\nb\n|\t|'|\"|\\|\\n|a: b|# x|[1, 2]|{|*x|"
                   "&x|!x|- x|%x|@x|true|12|1e5|none|é ß 中 🌍|\xef\xbb\xbf"
                   "x|\x7f|\x01\x1b|\xc2\x85\xe2\x80\xa8|a  b|a \n b|<<|---|...|?|=",
         *rest = NULL;
    SCOPED(vt_config) *config = default_config();
    for (char *path = strtok_r(paths, "|", &rest); path != NULL; path = strtok_r(NULL, "|", &rest)) {
        EXPECT_OK(vt_config_set(config, "expdir", path));
        EXPECT_OK(vt_config_set(config, "data_dir", path));
        EXPECT_OK(vt_config_resolve(config));
        check_round_trip(config);
    }
    for (uint64_t trial = 0; trial < 300; trial++) {
        static const double limits[] = {0x80, 0x100, 0x3000, 0x10000, 0x110000};
        SCOPED(vt_text) path = {0};
        for (uint64_t i = 0; i <= trial % 40; i++)
            append_code_point(&path, (uint32_t)(vt_random_element(trial, 3, i) * limits[(trial + i) % 5]));
        vt_text_append(&path, "."); /* so that it can't be "~" */
        EXPECT_OK(vt_config_set(config, "expdir", path.characters));
        check_round_trip(config);
    }
}

TEST(saving_that_fails)
{
    SCOPED(vt_config) *config = default_config();
    const char *path = SETTINGS("%s/none/c.yaml", vt_test_directory());
    EXPECT_ERROR(vt_config_save(config, path),
                 "none/c.yaml: the configuration can't be saved: No such file or directory");
    EXPECT_ERROR(vt_config_save(config, vt_test_directory()), "Is a directory");
    if (access("/dev/full", W_OK) == 0)
        EXPECT_ERROR(vt_config_save(config, "/dev/full"), "/dev/full: the configuration can't be saved: No space left");
}

/* Every key is printed, saved and documented. */
TEST(options_are_listed)
{
    static const char *const expected[] = {
        "  --embed_dim=N ", "* --run_num=TEXT ", "(whole number, 1 to 65536)", "=pytorch|transformer-engine",
        "(text, or None)",  "  --enable_apex "};
    static const char *const expected_markdown[] = {
        "\n## Only with model vit\n",
        "| `embed_dim` | whole number, 1 to 65536 | `384`; transformer, encoder: `128` | width of a token |\n",
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
            EXPECT_PART(text, part);
        }
        free(text);
        text = NULL;
    }
}
