#include "forecast/evaluation_report.h"

#include <dirent.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "report/image.h"

/* The first and the last lead time, and 1, 3 and 5 days. */
static bool is_shown(int64_t lead, int64_t leads, int64_t hours_a_step)
{
    int64_t hours = (lead + 1) * hours_a_step;
    return lead == 0 || lead == leads - 1 || hours == 24 || hours == 72 || hours == 120;
}

static void print_cell(double value, int width, const char *format)
{
    char text[32] = "-";
    if (!isnan(value)) snprintf(text, sizeof text, format, value);
    printf(" %*s", width, text);
}

void vt_scores_print(const vt_scores *scores, const char *const *channel_names, const vt_variable *variables,
                     int64_t leads, int64_t channels, int64_t hours_a_step)
{
    char buffer[32];
    printf("%-12s %-8s %6s %10s %11s %11s %7s %11s\n", "channel", "units", "lead", "RMSE", "persistence", "climatology",
           "ACC", "persistence");
    for (int64_t c = 0; c < channels; c++) {
        const char *name = vt_scores_channel_name(channel_names, c, buffer);
        for (int64_t lead = 0; lead < leads; lead++) {
            if (!is_shown(lead, leads, hours_a_step)) continue;
            printf("%-12s %-8s %4lld h", lead == 0 ? name : "", lead == 0 ? variables[c].units : "",
                   (long long)((lead + 1) * hours_a_step));
            for (int which = 0; which < VT_SCORE_FORECASTS; which++)
                print_cell(vt_scores_rmse(scores, lead, c, which), which == 0 ? 10 : 11, "%.4g");
            for (int which = 0; which < VT_SCORE_CLIMATOLOGY; which++)
                print_cell(vt_scores_acc(scores, lead, c, which), which == 0 ? 7 : 11, "%.3f");
            printf("\n");
        }
    }
}

vt_status vt_loss_write(const char *path, const char *split, int64_t samples, double loss)
{
    char *text = vt_text_format("split,samples,loss\n%s,%lld,%.9g\n", split, (long long)samples, loss);
    vt_status status = vt_file_write(path, text, strlen(text));
    free(text);
    return status;
}

void vt_maps_clear(const char *directory)
{
    DIR *listing = opendir(directory);
    if (listing == NULL) return;
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;)
        if (fnmatch("map-*-[0-9][0-9][0-9]*h.png", entry->d_name, 0) == 0) unlinkat(dirfd(listing), entry->d_name, 0);
    closedir(listing);
}

vt_status vt_maps_draw(const vt_maps *maps, int64_t lead, const float *target, const float *forecast)
{
    vt_status status = VT_OK;
    vt_image image = {0};
    void *png = NULL;
    size_t size = 0;
    char from[VT_DATE_SIZE] = "", valid[VT_DATE_SIZE] = "", both[2 * VT_DATE_SIZE + 64];
    if (!is_shown(lead, maps->steps, maps->hours_a_step)) return VT_OK;
    const long long hours = (lead + 1) * maps->hours_a_step;
    if (maps->dated) {
        vt_date_format(maps->from, from);
        vt_date_format(vt_date_after(maps->from, (lead + 1) * maps->length_a_step), valid);
    }
    const char *units = maps->units;
    char *path = vt_text_format("%s/map-%s-%03lldh.png", maps->directory, maps->channel, hours);
    for (char *c = path + strlen(maps->directory) + 1; *c != '\0'; c++)
        if (*c == '/') *c = '_'; /* in the channel's name; it would begin a directory */
    if (maps->dated)
        snprintf(both, sizeof both, "%s UTC, forecast from %s UTC (%lld h)", valid, from, hours);
    else
        snprintf(both, sizeof both, "%lld h from the first time", hours);
    char *title = vt_text_format("%s%s%s%s, %s", maps->channel, units[0] != '\0' ? " (" : "", units,
                                 units[0] != '\0' ? ")" : "", both);
    vt_comparison comparison = {.title = title,
                                .left_title = "target",
                                .right_title = "forecast",
                                .difference_title = "forecast - target",
                                .left = target,
                                .right = forecast,
                                .height = maps->height,
                                .width = maps->width,
                                .latitudes = maps->latitudes,
                                .longitudes = maps->longitudes,
                                .is_signed = vt_variable_is_signed(maps->channel, target, maps->height * maps->width)};
    vt_image_compare(&comparison, &image);
    VT_TRY(vt_image_encode(&image, &png, &size));
    VT_TRY(vt_file_write(path, png, size));
done:
    vt_image_close(&image);
    free(png);
    free(path);
    free(title);
    return status;
}
