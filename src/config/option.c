#include "config/option.h"

#include <string.h>

#define VT_OTHER_ROW(...) {__VA_ARGS__},
#define VT_ROW(member, name_, type, size, preset_, help_, ...)                                                         \
    {.name = name_,                                                                                                    \
     .preset = preset_,                                                                                                \
     .help = help_,                                                                                                    \
     .in_yaml = true,                                                                                                  \
     .id = VT_OPTION_##member,                                                                                         \
     .offset = offsetof(vt_config, member),                                                                            \
     .origin = offsetof(vt_config, origin[VT_OPTION_##member]),                                                        \
     __VA_ARGS__},

static const vt_row table[] = {{.kind = VT_ROW_END},
#include "config/options.def"
                               {.kind = VT_ROW_END}};
const vt_row *const vt_options = &table[1];

/* ---- names ---- */

const vt_row *vt_row_find(const vt_row *row, const char *name)
{
    for (; row->kind != VT_ROW_END; row++)
        if (row->kind != VT_ROW_SECTION && strcmp(row->name, name) == 0) return row;
    return NULL;
}

const vt_row *vt_row_beside(const vt_row *row, const char *name)
{
    while (row[-1].kind != VT_ROW_END) row--;
    return vt_row_find(row, name);
}

const vt_row *vt_row_meant(const vt_row *row)
{
    return row->kind == VT_ROW_ALIAS ? vt_row_beside(row, row->target) : row;
}

bool vt_row_has_parts(const char *name)
{
    const size_t length = strlen(name);
    for (const vt_row *row = vt_options; row->kind != VT_ROW_END; row++)
        if (strncmp(row->name, name, length) == 0 && row->name[length] == '.') return true;
    return false;
}

/* What other programs call things: words, and the option, or what to do instead. */
static const struct {
    const char *words, *option, *sentence;
} synonyms[] = {
    {"learning_rate|base_lr|max_lr", "lr", NULL},
    {"batch|bs|batchsize|train_batch_size", "global_batch_size", NULL},
    {"epoch|n_epochs|max_epochs", "num_epochs", NULL},
    {"steps|max_steps|num_steps|iterations|iters", "num_iters", NULL},
    {"workers|num_workers|n_workers", "num_data_workers", NULL},
    {"load|load_ckpt|load_checkpoint|ckpt|checkpoint|restart|restore|continue", "resume", NULL},
    {"pretrained|pretrained_weights|finetune", "init_from", NULL},
    {"amp|precision|mixed_precision|dtype|fp16|bf16|half", "amp_mode", NULL},
    {"gpu|cuda|cpu|use_cuda", "device", NULL},
    {"data|data_path|dataset|datadir", "data_dir", NULL},
    {"output|output_dir|out_dir|outdir|logdir|log_dir|save_dir", "expdir", NULL},
    {"name|run_name|exp_name|tag", "run_num", NULL},
    {"layers|num_layers|n_layers", "depth", NULL},
    {"heads|n_heads", "num_heads", NULL},
    {"hidden_dim|hidden_size|width|dim|d_model", "embed_dim", NULL},
    {"wd|decay", "weight_decay", NULL},
    {"clip|max_grad_norm|gradient_clipping|clip_grad_norm", "grad_clip", NULL},
    {"accumulate|accumulation_steps|gradient_accumulation_steps", "grad_accumulation", NULL},
    {"tp|tensor_model_parallel_size", "tensor_parallel", NULL},
    {"cp", "context_parallel", NULL},
    {"pp|pipeline_model_parallel_size", "pipeline_parallel", NULL},
    {"zero|fsdp", "zero_stage", NULL},
    {"gpus|ngpu|ngpus|num_gpus|n_gpus|nproc|nproc_per_node|world_size|ddp", NULL,
     "a launcher starts the ranks: submit/local.sh 4, mpirun -n 4, or srun -n 4."},
    {"wandb|use_wandb|log_to_wandb|tensorboard|log_to_screen", NULL,
     "each run writes out.log, metrics.csv and TensorBoard's files."},
};

char *vt_row_advice(const vt_row *rows, const vt_row *more, const char *name, const char *dashes)
{
    enum { MOST = 512 };
    const vt_row *const tables[] = {rows, more};
    const char *names[MOST], *nearest = NULL;
    size_t count = 0;
    for (size_t i = 0; i < sizeof synonyms / sizeof synonyms[0] && (rows == vt_options || more == vt_options); i++) {
        if (vt_text_choice(name, synonyms[i].words) < 0) continue;
        if (synonyms[i].option == NULL) return vt_text_format("; %s", synonyms[i].sentence);
        nearest = synonyms[i].option;
    }
    for (int t = 0; t < 2; t++)
        for (const vt_row *row = tables[t]; row != NULL && row->kind != VT_ROW_END; row++) {
            VT_ASSERT(count < MOST);
            if (row->kind != VT_ROW_SECTION && (dashes[0] != '\0' || !row->flag_only)) names[count++] = row->name;
        }
    if (nearest == NULL) nearest = vt_text_nearest(name, names, count);
    const char *quote = dashes[0] != '\0' ? "" : "'";
    if (nearest == NULL) return vt_text_copy("");
    return vt_text_format("; did you mean %s%s%s%s?", quote, dashes, nearest, quote);
}

bool vt_row_is_switch(const vt_row *row)
{
    if (row->kind == VT_ROW_ALIAS && row->target_value[0] != '\0') return true;
    row = vt_row_meant(row);
    return row->kind == VT_ROW_BOOLEAN || row->is_switch;
}

bool vt_row_may_be_unset(const vt_row *row)
{
    return row->none_counts || strcmp(row->preset, "None") == 0;
}
