// The seam: a static entry, and a class of three verbs. It knows neither GEMM nor norms nor rotary
// embeddings. docs/architecture.md tells how a step goes through it.
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

// The caller owns every tensor. K and V stand in the cache, those of the step's new tokens too: whoever
// computed them stored them at destination(). An expanded MLA layer brings its own.
struct AttentionInput {
  TensorView q = {};       // [num_tokens, num_q_heads, head_dim_qk], rotated; MLA: [.., kv_lora_rank]
  TensorView q_rope = {};  // MLA: [num_tokens, num_q_heads, rope_dim], rotated
  TensorView out = {};     // [num_tokens, num_q_heads, head_dim_v]
  TensorView lse = {};     // f32 [num_tokens, num_q_heads]; may be empty
  // Expanded MLA, for backends that say Capability::contiguous: keys and values of all requests, one request
  // after another; causal: its last ones are those of its new tokens.
  TensorView k = {};                            // [num_keys, num_q_heads, head_dim_qk]
  TensorView v = {};                            // [num_keys, num_q_heads, head_dim_v]
  View<const int32_t> cu_seqlen_kv = {};        // [num_reqs + 1] on the device
  View<const int32_t> seqlen_kv_expanded = {};  // [num_reqs] on the device: their differences
  bool causal = true;                           // of k and v; false: all of them are seen
};

// Belongs to one device and one thread.
class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;
  // Derives this step's metadata: kernel launches only, no allocation, no copy to the host. Holds until the
  // next plan() on the stream.
  virtual void plan(const ForwardBatch& batch, Stream& stream) = 0;
  // Whether what plan() and forward() queue for a decode step of so many requests depends on whether they are
  // short (kernels::kShortRequestMaxKeys), as ForwardBatch::max_seqlen_kv says: a graph is of one or the
  // other.
  virtual bool plan_depends_on_kv_len(int /*num_reqs*/) const { return false; }
  // Where the layer's new K and V of the planned step go. Whoever computes them writes them there, in a
  // launch or a fused one, before forward().
  virtual KvDestination destination(const AttentionLayer& layer, const ForwardBatch& batch) = 0;
  // Attends. Called once per layer of the planned step, after the store.
  virtual void forward(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
                       Stream& stream) = 0;
};

// What is known before the pool is sized.
struct BackendConfig {
  Device device = {};
  ModelGeometry model = {};
  BatchLimits limits = {};
  int page_size = 1;
  bool deterministic = false;
  bool cascade =
      false;  // decode steps may say which keys their requests share; others have no need of memory
};

// Outlives the backend.
struct BackendContext {
  BackendConfig config;
  // int32 [num_rows, max_context_len] on the device: request row x position -> token slot
  // (DeviceRows::table(), or ReqToTokenPool::table() on the CPU).
  TensorView request_table;
  KvPool& pool;
};

// Static data: all that the resolver sees, and how to make the backend.
struct BackendEntry {
  std::string_view name;
  std::span<const std::string_view> aliases = {};
  std::string_view summary = {};  // one line: which contract, over which kernels
  bool slow = false;              // to check others by: who asks for it is warned
  Capability mha = {}, mla = {};
  // Bytes that create() will allocate, at most; asked for before the pool is sized.
  size_t (*workspace_bytes)(const BackendConfig&) = nullptr;
  // After the pool; allocates everything that the backend will ever need.
  std::unique_ptr<AttentionBackend> (*create)(const BackendContext&) = nullptr;

  constexpr const Capability& capability(KvKind kind) const { return kind == KvKind::kMha ? mha : mla; }
};

// One line for people: "MHA: <capability> | MLA: <capability>".
std::string describe(const BackendEntry& entry);

}  // namespace attend
#pragma GCC visibility pop
