/* The three products of a linear layer, as the back end does them (operands as they lie in a step, packing, bias and
 * the bias's gradient included), in turn with oneDNN's alone, on operands that were brought into its favourite layout
 * before; medians, on all cores.
 *
 *     build/bench/products [--amp_mode=none|bf16] [--rounds=N] [--cpu_isa=ISA]
 *
 * Both types, unless one is asked for: float32, and bfloat16 with a weight's gradient in float32. The ratio is the
 * library's time over ours: 1 is its speed, without what it takes to pack. */
#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/half.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/threads.h"
#include "config/config.h"

enum { MOST_ROUNDS = 1000, OPERATIONS = 3 };

typedef struct {
    int64_t rows, out, in;
} layer;

/* Of a block at the full, the medium and the small size of bench/step: fc1, fc2, qkv, proj. */
static const layer layers[] = {
    {4050, 1536, 384}, {4050, 384, 1536}, {4050, 1152, 384}, {4050, 384, 384}, {1800, 1024, 256}, {1800, 256, 1024},
    {1800, 768, 256},  {1800, 256, 256},  {1024, 512, 128},  {1024, 128, 512}, {1024, 384, 128},  {1024, 128, 128},
};
static const char *const names[OPERATIONS] = {"forward", "input's gradient", "weight's gradient"};

/* ---- oneDNN: c [m, n] = a [m, k] b [k, n], each in the layout that it chooses ---- */

typedef struct {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arguments[3];
} library_product;

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static void expect(bool done, const char *what)
{
    if (done) return;
    fprintf(stderr, "bench/products: %s failed\n", what);
    exit(1);
}

#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t describe(dnnl_memory_desc_t *d, const dnnl_dims_t sizes, dnnl_data_type_t type)
{
    return dnnl_memory_desc_create_with_tag(d, 2, sizes, type, dnnl_format_tag_any);
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *product, dnnl_memory_desc_t d[3])
{
    return dnnl_matmul_primitive_desc_create(product, engine, d[0], d[1], NULL, d[2], NULL);
}

static size_t bytes_of(const_dnnl_memory_desc_t d)
{
    return dnnl_memory_desc_get_size(d);
}
#else
static dnnl_status_t describe(dnnl_memory_desc_t *d, const dnnl_dims_t sizes, dnnl_data_type_t type)
{
    return dnnl_memory_desc_init_by_tag(d, 2, sizes, type, dnnl_format_tag_any);
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *product, dnnl_memory_desc_t d[3])
{
    dnnl_matmul_desc_t description;
    dnnl_status_t status = dnnl_matmul_desc_init(&description, &d[0], &d[1], NULL, &d[2]);
    return status == dnnl_success ? dnnl_primitive_desc_create(product, &description, NULL, engine, NULL) : status;
}

static size_t bytes_of(const dnnl_memory_desc_t *d)
{
    return dnnl_memory_desc_get_size(d);
}
#endif

/* Numbers of this type, the same on both sides. */
static void fill(vt_type type, void *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float value = (float)(i % 17) / 16 - 0.5f;
        if (type == VT_FLOAT32)
            ((float *)values)[i] = value;
        else
            ((uint16_t *)values)[i] = vt_half_round(type, value);
    }
}

/* False: the library has no such product for this processor. */
static bool library_open(library_product *p, vt_type type, vt_type result, int64_t m, int64_t n, int64_t k)
{
    const dnnl_dims_t sizes[3] = {{m, k}, {k, n}, {m, n}};
    const dnnl_query_t queries[3] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md};
    const int names_of[3] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    const vt_type types[3] = {type, type, result};
    dnnl_memory_desc_t d[3];
    dnnl_primitive_desc_t description;
    for (int i = 0; i < 3; i++)
        expect(describe(&d[i], sizes[i], types[i] == VT_FLOAT32 ? dnnl_f32 : dnnl_bf16) == dnnl_success,
               "a description");
    if (describe_product(&description, d) != dnnl_success) return false;
    expect(dnnl_primitive_create(&p->primitive, description) == dnnl_success, "dnnl_primitive_create");
    for (int i = 0; i < 3; i++) {
        void *values = NULL;
        dnnl_memory_t memory;
        expect(dnnl_memory_create(&memory, dnnl_primitive_desc_query_md(description, queries[i], 0), engine,
                                  DNNL_MEMORY_ALLOCATE) == dnnl_success &&
                   dnnl_memory_get_data_handle(memory, &values) == dnnl_success,
               "dnnl_memory_create");
        fill(types[i], values,
             bytes_of(dnnl_primitive_desc_query_md(description, queries[i], 0)) / vt_type_size(types[i]));
        p->arguments[i] = (dnnl_exec_arg_t){names_of[i], memory};
    }
    dnnl_primitive_desc_destroy(description);
    return true;
}

static double library_run(const library_product *p)
{
    double begin = vt_clock_seconds();
    bool done = dnnl_primitive_execute(p->primitive, stream, 3, p->arguments) == dnnl_success &&
                dnnl_stream_wait(stream) == dnnl_success;
    expect(done, "dnnl_primitive_execute");
    return vt_clock_seconds() - begin;
}

static void library_close(library_product *p)
{
    for (int i = 0; i < 3; i++) dnnl_memory_destroy(p->arguments[i].memory);
    dnnl_primitive_destroy(p->primitive);
}

/* ---- the back end ---- */

typedef struct {
    vt_matrix x, y, weight;
    float *bias, *dweight, *dbias;
} operands;

/* In the back end's memory, as a step's operands are. */
static void *make_values(vt_backend *backend, vt_type type, int64_t count)
{
    void *values;
    expect(backend->allocate(backend, VT_MEMORY_ACTIVATIONS, (size_t)count * vt_type_size(type), &values) == VT_OK,
           vt_error_text());
    fill(type, values, (size_t)count);
    return values;
}

static vt_matrix make_matrix(vt_backend *backend, vt_type type, int64_t rows, int64_t columns)
{
    vt_matrix matrix = vt_matrix_make(make_values(backend, type, rows * columns), rows, columns);
    matrix.type = type;
    return matrix;
}

static double own_run(vt_backend *backend, const operands *o, int operation)
{
    double begin = vt_clock_seconds();
    if (operation == 0)
        backend->linear_forward(backend, o->x, o->weight, o->bias, o->y);
    else if (operation == 1)
        backend->linear_backward_input(backend, o->y, o->weight, o->x);
    else
        backend->linear_backward_weight(backend, o->x, o->y, o->dweight, o->dbias);
    return vt_clock_seconds() - begin;
}

/* False: the library lacks one of the products. */
static bool measure(vt_backend *backend, vt_type type, const layer *l, int rounds)
{
    static double own[OPERATIONS][MOST_ROUNDS], theirs[OPERATIONS][MOST_ROUNDS];
    library_product products[OPERATIONS];
    bool has[OPERATIONS] = {library_open(&products[0], type, type, l->rows, l->out, l->in),
                            library_open(&products[1], type, type, l->rows, l->in, l->out),
                            library_open(&products[2], type, VT_FLOAT32, l->out, l->in, l->rows)};
    operands o = {make_matrix(backend, type, l->rows, l->in),       make_matrix(backend, type, l->rows, l->out),
                  make_matrix(backend, type, l->out, l->in),        make_values(backend, VT_FLOAT32, l->out),
                  make_values(backend, VT_FLOAT32, l->out * l->in), make_values(backend, VT_FLOAT32, l->out)};
    bool all = has[0] && has[1] && has[2];
    for (int round = -1; all && round < rounds; round++) { /* the first one warms up */
        for (int i = 0; i < OPERATIONS; i++) {
            double mine = own_run(backend, &o, i), other = library_run(&products[i]);
            if (round < 0) continue;
            own[i][round] = mine;
            theirs[i][round] = other;
        }
    }
    double gigaflops = 2e-9 * (double)(l->rows * l->out * l->in);
    if (all) printf("%5lld x %4lld x %4lld ", (long long)l->rows, (long long)l->out, (long long)l->in);
    for (int i = 0; all && i < OPERATIONS; i++) {
        double mine = vt_median(own[i], rounds), other = vt_median(theirs[i], rounds);
        printf("  %6.1f %6.1f %6.2f", gigaflops / mine, gigaflops / other, other / mine);
    }
    if (all) printf("\n");
    for (int i = 0; i < OPERATIONS; i++)
        if (has[i]) library_close(&products[i]);
    void *const memory[] = {o.x.data, o.y.data, o.weight.data, o.bias, o.dweight, o.dbias};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) backend->release(backend, memory[i]);
    return all;
}

static void measure_all(vt_backend *backend, vt_type type, int rounds)
{
    const dnnl_version_t *version = dnnl_version();
    printf("%s, %s, beside oneDNN %d.%d.%d on packed operands; GFLOP/s of both, medians of %d rounds, ratio\n",
           backend->name, type == VT_FLOAT32 ? "float32" : "bf16", version->major, version->minor, version->patch,
           rounds);
    printf("%5s   %4s   %4s ", "rows", "out", "in");
    for (int i = 0; i < OPERATIONS; i++) printf("  %20s", names[i]);
    printf("\n");
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        if (measure(backend, type, &layers[i], rounds)) continue;
        printf("oneDNN has no such products for this processor\n");
        return;
    }
}

int main(int argument_count, char **arguments)
{
    int rounds = 31;
    const char *isa = "auto", *mode = "both";
    vt_backend *backend = NULL;
    vt_config *config = NULL;
    vt_threads_wait_shortly(arguments);
    for (int i = 1; i < argument_count; i++) {
        if (strncmp(arguments[i], "--cpu_isa=", 10) == 0)
            isa = arguments[i] + 10;
        else if (strcmp(arguments[i], "--amp_mode=none") == 0 || strcmp(arguments[i], "--amp_mode=bf16") == 0)
            mode = arguments[i] + 11;
        else
            rounds = strncmp(arguments[i], "--rounds=", 9) == 0 ? atoi(arguments[i] + 9) : 0;
    }
    if (rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: bench/products [--amp_mode=none|bf16] [--rounds=N] [--cpu_isa=ISA], 1 to %d rounds\n",
                MOST_ROUNDS);
        return 2;
    }
    if (vt_config_open_default(&config) != VT_OK || vt_config_set(config, "cpu_isa", isa) != VT_OK ||
        vt_backend_open_cpu((vt_cpu_isa)config->cpu_isa, 0, &backend) != VT_OK) {
        fprintf(stderr, "bench/products: %s\n", vt_error_text());
        return 1;
    }
    expect(dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success &&
               dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) == dnnl_success,
           "oneDNN");
    if (strcmp(mode, "bf16") != 0) measure_all(backend, VT_FLOAT32, rounds);
    if (strcmp(mode, "none") != 0) measure_all(backend, VT_BFLOAT16, rounds);
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
    vt_backend_close(&backend);
    vt_config_close(&config);
    return 0;
}
