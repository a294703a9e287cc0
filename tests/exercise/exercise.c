/* An exercise of docs/lab.md: an MLP whose hidden layer is split over ranks, beside the whole one. It is linked with
 * the student's mlp.c, and says how far the ranks' output and input gradient are off; exit status 1 if they are. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/mlp.h"

enum { DIM = 1024, HIDDEN = 4096, TOKENS = 16, NUMBERS = TOKENS * DIM };

/* The MLP over the ranks of a launch. */
typedef struct {
    vt_config *config;
    vt_world *world;
    vt_backend *backend;
    vt_parallel *parallel;
    vt_parameters *parameters;
    vt_mlp mlp;
    vt_arena arena;
    float y[NUMBERS], dx[NUMBERS];
} side;

static vt_status open_side(const vt_launch *launch, side *s)
{
    static const vt_parameters_storage storage = {.bucket_bytes = 1 << 25, .shards = 1, .grain = 16};
    static const vt_mlp_options options = {.dim = DIM, .hidden = HIDDEN, .names = {"fc1", "fc2"}};
    vt_status status = VT_OK;
    char ranks[16];
    snprintf(ranks, sizeof ranks, "%d", launch->world_size);
    VT_TRY(vt_config_open_default(&s->config));
    VT_TRY(vt_config_set(s->config, "tensor_parallel", ranks));
    VT_TRY(vt_world_open(s->config, launch, &s->world));
    VT_TRY(vt_backend_open_cpu(VT_ISA_AUTO, 1, &s->backend));
    VT_TRY(vt_parallel_open(s->config, s->world, s->backend, TOKENS, &s->parallel));
    VT_TRY(vt_parameters_open(s->backend, s->parallel, &s->parameters));
    vt_mlp_build(&s->mlp, s->parameters, "mlp", &options);
    VT_TRY(vt_parameters_allocate(s->parameters, VT_FLOAT32, &storage));
    vt_parameters_start(s->parameters, 1, "");
    VT_TRY(vt_arena_open(s->backend, (size_t)1 << 26, &s->arena));
done:
    return status;
}

static void side_close(side *s)
{
    if (s->backend != NULL) vt_arena_close(&s->arena);
    vt_parameters_close(&s->parameters);
    vt_parallel_close(&s->parallel);
    vt_backend_close(&s->backend);
    vt_world_close(&s->world, false);
    vt_config_close(&s->config);
}

/* Forward, and backward of dy. */
static void run(side *s, const float *x, const float *dy)
{
    const vt_pass pass = {.backend = s->backend,
                          .arena = &s->arena,
                          .parallel = s->parallel,
                          .batch = 1,
                          .type = VT_FLOAT32,
                          .has_backward = true,
                          .keeps = true};
    const vt_matrix input = vt_matrix_make((float *)(uintptr_t)x, TOKENS, DIM);
    const vt_matrix gradient = vt_matrix_make((float *)(uintptr_t)dy, TOKENS, DIM);
    const vt_mlp_saved saved = vt_mlp_reserve(&s->mlp, &pass);
    vt_mlp_forward(&s->mlp, &pass, input, vt_matrix_make(s->y, TOKENS, DIM), &saved);
    vt_mlp_backward(&s->mlp, &pass, input, gradient, vt_matrix_make(s->dx, TOKENS, DIM), &saved);
}

/* Sums of 4096 products in another order are off by about 64 roundings of 6e-8. */
static bool is_right(const char *name, const float *ranks, const float *whole)
{
    double most = 0, largest = 0;
    for (int i = 0; i < NUMBERS; i++) {
        most = fmax(most, fabs((double)ranks[i] - (double)whole[i]));
        largest = fmax(largest, fabs((double)whole[i]));
    }
    printf("%s: off by %.1e of its largest number: %s\n", name, most / largest,
           most < 1e-5 * largest ? "right" : "wrong");
    return most < 1e-5 * largest;
}

int main(void)
{
    static side whole, ranks;
    static float x[NUMBERS], dy[NUMBERS];
    const vt_launch alone = {.world_size = 1, .local_size = 1};
    vt_launch launch;
    vt_status status = VT_OK;
    bool right = false;
    for (int i = 0; i < NUMBERS; i++) x[i] = sinf((float)i), dy[i] = cosf(0.7f * (float)i);
    VT_TRY(vt_launch_detect(&launch));
    VT_TRY(open_side(&alone, &whole));
    VT_TRY(open_side(&launch, &ranks));
    run(&whole, x, dy);
    run(&ranks, x, dy);
    right = true;
    if (launch.rank == 0) {
        printf("%d ranks; each has %ld of the %d hidden columns\n", launch.world_size, ranks.mlp.fc1.out, HIDDEN);
        right = is_right("output", ranks.y, whole.y);
        right = is_right("input's gradient", ranks.dx, whole.dx) && right;
    }
done:
    if (status != VT_OK) fprintf(stderr, "exercise: %s\n", vt_error_text());
    side_close(&ranks);
    side_close(&whole);
    return right ? 0 : 1;
}
