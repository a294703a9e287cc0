/* src/parallel/layout: the grid of ranks; and the checks of src/config that depend on the number of ranks. */
#include "parallel/layout.h"

#include "settings.h"
#include "unit/config_open.h"

static vt_status make_of(vt_layout *layout, int ranks, const char *settings)
{
    SCOPED(vt_config) *config = default_config();
    set_options(config, settings);
    vt_status status = vt_layout_make(config, ranks, layout);
    return status;
}

static vt_status make(vt_layout *layout, int ranks, const char *tensor, const char *context, const char *order)
{
    return make_of(layout, ranks,
                   SETTINGS("tensor_parallel=%s context_parallel=%s parallel_order=%s", tensor, context, order));
}

/* The group of `rank` along `axes` is called `name` and has these members, as "0 1 2 3". */
static void check_group(const vt_layout *layout, int rank, unsigned axes, const char *name, const char *wanted)
{
    int members[64];
    char found_name[32];
    SCOPED(vt_text) found = {0};
    int count = vt_layout_members(layout, rank, axes, members);
    for (int i = 0; i < count; i++) vt_text_append(&found, i == 0 ? "%d" : " %d", members[i]);
    vt_layout_axes_name(layout, axes, found_name);
    EXPECT(strcmp(found.characters, wanted) == 0, "%s of rank %d: %s, expected %s", name, rank, found.characters,
           wanted);
    EXPECT_TEXT(found_name, name);
}

TEST(groups_of_eight_ranks)
{
    vt_layout layout;
    const unsigned tp = VT_AXES(VT_AXIS_TENSOR), cp = VT_AXES(VT_AXIS_CONTEXT), dp = VT_AXES(VT_AXIS_DATA);
    EXPECT_OK(make(&layout, 8, "4", "1", "tp-cp-dp")); /* the example of the specification */
    check_group(&layout, 2, tp, "tp", "0 1 2 3");
    check_group(&layout, 6, tp, "tp", "4 5 6 7");
    check_group(&layout, 5, dp, "dp", "1 5");
    check_group(&layout, 3, cp, "cp", "3");
    EXPECT_OK(make(&layout, 8, "2", "2", "tp-cp-dp"));
    check_group(&layout, 7, tp, "tp", "6 7");
    check_group(&layout, 6, cp, "cp", "4 6");
    check_group(&layout, 6, dp, "dp", "2 6");
    check_group(&layout, 6, tp | cp, "tp-cp", "4 5 6 7");
    check_group(&layout, 6, cp | dp, "cp-dp", "0 2 4 6");
    check_group(&layout, 6, VT_AXES_ALL, "world", "0 1 2 3 4 5 6 7");
    EXPECT_OK(make(&layout, 8, "2", "2", "dp-tp-cp"));
    check_group(&layout, 5, dp, "dp", "4 5");
    check_group(&layout, 5, tp, "tp", "5 7");
    check_group(&layout, 5, cp, "cp", "1 5");
    check_group(&layout, 5, dp | cp, "dp-cp", "0 1 4 5");
}

/* The examples of the specification: those of the literature and of the tutorials' groups tool. */
TEST(groups_with_stages)
{
    vt_layout layout;
    const unsigned tp = VT_AXES(VT_AXIS_TENSOR), cp = VT_AXES(VT_AXIS_CONTEXT), pp = VT_AXES(VT_AXIS_PIPELINE),
                   dp = VT_AXES(VT_AXIS_DATA);
    EXPECT_OK(make_of(&layout, 16, "tensor_parallel=2 pipeline_parallel=4"));
    check_group(&layout, 1, tp, "tp", "0 1");
    check_group(&layout, 10, dp, "dp", "8 10");
    check_group(&layout, 7, dp, "dp", "5 7");
    check_group(&layout, 13, pp, "pp", "1 5 9 13");
    check_group(&layout, 15, pp, "pp", "3 7 11 15");
    EXPECT_OK(make_of(&layout, 16, "tensor_parallel=2 pipeline_parallel=4 parallel_order=TP-pp-Dp"));
    check_group(&layout, 1, dp, "dp", "1 9");
    check_group(&layout, 15, dp, "dp", "7 15");
    check_group(&layout, 6, pp, "pp", "0 2 4 6");
    check_group(&layout, 9, pp, "pp", "9 11 13 15");
    EXPECT_OK(make_of(&layout, 16, "tensor_parallel=2 context_parallel=2 pipeline_parallel=2"));
    check_group(&layout, 8, tp | cp | pp, "tp-cp-pp", "0 1 2 3 8 9 10 11");
    check_group(&layout, 4, tp | cp | pp, "tp-cp-pp", "4 5 6 7 12 13 14 15");
    check_group(&layout, 14, dp | cp, "cp-dp", "8 10 12 14");
    check_group(&layout, 3, VT_AXES_ALL, "world", "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15");
    EXPECT_OK(make_of(&layout, 32, "tensor_parallel=2 context_parallel=2 parallel_order=tp-cp-pp-dp"));
    check_group(&layout, 4, dp, "dp", "0 4 8 12 16 20 24 28");
    check_group(&layout, 6, cp, "cp", "4 6");
    check_group(&layout, 3, tp | cp | dp, "world",
                "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31");
}

/* Coordinates are unique, groups along a set of axes partition the ranks, and a member's place follows from its
 * coordinates. */
TEST(groups_of_any_layout)
{
    static const char *const orders[] = {"tp-cp-dp",    "tp-dp-cp",    "cp-tp-dp",    "cp-dp-tp", "dp-tp-cp",
                                         "pp-tp-dp-cp", "tp-pp-cp-dp", "dp-cp-pp-tp", "dp-cp-tp"};
    static const int sizes[][3] = {{1, 1, 1}, {2, 3, 1}, {3, 4, 2}, {4, 2, 3}, {24, 1, 1}, {1, 1, 24}, {2, 1, 4}};
    enum { ORDERS = sizeof orders / sizeof orders[0], SIZES = sizeof sizes / sizeof sizes[0] };
    for (int o = 0; o < ORDERS * SIZES; o++) {
        vt_layout layout;
        const int *size = sizes[o / ORDERS];
        const char *settings = SETTINGS("tensor_parallel=%d context_parallel=%d pipeline_parallel=%d parallel_order=%s",
                                        size[0], size[1], size[2], orders[o % ORDERS]);
        EXPECT_OK(make_of(&layout, 24, settings));
        for (unsigned axes = 0; axes <= VT_AXES_ALL; axes++) {
            int member_of[24] = {0};
            for (int rank = 0; rank < 24; rank++) {
                int members[24], expected = 1, found = 0;
                for (vt_axis axis = 0; axis < VT_AXIS_COUNT; axis++)
                    if ((axes & VT_AXES(axis)) != 0) expected *= layout.size[axis];
                int count = vt_layout_members(&layout, rank, axes, members);
                EXPECT(count == expected, "%d, expected %d", count, expected);
                for (int i = 0; i < count; i++) {
                    found += members[i] == rank;
                    EXPECT(i == 0 || members[i] > members[i - 1]);
                    for (vt_axis axis = 0; axis < VT_AXIS_COUNT; axis++)
                        EXPECT((axes & VT_AXES(axis)) != 0 || vt_layout_coordinate(&layout, members[i], axis) ==
                                                                  vt_layout_coordinate(&layout, rank, axis));
                    member_of[members[i]]++;
                }
                EXPECT(found == 1);
            }
            for (int rank = 1; rank < 24; rank++) EXPECT(member_of[rank] == member_of[0]);
        }
    }
}

TEST(layouts_that_are_refused)
{
    vt_layout layout;
    EXPECT_ERROR(make(&layout, 8, "3", "1", "tp-cp-dp"), "tensor_parallel 3 x context_parallel 1 = 3 does not divide "
                                                         "the 8 ranks of this run; use tensor_parallel 2 or 4");
    EXPECT_ERROR(make(&layout, 8, "1", "3", "tp-cp-dp"), "use context_parallel 2 or 4, or start 6 or 12 ranks");
    EXPECT_ERROR(make(&layout, 1, "2", "2", "tp-cp-dp"), "= 4 does not divide the 1 rank of this run; use 1 for each, "
                                                         "or start 4 ranks");
    EXPECT_ERROR(make_of(&layout, 8, "tensor_parallel=2 pipeline_parallel=3"),
                 "tensor_parallel 2 x context_parallel 1 x pipeline_parallel 3 = 6 does not divide the 8 ranks of this "
                 "run; use pipeline_parallel 2 or 4, or start 6 or 12 ranks");
    EXPECT_OK(make(&layout, 8, "8", "1", "tp-pp"));
    EXPECT_OK(make(&layout, 8, "1", "1", "Dp"));
    EXPECT_ERROR(make(&layout, 8, "1", "1", "tp-cp"), "'tp-cp' lacks dp, which has 8 ranks; name each axis");
    EXPECT_ERROR(make(&layout, 8, "2", "1", "dp"), "'dp' lacks tp, which has 2 ranks");
    EXPECT_ERROR(make(&layout, 8, "1", "1", "tp-cp-pp-dp-PP"), "names pp twice");
    EXPECT_ERROR(make(&layout, 8, "1", "1", "-dp"), "'' is no axis; expected tp, cp, pp and dp joined by '-'");
    EXPECT_ERROR(make(&layout, 8, "1", "1", "tp-cp-tp"), "names tp twice");
    EXPECT_ERROR(make(&layout, 8, "1", "1", "tp-cp-dp-"), "'' is no axis");
    EXPECT_ERROR(make(&layout, 8, "1", "1", "tp,cp,dp"), "'tp,cp,dp' is no axis");
    EXPECT_ERROR(make(&layout, 8, "1", "1", "t-cp-dp"), "'t' is no axis");
}

TEST(runs)
{
    static const int64_t cases[][6] = {/* total, parts, runs */
                                       {4050, 4, 1013, 1013, 1013, 1011},
                                       {9, 4, 2, 2, 2, 3},
                                       {5, 4, 1, 1, 1, 2},
                                       {10, 4, 3, 3, 3, 1},
                                       {4, 4, 1, 1, 1, 1},
                                       {7, 1, 7}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int part = 0; part < (int)cases[i][1]; part++) {
            vt_span run = vt_layout_span(cases[i][0], (int)cases[i][1], part);
            EXPECT(run.count == cases[i][2 + part], "%ld over %ld: part %d is %ld", cases[i][0], cases[i][1], part,
                   run.count);
        }
    }
    for (int64_t total = 1; total < 60; total++) {
        for (int parts = 1; parts <= total; parts++) {
            int64_t next = 0;
            for (int part = 0; part < parts; part++) {
                vt_span run = vt_layout_span(total, parts, part);
                EXPECT(run.first == next && run.count > 0);
                next += run.count;
            }
            EXPECT(next == total);
        }
    }
}

/* ---- configurations on several ranks ---- */

#define EXPECT_REFUSED_ON(ranks, part, ...)                                                                            \
    do {                                                                                                               \
        vt_config *refused_ = NULL;                                                                                    \
        EXPECT_ERROR(OPEN_ON(ranks, &refused_, __VA_ARGS__), part);                                                    \
        EXPECT(refused_ == NULL);                                                                                      \
        vt_config_close(&refused_);                                                                                    \
    } while (0)

TEST(configuration_on_several_ranks)
{
    SCOPED(vt_config) *config = OPENED_ON(8, "--row_parallel_size=2", "--context_parallel=2", "--local_batch_size=3");
    EXPECT(config->ranks == 8 && config->data_parallel == 2 && config->tensor_parallel == 2);
    EXPECT(config->global_batch_size == 6, "%ld", config->global_batch_size);
    config->ranks = 16;
    EXPECT_OK(vt_config_resolve(config));
    EXPECT(config->data_parallel == 4 && config->global_batch_size == 12);
}

TEST(checks_that_depend_on_the_ranks)
{
    EXPECT_REFUSED_ON(8, "tensor_parallel 3 x context_parallel 1 = 3 does not divide the 8 ranks",
                      "--tensor_parallel=3");
    EXPECT_REFUSED_ON(3, "tensor_parallel 3 does not divide num_heads 8; use 1", "--tensor_parallel=3");
    EXPECT_REFUSED_ON(3, "global_batch_size 16 is not a multiple of the 3 data-parallel ranks; use 15 or 18");
    EXPECT_REFUSED_ON(32, "global_batch_size 16 is not a multiple of the 32 data-parallel ranks; use 32");
    EXPECT_REFUSED_ON(2, "grad_accumulation 16 does not divide a rank's batch of 8 samples; use 8",
                      "--grad_accumulation=16");
    EXPECT_REFUSED_ON(2, "--local_batch_size=4 on 2 data-parallel ranks makes a global batch of 8",
                      "--local_batch_size=4", "--global_batch_size=4");
    EXPECT_REFUSED_ON(12, "context_parallel 12 is more than the 8 tokens of a sample; use 6", "--context_parallel=12",
                      "--img_size=[16,32]");
    EXPECT_REFUSED_ON(8, "with context_parallel 4 the shortest span of the 10 tokens has 1", "--context_parallel=4",
                      "--tensor_parallel=2", "--img_size=[16,40]", "--sequence_parallel");
    vt_config *config = NULL;
    EXPECT_OK(OPEN_ON(8, &config, "--context_parallel=4", "--tensor_parallel=2", "--img_size=[16,40]"));
    vt_config_close(&config);
    EXPECT_REFUSED_ON(2, "--noddp leaves the gradients of the data-parallel ranks apart, but zero_stage 2", "--noddp",
                      "--zero_stage=2");
    EXPECT_REFUSED_ON(
        4,
        "zero_stage 2 with pipeline_parallel 4: gradients would be reduced 4 times a step; use zero_stage "
        "1",
        "--pipeline_parallel=4", "--zero_stage=2", "--grad_accumulation=4");
    EXPECT_REFUSED_ON(2, "pipeline_comm bf16 needs amp_mode bf16", "--pipeline_parallel=2", "--pipeline_comm=bf16");
    EXPECT_REFUSED_ON(2, "pipeline_schedule interleaved is not offered", "--pipeline_parallel=2",
                      "--pipeline_schedule=interleaved");
    EXPECT_REFUSED_ON(2, "--comm_timeout=0: 0 is out of range", "--comm_timeout=0");
    EXPECT_REFUSED_ON(2, "--bucket_cap_mb=0: 0 is out of range", "--bucket_cap_mb=0");
    EXPECT_REFUSED_ON(2, "--zero_stage=4: 4 is out of range (expected 0 to 3)", "--zero_stage=4");
    EXPECT_REFUSED_ON(2, "--cp_comm=rings: 'rings' is not one of the choices", "--cp_comm=rings");
}

/* The value that a message names is accepted in place of `option`, or the option or number of ranks that is named with
 * it. */
static void expect_values_that_work(int64_t ranks, const char *option, const char *const *flags)
{
    vt_config *config = NULL;
    char advice[256] = "", what[64], changed[128];
    const char *all[8] = {NULL};
    int count = 0, tried = 0;
    while (flags[count] != NULL) count++;
    memcpy(all, flags, (size_t)count * sizeof *all);
    EXPECT(open_on_ranks(ranks, NULL, &config, flags) == VT_ERROR, "%s", flags[0]);
    const char *tail = strrchr(vt_error_text(), ';');
    if (tail != NULL) snprintf(advice, sizeof advice, "%s", tail);
    vt_error_clear();
    snprintf(what, sizeof what, "%s", option);
    for (char *rest = NULL, *word = strtok_r(advice, " ,;=", &rest); word != NULL;
         word = strtok_r(NULL, " ,;=", &rest)) {
        int64_t value = 0;
        if (word[0] == '[') break; /* img_size */
        if (strcmp(word, "start") == 0 || strstr(word, "_parallel") != NULL) snprintf(what, sizeof what, "%s", word);
        if (!vt_text_to_integer(word, &value)) continue;
        const bool starts = strcmp(what, "start") == 0;
        snprintf(changed, sizeof changed, "--%s=%s", what, word);
        all[count] = starts ? NULL : changed;
        EXPECT_OK(open_on_ranks(starts ? value : ranks, NULL, &config, all));
        vt_config_close(&config);
        tried++;
    }
    EXPECT(tried > 0, "%s: no value is named", flags[0]);
}
#define EXPECT_VALUES_THAT_WORK(ranks, option, ...)                                                                    \
    expect_values_that_work(ranks, option, (const char *const[]){__VA_ARGS__, NULL})

TEST(values_that_are_named_work)
{
    EXPECT_VALUES_THAT_WORK(6, "tensor_parallel", "--tensor_parallel=3", "--num_heads=4", "--global_batch_size=12");
    EXPECT_VALUES_THAT_WORK(3, "tensor_parallel", "--tensor_parallel=3", "--num_heads=4", "--global_batch_size=12");
    EXPECT_VALUES_THAT_WORK(6, "", "--tensor_parallel=4", "--num_heads=4", "--global_batch_size=12");
    EXPECT_VALUES_THAT_WORK(6, "", "--tensor_parallel=4", "--num_heads=4", "--local_batch_size=3");
    EXPECT_VALUES_THAT_WORK(8, "", "--tensor_parallel=3");
    EXPECT_VALUES_THAT_WORK(8, "", "--tensor_parallel=4", "--context_parallel=3");
    EXPECT_VALUES_THAT_WORK(8, "", "--tensor_parallel=2", "--context_parallel=8");
    EXPECT_VALUES_THAT_WORK(12, "", "--tensor_parallel=8", "--context_parallel=3");
    EXPECT_VALUES_THAT_WORK(8, "", "--pipeline_parallel=3");
    EXPECT_VALUES_THAT_WORK(2, "zero_stage", "--pipeline_parallel=2", "--zero_stage=2");
    EXPECT_VALUES_THAT_WORK(12, "context_parallel", "--context_parallel=12", "--img_size=[16,32]");
    EXPECT_VALUES_THAT_WORK(4, "global_batch_size", "--global_batch_size=10", "--grad_accumulation=2");
    EXPECT_VALUES_THAT_WORK(2, "grad_accumulation", "--grad_accumulation=3");
    EXPECT_VALUES_THAT_WORK(4, "num_heads", "--num_heads=7", "--tensor_parallel=4");
    EXPECT_VALUES_THAT_WORK(1, "num_heads", "--num_heads=1000", "--embed_dim=3072"); /* at most 1024 heads */
    EXPECT_VALUES_THAT_WORK(8, "patch_size", "--patch_size=3", "--img_size=[16,32]", "--context_parallel=8");
    EXPECT_VALUES_THAT_WORK(1, "n_in_channels", "--n_history=2");
    EXPECT_VALUES_THAT_WORK(1, "n_in_channels", "--n_history=3", "--n_in_channels=2");
    EXPECT_VALUES_THAT_WORK(2, "zero_stage", "--noddp", "--zero_stage=2");
    /* where a rank's batch does not go with any, too, those that keep this rule at least */
    EXPECT_REFUSED_ON(3, "num_heads 4; use 1", "--tensor_parallel=3", "--num_heads=4");
}
