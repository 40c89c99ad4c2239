// Model: computes logits from token ids, with attention by a backend.
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
#include "attend/kernels/gemm/low_rank.h"
#include "attend/kernels/recurrent/recurrent.h"
#include "attend/kv/kv_pool.h"
#include "attend/kv/state/state_pool.h"
#include "attend/model/config/model_placement.h"
#include "attend/model/config/model_spec.h"
#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

class AdapterLayers;

// Hidden states that forward() writes in addition to logits.
struct HiddenOutput {
  // Layers before which the residual stream is read, without a norm, ascending; ModelSpec::num_layers():
  // after the last layer. Values of several layers are adjacent in a row. Empty: the stream after the final
  // norm.
  View<const int> before_layers = {};
  // [num_tokens, hidden_size * max(1, before_layers.size())] in the dtype of activations; empty: no output.
  TensorView out = {};
};

// Encoded rows of an image, which replace the embeddings of consecutive tokens: for each token the embedding
// and, with deepstack layers, what the first layers add (VisionSpec::row_size()).
struct EmbeddingRows {
  int first_token = 0;  // in the batch
  TensorView rows;      // [count, row_size] of the dtype of activations
};

// Inputs of one step in addition to its ForwardBatch. Arrays are on the device.
struct ModelInput {
  View<const int32_t> token_ids;  // [num_tokens]; checked against the vocabulary by the caller
  // Row i of the logits is that of token logit_rows[i]: the last tokens of each request. As many rows as
  // tokens are all tokens in order, so that none is gathered, unless any_logit_rows is set.
  View<const int32_t> logit_rows;
  // logit_rows may skip and repeat tokens whatever their number: padded steps with drafts, where one graph
  // serves all distributions of tokens and rows over requests.
  bool any_logit_rows = false;
  // [num_reqs]: tokens of each request's prompt, including those outside this step. Only rope types dynamic
  // and longrope read it (rope.h); for other models it may be empty.
  View<const int32_t> prompt_lens;
  // [num_tokens]: type of each token, for models with several (ModelSpec::num_token_types()), checked by the
  // caller. Empty: all are 0.
  View<const int32_t> token_types = {};
  // Positions of RoPE with three axes (RopeConfig::pair_axes), [3, num_tokens]. Empty: each axis has the
  // positions of the batch.
  View<const int32_t> rope_positions = {};
  View<const EmbeddingRows> embedding_rows = {};
  // Recurrent states; null: the model has none. Slots are as in kernels::RecurrentBatch.
  const StatePool* states = nullptr;
  View<const int32_t> state_load_slots = {}, state_save_slots = {};
  // RecurrentBatch::rows; empty: the request rows.
  View<const int32_t> state_rows = {};
  // Tokens of requests with drafts, ascending. Their inputs of recurrent layers are kept for replay().
  View<const int32_t> verified_tokens = {};
  // Drafts (ModelSpec::draft): a hidden state per token, [num_tokens, width] in the dtype of activations. Its
  // width is that of `hidden_source`: DraftSpec::target_width() or the draft's hidden_size.
  TensorView hidden_states = {};
  HiddenSource hidden_source = HiddenSource::kTarget;
  HiddenOutput hidden = {};
  kernels::AdapterBatch adapters = {};  // of the tokens
};

// Steps of recurrent states through the tokens of ModelInput::verified_tokens, in their order. Rejected ones
// belong to padding requests.
struct StateReplay {
  const StatePool& states;
  kernels::RecurrentBatch batch;  // of these tokens
  int num_tokens = 0;
};

// Table and head of a model. Their memory belongs to the model.
struct VocabWeights {
  Weight embedding;
  Linear head;
};

// Used by one thread. forward() allocates nothing: activations are in memory that prepare() allocates.
class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelSpec& spec() const = 0;
  // Allocates the activations for these limits. Required before the first forward().
  virtual void prepare(const BatchLimits& limits) = 0;
  // logits: f32 [logit_rows.size(), head_size()].
  virtual void forward(const ModelInput& input, const ForwardBatch& batch, AttentionBackend& attention,
                       const TensorView& logits, Stream& stream) = 0;
  // Computes logits of further tokens of the last forward(), which must not be a graph replay. `rows`:
  // ascending tokens, on the device. logits: f32 [rows.size(), head_size()].
  virtual void head(View<const int32_t> rows, const TensorView& logits, Stream& stream) = 0;
  // Updates the recurrent states after the verification of the last forward() with verified_tokens.
  virtual void replay(const StateReplay& replay, Stream& stream) = 0;
  virtual VocabWeights vocab() const = 0;
  // Drafts: uses the target's table and head, unless the draft's files have their own. Required before the
  // first forward(). `target` must outlive this model. Throws Error(kInvalidArgument) for other shapes.
  virtual void share_vocab(const VocabWeights& target) = 0;
  // Drafts whose head has some of the tokens only: [head_size()] on the device, token of each logit. Empty:
  // logit i belongs to token i.
  virtual View<const int32_t> head_tokens() const = 0;
  // Throws Error(kCorruptFile) if a mapped weights file was modified after it was opened. Results since then
  // may be wrong.
  virtual void check_weights() const = 0;
  // Layers that adapters may change; null: none.
  virtual const AdapterLayers* adapter_layers() const { return nullptr; }
  // Bytes of all weights, and of the experts among them.
  virtual size_t weight_bytes() const = 0;
  virtual size_t expert_bytes() const = 0;
};

enum class LoadFormat : uint8_t { kAuto, kDummy };  // kDummy: random weights of the config's shapes

// Bytes that prepare() allocates for such a model, on one rank. A double, since the sum may overflow a
// size_t.
double activation_bytes(const ModelSpec& spec, const BatchLimits& limits, const ModelPlacement& placement);

// Loads the weights of a Hugging Face model directory; `spec` is its config.json. For an unsupported
// architecture or format, throws Error(kUnsupported) with the supported ones. For weights that do not match
// the config, throws Error(kCorruptFile) with file and tensor.
std::unique_ptr<Model> load_model(const std::filesystem::path& directory, const ModelSpec& spec,
                                  LoadFormat format, const LoadProgress& progress = {},
                                  const ModelPlacement& placement = {});

// Reads the checkpoint's scales of K and V for an fp8 KV cache, one entry per layer. Returns an empty vector
// if the checkpoint has none. A layer without a scale, or with one of at most 0, which publishers use for
// "none", has 1. If only k_scale exists, it applies to both. In latent attention it always does, since V is a
// part of K's row. Throws Error(kCorruptFile) for a tensor with several elements, a value that is not finite,
// and a v_scale without k_scale.
std::vector<KvScales> read_kv_scales(const CheckpointTensors& files, const ModelSpec& spec);

}  // namespace attend
#pragma GCC visibility pop
