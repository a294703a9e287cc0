/* Products of bfloat16 operands through oneDNN, for processors with units for them: it chooses the kernels at run time.
 * This is the only file that includes dnnl.h. */
#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

#include "backend/cpu/cpu.h"

/* The C APIs of 2.x and 3.x differ in what a description is, and in how a matrix product is described. */
#if DNNL_VERSION_MAJOR >= 3
#define DESCRIPTION(d) (d)
typedef const_dnnl_memory_desc_t stored_description;

static dnnl_status_t describe(dnnl_memory_desc_t *d, const dnnl_dims_t sizes, dnnl_data_type_t type,
                              const dnnl_dims_t strides)
{
    if (strides == NULL) return dnnl_memory_desc_create_with_tag(d, 2, sizes, type, dnnl_format_tag_any);
    return dnnl_memory_desc_create_with_strides(d, 2, sizes, type, strides);
}

static void forget(dnnl_memory_desc_t *d)
{
    if (*d != NULL) dnnl_memory_desc_destroy(*d);
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *product, dnnl_engine_t engine, dnnl_memory_desc_t a,
                                      dnnl_memory_desc_t b, dnnl_memory_desc_t *bias, dnnl_memory_desc_t c,
                                      dnnl_primitive_attr_t attributes)
{
    return dnnl_matmul_primitive_desc_create(product, engine, a, b, bias != NULL ? *bias : NULL, c, attributes);
}

static dnnl_status_t add_to_result(dnnl_post_ops_t operations)
{
    return dnnl_post_ops_append_sum(operations, 1.0f, 0, dnnl_data_type_undef);
}
#else
#define DESCRIPTION(d) (&(d))
typedef const dnnl_memory_desc_t *stored_description;

static dnnl_status_t describe(dnnl_memory_desc_t *d, const dnnl_dims_t sizes, dnnl_data_type_t type,
                              const dnnl_dims_t strides)
{
    if (strides == NULL) return dnnl_memory_desc_init_by_tag(d, 2, sizes, type, dnnl_format_tag_any);
    return dnnl_memory_desc_init_by_strides(d, 2, sizes, type, strides);
}

static void forget(dnnl_memory_desc_t *d)
{
    (void)d;
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *product, dnnl_engine_t engine, dnnl_memory_desc_t a,
                                      dnnl_memory_desc_t b, dnnl_memory_desc_t *bias, dnnl_memory_desc_t c,
                                      dnnl_primitive_attr_t attributes)
{
    dnnl_matmul_desc_t description;
    dnnl_status_t status = dnnl_matmul_desc_init(&description, &a, &b, bias, &c);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(product, &description, attributes, engine, NULL);
}

static dnnl_status_t add_to_result(dnnl_post_ops_t operations)
{
    return dnnl_post_ops_append_sum(operations, 1.0f);
}
#endif

/* c [m, n] = a [m, k] b [k, n] (+ bias, or + c). Element (i, j) of a is at i * a_strides[0] + j * a_strides[1]. */
typedef struct {
    int64_t m, n, k;
    int64_t a_strides[2], b_strides[2], c_stride;
    bool wide_result; /* float32; else bfloat16 */
    bool bias, add;
    bool pack; /* b is a weight: it is brought into the layout that the product likes best, once for each of its values
                */
} product_key;

enum { MOST_PRODUCTS = 256, MOST_PACKED = 4096 };

typedef struct {
    product_key key;
    dnnl_primitive_desc_t description;
    dnnl_primitive_t primitive;
    dnnl_primitive_t reorder; /* of b, when it is packed */
    bool usable;
} product_entry;

typedef struct {
    const uint16_t *weight;
    int product; /* index of the product that it is packed for */
    uint64_t version;
    dnnl_memory_t memory;
} packed_weight;

struct vt_onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    uint64_t version; /* raised when weights have changed */
    int product_count, packed_count;
    product_entry products[MOST_PRODUCTS];
    packed_weight packed[MOST_PACKED];
};

static bool make_product(struct vt_onednn *library, product_entry *entry)
{
    const product_key *key = &entry->key;
    const dnnl_dims_t a_size = {key->m, key->k}, b_size = {key->k, key->n}, c_size = {key->m, key->n};
    const dnnl_dims_t a_strides = {key->a_strides[0], key->a_strides[1]}, c_strides = {key->c_stride, 1};
    const dnnl_dims_t b_strides = {key->b_strides[0], key->b_strides[1]}, bias_size = {1, key->n},
                      bias_strides = {key->n, 1};
    dnnl_memory_desc_t a, b, b_plain, c, bias;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t operations = NULL;
    dnnl_primitive_desc_t reorder = NULL;
    bool made = describe(&a, a_size, dnnl_bf16, a_strides) == dnnl_success &&
                describe(&b, b_size, dnnl_bf16, key->pack ? NULL : b_strides) == dnnl_success &&
                describe(&b_plain, b_size, dnnl_bf16, b_strides) == dnnl_success &&
                describe(&c, c_size, key->wide_result ? dnnl_f32 : dnnl_bf16, c_strides) == dnnl_success &&
                describe(&bias, bias_size, dnnl_f32, bias_strides) == dnnl_success &&
                dnnl_primitive_attr_create(&attributes) == dnnl_success &&
                dnnl_post_ops_create(&operations) == dnnl_success;
    VT_ASSERT(made); /* descriptions fail only when they are wrong */
    if (key->add) made = add_to_result(operations) == dnnl_success;
    made = made && dnnl_primitive_attr_set_post_ops(attributes, operations) == dnnl_success &&
           describe_product(&entry->description, library->engine, a, b, key->bias ? &bias : NULL, c, attributes) ==
               dnnl_success &&
           dnnl_primitive_create(&entry->primitive, entry->description) == dnnl_success;
    if (made && key->pack) {
        stored_description packed = dnnl_primitive_desc_query_md(entry->description, dnnl_query_weights_md, 0);
        made = dnnl_reorder_primitive_desc_create(&reorder, DESCRIPTION(b_plain), library->engine, packed,
                                                  library->engine, NULL) == dnnl_success &&
               dnnl_primitive_create(&entry->reorder, reorder) == dnnl_success;
    }
    if (reorder != NULL) dnnl_primitive_desc_destroy(reorder);
    dnnl_post_ops_destroy(operations);
    dnnl_primitive_attr_destroy(attributes);
    dnnl_memory_desc_t *const all[] = {&a, &b, &b_plain, &c, &bias};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) forget(all[i]);
    return made;
}

static bool same_product(const product_key *a, const product_key *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->a_strides[0] == b->a_strides[0] &&
           a->a_strides[1] == b->a_strides[1] && a->b_strides[0] == b->b_strides[0] &&
           a->b_strides[1] == b->b_strides[1] && a->c_stride == b->c_stride && a->wide_result == b->wide_result &&
           a->bias == b->bias && a->add == b->add && a->pack == b->pack;
}

/* The product of this shape, made on first use; NULL when the library has none or the table is full. */
static product_entry *find_product(struct vt_onednn *library, const product_key *key)
{
    for (int i = 0; i < library->product_count; i++)
        if (same_product(&library->products[i].key, key))
            return library->products[i].usable ? &library->products[i] : NULL;
    if (library->product_count == MOST_PRODUCTS) return NULL;
    product_entry *entry = &library->products[library->product_count++];
    entry->key = *key;
    entry->usable = make_product(library, entry);
    return entry->usable ? entry : NULL;
}

static dnnl_memory_t wrap(const struct vt_onednn *library, const product_entry *entry, dnnl_query_t what, int index,
                          const void *handle)
{
    dnnl_memory_t memory = NULL;
    stored_description description = dnnl_primitive_desc_query_md(entry->description, what, index);
    dnnl_status_t status = dnnl_memory_create(&memory, description, library->engine, (void *)(uintptr_t)handle);
    VT_ASSERT(status == dnnl_success);
    return memory;
}

static void reorder_weight(struct vt_onednn *library, const product_entry *entry, packed_weight *packed)
{
    const product_key *key = &entry->key;
    dnnl_memory_desc_t plain;
    dnnl_memory_t from = NULL;
    const dnnl_dims_t size = {key->k, key->n}, strides = {key->b_strides[0], key->b_strides[1]};
    bool done = describe(&plain, size, dnnl_bf16, strides) == dnnl_success &&
                dnnl_memory_create(&from, DESCRIPTION(plain), library->engine, (void *)(uintptr_t)packed->weight) ==
                    dnnl_success;
    const dnnl_exec_arg_t arguments[2] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, packed->memory}};
    done = done && dnnl_primitive_execute(entry->reorder, library->stream, 2, arguments) == dnnl_success &&
           dnnl_stream_wait(library->stream) == dnnl_success;
    VT_ASSERT(done);
    packed->version = library->version;
    dnnl_memory_destroy(from);
    forget(&plain);
}

/* The packed copy of a weight, packed anew if its values have changed since; NULL when the table is full. */
static dnnl_memory_t find_packed(struct vt_onednn *library, const product_entry *entry, const uint16_t *weight)
{
    int product = (int)(entry - library->products), i = 0;
    while (i < library->packed_count && (library->packed[i].weight != weight || library->packed[i].product != product))
        i++;
    if (i == MOST_PACKED) return NULL;
    packed_weight *packed = &library->packed[i];
    if (i == library->packed_count) {
        *packed = (packed_weight){.weight = weight, .product = product};
        packed->memory = wrap(library, entry, dnnl_query_weights_md, 0, DNNL_MEMORY_ALLOCATE);
        library->packed_count++;
    }
    if (packed->version != library->version) reorder_weight(library, entry, packed);
    return packed->memory;
}

static bool run_product(struct vt_onednn *library, const product_key *key, const uint16_t *a, const uint16_t *b,
                        const float *bias, void *c)
{
    const product_entry *entry = find_product(library, key);
    if (entry == NULL) return false;
    dnnl_memory_t packed = key->pack ? find_packed(library, entry, b) : NULL;
    if (key->pack && packed == NULL) return false;
    dnnl_memory_t from_a = wrap(library, entry, dnnl_query_src_md, 0, a);
    dnnl_memory_t from_b = key->pack ? packed : wrap(library, entry, dnnl_query_weights_md, 0, b);
    dnnl_memory_t from_bias = key->bias ? wrap(library, entry, dnnl_query_weights_md, 1, bias) : NULL;
    dnnl_memory_t to = wrap(library, entry, dnnl_query_dst_md, 0, c);
    const dnnl_exec_arg_t arguments[4] = {
        {DNNL_ARG_SRC, from_a}, {DNNL_ARG_WEIGHTS, from_b}, {DNNL_ARG_DST, to}, {DNNL_ARG_BIAS, from_bias}};
    dnnl_status_t status = dnnl_primitive_execute(entry->primitive, library->stream, key->bias ? 4 : 3, arguments);
    VT_ASSERT(status == dnnl_success && dnnl_stream_wait(library->stream) == dnnl_success);
    dnnl_memory_destroy(from_a);
    if (!key->pack) dnnl_memory_destroy(from_b);
    if (from_bias != NULL) dnnl_memory_destroy(from_bias);
    dnnl_memory_destroy(to);
    return true;
}

bool vt_onednn_forward(struct vt_onednn *library, vt_matrix x, vt_matrix weight, const float *bias, vt_matrix y)
{
    product_key key = {.m = x.rows,
                       .n = y.columns,
                       .k = x.columns,
                       .a_strides = {x.stride, 1},
                       .b_strides = {1, weight.stride},
                       .c_stride = y.stride,
                       .wide_result = y.type == VT_FLOAT32,
                       .bias = bias != NULL,
                       .pack = true};
    return run_product(library, &key, x.half, weight.half, bias, y.data);
}

bool vt_onednn_backward_input(struct vt_onednn *library, vt_matrix dy, vt_matrix weight, vt_matrix dx)
{
    product_key key = {.m = dy.rows,
                       .n = dx.columns,
                       .k = dy.columns,
                       .a_strides = {dy.stride, 1},
                       .b_strides = {weight.stride, 1},
                       .c_stride = dx.stride,
                       .wide_result = dx.type == VT_FLOAT32,
                       .pack = true};
    return run_product(library, &key, dy.half, weight.half, NULL, dx.data);
}

bool vt_onednn_backward_weight(struct vt_onednn *library, vt_matrix x, vt_matrix dy, float *dweight)
{
    product_key key = {.m = dy.columns,
                       .n = x.columns,
                       .k = x.rows,
                       .a_strides = {1, dy.stride},
                       .b_strides = {x.stride, 1},
                       .c_stride = x.columns,
                       .wide_result = true,
                       .add = true};
    return run_product(library, &key, dy.half, x.half, NULL, dweight);
}

void vt_onednn_weights_changed(struct vt_onednn *library)
{
    library->version++;
}

struct vt_onednn *vt_onednn_open(void)
{
    struct vt_onednn *library = vt_allocate(1, sizeof *library, "oneDNN");
    library->version = 1;
    if (dnnl_engine_create(&library->engine, dnnl_cpu, 0) == dnnl_success &&
        dnnl_stream_create(&library->stream, library->engine, dnnl_stream_default_flags) == dnnl_success)
        return library;
    vt_onednn_close(&library);
    return NULL;
}

void vt_onednn_close(struct vt_onednn **pointer)
{
    struct vt_onednn *library = *pointer;
    if (library == NULL) return;
    for (int i = 0; i < library->packed_count; i++) dnnl_memory_destroy(library->packed[i].memory);
    for (int i = 0; i < library->product_count; i++) {
        product_entry *entry = &library->products[i];
        if (entry->reorder != NULL) dnnl_primitive_destroy(entry->reorder);
        if (entry->primitive != NULL) dnnl_primitive_destroy(entry->primitive);
        if (entry->description != NULL) dnnl_primitive_desc_destroy(entry->description);
    }
    if (library->stream != NULL) dnnl_stream_destroy(library->stream);
    if (library->engine != NULL) dnnl_engine_destroy(library->engine);
    free(library);
    *pointer = NULL;
}

void vt_onednn_version(char *version, size_t size)
{
    const dnnl_version_t *library = dnnl_version();
    snprintf(version, size, "oneDNN %d.%d.%d", library->major, library->minor, library->patch);
}
