# Makes the exercise of src/model/mlp.c: the same file without its communication.
/^    const vt_parallel \*parallel = pass->parallel;$/d
/^    vt_region_leave(/d
s/vt_region_\(enter\|room\)(parallel, pass->arena, pass->batch, \([a-z]*\))/\2/
