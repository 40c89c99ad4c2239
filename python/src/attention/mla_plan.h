// FlashMLA's tile_scheduler_metadata: the plan of a step's first call, reused by the calls of its other
// layers.
#pragma once

#include <cstdint>
#include <optional>

#include "tensors/workspaces.h"

namespace attend::python {

// The host reads no lengths on a GPU, so the caller creates a new object for every step, as with FlashMLA.
// Other changes are detected and planned again: shapes, masks, the tensor of lengths, another graph capture,
// or another call's plan in the same workspace.
class MlaPlan {
 public:
  // Plans unless the last call with this object matches, then computes attention. On a GPU only.
  void run(AttentionCall& call, Workspaces& workspaces, Stream stream);

 private:
  struct Made {
    const Workspace* workspace = nullptr;
    int64_t num_plans = 0;   // of the workspace
    uint64_t recording = 0;  // of the stream
    const int32_t* seqlen_kv = nullptr;
    int num_reqs = 0, max_seqlen_q = 0;
    kernels::AttentionMask attention_mask = {};

    bool operator==(const Made&) const = default;
  };
  std::optional<Made> made_;
};

}  // namespace attend::python
