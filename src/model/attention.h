/* Multi-head attention with separate q, k, v and a projection of what comes out: to the stream itself, or with
 * `crosses` to another one of as many tokens, the memory. The tensor axis splits the heads. On the context axis each
 * rank has the queries of its own tokens and needs all keys and values: they are gathered first, or passed from rank to
 * rank in a ring. */
#ifndef VT_MODEL_ATTENTION_H
#define VT_MODEL_ATTENTION_H

#include "model/linear.h"

/* What a layer of attention is. */
typedef struct {
    int64_t layer, dim, heads;
    double dropout;        /* rate, of the attention weights */
    bool crosses;          /* keys and values come from the memory */
    bool causal, unscaled; /* as in vt_attention_shape */
    const char *names[4];  /* of the layers that make q, k and v, and of the projection */
    bool in_one;           /* files hold q, k and v as one tensor, in_proj_weight and in_proj_bias */
    double weight_bound;   /* q, k and v start uniform in ±weight_bound; 0: normal, std 0.02 */
    double bias_bound;     /* and their biases in this */
} vt_attention_options;

typedef struct {
    vt_attention_options options;
    /* q, k and v as one product: their weights are adjacent in memory, and so are their biases; with `crosses` q alone,
     * and k and v as one. */
    vt_linear qkv, kv;
    vt_linear proj;
    int64_t width, heads; /* of this rank's heads: width = heads * head_dim */
    int64_t first_head;
} vt_attention;

/* What forward keeps for backward, in the arena. rows: vt_pass_inner_rows. */
typedef struct {
    vt_matrix qkv_out, out; /* [rows, 3 width], [rows, width], in the pass's type */
    float *log_sum;         /* [batch, heads, queries] */
    uint16_t *drawn;        /* by attention_draw, for the keys of each step of a ring, or for all; NULL: not needed */
    /* Keys and values [tokens of a sample, 2 width] of the tokens before this rank's first one, which its own are put
     * behind; for passes without a backward over one sample. Without memory: there are none. */
    vt_matrix cache;
    bool kept; /* out and log_sum were reserved by vt_attention_begin */
    bool made; /* … and have their values: forward makes the rest again */
} vt_attention_saved;

/* Registers prefix.<name>.{weight,bias} of the four. */
void vt_attention_build(vt_attention *attention, vt_parameters *parameters, const char *prefix,
                        const vt_attention_options *options);

/* Before forward. keeps: pushes out and log_sum on the arena, so that they outlive the rest, which is made again. */
void vt_attention_begin(const vt_attention *attention, const vt_pass *pass, bool keeps, vt_attention_saved *saved);

/* Pushes what forward keeps on the arena, except for what vt_attention_begin did. */
void vt_attention_reserve(const vt_attention *attention, const vt_pass *pass, vt_attention_saved *saved);

/* x and, with `crosses`, memory [vt_pass_rows, dim] in the pass's type, y [vt_pass_rows, dim]. */
void vt_attention_forward(const vt_attention *attention, const vt_pass *pass, vt_matrix x, vt_matrix memory,
                          vt_matrix y, const vt_attention_saved *saved);

/* x and memory as in forward; dy as x; dx and dmemory [vt_pass_rows, dim] are overwritten; dx may be dy. */
void vt_attention_backward(const vt_attention *attention, const vt_pass *pass, vt_matrix x, vt_matrix memory,
                           vt_matrix dy, vt_matrix dx, vt_matrix dmemory, const vt_attention_saved *saved);

#endif
