/* Parameters that a run leaves as they are (freeze). */
#include "small_model.h"
#include "test.h"
#include "training/plan.h"

/* freeze: patterns, or NULL */
static vt_config *configure(const char *settings, const char *freeze)
{
    vt_config *config = small_config(settings);
    if (freeze != NULL) EXPECT_OK(vt_config_set(config, "freeze", freeze));
    return config;
}

/* Their values after a run; of a model that has the same parameters in another order. */
static void check_values(const model *frozen, const model *initial, const char *patterns)
{
    const vt_parameters *parameters = rig_parameters(&frozen->rig);
    for (int64_t i = 0; i < parameters->count; i++) {
        const vt_parameter *p = parameters->list[i];
        const vt_parameter *was = find_parameter(rig_parameters(&initial->rig), p->name);
        const bool same = memcmp(p->value, was->value, (size_t)p->count * sizeof(float)) == 0;
        EXPECT(p->frozen == vt_parameters_freezes(patterns, p->name), "%s", p->name);
        EXPECT(same == p->frozen, "%s: %s is %s", patterns, p->name, same ? "as it was" : "changed");
        EXPECT((p->gradient == NULL) == p->frozen, "%s", p->name);
    }
}

/* The gradients of the first step, in which all values are alike. */
static void check_gradients(const model *frozen, const model *whole, const char *patterns)
{
    for (int64_t i = 0; i < rig_parameters(&whole->rig)->count; i++) {
        const vt_parameter *p = rig_parameters(&frozen->rig)->list[i];
        const vt_parameter *other = rig_parameters(&whole->rig)->list[i];
        if (!p->frozen)
            EXPECT(memcmp(p->gradient, other->gradient, (size_t)p->count * sizeof(float)) == 0, "%s: %s", patterns,
                   p->name);
    }
}

static const char *const patterns[] = {
    "[patch_embed.*, pos_embed, blocks.0.*]", /* backward ends early */
    "[patch_embed.*, blocks.[!2].*]",         /* a gap: pos_embed is trained */
    "blocks.1.*",
    "[*weight, pos_embed]", /* biases alone are trained */
    "*bias",
    "['*.norm?.*', 'norm.*', 'head.weight']",
    "*.attn.[qkv].*, blocks.*.mlp.fc2.*",
    "[patch_embed.*, pos_embed, blocks.*, norm.*]", /* the head alone */
};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

/* What is trained gets the gradients that it has in a run without frozen parameters, to the bit. */
TEST(gradients_of_what_is_trained)
{
    static const char *const settings[] = {"",
                                           "dropout=0.2 grad_accumulation=2",
                                           "recompute=block",
                                           "recompute=linear",
                                           "keep_outputs=true",
                                           "enable_jit=true",
                                           "amp_mode=bf16",
                                           "rollout=3",
                                           "rollout=3 rollout_gradient=last predict=tendency"};
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        SCOPED(model) whole;
        open_small(&whole, settings[s]);
        const double loss = train_steps(&whole, 1);
        for (int i = 0; i < PATTERNS; i++) {
            SCOPED(model) frozen, initial;
            open_small_of(&frozen, configure(settings[s], patterns[i]), false);
            EXPECT(train_steps(&frozen, 1) == loss, "%s", settings[s]);
            check_gradients(&frozen, &whole, SETTINGS("%s with %s", settings[s], patterns[i]));
            open_small(&initial, settings[s]);
            check_values(&frozen, &initial, patterns[i]);
        }
    }
}

/* With every optimizer, the average of the weights, and their copies in 16 bits. */
TEST(what_is_frozen_stays_as_it_is)
{
    static const char *const settings[] = {"optimizer=Adam weight_decay=0.1",
                                           "optimizer=AdamW ema_decay=0.9 amp_mode=bf16",
                                           "optimizer=SGD lr=0.5 weight_decay=0.01",
                                           "optimizer=SGD lr=0.5 momentum=0 grad_clip=0.2",
                                           "optimizer=Adam8bit embed_dim=64",
                                           "optimizer=AdamW8bit embed_dim=64 ema_decay=0.5",
                                           "optimizer=Muon weight_decay=0.1",
                                           "optimizer=Adafactor lr=1e-2",
                                           "optimizer=Adafactor lr=1e-2 adafactor_beta1=0.9 ema_decay=0.9"};
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        for (int i = 0; i < PATTERNS; i++) {
            SCOPED(model) frozen, initial;
            open_small_of(&frozen, configure(settings[s], patterns[i]), false);
            open_small(&initial, settings[s]);
            const double first = train_steps(&frozen, 1), last = train_steps(&frozen, 5);
            EXPECT(last < first, "%s, %s: %g to %g", settings[s], patterns[i], first, last);
            if (frozen.rig.config->ema_decay > 0) {
                vt_trainer_exchange_average(frozen.rig.trainer); /* of what is frozen there is none */
                check_values(&frozen, &initial, patterns[i]);
                vt_trainer_exchange_average(frozen.rig.trainer);
            }
            check_values(&frozen, &initial, patterns[i]);
        }
    }
}

/* Of a parameter's numbers, padding included. */
static double bytes_of(const char *settings, const char *freeze, vt_memory_category category)
{
    SCOPED(vt_config) *config = configure(settings, freeze);
    vt_plan plan;
    EXPECT_OK(vt_plan_make(config, &(vt_plan_options){0}, &plan));
    return vt_plan_bytes(&plan, category);
}

/* A gradient and two moments fewer, and for early blocks no activations: each is a multiple of 16 elements long here,
 * so there is no padding. */
TEST(memory_of_what_is_frozen)
{
    const double block = 4 * (2 * 2 * 16 + 4 * (16 * 16 + 16) + 2 * 16 * 64 + 64 + 16);
    const struct {
        const char *settings;
        double kept; /* for each byte of a parameter */
    } cases[] = {{"", 2}, {"optimizer=SGD", 1}, {"ema_decay=0.9", 3}, {"optimizer=SGD momentum=0", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *settings = cases[i].settings;
        for (int middle = 0; middle < 2; middle++) {
            const char *freeze = middle ? "blocks.1.*" : "[patch_embed.*, pos_embed, blocks.0.*]";
            const double frozen = block + (middle ? 0 : 4 * (2 * 16 * 16 + 16 + 6 * 16));
            double less[VT_MEMORY_CATEGORY_COUNT];
            for (int c = 0; c < VT_MEMORY_CATEGORY_COUNT; c++)
                less[c] =
                    bytes_of(settings, NULL, (vt_memory_category)c) - bytes_of(settings, freeze, (vt_memory_category)c);
            EXPECT(less[VT_MEMORY_PARAMETERS] == 0 && less[VT_MEMORY_GRADIENTS] == frozen, "%s: %g, not %g", settings,
                   less[VT_MEMORY_GRADIENTS], frozen);
            EXPECT(less[VT_MEMORY_OPTIMIZER] == cases[i].kept * frozen, "%s: %g", settings, less[VT_MEMORY_OPTIMIZER]);
            EXPECT(middle ? less[VT_MEMORY_ACTIVATIONS] <= 0 : less[VT_MEMORY_ACTIVATIONS] > 0, "%g",
                   less[VT_MEMORY_ACTIVATIONS]);
        }
    }
}

/* Of Adafactor's matrices the rows and the columns. */
TEST(memory_of_what_adafactor_keeps)
{
    const double block = 4 * (4 * (16 + 16) + 2 * (64 + 16) + 2 * 2 * 16 + 4 * 16 + 64 + 16);
    const double less = bytes_of("optimizer=Adafactor", NULL, VT_MEMORY_OPTIMIZER) -
                        bytes_of("optimizer=Adafactor", "blocks.1.*", VT_MEMORY_OPTIMIZER);
    EXPECT(less == block, "%g, not %g", less, block);
}

TEST(patterns)
{
    static const struct {
        const char *patterns, *name;
        bool matches;
    } cases[] = {{"blocks.[0-1].*", "blocks.1.norm1.bias", true},
                 {"[blocks.[0-1].*]", "blocks.1.norm1.bias", true},
                 {"[blocks.[0-1].*]", "blocks.2.norm1.bias", false},
                 {"[a, 'b*', \"c\"]", "bias", true},
                 {"[a, 'b*', \"c\"]", "c", true},
                 {"a b*", "bias", true},
                 {"a,b", "ab", false},
                 {"b.[1,2].c", "b.,.c", true},
                 {"[ab]*", "bias", true},
                 {"[[ab]*]", "bias", true},
                 {"[]", "bias", false},
                 {"blocks.?.*", "blocks.10.norm1.bias", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        EXPECT(vt_parameters_freezes(cases[i].patterns, cases[i].name) == cases[i].matches, "%s and %s",
               cases[i].patterns, cases[i].name);
    EXPECT(!vt_parameters_freezes(NULL, "bias"));
}

TEST(patterns_that_are_refused)
{
    static const struct {
        const char *freeze, *message;
    } cases[] = {
        {"[pos_embed, blocks.3.*]",
         "freeze: 'blocks.3.*' matches no parameter of the model. They have names like patch_embed.proj.weight"},
        {"*", "all 54 parameters of the model are frozen, so nothing would be trained"},
        {"*.q.weight", "blocks.0.attn.k.weight is trained, but blocks.0.attn.q.weight is not; they are"},
        {"*.k.bias", "blocks.0.attn.k.bias is frozen, but blocks.0.attn.q.bias is not; they are"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vt_plan plan;
        SCOPED(vt_config) *config = configure("", cases[i].freeze);
        EXPECT_ERROR(vt_plan_make(config, &(vt_plan_options){0}, &plan), cases[i].message);
    }
}
