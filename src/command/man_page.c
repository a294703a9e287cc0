#include "command/command.h"

#include <stdlib.h>
#include <string.h>

#include "base/version.h"
#include "source/fields/about.h"

static const char description[] =
    "vitrain trains vision transformers that forecast the weather from ERA5-like fields, 3-D U-Nets "
    "on cosmological boxes, and transformers on text, on one rank or many (data, tensor, context "
    "and pipeline parallel over MPI or NCCL). A run is described by a named configuration of a YAML file; "
    "every key of it is a flag, too. Other subcommands make data and statistics, score and make "
    "forecasts, and look at runs, checkpoints and layouts.\n";

/* The page's sections after the options, in the form of help. */
static const char sections[] =
    "FILES\n"
    "  config/ViT.yaml  The named configurations, unless --yaml_config names another file: in the current directory, "
    "else beside the program or installed with it.\n"
    "  config/hardware.yaml  The machines that `vitrain plan --hardware=NAME` knows; looked for in the same places.\n"
    "  <data_dir>/train/*YYYY.h5, valid/, test/, stats/*.npy  The data: one HDF5 (or netCDF) file a year, and the "
    "statistics that `vitrain stats` writes.\n"
    "  <expdir>/<config>/<n>CPU/<run_num>/  The directory of a run: out.log, config.yaml, metrics.csv (a row a step), "
    "epochs.csv, report.html, images, TensorBoard's curves in logs, checkpoints.\n"
    "  ~/.cache/vitrain/  Which of a GPU library's routines were the fastest on this machine.\n"
    "ENVIRONMENT\n"
    "  OMP_NUM_THREADS  Threads that compute, unless --num_threads says; without both one a core.\n"
    "  OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY  If one is set, OpenMP places the threads; otherwise the program "
    "binds them to the cores of its rank.\n"
    "  OMP_WAIT_POLICY, GOMP_SPINCOUNT  How long idle threads spin before they sleep; by default shortly.\n"
    "  OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK, SLURM_PROCID, RANK  With those beside them (OMPI_COMM_WORLD_SIZE, "
    "SLURM_NTASKS, WORLD_SIZE, LOCAL_RANK and so on): the rank and how many there are, as mpirun, srun and torchrun "
    "set them. The launcher that started the process counts.\n"
    "  MASTER_ADDR, MASTER_PORT  Where ranks that were started without MPI meet, to open NCCL.\n"
    "  CUDA_HOME, CUDA_PATH, CUDNN_HOME, NCCL_HOME  Folders whose lib64 and lib are searched for NVIDIA's libraries, "
    "after LD_LIBRARY_PATH; then /usr/local/cuda.\n"
    "  NVIDIA_TF32_OVERRIDE  0: float32 products on a GPU are not computed in TF32.\n"
    "  NVTX_INJECTION64_PATH  Set by profilers (nsys, ncu): parts of a step are then marked for them.\n"
    "  BENCHY_CONFIG_FILE  The YAML file of benchy that says what --enable_benchy measures: sections global, IO, "
    "synthetic, full.\n"
    "  BENCHY_OUTPUT  The JSON file that --enable_benchy writes; otherwise what BENCHY_CONFIG_FILE's output_dir and "
    "output_filename say, else benchy_output.json in the run's directory.\n"
    "  XDG_CACHE_HOME, HOME  Below which the cache is: $XDG_CACHE_HOME/vitrain, else $HOME/.cache/vitrain.\n"
    "  LC_ALL, LC_CTYPE, LANG, TERM, NO_COLOR  Whether the progress bar may use characters beyond ASCII, move, and "
    "have colours.\n"
    "  VITRAIN_CPU_ISA  The instruction set that `cpu_isa: auto` stands for, such as avx2: to try a run as another "
    "processor would make it.\n"
    "  VITRAIN_DEBUG  If set, the place in the source that noted an error is printed below it.\n"
    "  SOURCE_DATE_EPOCH  The date of the man page that `vitrain options --man` prints, in seconds since 1970.\n"
    "EXIT STATUS\n"
    "  0  Success.\n"
    "  1  Something failed, or the command was wrong; one sentence on standard error says what. Also when `vitrain "
    "inspect` finds something missing or damaged.\n"
    "  75  The run was stopped (a signal, or max_time) after its checkpoint was saved: the same command with --resume "
    "goes on.\n"
    "EXAMPLES\n"
    "  vitrain synth data/demo && vitrain --config=demo  Makes a small synthetic atmosphere and trains on it.\n"
    "  vitrain --config=short --data_dir=DIR --lr=1e-3 --num_epochs=4 --resume  Trains on data of your own; continues "
    "from the newest checkpoint of that run if there is one.\n"
    "  mpirun -np 4 vitrain --config=demo --tensor_parallel=2 --zero_stage=1  Trains on four ranks: two share each "
    "layer, two halves share each batch.\n"
    "  vitrain plan --config=mp --ranks=16 --hardware=a100-40  Memory and time of every layout; starts nothing.\n"
    "  vitrain evaluate --checkpoint=RUN/checkpoints/best --rollout=8  Scores forecasts of two days (8 x 6 hours).\n"
    "  vitrain predict --checkpoint=RUN/checkpoints/best --time=2003-01-05T06:00 --output=forecast.nc  Forecasts from "
    "one initial time.\n";

/* ---- troff, as groff_man(7) and mandoc's man(7) take it ---- */

/* The text with everything escaped that troff would interpret; for text that does not begin a line. */
static void print_text(FILE *file, const char *text, size_t length)
{
    static const char characters[] = "\\-'\"`^~|";
    static const char *const escapes[] = {"\\e",   "\\-",   "\\(aq", "\\(dq",
                                          "\\(ga", "\\(ha", "\\(ti", "|\\:"}; /* |: a long list may be broken there */
    for (size_t i = 0; i < length; i++) {
        const char *found = strchr(characters, text[i]);
        if (found != NULL)
            fputs(escapes[found - characters], file);
        else
            fputc(text[i], file);
    }
}

/* The same with each word on a line of its own; troff fills them. */
static void print_words(FILE *file, const char *text, size_t length)
{
    for (const char *end = text + length, *word = text; word < end;) {
        word += strspn(word, " ");
        const size_t letters = strcspn(word, " \n");
        if (letters == 0) break;
        if (*word == '.') fputs("\\&", file);
        print_text(file, word, letters);
        fputc('\n', file);
        word += letters;
    }
}

/* Help as --help prints it. A line behind two characters is an entry, "  --name=N   what it is", and what is further in
 * goes on with that; a line before entries is their heading, unless a colon ends it. */
static void print_help(FILE *file, const char *text, const char *heading)
{
    for (size_t length; *text != '\0'; text += length + 1) {
        length = strcspn(text, "\n");
        const char *next = text + length + (text[length] == '\n');
        const size_t indent = strspn(text, " *");
        const bool precedes = strspn(next, " *") == 2;
        if (length == 0) {
            fputs(".PP\n", file);
        } else if (indent == 2) {
            const char *gap = strstr(text + 2, "  ");
            const size_t name = gap != NULL && gap < next ? (size_t)(gap - text) - 2 : length - 2;
            fputs(".TP\n\\fB", file);
            print_text(file, text + 2, name);
            fputs(text[0] == '*' ? "\\fR *\n" : "\\fR\n", file);
            print_words(file, text + 2 + name, length - 2 - name);
        } else if (indent == 0 && precedes && text[length - 1] != ':') {
            fprintf(file, "%s \"", heading);
            print_text(file, text, length);
            fputs("\"\n", file);
        } else {
            print_words(file, text, length);
        }
    }
}

/* ---- the page ---- */

/* What the subcommand's --help prints; NULL: all options. */
static void print_help_of(FILE *file, const vt_subcommand *command)
{
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    VT_ASSERT(memory != NULL);
    if (command != NULL)
        vt_subcommand_print_help(memory, command);
    else
        vt_options_print(memory, false);
    fclose(memory);
    print_help(file, text, ".PP\n.B");
    free(text);
}

void vt_man_page_print(FILE *file)
{
    char now[VT_NOW_SIZE];
    fprintf(file, ".TH VITRAIN 1 \"%.10s\" \"vitrain ", vt_fields_about_now(now));
    print_text(file, vt_version, strlen(vt_version));
    fputs("\" \"User Commands\"\n.nh\n.ad l\n"
          ".SH NAME\nvitrain \\- train models of weather, cosmology and text\n"
          ".SH SYNOPSIS\n.B vitrain\n.RB [ train ]\n[\\fB\\-\\-config\\fR=\\fINAME\\fR]\n"
          "[\\fB\\-\\-\\fIoption\\fR=\\fIvalue\\fR ...]\n.br\n.B vitrain\n.I subcommand\n"
          "[\\fB\\-\\-\\fIflag\\fR=\\fIvalue\\fR ...]\n.br\n.B vitrain help\n[\\fIsubcommand\\fR]\n"
          ".br\n.B vitrain \\-\\-version\n.SH DESCRIPTION\n",
          file);
    print_help(file, description, "");
    fputs(".SH SUBCOMMANDS\n", file);
    for (int i = 0; i < vt_subcommand_count; i++) {
        fprintf(file, ".SS \"vitrain %s\"\n", vt_subcommands[i].name);
        print_help_of(file, &vt_subcommands[i]);
    }
    fputs(".SH OPTIONS\n", file);
    print_help_of(file, NULL);
    print_help(file, sections, ".SH");
}
