/* Multi-head self-attention with separate q, k, v and proj (timm's layout, the names of the tutorials' state_dict). The
 * tensor axis splits the heads. On the context axis each rank has the queries of its own tokens and needs all keys and
 * values: they are gathered first, or passed from rank to rank in a ring. */
#ifndef VT_MODEL_ATTENTION_H
#define VT_MODEL_ATTENTION_H

#include "model/linear.h"

typedef struct {
    vt_linear qkv; /* q, k and v as one product: their weights are adjacent in memory, and so are their biases */
    vt_linear proj;
    int64_t width, heads; /* of this rank's heads: width = heads * head_dim */
    int64_t first_head, layer;
    double dropout; /* rate, of the attention weights */
} vt_attention;

/* What forward keeps for backward, in the arena. rows: vt_pass_inner_rows. */
typedef struct {
    vt_matrix qkv_out, out; /* [rows, 3 width], [rows, width], in the pass's type */
    float *log_sum;         /* [batch, heads, queries] */
} vt_attention_saved;

/* Registers prefix.{q,k,v}.{weight,bias} and prefix.proj.{weight,bias}. */
void vt_attention_build(vt_attention *attention, vt_parameters *parameters, const char *prefix, int64_t layer,
                        int64_t dim, int64_t heads, double dropout);

/* Pushes what forward keeps on the arena. */
vt_attention_saved vt_attention_reserve(const vt_attention *attention, const vt_pass *pass);

/* x [vt_pass_rows, dim] in the pass's type, y [vt_pass_rows, dim] in float32. */
void vt_attention_forward(const vt_attention *attention, const vt_pass *pass, vt_matrix x, vt_matrix y,
                          const vt_attention_saved *saved);

/* x as in forward; dy as x; dx [vt_pass_rows, dim] float32 is overwritten and may be dy. */
void vt_attention_backward(const vt_attention *attention, const vt_pass *pass, vt_matrix x, vt_matrix dy, vt_matrix dx,
                           const vt_attention_saved *saved);

#endif
