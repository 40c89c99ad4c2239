// A backend as data: what most rows of the table are, and what a row of your own can be.
#pragma once

#include <memory>

#include "attend/attention/backend.h"
#include "attend/kernels/attention/attention_plan.h"
#include "attend/kernels/metadata/kv_index.h"

#pragma GCC visibility push(default)
namespace attend {

enum class KernelChoice : uint8_t {
  kReference,  // float64, one element after another
  kFast,       // the best that the device has
};

struct BackendSpec {
  kernels::KvIndexKind index = kernels::KvIndexKind::kRequestRows;
  KernelChoice kernel = KernelChoice::kFast;
  kernels::SplitRule split_rule = kernels::SplitRule::kBalanced;
  // kFixed, and every rule in deterministic mode; 0: kernels::default_split_tokens() of the device.
  int split_tokens = 0;
};

// For BackendEntry::create and BackendEntry::workspace of a row with such a spec: attend's kernels, run by
// it. Throws Error(kInvalidArgument) when the pools do not fit the config, and Error(kUnsupported) for layers
// that no kernel family serves: expanded MLA, which attends to contiguous K/V and not to a pool.
std::unique_ptr<AttentionBackend> create_kernel_backend(const BackendEntry& entry,
                                                        const BackendContext& context);
WorkspaceSize kernel_backend_workspace(const BackendEntry& entry, const BackendConfig& config);

}  // namespace attend
#pragma GCC visibility pop
