#include "attend/exec/graph_runner.h"

#include <algorithm>

#include "attend/tensor/arena.h"

namespace attend {

std::vector<int> default_graph_sizes(int max_batch_size) {
  std::vector<int> sizes;
  const auto add = [&](int first, int last, int step) {
    for (int size = first; size <= std::min(last, max_batch_size - 1); size += step) sizes.push_back(size);
  };
  add(1, 2, 1);
  add(4, 16, 4);
  add(24, 256, 8);
  add(272, 512, 16);
  add(544, max_batch_size, 32);
  sizes.push_back(max_batch_size);
  return sizes;
}

int GraphRunner::padded_size(int num_reqs) const {
  const auto found = std::lower_bound(sizes_.begin(), sizes_.end(), num_reqs);
  return found == sizes_.end() ? num_reqs : *found;
}

void GraphRunner::record(Stream& stream, const std::function<bool(int size)>& plan_depends_on_kv_len,
                         const std::function<void(const GraphStep& step)>& queue,
                         const GraphProgress& progress) {
  const size_t free_before = available_bytes(stream.device);
  const auto report = [&](int size) {
    num_bytes_ = free_before - std::min(free_before, available_bytes(stream.device));
    if (progress)
      progress({.batch_size = size,
                .num_done = static_cast<int>(graphs_.size()),
                .num_sizes = static_cast<int>(sizes_.size()),
                .num_bytes = num_bytes_});
  };
  const auto record_graph = [&](const GraphStep& step) {
    queue(step);
    cuda::synchronize(stream);
    return cuda::Graph(stream, [&] { queue(step); });
  };
  for (size_t i = sizes_.size(); i-- > 0;) {
    report(sizes_[i]);
    graphs_.push_back({.any = record_graph({sizes_[i], false}), .short_request_graph = std::nullopt});
    if (plan_depends_on_kv_len(sizes_[i]))
      graphs_.back().short_request_graph = record_graph({sizes_[i], true});
  }
  report(sizes_.front());
}

bool GraphRunner::launch(const GraphStep& step, Stream& stream) {
  const auto found = std::lower_bound(sizes_.begin(), sizes_.end(), step.size);
  if (graphs_.empty() || found == sizes_.end() || *found != step.size) return false;
  Graphs& graphs = graphs_[static_cast<size_t>(sizes_.end() - found) - 1];
  (step.short_requests && graphs.short_request_graph ? *graphs.short_request_graph : graphs.any)
      .launch(stream);
  return true;
}

}  // namespace attend
