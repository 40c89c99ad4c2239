// Interface of attention backends: a static registry entry and a class that plans and runs one step. It
// covers attention only: GEMMs, norms and rotary embeddings are outside of it. docs/architecture.md describes
// a step.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "attend/attention/attention_layer.h"
#include "attend/attention/capability.h"
#include "attend/attention/forward_batch.h"
#include "attend/kernels/kv_store/store.h"
#include "attend/kv/kv_pool.h"
#include "attend/tensor/device.h"

#pragma GCC visibility push(default)
namespace attend {

using kernels::KvDestination;

// Operands of forward(). The caller owns every tensor. K and V are in the cache, including those of the
// step's new tokens, which the caller stored at destination(). An expanded MLA layer passes contiguous K and
// V.
struct AttentionInput {
  TensorView q = {};       // [num_tokens, num_q_heads, head_dim_qk], rotated; MLA: [.., kv_lora_rank]
  TensorView q_rope = {};  // MLA: [num_tokens, num_q_heads, rope_dim], rotated
  TensorView out = {};     // [num_tokens, num_q_heads, head_dim_v]
  TensorView lse = {};     // f32 [num_tokens, num_q_heads]; may be empty
  // Expanded MLA, for backends with Capability::contiguous: keys and values of all requests, one request
  // after another. If causal, the last keys of a request are those of its new tokens.
  TensorView k = {};                            // [num_keys, num_q_heads, head_dim_qk]
  TensorView v = {};                            // [num_keys, num_q_heads, head_dim_v]
  View<const int32_t> cu_seqlen_kv = {};        // [num_reqs + 1] on the device
  View<const int32_t> seqlen_kv_expanded = {};  // [num_reqs] on the device: their differences
  bool causal = true;                           // over k and v; false: every query sees all keys
  // Layers with an indexer: attends to selected keys (KeyIndexer::selects()). With index_q, this call selects
  // them; without it, they are those of the step's last call that did.
  bool selects_keys = false;
  TensorView index_q = {};        // [num_tokens, num_heads, head_dim] of the indexer, rotated
  TensorView index_weights = {};  // f32 [num_tokens, num_heads]
};

// Belongs to one device and one thread.
class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;
  // Derives this step's metadata: kernel launches only, no allocation, no copy to the host. The metadata is
  // valid until the next plan() on the stream.
  virtual void plan(const ForwardBatch& batch, Stream& stream) = 0;
  // Returns true if the launches of plan() and forward() for a decode step of `num_reqs` requests depend on
  // whether ForwardBatch::max_seqlen_kv is at most kernels::kShortRequestMaxKeys. A CUDA graph is then
  // captured for each of the two cases.
  virtual bool plan_depends_on_kv_len(int /*num_reqs*/) const { return false; }
  // Returns where the layer's new K and V of the planned step are stored. The caller stores them before
  // forward(), in a separate or a fused launch.
  virtual KvDestination destination(const AttentionLayer& layer, const ForwardBatch& batch) = 0;
  // Returns the cache of a layer's index keys: [num_pages, page_size, index dim]. The caller stores those of
  // the new tokens at the slots of destination(). Empty: the layer has no indexer of its own.
  virtual TensorView index_keys(const AttentionLayer& /*layer*/) { return {}; }
  // Computes attention. Called once per layer of the planned step, after the store.
  virtual void forward(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
                       Stream& stream) = 0;
};

// Configuration that is available before the pool is sized.
struct BackendConfig {
  Device device = {};
  ModelGeometry model = {};
  BatchLimits limits = {};
  int page_size = 1;
  bool deterministic = false;
  Phase verify_phase = Phase::kDecode;  // of the backend that verifies drafts (ForwardMode::kTargetVerify)
  bool cascade = false;  // decode steps may set ForwardBatch::shared; without it no memory is allocated for
                         // cascade attention
};

// Outlives the backend.
struct BackendContext {
  BackendConfig config;
  // int32 [num_rows, max_context_len] on the device: request row x position -> token slot
  // (DeviceRows::table(), or ReqToTokenPool::table() on the CPU).
  TensorView request_table;
  KvPool& pool;
};

// Static record of a backend: the data that the resolver reads, and the factory.
struct BackendEntry {
  std::string_view name;
  std::span<const std::string_view> aliases = {};
  std::string_view summary = {};  // one line: the contract and the kernels
  bool slow = false;              // a reference for other backends: selecting it logs a warning
  Capability mha = {}, mla = {};
  // Returns an upper bound of the bytes that create() allocates. Called before the pool is sized.
  size_t (*workspace_bytes)(const BackendConfig&) = nullptr;
  // Called after the pool is created. Allocates all memory that the backend uses.
  std::unique_ptr<AttentionBackend> (*create)(const BackendContext&) = nullptr;

  constexpr const Capability& capability(KvKind kind) const { return kind == KvKind::kMha ? mha : mla; }
};

// One line for display: "MHA: <capability> | MLA: <capability>".
std::string describe(const BackendEntry& entry);

}  // namespace attend
#pragma GCC visibility pop
