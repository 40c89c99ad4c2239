// BidirectionalAttention: a backend whose layers see tokens on both sides, made of one that is causal.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "attend/attention/backend.h"

namespace attend {

// The geometry that the causal backend is made for: no layer has a window, since masks say what is seen.
ModelGeometry without_windows(const ModelGeometry& model);

// Every token of a step is new and sees, of its own request, all tokens or, in layers with a window, those at
// most window_left away on either side. Said by tree masks, which any backend with draft trees takes: a bit
// for each pair of tokens of a request. On the CPU.
class BidirectionalAttention : public AttentionBackend {
 public:
  // `inner` is made for without_windows(model).
  BidirectionalAttention(std::unique_ptr<AttentionBackend> inner, const ModelGeometry& model);

  void plan(const ForwardBatch& batch, Stream& stream) override;
  KvDestination destination(const AttentionLayer& layer, const ForwardBatch& batch) override;
  void forward(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
               Stream& stream) override;

 private:
  std::unique_ptr<AttentionBackend> inner_;
  std::map<int, std::vector<uint64_t>> masks_;  // by window_left; -1: all tokens
};

}  // namespace attend
