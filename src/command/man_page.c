#include "command/command.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "base/version.h"

/* The page's sections after the options. An entry without a meaning is the title of the next one. */
static const struct {
    const char *name, *meaning;
} entries[] = {
    {"FILES", NULL},
    {"config/ViT.yaml",
     "The named configurations, unless --yaml_config names another file: in the current directory, else beside the "
     "program or installed with it."},
    {"config/hardware.yaml", "The machines that `vitrain plan --hardware=NAME` knows; looked for in the same places."},
    {"<data_dir>/train/*YYYY.h5, valid/, test/, stats/*.npy",
     "The data: one HDF5 (or netCDF) file a year, and the statistics that `vitrain stats` writes."},
    {"<expdir>/<config>/<n>CPU/<run_num>/",
     "The directory of a run: out.log, config.yaml, metrics.csv (a row a step), epochs.csv, report.html, images, "
     "TensorBoard's curves in logs, checkpoints."},
    {"~/.cache/vitrain/", "Which of a GPU library's routines were the fastest on this machine."},
    {"ENVIRONMENT", NULL},
    {"OMP_NUM_THREADS", "Threads that compute, unless --num_threads says; without both one a core."},
    {"OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY",
     "If one is set, OpenMP places the threads; otherwise the program binds them to the cores of its rank."},
    {"OMP_WAIT_POLICY, GOMP_SPINCOUNT", "How long idle threads spin before they sleep; by default shortly."},
    {"OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK, SLURM_PROCID, RANK",
     "With those beside them (OMPI_COMM_WORLD_SIZE, SLURM_NTASKS, WORLD_SIZE, LOCAL_RANK and so on): the rank and how "
     "many there are, as mpirun, srun and torchrun set them. The launcher that started the process counts."},
    {"MASTER_ADDR, MASTER_PORT", "Where ranks that were started without MPI meet, to open NCCL."},
    {"CUDA_HOME, CUDA_PATH, CUDNN_HOME, NCCL_HOME",
     "Folders whose lib64 and lib are searched for NVIDIA's libraries, after LD_LIBRARY_PATH; then /usr/local/cuda."},
    {"NVIDIA_TF32_OVERRIDE", "0: float32 products on a GPU are not computed in TF32."},
    {"NVTX_INJECTION64_PATH", "Set by profilers (nsys, ncu): parts of a step are then marked for them."},
    {"BENCHY_CONFIG_FILE",
     "The YAML file of benchy that says what --enable_benchy measures: sections global, IO, synthetic, full."},
    {"BENCHY_OUTPUT", "The JSON file that --enable_benchy writes; otherwise what BENCHY_CONFIG_FILE's output_dir and "
                      "output_filename say, else benchy_output.json in the run's directory."},
    {"XDG_CACHE_HOME, HOME", "Below which the cache is: $XDG_CACHE_HOME/vitrain, else $HOME/.cache/vitrain."},
    {"LC_ALL, LC_CTYPE, LANG, TERM, NO_COLOR",
     "Whether the progress bar may use characters beyond ASCII, move, and have colours."},
    {"VITRAIN_CPU_ISA", "The instruction set that `cpu_isa: auto` stands for, such as avx2: to try a run as another "
                        "processor would make it."},
    {"VITRAIN_DEBUG", "If set, the place in the source that noted an error is printed below it."},
    {"SOURCE_DATE_EPOCH", "The date of the man page that `vitrain options --man` prints, in seconds since 1970."},
    {"EXIT STATUS", NULL},
    {"0", "Success."},
    {"1", "Something failed, or the command was wrong; one sentence on standard error says what. Also "
          "when `vitrain inspect` finds something missing or damaged."},
    {"75", "The run was stopped (a signal, or max_time) after its checkpoint was saved: the same command with --resume "
           "goes on."},
    {"EXAMPLES", NULL},
    {"vitrain synth data/demo && vitrain --config=demo", "Makes a small synthetic atmosphere and trains on it."},
    {"vitrain --config=short --data_dir=DIR --lr=1e-3 --num_epochs=4 --resume",
     "Trains on data of your own; continues from the newest checkpoint of that run if there is one."},
    {"mpirun -np 4 vitrain --config=demo --tensor_parallel=2 --zero_stage=1",
     "Trains on four ranks: two share each layer, two halves share each batch."},
    {"vitrain plan --config=mp --ranks=16 --hardware=a100-40", "Memory and time of every layout; starts nothing."},
    {"vitrain evaluate --checkpoint=RUN/checkpoints/best --rollout=8", "Scores forecasts of two days (8 x 6 hours)."},
    {"vitrain predict --checkpoint=RUN/checkpoints/best --time=2003-01-05T06:00 --output=forecast.nc",
     "Forecasts from one initial time."},
};

/* ---- troff, as groff_man(7) and mandoc's man(7) take it ---- */

/* The text with everything escaped that troff would interpret; for text that does not begin a line. */
static void print_text(FILE *file, const char *text)
{
    static const char characters[] = "\\-'\"`^~|";
    static const char *const escapes[] = {"\\e",   "\\-",   "\\(aq", "\\(dq",
                                          "\\(ga", "\\(ha", "\\(ti", "|\\:"}; /* |: a long list may be broken there */
    for (; *text != '\0'; text++) {
        const char *found = strchr(characters, *text);
        if (found != NULL)
            fputs(escapes[found - characters], file);
        else
            fputc(*text, file);
    }
}

/* The same with each word on a line of its own; troff fills them. */
static void print_lines(FILE *file, const char *text)
{
    char *words = vt_text_copy(text), *rest = NULL;
    for (const char *word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        if (*word == '.') fputs("\\&", file);
        print_text(file, word);
        fputc('\n', file);
    }
    free(words);
}

static void print_heading(FILE *file, const char *macro, const char *title)
{
    fprintf(file, "%s \"", macro);
    print_text(file, title);
    fputs("\"\n", file);
}

/* .TP, the name in bold, then `form` ("=N", or ""), and the meaning below. */
static void print_entry(FILE *file, const char *name, const char *form, const char *meaning)
{
    fputs(".TP\n\\fB", file);
    print_text(file, name);
    fputs("\\fR", file);
    print_text(file, form);
    fputc('\n', file);
    print_lines(file, meaning);
}

/* ---- flags ---- */

/* "--name=N", and "help (whole number, 1 to 20; default 8)". */
static void print_flag(FILE *file, const vt_row *row)
{
    vt_text form = {0}, meaning = {0};
    char *name = vt_text_format("--%s", row->name);
    vt_row_form(row, &form);
    vt_row_explain(row, &meaning);
    if (row->flag_only) vt_text_append(&meaning, " (a flag only)");
    print_entry(file, name, form.characters, meaning.characters);
    free(name);
    vt_text_close(&form);
    vt_text_close(&meaning);
}

static void print_flags(FILE *file, const vt_row *rows, const char *macro)
{
    for (const vt_row *row = rows; row->kind != VT_ROW_END; row++) {
        if (row->kind == VT_ROW_SECTION)
            print_heading(file, macro, row->name);
        else
            print_flag(file, row);
    }
}

static void print_subcommand(FILE *file, const vt_subcommand *command)
{
    char *name = vt_subcommand_name(command);
    const char *operands = command->operands != NULL ? command->operands : "";
    char *title = vt_text_format("vitrain %s%s%s", name, operands[0] != '\0' ? " " : "", operands);
    print_heading(file, ".SS", title);
    free(title);
    free(name);
    print_lines(file, command->summary);
    print_flags(file, command->flags(), ".PP\n.B");
    if (command->options != VT_NO_OPTIONS) fputs(".PP\n", file);
    if (command->options == VT_ALL_OPTIONS) print_lines(file, "All OPTIONS below are flags.");
    if (command->options == VT_CHECKPOINT_OPTIONS)
        print_lines(file, "The configuration is the checkpoint's; all OPTIONS below but --config and --yaml_config "
                          "are flags that change it.");
}

static void print_options(FILE *file)
{
    fputs(".SH OPTIONS\n", file);
    print_lines(
        file, "Each is a key of a configuration in the YAML file and a flag, --name=value or --name value; a flag wins "
              "over the file, and of a repeated one the last counts. A switch (true or false) takes a value only "
              "after =. What has no default is None: not set. Those that are a flag only are no keys of the file. "
              "Options under a heading `Only with ...' can be set only in such a run.");
    print_flags(file, vt_options, ".SS");
}

/* ---- the page ---- */

static void print_title(FILE *file)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    int64_t seconds = 0;
    if (epoch == NULL || !vt_text_to_integer(epoch, &seconds)) seconds = time(NULL);
    const time_t now = (time_t)seconds;
    struct tm date;
    char day[32] = "";
    if (gmtime_r(&now, &date) != NULL) strftime(day, sizeof day, "%Y-%m-%d", &date);
    fprintf(file, ".TH VITRAIN 1 \"%s\" \"vitrain ", day);
    print_text(file, vt_version);
    fputs("\" \"User Commands\"\n.nh\n.ad l\n", file);
}

void vt_man_page_print(FILE *file)
{
    print_title(file);
    fputs(".SH NAME\nvitrain \\- train models of weather, cosmology and text\n"
          ".SH SYNOPSIS\n.B vitrain\n.RB [ train ]\n[\\fB\\-\\-config\\fR=\\fINAME\\fR]\n"
          "[\\fB\\-\\-\\fIoption\\fR=\\fIvalue\\fR ...]\n.br\n.B vitrain\n.I subcommand\n"
          "[\\fB\\-\\-\\fIflag\\fR=\\fIvalue\\fR ...]\n.br\n.B vitrain help\n[\\fIsubcommand\\fR]\n"
          ".br\n.B vitrain \\-\\-version\n.SH DESCRIPTION\n",
          file);
    print_lines(file,
                "vitrain trains vision transformers that forecast the weather from ERA5-like fields, 3-D U-Nets "
                "on cosmological boxes, and transformers on text, on one rank or many (data, tensor, context "
                "and pipeline parallel over MPI or NCCL). A run is described by a named configuration of a YAML file; "
                "every key of it is a flag, too. Other subcommands make data and statistics, score and make "
                "forecasts, and look at runs, checkpoints and layouts.");
    fputs(".SH SUBCOMMANDS\n", file);
    for (int i = 0; i < vt_subcommand_count; i++) print_subcommand(file, &vt_subcommands[i]);
    print_options(file);
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
        if (entries[i].meaning == NULL)
            print_heading(file, ".SH", entries[i].name);
        else
            print_entry(file, entries[i].name, "", entries[i].meaning);
}
