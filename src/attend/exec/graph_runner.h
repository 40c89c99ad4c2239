// GraphRunner: decode steps as CUDA graphs, recorded once for each batch size of a list and replayed for
// every batch that fits, whatever its lengths; for sizes whose short requests are attended to otherwise, a
// second time for those.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "attend/exec/graph_progress.h"
#include "attend/tensor/cuda.h"

namespace attend {

// SGLang's list of batch sizes, up to `max_batch_size`, which is always in it: 1, 2, 4, 8, 12, 16, then every
// 8 up to 256, every 16 up to 512, every 32.
std::vector<int> default_graph_sizes(int max_batch_size);

// Decode steps that one graph covers.
struct GraphStep {
  int size;             // of the batch
  bool short_requests;  // none is longer than kernels::kShortRequestMaxKeys
};

class GraphRunner {
 public:
  GraphRunner() = default;
  // `sizes` rise. Nothing is recorded yet.
  explicit GraphRunner(std::vector<int> sizes) : sizes_(std::move(sizes)) {}

  // What a decode step of `num_reqs` requests is padded to: the smallest size that holds them; without one
  // num_reqs. Eager steps are padded too, so that their bits are those of a replay.
  int padded_size(int num_reqs) const;

  // Records what `queue(step)` puts on the stream, for every size, largest first, and for short requests too
  // where `plan_depends_on_kv_len(size)`. It is run once before it is recorded: libraries load their kernels
  // and take their memory when they are first called. `progress` is told before each size and after the last
  // one.
  void record(Stream& stream, const std::function<bool(int size)>& plan_depends_on_kv_len,
              const std::function<void(const GraphStep& step)>& queue, const GraphProgress& progress = {});

  // Replays the graph of this step. Returns false when there is none.
  bool launch(const GraphStep& step, Stream& stream);

  std::span<const int> sizes() const { return sizes_; }
  bool recorded() const { return !graphs_.empty(); }
  size_t num_bytes() const { return num_bytes_; }  // of device memory that the graphs take

 private:
  struct Graphs {
    cuda::Graph any;
    std::optional<cuda::Graph> short_request_graph;  // none: `any` serves them
  };

  std::vector<int> sizes_;
  std::vector<Graphs> graphs_;  // of sizes_, largest first; none before record()
  size_t num_bytes_ = 0;
};

}  // namespace attend
