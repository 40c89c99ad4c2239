// GraphRunner: records decode steps and steps that verify drafts as CUDA graphs, one per padded size of a
// list, and replays them for batches of any lengths. If the attention plan of a size depends on KV length, a
// second graph is recorded for short requests.
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

// Padded size of a step.
struct StepSize {
  int num_reqs = 0;  // 0: the step is not padded
  int num_tokens = 0;
  int max_seqlen_q = 1;  // new tokens of a request, at most; 1: a decode step

  static StepSize decode(int num_reqs) { return {num_reqs, num_reqs, 1}; }
  bool verifies() const { return max_seqlen_q > 1; }
  bool operator==(const StepSize&) const = default;
};

// Returns the sizes of steps with drafts: for each of `decode_sizes` of at most `max_reqs` requests, 2, 4, 8,
// ... and `max_seqlen_q` tokens per request, together at most `max_tokens`. One request may have several
// tokens while others have one. Ordered by requests, then by tokens.
std::vector<StepSize> verify_graph_sizes(std::span<const int> decode_sizes, int max_reqs, int max_seqlen_q,
                                         int max_tokens);

// Key of a graph.
struct GraphStep {
  StepSize size;
  bool short_requests;    // no request is longer than kernels::kShortRequestMaxKeys
  bool adapters = false;  // tokens may have adapters
};

class GraphRunner {
 public:
  GraphRunner() = default;
  // Decode sizes are in ascending order, verify sizes in that of verify_graph_sizes(). Records nothing.
  explicit GraphRunner(std::vector<int> decode_sizes, std::vector<StepSize> verify_sizes = {})
      : decode_sizes_(std::move(decode_sizes)), verify_sizes_(std::move(verify_sizes)) {}

  // Returns the smallest decode size of at least `num_reqs`, or `num_reqs` if there is none. Eager steps are
  // padded to this size too, so that their results are bit-identical to a replay.
  int padded_size(int num_reqs) const;
  // The same for a step with drafts: the size with the fewest requests, and then the fewest tokens, that
  // holds the step's tokens and one token for each request that is added, and requests of `max_seqlen_q` new
  // tokens. Not padded if there is none.
  StepSize padded_verify_size(int num_reqs, int num_tokens, int max_seqlen_q) const;

  // Records the launches of `queue(step)` for each size, largest first, and again for short requests if
  // `plan_depends_on_kv_len(size)`. `queue` runs once before it is recorded, because libraries load kernels
  // and allocate memory at their first call. `adapters`: also records each size with adapters. `progress` is
  // called before each graph and after the last one.
  void record(Stream& stream, const std::function<bool(const StepSize& size)>& plan_depends_on_kv_len,
              const std::function<void(const GraphStep& step)>& queue, const GraphProgress& progress = {},
              bool adapters = false);

  // Frees the graphs; record() may be called again.
  void clear() {
    graphs_.clear();
    num_bytes_ = 0;
  }

  // Replays the graph of this step. Returns false if there is none.
  bool launch(const GraphStep& step, Stream& stream);

  std::span<const int> decode_sizes() const { return decode_sizes_; }
  std::span<const StepSize> verify_sizes() const { return verify_sizes_; }
  bool recorded() const { return !graphs_.empty(); }
  size_t num_bytes() const { return num_bytes_; }  // device memory of the graphs

 private:
  struct Graphs {
    StepSize size;
    bool adapters;
    cuda::Graph any;
    std::optional<cuda::Graph> short_request_graph;  // none: `any` is used
  };

  std::vector<int> decode_sizes_;
  std::vector<StepSize> verify_sizes_;
  std::vector<Graphs> graphs_;  // one per size, or two with adapters; empty before record()
  size_t num_bytes_ = 0;
};

}  // namespace attend
