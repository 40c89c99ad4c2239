// The seam: two verbs and a factory. docs/architecture.md tells how a step goes through it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "attend/attention/attention_layer.h"
#include "attend/attention/capability.h"
#include "attend/attention/forward_batch.h"
#include "attend/kernels/gemm/linear.h"
#include "attend/kernels/norm_rope/rope.h"
#include "attend/kv/kv_pool.h"
#include "attend/kv/req_to_token_pool.h"
#include "attend/tensor/stream.h"

#pragma GCC visibility push(default)
namespace attend {

// The caller owns every tensor.
struct AttentionInput {
  TensorView q = {};  // [num_tokens, num_q_heads, head_dim_qk]; MLA: [.., kv_lora_rank]
  // [num_tokens, num_kv_heads, head_dim_qk]; MLA: [num_tokens, kv_lora_rank]; empty: already stored
  TensorView k = {};
  TensorView v = {};       // [num_tokens, num_kv_heads, head_dim_v]; MLA: empty
  TensorView q_rope = {};  // MLA: [num_tokens, num_q_heads, rope_dim]
  TensorView k_rope = {};  // MLA: [num_tokens, rope_dim]
  TensorView out = {};     // [num_tokens, num_q_heads, head_dim_v]
  TensorView lse = {};     // f32 [num_tokens, num_q_heads]; may be empty
  bool store = true;       // store k and v at batch.out_slots before attending
  // q and k come as they were projected: they are normed and turned first. Its q and k are those above, and
  // its q is changed in place. Null: they are ready.
  const kernels::NormRopeArgs* rope = nullptr;
  // With `rope` alone: q, k and v are still to be computed, by linear() of this, of whose out they are parts
  // (or all at once: kernels/qkv.h). Null: they are there.
  const kernels::LinearArgs* qkv = nullptr;
};

// Belongs to one device and one thread.
class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;
  // Derives this step's metadata: kernel launches only, no allocation, no copy to the host. Holds until the
  // next plan() on the stream.
  virtual void plan(const ForwardBatch& batch, Stream& stream) = 0;
  // Stores k and v at batch.out_slots and attends. Called once per layer of the planned step.
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
};

// Outlives the backend.
struct BackendContext {
  BackendConfig config;
  const ReqToTokenPool& requests;
  KvPool& pool;
};

// A workspace that a backend will allocate in create().
struct WorkspaceSize {
  size_t bytes = 0;
  bool zeroed = false;  // must start as zeros; the backend's kernels leave it so
};

// Static data: all that the resolver sees, and how to make the backend.
struct BackendEntry {
  std::string_view name;
  std::span<const std::string_view> aliases = {};
  std::string_view summary = {};  // one line: which contract, over which kernels
  Capability mha = {}, mla = {};
  // Before the pool is sized.
  WorkspaceSize (*workspace)(const BackendEntry&, const BackendConfig&) = nullptr;
  // After; allocates everything it will ever need.
  std::unique_ptr<AttentionBackend> (*create)(const BackendEntry&, const BackendContext&) = nullptr;
  const void* spec = nullptr;  // the row's data, known to create()

  constexpr const Capability& capability(KvKind kind) const { return kind == KvKind::kMha ? mha : mla; }
};

// One line for people: "MHA: <capability> | MLA: <capability>".
std::string describe(const BackendEntry& entry);

}  // namespace attend
#pragma GCC visibility pop
