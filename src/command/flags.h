/* What the command line of a subcommand may hold, made from flags.def: for each one a struct vt_<command>_flags with
 * the values of its flags. Defaults and texts are as of options (config/option.h): what is not set is VT_UNSET_INTEGER,
 * NAN or NULL. */
#ifndef VT_COMMAND_FLAGS_H
#define VT_COMMAND_FLAGS_H

#include "config/config.h"

/* Words of the flags that are no option's words, too. */
#define VT_SYNTHETICS(X) X(VT_SYNTHETIC_FIELDS, "vit") X(VT_SYNTHETIC_BOXES, "unet3d") X(VT_SYNTHETIC_TEXT, "text")
#define VT_BENCH_DEVICES(X) X(VT_BENCH_CPU, "cpu") X(VT_BENCH_CUDA, "cuda")
#define VT_BENCH_TYPES(X) X(VT_BENCH_FLOAT32, "none") X(VT_BENCH_BF16, "bf16")
#define VT_SPLITS(X) X(VT_SPLIT_VALID, "valid") X(VT_SPLIT_TEST, "test")
#define VT_SETS(X) X(, "train") X(, "valid") X(, "test") /* vt_set */
#define VT_RULES(X) X(VT_RULES_OFF, "false") X(VT_RULES_ON, "true") X(VT_RULES_MEGATRON, "megatron")
#define VT_SHELLS(X) X(VT_SHELL_BASH, "bash") X(VT_SHELL_ZSH, "zsh") /* -1: none */
#define VT_ENUMERATOR(enumerator, word) enumerator,
enum { VT_SYNTHETICS(VT_ENUMERATOR) };
enum { VT_BENCH_DEVICES(VT_ENUMERATOR) };
enum { VT_BENCH_TYPES(VT_ENUMERATOR) };
enum { VT_SPLITS(VT_ENUMERATOR) };
enum { VT_RULES(VT_ENUMERATOR) };
enum { VT_SHELLS(VT_ENUMERATOR) };
#undef VT_ENUMERATOR

#define VT_OTHER_ROW(...)
#define VT_ROW(member, name, type, size, ...)                                                                          \
    type member size;                                                                                                  \
    vt_origin member##_origin;
#define VT_COMMAND(command, ...) typedef struct {
#define VT_COMMAND_END(command)                                                                                        \
    }                                                                                                                  \
    vt_##command##_flags;
#include "command/flags.def"
#undef VT_COMMAND
#undef VT_COMMAND_END
#undef VT_ROW
#undef VT_OTHER_ROW

#endif
