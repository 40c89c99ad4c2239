// Operations that the modules of a model call, and Residual, the stream that they read and add to.
#pragma once

#include <span>

#include "attend/kernels/gemm/linear.h"
#include "attend/kernels/kv_store/store.h"
#include "attend/kernels/moe/experts.h"
#include "attend/kernels/norm_rope/rope.h"
#include "attend/tensor/device.h"
#include "attend/tensor/weight.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// RMSNorm, as rms_norm() computes it.
struct Norm {
  TensorView weight = {};  // [hidden_size]; empty: none, the stream is read as it is
  float eps = 1e-6f;
};

// LayerNorm, as layer_norm() computes it.
struct LayerNorm {
  TensorView weight = {}, bias = {};  // [hidden_size]
  float eps = 1e-12f;
};

// What the operations of a model have beside their operands.
struct OpContext {
  Stream& stream;
  View<std::byte> workspace = {};  // linear_workspace_bytes() of the stream's device, or none
  bool batch_invariant = false;    // as of LinearArgs
  bool rounds_x = false;           // as of LinearArgs
};

// A dense layer whose weight may be in parts: their out_features follow one another. Weights that are mapped
// from a file stay where they are, so q, k and v of a layer are three parts on a CPU, and one on a GPU.
using LinearParts = std::span<const Linear>;

// The residual stream of one step, and what kernels have started on it: a sum that the next norm will take
// in, or the partial sums of squares of a deferred norm that the next GEMM will finish. Which of these there
// is depends on the device and the kernels; who uses the operations of fused/ need not know. Cheap; made anew
// for every step.
class Residual {
 public:
  // Memory of the caller's, overwritten. Rows are tokens.
  struct Memory {
    TensorView sum;       // [num_tokens, hidden_size]: the stream itself; the embedding is written there
    TensorView scratch;   // as sum
    TensorView gathered;  // as sum: for operations on some of the rows
    TensorView partial_squares =
        {};  // f32 [num_tokens, hidden_size / kPartialSquaresWidth]; GPUs; empty: no norm is deferred

    Memory first(int64_t num_tokens) const;
  };

  // Partial sums of squares of one token: columns of Memory::partial_squares. 0 where no GEMM of the device
  // defers a norm.
  static int64_t num_partial_squares(int64_t hidden_size, Device device);

  explicit Residual(const Memory& memory) : memory_(memory) {}

  const TensorView& sum() const { return memory_.sum; }
  int64_t num_tokens() const { return memory_.sum.shape[0]; }

  // Which norm reads the stream after the next linear_add(): a hint that lets its kernel defer that norm.
  // Another norm may read it nevertheless.
  void expect(const Norm& next) { next_ = next; }

 private:
  friend class ResidualAccess;

  // What `scratch` holds.
  enum class Scratch : uint8_t {
    kFree,
    kAddend,    // still to be added to sum
    kDeferred,  // of deferred_: sum times the norm's weight
  };

  Memory memory_;
  Norm next_ = {};
  Scratch scratch_ = Scratch::kFree;
  InputNorm deferred_ = {};
};

// Dense layers of a model: each reads the residual stream through a norm, or adds to it.
// A device fuses what it can; results are those of the steps one after another, in the dtype of the
// activations.

// out = W norm(residual) + b, of the tokens `rows` or of all.
struct NormLinearArgs {
  Norm norm;
  LinearParts linear;
  TensorView out;  // [num_rows, out_features]: dtype of the residual, or f32
  // [num_rows] tokens, rising; empty, or as many as there are tokens: all of them
  View<const int32_t> rows = {};
};
// These throw Error(kInvalidArgument) for shapes and dtypes, as linear(), gated_linear() and the norms do.
void norm_linear(Residual& residual, const NormLinearArgs& args, const OpContext& context);

// out = norm(residual), of all tokens, in the dtype of the residual: hidden states, for embeddings. Without a
// norm, the stream as it is, on CPUs alone.
void read(Residual& residual, const Norm& norm, const TensorView& out, const OpContext& context);

// out = act(gate) * up with [gate | up] = W norm(residual) + b: the first half of a gated MLP.
enum class Activation : uint8_t { kSilu, kGeluTanh };
struct NormGatedLinearArgs {
  Norm norm;
  LinearParts gate_up;  // out_features: gate's, then up's
  Activation activation = Activation::kSilu;
  TensorView gate_up_out;  // [num_tokens, 2 * intermediate_size]: scratch
  TensorView out;          // [num_tokens, intermediate_size]
};
void norm_gated_linear(Residual& residual, const NormGatedLinearArgs& args, const OpContext& context);

// out = act(W norm(residual) + b): the first half of an MLP without a gate. Throws Error(kUnsupported) on a
// GPU.
enum class PlainActivation : uint8_t { kGelu, kGeluTanh };
struct NormActivatedLinearArgs {
  Norm norm;
  LinearParts linear;
  PlainActivation activation = PlainActivation::kGelu;
  TensorView out;  // [num_tokens, out_features]
};
void norm_activated_linear(Residual& residual, const NormActivatedLinearArgs& args, const OpContext& context);

// residual += post_norm(W x + b), if there is a post_norm. If ranks divide W by in_features, the product is
// all-reduced here; W is whole today.
void linear_add(const TensorView& x, const Linear& linear, Residual& residual, const OpContext& context,
                const Norm& post_norm = {});

// residual = norm(residual + W x + b): the stream itself is normalized behind a sublayer. Throws
// Error(kUnsupported) on a GPU.
void linear_add_norm(const TensorView& x, const Linear& linear, Residual& residual, const LayerNorm& norm,
                     const OpContext& context);

// A dense layer behind a latent vector, as a model speaks of it.

// out = W norm(x) + b. x: [num_tokens, in_features], last stride 1; overwritten. Throws as
// rms_norm() and linear() do.
void latent_linear(const TensorView& x, const Norm& norm, const Linear& linear, const TensorView& out,
                   const OpContext& context);

// What lies between a layer's input and its attention, as one piece of work.

// linear(product), then norm_rope_store(rope, store): q and k of `rope` and v of `store` are parts of
// product.out. q and what is stored have the same bits as after these calls. On a GPU with the shared memory
// of Hopper it is one launch for up to 16 rows of bf16 whose heads turn as a whole, when q, k and v, in this
// order, are all of product.out; that one leaves k and v in product.out as they are. Heads with norms are
// part of it while the GPU has SMs for them all at once (132: 66 heads of up to 128). Shapes, dtypes and
// errors as of the two calls; Error(kInvalidArgument) also when k of `store` is not that of `rope`.
void qkv_norm_rope_store(const LinearArgs& product, const NormRopeArgs& rope, const StoreKvArgs& store,
                         Stream& stream);

// Norms of q and k before they are rotated: of each head by weights of [head_dim] (Qwen3), or of all heads of
// a token as one by weights of [num_heads * head_dim] (OLMo 2); empty: none.
struct QkNorm {
  TensorView q = {}, k = {};
  float eps = 1e-6f;
  bool after_rope = false;  // of each head, without weights, after it is rotated (Llama 4)
};

// Angles of rotary embeddings: as of NormRopeArgs. Without cosines nothing is rotated.
struct RopeAngles {
  TensorView cos = {}, sin = {};       // f32 [num_rows, rotary_dim / 2]
  View<const int32_t> positions = {};  // [num_tokens]: rows of cos and sin
  bool interleaved = false;
};

struct NormQkvRopeStoreArgs {
  Norm norm;
  LinearParts qkv;  // out_features: the heads of q, of k, of v
  QkNorm qk_norm = {};
  RopeAngles rope;
  // Of q, by positions.
  QueryTemperature temperature = {};
  View<const int32_t> positions = {};  // [num_tokens], where there is a temperature
  KvDestination to;                    // [.., num_kv_heads, head_dim]
  int num_q_heads = 0, num_kv_heads = 0;
  TensorView qkv_out;  // [num_tokens, (num_q_heads + 2 * num_kv_heads) * head_dim]: scratch
};
// q, k, v = W norm(residual) + b; heads of q and k are normalized and rotated; k and v are stored. Returns q,
// the first heads of qkv_out: [num_tokens, num_q_heads, head_dim]. What else is in qkv_out then is undefined.
//
// On a GPU a launch of this waits for the launch before it before it lets the next one start, as prefix_ready
// asks of what stores K and V (attention_batch.h).
TensorView norm_qkv_rope_store(Residual& residual, const NormQkvRopeStoreArgs& args,
                               const OpContext& context);

// moe_add(): a mixture of experts over the residual stream.

// The expert that every token meets. Without one gate_up is empty.
struct SharedExpert {
  LinearParts gate_up = {};  // out_features: gate's, then up's
  Linear down = {};
  TensorView gate_up_out = {};  // [num_tokens, 2 * intermediate_size]: scratch
  TensorView inner = {};        // [num_tokens, intermediate_size]: scratch
};

struct MoeAddArgs {
  Norm norm;
  Linear router;  // [num_experts, hidden_size]
  RouterRule rule = {};
  TensorView correction = {};  // as of RouteArgs
  MoeShape shape;
  ExpertWeights experts;
  ExpertGate gate = {};              // of the routed experts; the shared one has SiLU
  bool weights_scale_input = false;  // as of MoeExpertsArgs
  SharedExpert shared = {};
  TensorView scratch;  // [num_tokens, moe_scratch_width()] of the residual's dtype, contiguous, aligned to 64
};
// residual += sum over each token's experts of weight * (Wdown act(Wgate y, Wup y)), y = norm(residual), and
// of the shared expert without a weight. The router's logits are float32, and so are the weights and the sum
// (experts.h). Throws what those throw.
void moe_add(Residual& residual, const MoeAddArgs& args, const OpContext& context);

// Features of a token that moe_add() takes as scratch, whatever the dtype and the number of tokens.
int64_t moe_scratch_width(const MoeShape& shape);

}  // namespace attend::kernels
#pragma GCC visibility pop
