// Table of backends, an explicit list of rows, and the creation of a backend from a resolution: the backend
// that both phases chose, else a HybridBackend. BackendSpec: data for user-defined rows.
#pragma once

#include <memory>
#include <span>

#include "attend/attention/backend.h"
#include "attend/attention/resolver.h"
#include "attend/kernels/attention/attention_plan.h"
#include "attend/kernels/metadata/kv_index.h"

#pragma GCC visibility push(default)
namespace attend {

// Returns every backend of this build. Static data.
std::span<const BackendEntry> backend_table();

// Returns the bytes of workspace that create_backend() allocates for both phases.
size_t workspace_bytes(const Resolution& resolution, const BackendConfig& config);

// Creates the backend and allocates all memory that it uses.
std::unique_ptr<AttentionBackend> create_backend(const Resolution& resolution, const BackendContext& context);

// BackendSpec: a backend as data. Most rows of the table have one; user-defined rows can too.

enum class KernelPreference : uint8_t {
  kReference,  // float64, one element after another
  kFast,       // fastest kernels of the device
};

struct BackendSpec {
  kernels::KvIndexKind index = kernels::KvIndexKind::kRequestRows;
  KernelPreference kernel = KernelPreference::kFast;
  kernels::SplitRule split_rule = kernels::SplitRule::kBalanced;
  // kFixed, and every rule in deterministic mode; 0: kernels::default_split_tokens() of the device.
  int split_tokens = 0;
  bool quantizes_q_to_cache_dtype =
      false;  // decode and verify steps of MLA with an fp8 cache require e4m3 queries
};

// Attend's kernels, configured by a spec. Throws Error(kInvalidArgument) if the pools do not fit the config,
// and Error(kUnsupported) for layers over the pool that no kernel family supports.
std::unique_ptr<AttentionBackend> create_kernel_backend(const BackendSpec& spec,
                                                        const BackendContext& context);
size_t kernel_backend_workspace_bytes(const BackendSpec& spec, const BackendConfig& config);

// Functions of a BackendEntry with a constant spec:
//   constexpr BackendSpec kMine{.index = kernels::KvIndexKind::kCsr};
//   BackendEntry{.name = "mine", .., .workspace_bytes = workspace_bytes_with_spec<kMine>, .create =
//   create_with_spec<kMine>}
template <const BackendSpec& kSpec>
std::unique_ptr<AttentionBackend> create_with_spec(const BackendContext& context) {
  return create_kernel_backend(kSpec, context);
}
template <const BackendSpec& kSpec>
size_t workspace_bytes_with_spec(const BackendConfig& config) {
  return kernel_backend_workspace_bytes(kSpec, config);
}

}  // namespace attend
#pragma GCC visibility pop
