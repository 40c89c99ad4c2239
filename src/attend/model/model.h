// Model: token ids in, logits out, attention through a backend.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "attend/attention/attention_layer.h"
#include "attend/attention/backend.h"
#include "attend/attention/forward_batch.h"
#include "attend/checkpoint/checkpoint.h"
#include "attend/kv/kv_pool.h"
#include "attend/model/config/model_spec.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

// One step's input beside its ForwardBatch; arrays lie on the device.
struct ModelInput {
  View<const int32_t> token_ids;  // [num_tokens]; checked against the vocabulary by the caller
  // Tokens whose logits are wanted, rising: the last one of each request.
  View<const int32_t> logit_rows;
  // [num_reqs]: tokens of each request's prompt, whether or not they are in this step. Read by rope
  // types dynamic and longrope alone (rope.h); other models take it empty.
  View<const int32_t> prompt_lens;
};

// Owned by one thread. forward() allocates nothing: activations live in a workspace sized by BatchLimits.
class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelSpec& spec() const = 0;
  // Allocates the activations for these limits; before the first forward().
  virtual void prepare(const BatchLimits& limits) = 0;
  // logits: f32 [logit_rows.size(), vocab_size].
  virtual void forward(const ModelInput& input, const ForwardBatch& batch, AttentionBackend& attention,
                       const TensorView& logits, Stream& stream) = 0;
  // Logits of other tokens of the last forward(), which was launched and not replayed from a graph. `rows`:
  // tokens, rising, on the device. logits: f32 [rows.size(), vocab_size].
  virtual void head(View<const int32_t> rows, const TensorView& logits, Stream& stream) = 0;
  // The last forward()'s hidden states of all tokens, behind the final norm, in the activations' dtype:
  // [num_tokens, hidden_size].
  virtual void hidden(const TensorView& out, Stream& stream) = 0;
  // Throws Error(kCorruptFile) when a weights file that forward() reads from, mapped, was written to since it
  // was opened: what was computed since may be wrong.
  virtual void check_weights() const = 0;
  // Bytes of weights, and of those that are experts'.
  virtual size_t weight_bytes() const = 0;
  virtual size_t expert_bytes() const = 0;
};

enum class LoadFormat : uint8_t { kAuto, kDummy };  // kDummy: random weights of the config's shapes

// Where a model's weights go, and what is computed between them.
struct ModelPlacement {
  Device device = {};
  // Of activations and, on a GPU, of weights: float32, float16 or bfloat16. On the CPU activations are
  // float32 and weights stay as they are stored.
  DType dtype = DType::kF32;
  // A token's bits depend on its own sequence alone: dense layers use one algorithm for every number of
  // tokens.
  bool batch_invariant = false;
  // Dense layers may round what they take: on the CPU to bfloat16, on a GPU to fp8, as
  // kernels::LinearArgs::rounds_x says.
  bool rounds_x = false;
};

// Bytes that prepare() allocates for such a model. A double, since it may not fit a size_t.
double activation_bytes(const ModelSpec& spec, const BatchLimits& limits, const ModelPlacement& placement);

// Reads the weights of a Hugging Face model directory whose config.json is `spec`. Throws Error(kUnsupported)
// for an architecture, rope type or activation that attend does not have, with the list of those it has;
// Error(kCorruptFile) naming file and tensor for weights that do not fit the config.
std::unique_ptr<Model> load_model(const std::filesystem::path& directory, const ModelSpec& spec,
                                  LoadFormat format, const LoadProgress& progress = {},
                                  const ModelPlacement& placement = {});

// Scales of K and V that the checkpoint has for an fp8 KV cache, one entry per layer: 1 where there is none,
// or one that is not above 0, by which publishers mean none; k_scale alone serves both, and of latent
// attention k_scale always does: V is a part of its row. Empty: the checkpoint has none. Throws
// Error(kCorruptFile) naming a tensor of several elements, one that is no number, and a v_scale without
// k_scale.
std::vector<KvScales> read_kv_scales(const CheckpointTensors& files, const ModelSpec& spec);

}  // namespace attend
#pragma GCC visibility pop
