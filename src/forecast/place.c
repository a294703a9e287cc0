#include "forecast/evaluation.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "storage/output_file.h"

enum { MOST_BYTES = 1 << 24 };

/* Does the directory hold an evaluation that was made from something else? One of an earlier version, which doesn't say
 * from what, counts as another. */
static bool holds_another(const char *directory, const char *own)
{
    static const char *const files[] = {"made_from.txt", "loss.csv", "l1.csv", "perplexity.csv"};
    char *path = vt_text_format("%s/%s", directory, files[0]), *there = NULL;
    bool any = vt_file_read(path, MOST_BYTES, &there, NULL) == VT_OK;
    const bool same = any && strcmp(there, own) == 0;
    free(path);
    free(there);
    for (size_t i = 0; i < sizeof files / sizeof files[0] && !any; i++) any = vt_output_holds(directory, files[i]);
    vt_error_clear();
    return any && !same;
}

static vt_status take(vt_place *place)
{
    vt_status status = VT_OK;
    char *used = vt_text_copy(place->directory), *path = NULL;
    for (int number = 2; !place->replaces && holds_another(used, place->made_from.characters); number++) {
        VT_CHECK(!place->is_named,
                 "%s holds an evaluation of another checkpoint, other data or flags (made_from.txt says which); "
                 "--force replaces it, and --output=DIR names another directory",
                 used);
        free(used);
        used = vt_text_format("%s-%d", place->directory, number);
    }
    if (strcmp(used, place->directory) != 0)
        vt_log_info("%s holds an evaluation of other data or flags; this one goes to %s", place->directory, used);
    path = vt_text_format("%s/made_from.txt", used);
    VT_TRY(vt_output_make_directory(used));
    VT_TRY(vt_file_write(path, place->made_from.characters, place->made_from.length));
    free(place->directory);
    place->directory = used;
    used = NULL;
done:
    free(used);
    free(path);
    return status;
}

vt_status vt_place_take(vt_place *place, vt_world *world)
{
    const vt_status status = vt_world_agree(world, world->rank == 0 ? take(place) : VT_OK);
    if (status == VT_OK) vt_world_broadcast_text(world, &place->directory);
    return status;
}

void vt_place_close(vt_place *place)
{
    free(place->directory);
    vt_text_close(&place->made_from);
}
