/* 16-bit products of the CUDA back end against the plain loops on the same numbers in float32. On the GPU with the
 * algorithms that cuBLASLt's timing chooses there, including bias sums in a weight's gradient, and again with the kept
 * choices: then to the same bits. */
#include "operations/paths.h"
#include "operations/product_case.h"

typedef struct {
    int64_t rows, in, out;
    twins_place place; /* tight: as in a step */
} sizes;

static bool same_results(const product_case *a, const product_case *b)
{
    const twins *const of_a[] = {&a->y, &a->hidden, &a->active, &a->dx};
    const twins *const of_b[] = {&b->y, &b->hidden, &b->active, &b->dx};
    bool same = memcmp(a->dweight[1].memory, b->dweight[1].memory, (size_t)a->dweight[1].size * sizeof(float)) == 0 &&
                memcmp(a->dbias[1].memory, b->dbias[1].memory, (size_t)a->dbias[1].size * sizeof(float)) == 0;
    for (int i = 0; i < 4; i++) same = same && memcmp(of_a[i]->memory, of_b[i]->memory, of_a[i]->bytes) == 0;
    return same;
}

static void check_products(vt_cpu_isa isa, vt_type type, const sizes *s)
{
    const int times = isa == PATH_GPU ? 2 : 1;
    SCOPED(vt_backend) *plain = open_path(VT_ISA_PLAIN);
    product_case made[2];
    float *bias = vt_test_owned(malloc((size_t)s->out * sizeof *bias));
    uint16_t *rounded = vt_test_owned(malloc((size_t)s->out * sizeof *rounded));
    fill_random(bias, s->out, 6, 1);
    for (int64_t i = 0; i < s->out; i++) rounded[i] = vt_half_round(type, bias[i]);
    for (int i = 0; i < times; i++) {
        vt_backend *b = NULL;
        made[i] = product_case_open(type, s->rows, s->in, s->out, s->place);
        EXPECT_OK(isa == PATH_GPU ? path_open_timed_gpu(&b) : path_open(isa, &b));
        product_case_run(b, &made[i], bias, s->place == TWINS_APART ? NULL : rounded, false);
        close_path(&b);
    }
    product_case_run(plain, &made[0], bias, NULL, true);
    product_case_compare(&made[0]);
    EXPECT(times == 1 || same_results(&made[0], &made[1]), "%s, %ld x %ld x %ld: kept choices", half_name(type),
           s->rows, s->in, s->out);
}

/* With 8 numbers and fewer, odd sizes, and those of a model: with and without alignment. */
GPU_TEST(products_in_16_bits)
{
    static const sizes all[] = {{1, 7, 5, TWINS_APART},     {13, 8, 16, TWINS_TIGHT},    {97, 33, 65, TWINS_APART},
                                {97, 40, 56, TWINS_TIGHT},  {97, 40, 56, TWINS_ALIGNED}, {97, 40, 56, TWINS_APART},
                                {1013, 64, 48, TWINS_TIGHT}};
    setenv("XDG_CACHE_HOME", vt_test_directory(), 1);
    FOR_EACH_CUDA_PATH(isa)
    FOR_EACH_HALF(type)
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) check_products(isa, type, &all[i]);
}

/* One sample's rows of the reference model's MLP, as in a step. */
GPU_TEST(products_in_16_bits_of_a_models_size)
{
    static const sizes mlp = {4050, 384, 1536, TWINS_TIGHT};
    if (!path_is_available(PATH_GPU)) return vt_test_skip("this machine has no GPU");
    setenv("XDG_CACHE_HOME", vt_test_directory(), 1);
    FOR_EACH_HALF(type) check_products(PATH_GPU, type, &mlp);
}
