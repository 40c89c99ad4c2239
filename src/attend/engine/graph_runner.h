// GraphRunner: decode steps as CUDA graphs, recorded once for each batch size of a list and replayed for
// every batch that fits, whatever its lengths.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "attend/engine/engine_config.h"
#include "attend/tensor/cuda.h"

namespace attend {

// SGLang's list of batch sizes, up to `max_batch_size`, which is always in it: 1, 2, 4, 8, 12, 16, then every
// 8 up to 256, every 16 up to 512, every 32.
std::vector<int> default_graph_sizes(int max_batch_size);

using GraphProgress = std::function<void(const GraphsSoFar&)>;

class GraphRunner {
 public:
  GraphRunner() = default;
  // `sizes` rise. Nothing is recorded yet.
  explicit GraphRunner(std::vector<int> sizes) : sizes_(std::move(sizes)) {}

  // What a decode step of `num_reqs` requests is padded to: the smallest size that holds them; without one
  // num_reqs. Eager steps are padded too, so that their bits are those of a replay.
  int padded_size(int num_reqs) const;

  // Records what `queue(size)` puts on the stream, for every size, largest first. It is run once before it is
  // recorded: libraries load their kernels and take their memory when they are first called. `progress` is
  // told before each size and after the last one.
  void record(Stream& stream, const std::function<void(int size)>& queue, const GraphProgress& progress = {});

  // Replays the graph of this size. Returns false when there is none.
  bool launch(int size, Stream& stream);

  std::span<const int> sizes() const { return sizes_; }
  bool recorded() const { return !graphs_.empty(); }

 private:
  std::vector<int> sizes_;
  std::vector<cuda::Graph> graphs_;  // of sizes_, largest first; none before record()
};

}  // namespace attend
