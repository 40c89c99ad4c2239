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

std::vector<StepSize> verify_graph_sizes(std::span<const int> decode_sizes, int max_reqs, int max_seqlen_q,
                                         int max_tokens) {
  std::vector<StepSize> sizes;
  for (const int num_reqs : decode_sizes) {
    if (num_reqs > max_reqs) break;
    for (int per_request = 2, last = 1; last < max_seqlen_q; per_request *= 2) {
      last = std::min(per_request, max_seqlen_q);
      const int num_tokens = num_reqs * last;
      if (num_tokens > max_tokens) break;
      sizes.push_back({num_reqs, num_tokens, std::min(max_seqlen_q, num_tokens - num_reqs + 1)});
    }
  }
  return sizes;
}

int GraphRunner::padded_size(int num_reqs) const {
  const auto found = std::ranges::lower_bound(decode_sizes_, num_reqs);
  return found == decode_sizes_.end() ? num_reqs : *found;
}

StepSize GraphRunner::padded_verify_size(int num_reqs, int num_tokens, int max_seqlen_q) const {
  const auto found = std::ranges::find_if(verify_sizes_, [&](const StepSize& size) {
    return size.num_reqs >= num_reqs && num_tokens + size.num_reqs - num_reqs <= size.num_tokens &&
           max_seqlen_q <= size.max_seqlen_q;
  });
  return found == verify_sizes_.end() ? StepSize() : *found;
}

void GraphRunner::record(Stream& stream,
                         const std::function<bool(const StepSize& size)>& plan_depends_on_kv_len,
                         const std::function<void(const GraphStep& step)>& queue,
                         const GraphProgress& progress, bool adapters) {
  std::vector<StepSize> sizes;
  for (const int num_reqs : decode_sizes_) sizes.push_back(StepSize::decode(num_reqs));
  sizes.insert(sizes.end(), verify_sizes_.begin(), verify_sizes_.end());
  const size_t graphs_per_size = adapters ? 2 : 1;
  const size_t free_before = available_bytes(stream.device);
  const auto report = [&](const StepSize& size) {
    num_bytes_ = free_before - std::min(free_before, available_bytes(stream.device));
    if (progress)
      progress({.batch_size = size.num_reqs,
                .num_done = static_cast<int>(graphs_.size()),
                .num_sizes = static_cast<int>(sizes.size() * graphs_per_size),
                .num_bytes = num_bytes_});
  };
  const auto record_graph = [&](const GraphStep& step) {
    // The run loads kernels, which a recording must not do. The GPU runs the step while the host records it.
    queue(step);
    cuda::Graph graph(stream, [&] { queue(step); });
    cuda::synchronize(stream);  // the next size writes to the arrays
    return graph;
  };
  for (size_t i = sizes.size() * graphs_per_size; i-- > 0;) {
    GraphStep step{
        .size = sizes[i / graphs_per_size], .short_requests = false, .adapters = i % graphs_per_size != 0};
    report(step.size);
    graphs_.push_back({.size = step.size,
                       .adapters = step.adapters,
                       .any = record_graph(step),
                       .short_request_graph = std::nullopt});
    if (!plan_depends_on_kv_len(step.size)) continue;
    step.short_requests = true;
    graphs_.back().short_request_graph = record_graph(step);
  }
  report(sizes.front());
}

bool GraphRunner::launch(const GraphStep& step, Stream& stream) {
  const auto found = std::ranges::find_if(graphs_, [&](const Graphs& graphs) {
    return graphs.size == step.size && graphs.adapters == step.adapters;
  });
  if (found == graphs_.end()) return false;
  (step.short_requests && found->short_request_graph ? *found->short_request_graph : found->any)
      .launch(stream);
  return true;
}

}  // namespace attend
