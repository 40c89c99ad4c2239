// The table of backends, an explicit list of rows, and from a resolution to a backend: one where both phases
// chose the same, else a router by phase. BackendSpec: data for rows of your own.
#pragma once

#include <memory>
#include <span>

#include "attend/attention/backend.h"
#include "attend/attention/resolver.h"
#include "attend/kernels/attention/attention_plan.h"
#include "attend/kernels/metadata/kv_index.h"

#pragma GCC visibility push(default)
namespace attend {

// Every backend of this build. Static data.
std::span<const BackendEntry> backend_table();

// Bytes of workspace that create_backend will allocate for both phases.
size_t workspace_bytes(const Resolution& resolution, const BackendConfig& config);

// Allocates everything the backend will ever need.
std::unique_ptr<AttentionBackend> create_backend(const Resolution& resolution, const BackendContext& context);

// BackendSpec: a backend as data. Most rows of the table have one, and rows of your own can.

enum class KernelPreference : uint8_t {
  kReference,  // float64, one element after another
  kFast,       // the best that the device has
};

struct BackendSpec {
  kernels::KvIndexKind index = kernels::KvIndexKind::kRequestRows;
  KernelPreference kernel = KernelPreference::kFast;
  kernels::SplitRule split_rule = kernels::SplitRule::kBalanced;
  // kFixed, and every rule in deterministic mode; 0: kernels::default_split_tokens() of the device.
  int split_tokens = 0;
  bool quantizes_q_to_cache_dtype =
      false;  // decode and verify steps of MLA over a cache of fp8 take q in e4m3
};

// attend's kernels, run by a spec. Throws Error(kInvalidArgument) when the pools do not fit the config, and
// Error(kUnsupported) for layers over the pool that no kernel family serves.
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
