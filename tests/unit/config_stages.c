/* Values that change with the epochs: rollout and lr_restarts. */
#include "config/stages.h"
#include "settings.h"
#include "test.h"

TEST(stages_of_a_run)
{
    static const struct {
        int64_t epoch;
        double steps;
    } expected[] = {{0, 1}, {7, 1}, {8, 2}, {11, 2}, {12, 4}, {13, 4}, {14, 8}, {1000, 8}};
    static const char *const spellings[] = {"1, 2@8, 4@12, 8@14", "[1, 2@8, 4@12, 8@14]", "1,2@8,4@12,8@14"};
    for (int i = 0; i < 3; i++) {
        SCOPED(vt_config) *config = default_config();
        EXPECT_OK(vt_config_set(config, "rollout", spellings[i]));
        EXPECT_OK(vt_config_resolve(config));
        const vt_stages stages = vt_config_rollout(config);
        for (size_t e = 0; e < sizeof expected / sizeof expected[0]; e++)
            EXPECT_NEAR(vt_stages_at(&stages, expected[e].epoch), expected[e].steps, 0);
        EXPECT(vt_config_longest_rollout(config) == 8);
    }
}

/* lr_scaling acts on the rates of restarts, too. */
TEST(restarts_are_scaled)
{
    SCOPED(vt_config) *config = default_config();
    set_options(config, "num_epochs=9 lr=1e-2 lr_restarts=4e-3@2,2e-3@5 lr_scaling=linear global_batch_size=32");
    EXPECT_OK(vt_config_resolve(config));
    const vt_stages restarts = vt_config_restarts(config);
    EXPECT(restarts.count == 2 && restarts.stages[0].epoch == 2 && restarts.stages[1].epoch == 5);
    EXPECT_NEAR(restarts.stages[0].value, 8e-3, 1e-15);
    EXPECT_NEAR(restarts.stages[1].value, 4e-3, 1e-15);
}

/* Restarts don't depend on the first rate. */
TEST(restarts_after_a_rate_of_0)
{
    SCOPED(vt_config) *config = default_config();
    set_options(config, "num_epochs=9 lr=0 lr_restarts=4e-3@2");
    EXPECT_OK(vt_config_resolve(config));
    EXPECT_NEAR(vt_config_restarts(config).stages[0].value, 4e-3, 1e-15);
}
