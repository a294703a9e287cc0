/* Choices by timing as text: round trips, damaged files, and files of another machine. */
#include "backend/choices.h"

#include <unistd.h>

#include "base/text.h"
#include "test.h"

static const int64_t key[] = {65536, -3, 0}, other_key[] = {1, 2, 3};
static const uint64_t value[] = {0xfedcba9876543210u, 7}, other_value[] = {1};

static vt_choices *two_choices(const char *path)
{
    vt_choices *choices = vt_choices_open("GPU 1, library 2", path);
    vt_choices_add(choices, "product", key, 3, other_value, 1);
    vt_choices_add(choices, "product", key, 3, value, 2); /* in its place */
    vt_choices_add(choices, "attention", other_key, 3, other_value, 1);
    return choices;
}

static bool has_first(const vt_choices *choices)
{
    uint64_t found[2];
    return vt_choices_find(choices, "product", key, 3, found, 2) && memcmp(found, value, sizeof found) == 0;
}

static bool has_second(const vt_choices *choices)
{
    uint64_t found;
    return vt_choices_find(choices, "attention", other_key, 3, &found, 1) && found == 1;
}

TEST(choices_as_text)
{
    SCOPED(vt_choices) *choices = two_choices(NULL), *again = vt_choices_open("GPU 1, library 2", NULL);
    SCOPED(vt_choices) *elsewhere = vt_choices_open("GPU 1, library 20", NULL),
                       *shorter = vt_choices_open("GPU 1", NULL);
    char *text = vt_test_owned(vt_choices_text(choices));
    uint64_t found[3];
    EXPECT(vt_choices_take(again, text) == 2 && has_first(again) && has_second(again));
    EXPECT(!vt_choices_find(again, "attention", key, 3, found, 2), "of another kind");
    EXPECT(!vt_choices_find(again, "product", key, 2, found, 2), "a shorter key");
    EXPECT(!vt_choices_find(again, "product", key, 3, found, 3), "a longer value");
    EXPECT(vt_choices_take(elsewhere, text) == 0 && !has_first(elsewhere), "of another machine");
    EXPECT(vt_choices_take(shorter, text) == 0 && !has_first(shorter), "of another machine");
}

/* Changes every byte, and cuts the text to every length: no wrong choice is taken, and undamaged lines are. */
TEST(damaged_choices_are_left_out)
{
    SCOPED(vt_choices) *choices = two_choices(NULL);
    char *text = vt_choices_text(choices), *damaged = vt_choices_text(choices);
    size_t length = strlen(text), machine = strcspn(text, "\n"), second = machine + 1;
    second += strcspn(text + second, "\n") + 1;
    for (size_t i = 0; i < length; i++) {
        for (int bit = 0; bit < 8; bit++) {
            SCOPED(vt_choices) *read = vt_choices_open("GPU 1, library 2", NULL);
            memcpy(damaged, text, length + 1);
            damaged[i] = (char)(damaged[i] ^ (1 << bit));
            int taken = vt_choices_take(read, damaged);
            /* a changed line end joins two lines, and a 0 ends the text: what follows may be lost */
            bool ends = i == second - 1 || damaged[i] == '\0';
            if (i <= machine)
                EXPECT(taken == 0, "byte %zu: another machine's", i);
            else
                EXPECT(has_first(read) == (i >= second) && (ends || has_second(read) == (i < second)),
                       "byte %zu, bit %d: %d taken", i, bit, taken);
        }
    }
    for (size_t cut = 0; cut < length; cut++) {
        SCOPED(vt_choices) *read = vt_choices_open("GPU 1, library 2", NULL);
        memcpy(damaged, text, length + 1);
        damaged[cut] = '\0';
        vt_choices_take(read, damaged);
        EXPECT(!has_second(read) && has_first(read) == (cut >= second), "cut at %zu", cut);
    }
    SCOPED(vt_choices) *read = vt_choices_open("GPU 1, library 2", NULL);
    EXPECT(vt_choices_take(read, "GPU 1, library 2\n\n \nproduct 99999999999999999999 1\nproduct -1 2 3 00000000\n") ==
           0);
    free(text);
    free(damaged);
}

TEST(choices_in_a_file)
{
    const char *path = test_path("choices");
    SCOPED(vt_choices) *choices = two_choices(path);
    vt_choices_close(&choices);
    FILE *file = fopen(path, "a"); /* a process that ended in the middle of a line */
    EXPECT(file != NULL && fprintf(file, "product 3 1 2") > 0 && fclose(file) == 0);
    choices = vt_choices_open("GPU 1, library 2", path);
    EXPECT(has_first(choices) && has_second(choices));
    vt_choices_close(&choices);
    choices = vt_choices_open("GPU 1, library 2", "/nowhere/at/all");
    vt_choices_add(choices, "product", key, 3, value, 2);
    EXPECT(has_first(choices));
}

TEST(where_choices_are_kept)
{
    const char *names[] = {"XDG_CACHE_HOME", "HOME"};
    char *before[2],
        *wanted = vt_test_owned(vt_text_format("%s/cache/vitrain/NVIDIA-H200--cuBLASLt-130100", vt_test_directory()));
    char *base = vt_test_owned(vt_text_format("%s/cache", vt_test_directory()));
    for (int i = 0; i < 2; i++) before[i] = getenv(names[i]) != NULL ? vt_text_copy(getenv(names[i])) : NULL;
    setenv("XDG_CACHE_HOME", base, 1);
    char *path = vt_test_owned(vt_choices_place("NVIDIA H200, cuBLASLt 130100"));
    EXPECT(path != NULL && strcmp(path, wanted) == 0, "%s", path);
    *strrchr(wanted, '/') = '\0';
    EXPECT(access(wanted, W_OK) == 0);
    setenv("XDG_CACHE_HOME", "not/absolute", 1);
    setenv("HOME", base, 1);
    path = vt_choices_place("a");
    EXPECT(path != NULL && strstr(path, "/cache/.cache/vitrain/a") != NULL, "%s", path);
    unsetenv("HOME");
    EXPECT(vt_choices_place("a") == NULL);
    for (int i = 0; i < 2; i++) {
        if (before[i] != NULL)
            setenv(names[i], before[i], 1);
        else
            unsetenv(names[i]);
        free(before[i]);
    }
    free(path);
}
