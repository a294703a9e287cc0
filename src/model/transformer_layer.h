/* One post-norm layer of a transformer (Vaswani et al. 2017), an encoder's or a decoder's:
 * x = norm(x + dropout(attention(x))); a decoder's also x = norm(x + dropout(attention to the memory)); and at last
 * x = norm(x + dropout(linear2(dropout(relu(linear1(x)))))). */
#ifndef VT_MODEL_TRANSFORMER_LAYER_H
#define VT_MODEL_TRANSFORMER_LAYER_H

#include "model/attention.h"
#include "model/layer_norm.h"
#include "model/mlp.h"

typedef struct {
    vt_attention attention, cross;
    vt_layer_norm norms[3]; /* behind attention, a decoder's cross attention, and the MLP */
    vt_mlp mlp;
    const vt_config *config;
    int64_t dim, layer;
    bool is_decoder;
} vt_transformer_layer;

/* What forward keeps for backward. */
typedef struct {
    vt_matrix input;   /* [vt_pass_rows, dim] */
    vt_matrix sums[3]; /* what each norm normalises, float32 */
    vt_layer_norm_saved norms[3];
    vt_attention_saved attention, cross;
    vt_mlp_saved mlp;
} vt_transformer_layer_saved;

/* Registers prefix.… of layer `number`, the encoder's before the decoder's. The configuration outlives the layer. */
void vt_transformer_layer_build(vt_transformer_layer *layer, vt_parameters *parameters, const char *prefix,
                                const vt_config *config, int64_t number);

/* Called once before forward. keeps: what attention makes outlives the rest (vt_attention_begin). */
void vt_transformer_layer_begin(const vt_transformer_layer *layer, const vt_pass *pass, bool keeps,
                                vt_transformer_layer_saved *saved);

/* Pushes what forward keeps on the arena; rows: vt_pass_rows. */
void vt_transformer_layer_reserve(const vt_transformer_layer *layer, const vt_pass *pass, int64_t rows,
                                  vt_transformer_layer_saved *saved);

/* output = layer(x), and of a decoder layer(x, memory); all [vt_pass_rows, dim] float32. x and memory must stay as they
 * are until backward. cache: of attention and of the decoder's cross attention
 * (vt_attention_saved); NULL: none. */
void vt_transformer_layer_forward(const vt_transformer_layer *layer, const vt_pass *pass, vt_matrix x, vt_matrix memory,
                                  vt_matrix output, const vt_matrix cache[2], vt_transformer_layer_saved *saved);

/* dx [vt_pass_rows, dim] float32: on entry the gradient of the output, on return that of x. The memory's gradient is
 * added to dmemory. */
void vt_transformer_layer_backward(const vt_transformer_layer *layer, const vt_pass *pass, vt_matrix memory,
                                   vt_matrix dx, vt_matrix dmemory, const vt_transformer_layer_saved *saved);

/* The bound of Xavier's uniform start (Glorot, Bengio 2010). */
double vt_xavier_bound(int64_t rows, int64_t columns);

#endif
