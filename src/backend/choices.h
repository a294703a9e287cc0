/* What a back end found fastest by timing, as text: kept in a file for later runs, and in checkpoints, so that a run
 * that goes on elsewhere computes as it did. A choice is a kind (a word), a key (numbers: the shape) and a value
 * (numbers: what was chosen). Choices hold for one machine: a name with the GPU and the versions of its libraries. */
#ifndef VT_BACKEND_CHOICES_H
#define VT_BACKEND_CHOICES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct vt_choices vt_choices;

/* The file of a machine's choices, $XDG_CACHE_HOME/vitrain/<machine> (else ~/.cache/vitrain/<machine>); malloc'd, NULL
 * when there is no place for it. Makes the folder. */
char *vt_choices_place(const char *machine);

/* `path`: the file with the choices of earlier runs, which is read, and to which each new choice adds a line; NULL:
 * none. A file that can't be read or written is treated as none. */
vt_choices *vt_choices_open(const char *machine, const char *path);
void vt_choices_close(vt_choices **choices);

/* Whether there is one of this kind and key; its value. */
bool vt_choices_find(const vt_choices *choices, const char *kind, const int64_t *key, int key_count, uint64_t *value,
                     int value_count);
/* Adds a new choice, which replaces one of the same kind and key. */
void vt_choices_add(vt_choices *choices, const char *kind, const int64_t *key, int key_count, const uint64_t *value,
                    int value_count);

/* All of them, malloc'd: a line that names the machine, then one for each. */
char *vt_choices_text(const vt_choices *choices);
/* Takes over the choices of a text that vt_choices_text made on the same machine; of another machine's text none.
 * Damaged lines are left out. Returns how many were taken. */
int vt_choices_take(vt_choices *choices, const char *text);

#endif
