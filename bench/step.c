/* Times one training step (forward, loss, backward, Adam) of vitrain at three sizes of the weather transformer, of two
 * on text, and two batches of the 3-D U-Net, and of the same model in PyTorch if there is a Python with torch: eager or
 * compiled, whichever is faster here. The two sides take turns in one run, so that both meet the same state of the
 * machine; each uses all cores. Prints medians.
 *
 *     build/bench/step [--python=PYTHON] [--size=small|medium|full|lm_a|lm|unet1|unet4]
 *                      [--amp_mode=none|bf16] [--rounds=N]
 *                      [--name=value of vitrain: --enable_jit, --rollout=4, --recompute=block, --cpu_isa=plain ...]
 *
 * Also prints a table of where the time of our step goes, by operation, and how far each one is from the machine's
 * limits.
 *
 * The other side is a second process, bench/pytorch_step.py, which makes one step for each request. Its malloc is tuned
 * in its favour (see there). */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/threads.h"
#include "model/model.h"
#include "planning/practice.h"
#include "training/plan.h"

typedef struct {
    const char *name, *settings;
    int rounds, steps; /* turns of each side, and the steps of a turn: as in training, one step follows another */
} bench_size;

static const bench_size sizes[] = {
    {"small", "a: {img_size: [32, 64], patch_size: 4, embed_dim: 128, depth: 4, num_heads: 4, global_batch_size: 8}",
     15, 8},
    {"medium", "a: {img_size: [90, 180], patch_size: 6, embed_dim: 256, depth: 6, num_heads: 8, global_batch_size: 4}",
     9, 3},
    {"full", "a: {img_size: [360, 720], patch_size: 8, embed_dim: 384, depth: 12, num_heads: 8, global_batch_size: 1}",
     5, 1},
    {"lm_a", "a: {model: transformer, vocab_size: 30000, global_batch_size: 128}", 5, 1},
    {"lm",
     "a: {model: encoder, causal: true, attention_scale: sqrt, vocab_size: 30000, embed_dim: 256, depth: 6, "
     "seq_len: 256, global_batch_size: 16}",
     5, 1},
    {"unet1", "a: {model: unet3d, global_batch_size: 1}", 5, 3},
    {"unet4", "a: {model: unet3d, global_batch_size: 4}", 3, 3},
};

/* The PyTorch process: `to` takes commands, `from` gives seconds. */
typedef struct {
    FILE *to, *from;
    pid_t process;
} rival;

static bool rival_open(rival *r, const char *python, const vt_config *config)
{
    int in[2], out[2];
    char command[1024], model[256], line[256] = "";
    if (strcmp(vt_model_kind_of(config)->name, "unet3d") == 0)
        snprintf(model, sizeof model, "--unet %ld --side %ld", config->unet_width, config->data_size);
    else if (vt_model_kind_of(config)->prediction_grid == NULL) /* it predicts words */
        snprintf(model, sizeof model,
                 "--language %s --words %ld --tokens %ld --embed %ld --depth %ld --heads %ld --hidden %ld "
                 "--dropout %g%s",
                 vt_model_kind_of(config)->name, config->vocab_size, config->seq_len, config->embed_dim, config->depth,
                 config->num_heads, config->ffn_dim, config->dropout, config->causal ? " --causal" : "");
    else
        snprintf(model, sizeof model,
                 "--height %ld --width %ld --channels %ld --patch %ld --embed %ld --depth %ld --heads %ld",
                 config->img_size[0], config->img_size[1], config->n_in_channels, config->patch_size, config->embed_dim,
                 config->depth, config->num_heads);
    snprintf(
        command, sizeof command,
        "unset GOMP_SPINCOUNT; export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456 "
        "GLIBC_TUNABLES=glibc.malloc.hugetlb=1; "
        "exec %s bench/pytorch_step.py %s --batch %ld --dtype %s --best",
        python, model, config->global_batch_size, config->amp_mode == VT_AMP_NONE ? "float32" : "bf16");
    if (pipe(in) != 0 || pipe(out) != 0) return false;
    r->process = fork();
    if (r->process == 0) {
        vt_threads_roam(); /* on all cores, whatever this program's threads are bound to */
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    r->to = fdopen(in[1], "w");
    r->from = fdopen(out[0], "r");
    while (fgets(line, sizeof line, r->from) != NULL)
        if (strncmp(line, "ready", 5) == 0) return true;
    return false;
}

/* Seconds a step, of one turn. */
static double rival_turn(rival *r, int steps)
{
    char line[256];
    double seconds = 0;
    for (int i = 0; i < steps; i++) {
        fprintf(r->to, "step\n");
        fflush(r->to);
        seconds += fgets(line, sizeof line, r->from) != NULL ? atof(line) / steps : NAN;
    }
    usleep(20000); /* its idle threads spin for milliseconds before they sleep; that must not slow our side's turn */
    return seconds;
}

/* Its last line: a JSON object with versions and its peak memory. */
static double rival_close(rival *r, char *description, int length)
{
    double peak = 0;
    fprintf(r->to, "quit\n");
    fclose(r->to);
    if (fgets(description, length, r->from) == NULL) description[0] = '\0';
    description[strcspn(description, "\n")] = '\0';
    const char *found = strstr(description, "peak_rss_bytes\": ");
    if (found != NULL) peak = atof(found + strlen("peak_rss_bytes\": "));
    fclose(r->from);
    waitpid(r->process, NULL, 0);
    return peak;
}

typedef struct {
    vt_config *config;
    vt_backend *backend;
    vt_practice *practice;
    double gigaflops; /* of a step */
} own;

static char *flags[16]; /* of our side: those given, and last --amp_mode */
static int flag_count;

static vt_status own_open(own *o, const bench_size *size, bool half)
{
    vt_status status = VT_OK;
    vt_plan plan;
    flags[flag_count] = half ? "--amp_mode=bf16" : "--amp_mode=none";
    VT_TRY(vt_config_open_text(size->settings, "bench/step", flag_count + 1, flags, 1, &o->config));
    VT_TRY(vt_backend_open_cpu((vt_cpu_isa)o->config->cpu_isa, 0, &o->backend));
    VT_TRY(vt_practice_open(o->config, o->config->global_batch_size, o->backend, &o->practice));
    VT_TRY(vt_plan_make(o->config, &(vt_plan_options){0}, &plan));
    o->gigaflops = 1e-9 * plan.step.flops;
done:
    return status;
}

static void own_close(own *o)
{
    vt_practice_close(&o->practice);
    vt_backend_close(&o->backend);
    vt_config_close(&o->config);
}

static void print_line(const bench_size *size, bool half, const own *o, int rounds, double *ours, double *theirs,
                       double rival_peak)
{
    double mine = vt_median(ours, rounds);
    printf("%-7s %-8s vitrain %9.4f s/step  %7.1f GFLOP/s  peak %6.0f MB", size->name, half ? "bf16" : "float32", mine,
           o->gigaflops / mine, vt_memory_of_process("VmHWM") / 1048576);
    if (theirs != NULL) {
        double other = vt_median(theirs, rounds);
        printf("   PyTorch %9.4f s/step  peak %6.0f MB   ratio %.2f", other, rival_peak / 1048576, other / mine);
    }
    printf("   (medians of %d turns of %d)\n", rounds, size->steps);
}

/* Seconds a step, of one turn. */
static vt_status own_turn(own *o, int steps, double *seconds)
{
    vt_status status = VT_OK;
    double begin = vt_clock_seconds();
    for (int i = 0; i < steps; i++) VT_TRY(vt_practice_step(o->practice));
    *seconds = (vt_clock_seconds() - begin) / steps;
done:
    return status;
}

/* Runs one size in a process of its own, so that its peak memory is its own. */
static vt_status run(const bench_size *size, bool half, const char *python, int rounds)
{
    vt_status status = VT_OK;
    own o = {0};
    rival r = {0};
    double warm, ours[256], theirs[256], peak = 0;
    char description[1024] = "";
    bool with_rival = python != NULL;
    VT_TRY(own_open(&o, size, half));
    if (strcmp(size->name, "small") == 0 && !half) printf("vitrain on: %s\n", o.backend->name);
    VT_TRY(own_turn(&o, 2, &warm));
    if (with_rival) VT_CHECK(rival_open(&r, python, o.config), "%s bench/pytorch_step.py did not start", python);
    for (int i = 0; i < rounds; i++) {
        VT_TRY(own_turn(&o, size->steps, &ours[i]));
        if (with_rival) theirs[i] = rival_turn(&r, size->steps);
    }
    if (with_rival) peak = rival_close(&r, description, sizeof description);
    print_line(size, half, &o, rounds, ours, with_rival ? theirs : NULL, peak);
    if (with_rival) printf("        %s\n", description);
    VT_TRY(vt_step_times_print(o.practice, o.backend, half ? VT_BFLOAT16 : VT_FLOAT32, rounds < 8 ? rounds : 8));
done:
    own_close(&o);
    return status;
}

int main(int argument_count, char **arguments)
{
    const char *python = NULL, *only = NULL, *mode = NULL;
    int rounds = 0, failures = 0;
    vt_threads_wait_shortly(arguments);
    for (int i = 1; i < argument_count; i++) {
        if (strncmp(arguments[i], "--python=", 9) == 0)
            python = arguments[i][9] != '\0' ? arguments[i] + 9 : NULL;
        else if (strncmp(arguments[i], "--size=", 7) == 0)
            only = arguments[i] + 7;
        else if (strncmp(arguments[i], "--amp_mode=", 11) == 0)
            mode = arguments[i] + 11;
        else if (strncmp(arguments[i], "--rounds=", 9) == 0)
            rounds = atoi(arguments[i] + 9);
        else if (flag_count < (int)(sizeof flags / sizeof flags[0]) - 1)
            flags[flag_count++] = arguments[i];
    }
    if (rounds < 0 || rounds > 256) rounds = 256;
    for (size_t i = 0; i < 2 * (sizeof sizes / sizeof sizes[0]); i++) {
        const bench_size *size = &sizes[i / 2];
        bool half = i % 2 == 1;
        if (only != NULL && strcmp(only, size->name) != 0) continue;
        if (mode != NULL && strcmp(mode, half ? "bf16" : "none") != 0) continue;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            vt_status status = run(size, half, python,
                                   rounds > 0 ? rounds
                                   : half     ? size->rounds / 3 + 1
                                              : size->rounds);
            if (status != VT_OK) fprintf(stderr, "bench/step: %s\n", vt_error_text());
            fflush(stdout);
            _exit(status == VT_OK ? 0 : 1);
        }
        int result = 1;
        waitpid(child, &result, 0);
        failures += result != 0;
    }
    return failures > 0 ? 1 : 0;
}
