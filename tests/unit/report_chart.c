/* Charts of report.html. */

#include "report/page.h"
#include "test.h"

/* Is the chart of a loss that falls from 1 to `last` drawn with a logarithmic axis? */
static bool is_logarithmic(double last, bool may_be)
{
    const double x[] = {1, 2, 3}, y[] = {1, 0.9, last};
    const vt_line line = {"loss", x, y, 3, 1, VT_LINE_PLAIN, 0};
    const vt_chart chart = {"Loss", NULL, "step", &line, 1, may_be ? VT_CHART_MAY_BE_LOGARITHMIC : 0};
    SCOPED(vt_text) html = {0};
    vt_chart_append(&html, &chart);
    return strstr(html.characters, "(logarithmic)") != NULL;
}

/* Late progress is visible: from 1 to 0.1 the last tenth of it would be a hair on a linear axis. */
TEST(charts_show_late_progress)
{
    EXPECT(is_logarithmic(0.1, true) && is_logarithmic(0.2, true));
    EXPECT(!is_logarithmic(0.5, true) && !is_logarithmic(0.1, false) && !is_logarithmic(0, true));
}
