// FlashMLA's tile_scheduler_metadata: the plan of a step's first call, for the calls of its other layers.
#pragma once

#include <cstdint>
#include <optional>

#include "workspaces.h"

namespace attend::python {

// The host reads no lengths on a GPU, so a caller takes a new one for every step, as FlashMLA's does.
// Whatever else changes is seen, and planned for anew: shapes, masks, the tensor of lengths, another
// recording of a graph, another call's plan in between.
class MlaPlan {
 public:
  // Plans unless the last call with this object was alike, and attends. On a GPU.
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
