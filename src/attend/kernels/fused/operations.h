// Operations that the modules of a model call, and Residual, the stream that they read and add to.
#pragma once

#include <optional>
#include <span>

#include "attend/kernels/gemm/linear.h"
#include "attend/kernels/gemm/low_rank.h"
#include "attend/kernels/kv_store/store.h"
#include "attend/kernels/moe/experts.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/norm_rope/rope.h"
#include "attend/tensor/communicator.h"
#include "attend/tensor/device.h"
#include "attend/tensor/weight.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// RMSNorm as computed by rms_norm(), or LayerNorm as computed by layer_norm().
enum class NormKind : uint8_t { kRms, kLayer };

struct Norm {
  TensorView weight = {};  // [hidden_size]
  float eps = 1e-6f;
  NormKind kind = NormKind::kRms;
  TensorView bias = {};  // [hidden_size]; LayerNorm only; empty: none

  // Returns true if there is no norm: an RMSNorm without weights.
  bool empty() const { return kind == NormKind::kRms && weight.empty(); }
  bool operator==(const Norm& other) const {
    return kind == other.kind && weight.data == other.weight.data && bias.data == other.bias.data &&
           eps == other.eps;
  }
};

// Context of a model's operations, in addition to their operands.
struct OpContext {
  Stream& stream;
  View<std::byte> workspace = {};  // linear_workspace_bytes() bytes on the stream's device, or empty
  bool batch_invariant = false;    // as in LinearArgs
  bool rounds_x = false;           // as in LinearArgs
  // Other ranks of the model. Products with a weight that ranks divide by in_features are all-reduced, before
  // norms of the product. null: one rank.
  Communicator* ranks = nullptr;
  // Adapters of the step's tokens. Layers with Linear::adapter_index add their terms; the rows of their x are
  // the step's tokens.
  AdapterBatch adapters = {};
};

// Linear layer with a weight in one or several parts, with their out_features concatenated. Weights that are
// mapped from a file are not copied, so q, k and v of a layer are three parts on a CPU, and one on a GPU.
using LinearParts = std::span<const Linear>;

// Residual stream of one step with its pending work: an addend that the next norm will add, or the partial
// sums of squares of a deferred norm that the next GEMM will finish. The kind of pending work depends on the
// device and the kernels; callers of the operations of fused/ do not depend on it. Cheap to construct;
// created for every step.
class Residual {
 public:
  // Memory of the caller, overwritten. Rows are tokens.
  struct Memory {
    TensorView sum;       // [num_tokens, hidden_size]: the stream itself; the embedding is written here
    TensorView scratch;   // same shape as sum
    TensorView gathered;  // same shape as sum: for operations on some of the rows, and prepare()
    // f32 [num_tokens, hidden_size / kPartialSquaresWidth]; GPUs; empty: norms are not deferred.
    TensorView partial_squares = {};

    Memory first(int64_t num_tokens) const;
  };

  // Returns the partial sums of squares per token, the columns of Memory::partial_squares. 0 if no GEMM of
  // the device defers a norm.
  static int64_t num_partial_squares(int64_t hidden_size, Device device);

  explicit Residual(const Memory& memory) : memory_(memory) {}

  const TensorView& sum() const { return memory_.sum; }
  int64_t num_tokens() const { return memory_.sum.shape[0]; }

  // Sets the norm that reads the stream after the next linear_add(): a hint that allows its kernel to defer
  // that norm. Another norm may read the stream nevertheless.
  void expect(const Norm& next) { next_ = next; }
  // Ends prepare().
  void drop_prepared() { prepared_.reset(); }

 private:
  friend class ResidualAccess;

  // Contents of `scratch`.
  enum class Scratch : uint8_t {
    kFree,
    kAddend,    // addend that is not yet added to sum
    kDeferred,  // sum times the weight of deferred_
  };

  Memory memory_;
  Norm next_ = {};
  std::optional<Norm> prepared_;  // norm of `gathered`
  Scratch scratch_ = Scratch::kFree;
  InputNorm deferred_ = {};
};

// Dense layers of a model: each reads the residual stream through a norm, or adds to it.
// A device fuses what it can; results are those of the steps one after another, in the dtype of the
// activations.

// out = W norm(residual) + b, for the tokens `rows` or for all.
struct NormLinearArgs {
  Norm norm;
  LinearParts linear;
  TensorView out;                 // [num_rows, out_features]: dtype of the residual, or f32
  View<const int32_t> rows = {};  // [num_rows] tokens; empty: all of them
};
// These functions throw Error(kInvalidArgument) for invalid shapes and dtypes, like linear(), gated_linear()
// and the norms.
void norm_linear(Residual& residual, const NormLinearArgs& args, const OpContext& context);

// Computes norm(residual) now, for sublayers that read the stream through this norm after others have added
// to it: attention and MLP in parallel (arXiv 2204.02311). Operations with an equal norm use the result until
// Residual::drop_prepared(). Operations on some of the rows must not be called in between.
void prepare(Residual& residual, const Norm& norm, const OpContext& context);

// out = norm(residual) for all tokens, in the dtype of the residual: hidden states. Without a norm, copies
// the stream. Work that is deferred to the next norm remains so.
void read(Residual& residual, const Norm& norm, const TensorView& out, const OpContext& context);

// out = act(gate) * up with [gate | up] = W norm(residual) + b: first half of a gated MLP.
enum class Activation : uint8_t { kSilu, kGeluTanh };
struct NormGatedLinearArgs {
  Norm norm;
  LinearParts gate_up;  // out_features: gate, then up
  Activation activation = Activation::kSilu;
  float gate_scale = 1.0f, up_scale = 1.0f;  // factors of gate and up
  TensorView gate_up_out;                    // [num_tokens, 2 * intermediate_size]: scratch
  TensorView out;                            // [num_tokens, intermediate_size]
};
void norm_gated_linear(Residual& residual, const NormGatedLinearArgs& args, const OpContext& context);

// out = act(W norm(residual) + b): first half of an MLP without a gate.
enum class PlainActivation : uint8_t { kGelu, kGeluTanh, kRelu, kRelu2, kSilu, kXielu };
struct NormActivatedLinearArgs {
  Norm norm;
  LinearParts linear;
  PlainActivation activation = PlainActivation::kGelu;
  XieluAlphas alphas = {};  // for kXielu
  TensorView out;           // [num_tokens, out_features]
};
void norm_activated_linear(Residual& residual, const NormActivatedLinearArgs& args, const OpContext& context);

// out = W x + b, for activations that are not the residual stream.
void linear(const TensorView& x, const Linear& linear, const TensorView& out, const OpContext& context);

// residual += post_norm(W x + b), if there is a post_norm.
void linear_add(const TensorView& x, const Linear& linear, Residual& residual, const OpContext& context,
                const Norm& post_norm = {});

// residual += norm(x), or x without a norm. x: [num_tokens, hidden_size]; overwritten.
void norm_add(const TensorView& x, const Norm& norm, Residual& residual, const OpContext& context);

// residual[first + i] += x[i]. x: [num_rows, hidden_size] of the residual's dtype, last stride 1.
void add_rows(Residual& residual, int64_t first, const TensorView& x, const OpContext& context);

// residual *= factor. factor: f32 [1], in the memory of the device.
void scale_residual(Residual& residual, const TensorView& factor, const OpContext& context);

// residual = norm(residual + W x + b) with a LayerNorm: the stream itself is normalized after a sublayer.
void linear_add_norm(const TensorView& x, const Linear& linear, Residual& residual, const Norm& norm,
                     const OpContext& context);

// Linear layer of a normalized latent vector.

// out = W norm(x) + b. x: [num_tokens, in_features], last stride 1; overwritten. Throws the errors of
// rms_norm() and linear().
void latent_linear(const TensorView& x, const Norm& norm, const Linear& linear, const TensorView& out,
                   const OpContext& context);

// Operations between a layer's input and its attention, fused.

// linear(product), then norm_rope_store(rope, store): q and k of `rope` and v of `store` are parts of
// product.out. q and stored values have the same bits as after these calls. On a GPU with the shared memory
// of Hopper this is one launch for up to 16 rows of bf16 with completely rotated heads, if product.out
// consists of q, k and v in this order; it does not write k and v to product.out. Normalized heads are
// supported while all of them run concurrently (132 SMs: 66 heads of up to 128). Shapes, dtypes and errors
// are those of the two calls; also throws Error(kInvalidArgument) if k of `store` is not that of `rope`.
void qkv_norm_rope_store(const LinearArgs& product, const NormRopeArgs& rope, const StoreKvArgs& store,
                         Stream& stream);

// Norms of q and k before they are rotated: per head with weights of [head_dim] (Qwen3), or over all heads of
// a token with weights of [num_heads * head_dim] (OLMo 2); empty: none.
struct QkNorm {
  TensorView q = {}, k = {};
  float eps = 1e-6f;
  // Normalizes each head after the rotation, without weights if they are empty (Llama 4, HunYuan).
  bool after_rope = false;
  // Heads are normalized by LayerNorm with a row of weights each: [num_heads * head_dim] (StableLM, Cohere).
  bool layer_norms = false;
};

// Angles of rotary embeddings, as in NormRopeArgs. Without cosines nothing is rotated.
struct RopeAngles {
  TensorView cos = {}, sin = {};       // f32 [num_rows, rotary_dim / 2]
  View<const int32_t> positions = {};  // [num_tokens]: rows of cos and sin
  bool interleaved = false;
};

struct NormQkvRopeStoreArgs {
  Norm norm;
  LinearParts qkv;  // out_features: heads of q, of k, of v, then features that only qkv_out receives
  // Each head of q is followed by its output gate of head_dim features. They remain in qkv_out.
  bool q_gates = false;
  // q, k and v are clipped to [-clip, clip] before the rotation, and after norms over all heads; 0: they are
  // not.
  float clip = 0.0f;
  QkNorm qk_norm = {};
  // Normalizes each head of v without weights, with the epsilon of qk_norm.
  bool norm_v = false;
  // `qkv` has no heads of v: v is k before its norm and rotation. Requires norm_v.
  bool k_as_v = false;
  RopeAngles rope;
  // Temperature of q, by position.
  QueryTemperature temperature = {};
  View<const int32_t> positions = {};  // [num_tokens], if there is a temperature
  KvDestination to;                    // [.., num_kv_heads, head_dim]
  int num_q_heads = 0, num_kv_heads = 0;
  // Dims of heads that are smaller than those of the cache, which are then padded with zeros; 0: the same.
  int head_dim = 0, head_dim_v = 0;
  // With padding, [num_tokens, num_q_heads * head_dim + num_kv_heads * (head_dim + head_dim_v)] of the
  // cache's dims: q, k and v.
  TensorView padded = {};
  // [num_tokens, out_features of qkv or, with k_as_v, num_kv_heads more heads]: scratch
  TensorView qkv_out;
};
// q, k, v = W norm(residual) + b; heads of q and k are normalized and rotated; k and v are stored. Returns q,
// the first heads of qkv_out: [num_tokens, num_q_heads, head_dim]. The rest of qkv_out, except gates and
// features after v, is then undefined. Norms over all heads of a token exclude gates.
//
// On a GPU, each launch waits for the previous one before it allows the next one to start, as prefix_ready
// requires of kernels that store K and V (attention_batch.h).
TensorView norm_qkv_rope_store(Residual& residual, const NormQkvRopeStoreArgs& args,
                               const OpContext& context);

struct NormQRopeArgs {
  Norm norm;
  LinearParts q;           // out_features: heads of q
  TensorView q_norm = {};  // [head_dim]; empty: no norm of heads
  float eps = 1e-6f;       // of q_norm
  RopeAngles rope;
  int head_dim = 0;
  TensorView q_out;  // [num_tokens, num_q_heads * head_dim]
};
// q = W norm(residual) + b, normalized and rotated: layers that attend to the K and V of another layer.
// Returns q_out as [num_tokens, num_q_heads, head_dim].
TensorView norm_q_rope(Residual& residual, const NormQRopeArgs& args, const OpContext& context);

// moe_add(): a mixture of experts over the residual stream.

// Expert that processes every token. If there is none, gate_up is empty.
struct SharedExpert {
  LinearParts gate_up = {};  // out_features: gate, then up; up only if the routed experts have kRelu2
  Linear down = {};
  TensorView gate_up_out = {};  // [num_tokens, 2 * intermediate_size]: scratch; not used with kRelu2
  TensorView inner = {};        // [num_tokens, intermediate_size]: scratch
  // One output. Its sigmoid multiplies the expert's output; without a weight: none.
  Linear gate = {};
  TensorView gate_out = {};  // f32 [num_tokens, 1]: scratch, with a gate
  float scale = 1.0f;        // factor of the expert's output
};

// Projections of the routed experts' input and output (NemotronH). Without weights, the experts read and
// write hidden states.
struct ExpertLatents {
  Linear in = {};        // [shape.hidden_size, hidden_size]
  Linear out = {};       // [hidden_size, shape.hidden_size]
  TensorView rows = {};  // [num_tokens, shape.hidden_size]: scratch, contiguous
};

struct MoeAddArgs {
  Norm norm;
  Norm router_norm = {};  // norm of the router's input; without a weight: `norm`
  Linear router;          // [num_experts, hidden_size]
  RouterRule rule = {};
  TensorView correction = {}, expert_scales = {};  // as in RouteArgs
  MoeShape shape;
  ExpertWeights experts;
  ExpertLatents latents = {};
  ExpertGate gate = {};              // for the routed experts; the shared one has SiLU, or also kRelu2
  bool weights_scale_input = false;  // as in MoeExpertsArgs
  SharedExpert shared = {};
  // Receives the sum instead of the residual; not with a shared expert or latents. [num_tokens, hidden_size].
  TensorView out = {};
  TensorView scratch;  // [num_tokens, moe_scratch_width()] of the residual's dtype, contiguous, aligned to 64
};
// residual += sum over each token's experts of weight * (Wdown act(Wgate y, Wup y)) with y = norm(residual),
// plus the shared expert, which only its gate and its scale weight. The router's logits, the weights and the
// sum are float32 (experts.h). Throws the errors of those functions.
void moe_add(Residual& residual, const MoeAddArgs& args, const OpContext& context);

// Returns the features per token that moe_add() needs as scratch, for any dtype and number of tokens.
int64_t moe_scratch_width(const MoeShape& shape);

}  // namespace attend::kernels
#pragma GCC visibility pop
