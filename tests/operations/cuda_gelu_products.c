/* cuda/gelu_products.c without a GPU, over a stand-in for cuDNN that computes what it was described: what its graphs
 * compute, and when they run rather than the product and our kernel. */
#include "operations/gelu_case.h"
#include "operations/paths.h"
#include "test.h"

#if defined(VT_HAS_CUDA) && defined(VT_HAS_CUDNN) && defined(VT_HAS_HOST_CUDA)

#define FAKE_PLANS gelu_products
#include "operations/fake_graph.h"
#include "operations/fake_plans.h"

#include "cuda/graph_plans.h"

static void fake_compute_graph(const fake_descriptor *graph, const fake_descriptor *pack)
{
    fake_graph_run(graph, pack);
}

static vt_backend *plain_of(vt_backend *backend)
{
    return ((own_state *)backend->state)->plain;
}

static void fake_product_then_gelu(vt_backend *backend, vt_gelu kind, vt_matrix x, vt_matrix weight, const float *bias,
                                   const uint16_t *rounded, vt_matrix hidden, vt_matrix active)
{
    plain_of(backend)->linear_gelu_forward(plain_of(backend), kind, x, weight, bias, rounded, hidden, active);
}

static void backward_input(vt_backend *backend, vt_matrix dy, vt_matrix weight, vt_matrix dx)
{
    plain_of(backend)->linear_backward_input(plain_of(backend), dy, weight, dx);
}

#define vt_product_then_gelu fake_product_then_gelu
#define cudaPeekAtLastError no_error
#define vt_gelu_products_fill fill_gelu_products
#define vt_gelu_product_describe describe_gelu_product
#include "cuda/gelu_products.c"

/* Of cuDNN's plans that of proposal 1 is the fastest, with a time of 1; the product and our kernel take of_rival. */
static own_state *open_path_with_plans(vt_backend **b, double of_rival)
{
    static const double of_proposals[PROPOSALS] = {4, 1, 2, 3};
    *b = open_path_of_cudnn();
    own_state *own = (*b)->state;
    EXPECT_OK(path_open(VT_ISA_PLAIN, &own->plain));
    (*b)->linear_backward_input = backward_input;
    fill_gelu_products(*b);
    memcpy(times, of_proposals, sizeof times);
    rival_time = of_rival;
    return own;
}

TEST(products_with_gelu_in_one_kernel)
{
    static const int64_t sizes[][3] = {{13, 24, 40}, {1, 8, 8}, {37, 16, 64}};
    FOR_EACH_HALF(type)
    for (int i = 0; i < 6; i++) {
        vt_backend *b;
        gelu_case c;
        own_state *own = open_path_with_plans(&b, 2);
        gelu_case_open(&c, type, i % 2 == 0 ? VT_GELU_ERF : VT_GELU_TANH, sizes[i / 2][0], sizes[i / 2][1],
                       sizes[i / 2][2], TWINS_ALIGNED);
        gelu_case_run(b, &c);
        EXPECT(fake.timings == 2 && fake.last == 1, "%d timings, proposal %d", fake.timings, fake.last);
        gelu_case_compare(own->plain, &c);
        const int runs = fake.runs;
        gelu_case_run(b, &c);
        EXPECT(fake.timings == 2 && fake.runs == runs + 2, "it is timed once");
        close_path(&b);
    }
}

/* Where the two operations are faster, where no plan can be made or tried, and for operands that it does not take. */
TEST(products_with_gelu_without_cudnn)
{
    enum { SLOWER, NO_PLANS, NO_MEMORY, NO_RUNS, UNALIGNED, NO_ROUNDED_BIAS, WAYS };
    for (int way = SLOWER; way < WAYS; way++) {
        vt_backend *b;
        gelu_case c;
        own_state *own = open_path_with_plans(&b, way == SLOWER ? 0.5 : 2);
        fake.refuses_plans = way == NO_PLANS;
        gpu_is_full = way == NO_MEMORY;
        fake.refuses_runs = way == NO_RUNS;
        gelu_case_open(&c, VT_BFLOAT16, VT_GELU_ERF, 13, 24, 40, way == UNALIGNED ? TWINS_APART : TWINS_ALIGNED);
        gelu_case_run(b, &c);
        const int runs = fake.runs, timings = fake.timings;
        EXPECT(timings == (way == SLOWER || way == NO_RUNS || way == NO_ROUNDED_BIAS ? 2 : 0), "way %d: %d", way,
               timings);
        gelu_case_compare(own->plain, &c);
        b->linear_gelu_forward(b, c.kind, c.x.own, c.weight.own, c.bias, way == NO_ROUNDED_BIAS ? NULL : c.rounded,
                               c.hidden.own, c.active.own);
        EXPECT(fake.runs == runs && fake.timings == timings, "way %d", way);
        close_path(&b);
    }
}

TEST(kept_and_fixed_choices_of_products_with_gelu)
{
    SCOPED(vt_backend) *b;
    gelu_case c;
    gelu_case_open(&c, VT_BFLOAT16, VT_GELU_ERF, 13, 24, 40, TWINS_ALIGNED);
    own_state *own = open_path_with_plans(&b, 2);
    own->state.fixed_choices = true; /* nothing is timed */
    gelu_case_run(b, &c);
    EXPECT(fake.runs == 0 && fake.timings == 0);
    close_path(&b);
    for (int is_faster = 0; is_faster < 2; is_faster++) {
        own = open_path_with_plans(&b, is_faster ? 0.5 : 2);
        gelu_case_run(b, &c);
        char *kept = vt_test_owned(vt_choices_text(b->choices));
        close_path(&b);
        own = open_path_with_plans(&b, is_faster ? 2 : 0.5); /* other times don't change it */
        own->state.fixed_choices = is_faster;
        EXPECT(vt_choices_take(b->choices, kept) == 2);
        gelu_case_run(b, &c);
        EXPECT(fake.timings == 0 && fake.runs == (is_faster ? 0 : 2), "%d runs", fake.runs);
        close_path(&b);
        own = open_path_with_plans(&b, 0.5);
        own->state.cudnn->prefers_plans = true; /* whatever was kept */
        EXPECT(vt_choices_take(b->choices, kept) == 2);
        gelu_case_run(b, &c);
        EXPECT(fake.timings == 0 && fake.runs == 2);
        close_path(&b);
    }
    own = open_path_with_plans(&b, 2);
    gelu_case_run(b, &c);
    fake.refuses_runs = true;
    gelu_case_run(b, &c);
    EXPECT_ERROR(b->check(b), "cuDNN's product with GELU");
}

TEST(a_new_product_with_gelu_ends_a_recording)
{
    vt_backend *b;
    gelu_case c;
    own_state *own = open_path_with_plans(&b, 2);
    gelu_case_open(&c, VT_BFLOAT16, VT_GELU_ERF, 13, 24, 40, TWINS_ALIGNED);
    own->state.recording = true;
    gelu_case_run(b, &c);
    EXPECT(own->state.recording_fault != NULL && fake.timings == 0 && fake.runs == 0);
    own->state.recording = false;
    own->state.recording_fault = NULL;
    gelu_case_run(b, &c);
    own->state.recording = true;
    gelu_case_run(b, &c);
    EXPECT(own->state.recording_fault == NULL && fake.timings == 2);
    close_path(&b);
}

#endif
