// GraphRunner: records decode steps as CUDA graphs, one per batch size of a list, and replays them for
// batches of any lengths. If the attention plan of a size depends on KV length, a second graph is recorded
// for short requests.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "attend/exec/executor_info.h"
#include "attend/tensor/cuda.h"

namespace attend {

// Returns SGLang's list of batch sizes: 1, 2, 4, 8, 12, 16, then multiples of 8 to 256, of 16 to 512, and of
// 32. The list ends with `max_batch_size`, which is always included.
std::vector<int> default_graph_sizes(int max_batch_size);

// Key of a graph.
struct GraphStep {
  int size;             // padded batch size
  bool short_requests;  // no request is longer than kernels::kShortRequestMaxKeys
};

class GraphRunner {
 public:
  GraphRunner() = default;
  // `sizes` are in ascending order. Records nothing.
  explicit GraphRunner(std::vector<int> sizes) : sizes_(std::move(sizes)) {}

  // Returns the smallest size of at least `num_reqs`, or `num_reqs` if there is none. Eager steps are padded
  // to this size too, so that their results are bit-identical to a replay.
  int padded_size(int num_reqs) const;

  // Records the launches of `queue(step)` for each size, largest first, and again for short requests if
  // `plan_depends_on_kv_len(size)`. `queue` runs once before it is recorded, because libraries load kernels
  // and allocate memory at their first call. `progress` is called before each size and after the last one.
  void record(Stream& stream, const std::function<bool(int size)>& plan_depends_on_kv_len,
              const std::function<void(const GraphStep& step)>& queue, const GraphProgress& progress = {});

  // Replays the graph of this step. Returns false if there is none.
  bool launch(const GraphStep& step, Stream& stream);

  std::span<const int> sizes() const { return sizes_; }
  bool recorded() const { return !graphs_.empty(); }
  size_t num_bytes() const { return num_bytes_; }  // device memory of the graphs

 private:
  struct Graphs {
    cuda::Graph any;
    std::optional<cuda::Graph> short_request_graph;  // none: `any` is used
  };

  std::vector<int> sizes_;
  std::vector<Graphs> graphs_;  // one per size, largest first; empty before record()
  size_t num_bytes_ = 0;
};

}  // namespace attend
