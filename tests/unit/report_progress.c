/* The progress bar's text in every width. */
#include "report/progress.h"
#include "test.h"

static const vt_progress_figures figures = {.epoch = 2,
                                            .epochs = 8,
                                            .step = 57,
                                            .steps = 100,
                                            .loss = 0.43117,
                                            .samples_per_sec = 82.84,
                                            .data_wait = 0.012,
                                            .seconds_left = 151};

TEST(progress_in_a_wide_terminal)
{
    char text[VT_PROGRESS_SIZE];
    vt_progress_format(&figures, 120, false, text);
    static const char expected[] = "epoch 2/8 [====================>                 ] 57/100, loss 0.4312, "
                                   "82.84 samples/s, data wait 1 %, 2:31 left";
    EXPECT_TEXT(text, expected);
    vt_progress_format(&figures, 120, true, text);
    EXPECT(strstr(text, "[\033[36m=") != NULL && strstr(text, " \033[0m]") != NULL, "is '%s'", text);
}

TEST(progress_fits_every_width)
{
    char text[VT_PROGRESS_SIZE];
    for (int columns = 0; columns < 300; columns++) {
        vt_progress_format(&figures, columns, false, text);
        EXPECT((int)strlen(text) <= columns, "%d: '%s'", columns, text);
        EXPECT((strstr(text, "data wait") != NULL) == (columns >= 81), "%d: '%s'", columns, text);
        EXPECT((strstr(text, ", loss 0.4312") != NULL) == (columns >= 29), "%d: '%s'", columns, text);
    }
    vt_progress_format(&figures, 44, false, text);
    EXPECT_TEXT(text, "epoch 2/8 57/100, loss 0.4312, 2:31 left");
}

TEST(progress_with_odd_figures)
{
    char text[VT_PROGRESS_SIZE];
    vt_progress_figures odd = figures;
    odd.step = odd.steps = INT64_MAX / 200;
    odd.loss = -1e308;
    odd.samples_per_sec = INFINITY;
    odd.data_wait = odd.seconds_left = NAN;
    vt_progress_format(&odd, 200, true, text);
    odd.seconds_left = 2 * 86400 + 3 * 3600;
    odd.loss = 1;
    vt_progress_format(&odd, 200, false, text);
    EXPECT_PART(text, ", 2 d 3 h left");
    odd.seconds_left = 3723;
    vt_progress_format(&odd, 200, false, text);
    EXPECT_PART(text, ", 1:02:03 left");
}
