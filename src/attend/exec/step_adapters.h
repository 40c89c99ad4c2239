// StepAdapters: the adapters of a step's tokens, for one rank.
#pragma once

#include <algorithm>
#include <vector>

#include "attend/exec/executor_batch.h"
#include "attend/kernels/gemm/low_rank.h"
#include "attend/model/adapters/model_adapter.h"

namespace attend {

class StepAdapters {
 public:
  // Returns the runs of tokens with adapters. Neighboring requests with the same adapter share runs. Valid
  // until the next call. Allocates memory for the first step with more tokens or a larger adapter.
  kernels::AdapterBatch build(const ExecutorBatch& batch, int rank) {
    runs_.clear();
    int64_t first = 0, max_rank = 0;
    for (const ExecutorRequest& request : batch.requests) {
      if (request.adapter != nullptr) {
        const kernels::LowRankAdapter& adapter = request.adapter->ranks[static_cast<size_t>(rank)];
        max_rank = std::max(max_rank, adapter.max_rank);
        add(adapter, first, request.num_new);
      }
      first += request.num_new;
    }
    if (runs_.empty()) return {};
    const int64_t width = kernels::kMaxLowRankProducts * max_rank;
    const auto size = static_cast<size_t>(first * width);
    if (products_.size() < size) products_.resize(size);
    return {.runs = runs_,
            .products = TensorView::contiguous(products_.data(), DType::kF32, {first, width}, {})};
  }

 private:
  void add(const kernels::LowRankAdapter& adapter, int64_t first, int64_t num_tokens) {
    while (num_tokens > 0) {
      const bool continues = !runs_.empty() && runs_.back().adapter == &adapter &&
                             runs_.back().first_token + runs_.back().num_tokens == first &&
                             runs_.back().num_tokens < kernels::kMaxRunTokens;
      if (!continues) runs_.push_back({.first_token = first, .num_tokens = 0, .adapter = &adapter});
      kernels::AdapterRun& run = runs_.back();
      const int64_t count = std::min(num_tokens, kernels::kMaxRunTokens - run.num_tokens);
      run.num_tokens += count;
      first += count;
      num_tokens -= count;
    }
  }

  std::vector<kernels::AdapterRun> runs_;
  std::vector<float> products_;
};

}  // namespace attend
