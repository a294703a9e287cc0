/* cuda/products.c and cuda/product_plans.c without a GPU: over a stand-in for cuBLASLt. */
#include "operations/paths.h"
#include "operations/product_case.h"

#if defined(VT_HAS_CUDA) && defined(VT_HAS_HOST_CUDA)

#include "cuda/libraries.h"
#define VT_HOST_CUDA /* cuda/cuda.h: kernels on the host */
#include "cuda/state.h"

#include "operations/fake_cublaslt.h"

/* The files themselves, with other names and over the stand-in. */
#define vt_library_cublaslt fake_library
#define vt_cuda_time_all fake_time_all
#define cudaMalloc fake_malloc
#define cudaFree fake_free
#define vt_products_open tested_open
#define vt_products_close tested_close
#define vt_product_then_gelu product_then_gelu
#define vt_products_fill tested_fill
#define vt_products_version tested_version
#define vt_product_multiply tested_multiply
vt_status tested_open(vt_backend *backend, struct vt_products **products);
void tested_close(struct vt_products **products);
void tested_fill(vt_backend *backend);
size_t tested_version(const struct vt_products *products);
#include "cuda/product_plans.c"
#include "cuda/products.c"

/* ---- a back end over it ---- */

typedef struct {
    vt_backend *host, *plain, cuda; /* kernels on the host, the oracle, and the host's with the tested products */
    vt_cuda_state state;
} fixture;

static void open_fixture(fixture *f)
{
    memset(f, 0, sizeof *f);
    memset(&fake, 0, sizeof fake);
    EXPECT_OK(open_host_cuda(&f->host));
    EXPECT_OK(vt_backend_open_cpu(VT_ISA_PLAIN, 0, &f->plain));
    f->cuda = *f->host;
    f->cuda.state = &f->state;
    open_fake_gpu(&f->cuda);
    f->state.common.exact_float32 = true;
    EXPECT_OK(tested_open(f->host, &f->state.products));
    tested_fill(&f->cuda);
}

static void fixture_close(fixture *f)
{
    f->host->release(f->host, f->state.products->workspace);
    tested_close(&f->state.products);
    EXPECT(fake.open == 0, "%ld descriptors are left", fake.open);
    close_fake_gpu(&f->cuda);
    vt_backend_close(&f->plain);
    vt_backend_close(&f->host);
}

static twins make(vt_type type, int64_t rows, int64_t columns, uint64_t seed)
{
    return twins_random(type, rows, columns, seed, 1, TWINS_APART);
}

static void check_products(vt_type type)
{
    enum { OUT = 7 };
    SCOPED(fixture) f;
    open_fixture(&f);
    _Alignas(64) float bias[OUT + 4];
    _Alignas(64) uint16_t halves[OUT + 1];
    fill_random(bias, OUT + 4, 5, 1);
    /* a bias less aligned than the one before; an unaligned one; one that is there in 16 bits, too, and where those are
     * unaligned; a library that takes none */
    enum { AS_DOCUMENTED, LESS_ALIGNED, UNALIGNED, ROUNDED, ROUNDED_UNALIGNED, REFUSES, VARIANTS };
    for (int variant = 0; variant < VARIANTS; variant++) {
        if (variant == REFUSES) { /* the library is asked again */
            fixture_close(&f);
            open_fixture(&f);
        }
        fake.refuses_bias = variant == REFUSES;
        fake.products = fake.rounded_biases = 0, fake.bias = NULL;
        const float *own_bias = variant == LESS_ALIGNED ? bias + 4 : variant == UNALIGNED ? bias + 1 : bias;
        uint16_t *kept = variant == ROUNDED ? halves : variant == ROUNDED_UNALIGNED ? halves + 1 : NULL;
        for (int i = 0; kept != NULL && vt_type_is_half(type) && i < OUT; i++)
            kept[i] = vt_half_round(type, own_bias[i]);
        product_case c = product_case_open(type, 13, 10, OUT, TWINS_APART);
        product_case_run(&f.cuda, &c, own_bias, vt_type_is_half(type) ? kept : NULL, false);
        EXPECT(fake.products == 5, "variant %d: %d products", variant, fake.products);
        const int rounded = vt_type_is_half(type) && variant != REFUSES ? 2 : 0; /* with GELU and without */
        EXPECT(fake.rounded_biases == rounded, "variant %d: %d rounded biases", variant, fake.rounded_biases);
        EXPECT((fake.bias == halves) == (vt_type_is_half(type) && variant == ROUNDED), "variant %d: another bias",
               variant);
        EXPECT(!f.state.failed, "%s", vt_error_text());
        product_case_run(f.plain, &c, own_bias, NULL, true);
        product_case_compare(&c);
    }
}

TEST(products_as_the_library_is_documented)
{
    for (vt_type type = VT_FLOAT32; type < VT_TYPE_COUNT; type++) check_products(type);
}

/* Of several proposals the fastest that runs is used, and with `deterministic` the first that runs; trying them adds
 * nothing to the result, and the choice is kept. */
TEST(the_fastest_proposal_runs)
{
    static const double times[] = {1, 4, 3, 5};
    enum { ROWS = 5, IN = 4, OUT = 3 };
    for (int fixed = 0; fixed < 2; fixed++) {
        SCOPED(fixture) f;
        open_fixture(&f);
        f.state.fixed_choices = fixed != 0;
        fake.proposals = 4;
        fake.refuses_runs = 1;
        fake.times = times;
        twins x = make(VT_FLOAT32, ROWS, IN, 1), dy = make(VT_FLOAT32, ROWS, OUT, 2);
        float dweight[2][OUT * IN] = {{0}};
        for (int step = 0; step < 2; step++) {
            f.cuda.linear_backward_weight(&f.cuda, x.own, dy.own, dweight[0], NULL);
            f.plain->linear_backward_weight(f.plain, x.wide, dy.wide, dweight[1], NULL);
            EXPECT(fake.proposal == (fixed ? 1 : 2) && fake.questions == 1, "%d", fake.proposal);
        }
        for (int i = 0; i < OUT * IN; i++) EXPECT_NEAR(dweight[0][i], dweight[1][i], 1e-4);
        char *kept = vt_test_owned(vt_choices_text(f.cuda.choices));
        EXPECT(strstr(kept, "product ") != NULL && !f.state.failed);
    }
}

/* If the library has no product, the error names its sizes and the library's reason. */
TEST(a_product_that_is_refused)
{
    SCOPED(fixture) f;
    open_fixture(&f);
    twins x = make(VT_BFLOAT16, 5, 4, 1), weight = make(VT_FLOAT32, 3, 4, 2), y = make(VT_BFLOAT16, 5, 3, 3);
    f.cuda.linear_forward(&f.cuda, x.own, weight.own, NULL, NULL, y.own);
    EXPECT(f.state.failed &&
               strstr(vt_error_text(), "no product of 3 × 5 × 4 numbers (types 0, 1, 1; rows of 7, 7, 6") != NULL &&
               strstr(vt_error_text(), ": a status; report it") != NULL,
           "%s", vt_error_text());
    vt_error_clear();
    f.state.failed = false;
    f.cuda.linear_backward_input(&f.cuda, y.own, weight.own, x.own);
    EXPECT(f.state.failed && strstr(vt_error_text(), "no product of 4 × 5 × 3 numbers") != NULL, "%s", vt_error_text());
    vt_error_clear();
    _Alignas(64) float dweight[12] = {0}, bias[4] = {1, 2, 3}, before[18];
    twins dy = make(VT_FLOAT32, 5, 3, 4);
    memcpy(before, dy.own.data, sizeof before);
    fake.refuses_bias = true;
    f.cuda.linear_forward(&f.cuda, x.own, weight.own, bias, NULL, dy.own);
    EXPECT(memcmp(before, dy.own.data, sizeof before) == 0, "a bias was added to a product that was refused");
    vt_error_clear();
    f.cuda.linear_backward_weight(&f.cuda, x.own, dy.own, dweight, NULL);
    EXPECT(strstr(vt_error_text(), "no weight gradient of 4 × 3 × 5 numbers (types 1, 0, 0; rows of 7, 6, 4") != NULL,
           "%s", vt_error_text());
    vt_error_clear();
}

/* Asking the library and timing wait for the GPU, which is impossible while a step is recorded. Known choices still
 * work. */
TEST(a_new_shape_ends_a_recording)
{
    enum { ROWS = 5, IN = 4, OUT = 3 };
    SCOPED(fixture) f;
    open_fixture(&f);
    twins x = make(VT_BFLOAT16, ROWS, IN, 1), weight = make(VT_BFLOAT16, OUT, IN, 2);
    twins y = make(VT_BFLOAT16, ROWS, OUT, 3);
    f.cuda.linear_forward(&f.cuda, x.own, weight.own, NULL, NULL, y.own);
    const int asked = fake.questions;
    f.state.recording = true;
    f.cuda.linear_forward(&f.cuda, x.own, weight.own, NULL, NULL, y.own);
    EXPECT(fake.products == 2 && f.state.recording_fault == NULL);
    vt_matrix less = x.own, fewer = y.own;
    less.rows = fewer.rows = ROWS - 1;
    f.cuda.linear_forward(&f.cuda, less, weight.own, NULL, NULL, fewer);
    EXPECT(f.state.recording_fault != NULL && fake.products == 2 && fake.questions == asked && !f.state.failed);
    f.state.recording = false;
    f.cuda.linear_forward(&f.cuda, less, weight.own, NULL, NULL, fewer);
    EXPECT(fake.products == 3 && fake.questions > asked);
}

#endif
