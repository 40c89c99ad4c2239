// StepAdapters: the adapters of a step's tokens, for one rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <tuple>
#include <vector>

#include "attend/base/error.h"
#include "attend/exec/executor_batch.h"
#include "attend/exec/graph_runner.h"
#include "attend/kernels/gemm/low_rank.h"
#include "attend/kernels/gemm/token_groups.h"
#include "attend/model/adapters/model_adapter.h"
#include "attend/tensor/staging_ring.h"

namespace attend {

class StepAdapters {
 public:
  // `max_tokens`: limit of a step. GPUs: allocates its arrays there.
  StepAdapters(int rank, int max_tokens, Device device) : rank_(rank), max_tokens_(max_tokens) {
    if (device.type == DeviceType::kCuda) ring_.emplace(num_bytes(max_tokens, max_tokens), device);
  }

  // Returns the adapters of the step's tokens; empty: none has one. Valid until the next call. Neighboring
  // requests with the same adapter share runs. GPUs: uploads the arrays; those of steps of one padded size
  // have the same addresses. Allocates memory for the first step with an adapter, or a larger one.
  kernels::AdapterBatch build(const ExecutorBatch& batch, const StepSize& size, Stream& stream) {
    runs_.clear();
    int64_t first = 0, max_rank = 0, row_floats = 0;
    for (const ExecutorRequest& request : batch.requests) {
      if (request.adapter != nullptr) {
        const kernels::LowRankAdapter& adapter = request.adapter->ranks[static_cast<size_t>(rank_)];
        max_rank = std::max(max_rank, adapter.max_rank);
        row_floats = std::max(row_floats, adapter.row_floats);
        add(adapter, first, request.num_new);
      }
      first += request.num_new;
    }
    if (runs_.empty()) return {};
    if (ring_) return upload(row_floats, first, size, stream);
    const int64_t width = kernels::kMaxLowRankProducts * max_rank;
    const auto num_floats = static_cast<size_t>(first * width);
    if (products_.size() < num_floats) products_.resize(num_floats);
    return {.runs = runs_,
            .products = TensorView::contiguous(products_.data(), DType::kF32, {first, width}, {})};
  }
  // GPUs: a step without adapters, with the addresses of steps of this size that have some.
  kernels::AdapterBatch build_without(int num_tokens, const StepSize& size, Stream& stream) {
    runs_.clear();
    return upload(0, num_tokens, size, stream);
  }

 private:
  // Tokens of a step up to which those without an adapter are listed, too.
  static constexpr int64_t kMaxListed = 512;

  // Arrays on a GPU: the header, segments, tokens.
  static size_t num_bytes(int64_t num_segments, int64_t num_tokens) {
    return sizeof(kernels::LowRankHeader) +
           static_cast<size_t>(num_segments) * sizeof(kernels::LowRankSegment) +
           static_cast<size_t>(num_tokens) * sizeof(int32_t);
  }

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

  // `num_tokens`: of the step, without padding.
  kernels::AdapterBatch upload(int64_t row_floats, int64_t num_tokens, const StepSize& size, Stream& stream) {
    int64_t num_adapted = 0;
    for (const kernels::AdapterRun& run : runs_) num_adapted += run.num_tokens;
    const bool padded = size.num_reqs > 0;
    const int segment_tokens = kernels::low_rank_segment_tokens(num_adapted, padded);
    groups_.build(runs_, segment_tokens);
    const auto num_segments = std::ssize(groups_.groups);
    const bool lists_all = padded || num_tokens <= kMaxListed;
    if (lists_all) groups_.add_others(padded ? size.num_tokens : num_tokens, segment_tokens);
    const auto num_all = std::ssize(groups_.groups);
    // Every token of a padded step may have another adapter.
    const int64_t max_segments = padded ? size.num_tokens : num_all;
    ensure(num_all <= max_segments, num_all, " segments of a step of ", max_segments, " tokens");
    if (row_floats > row_floats_) {
      row_floats_ = row_floats;
      device_products_ = {};
      device_products_ = cuda::empty({max_tokens_ * row_floats}, DType::kF32, stream.device);
    }
    const auto parts = [&](void* base) {
      auto* const header = static_cast<kernels::LowRankHeader*>(base);
      auto* const segments = reinterpret_cast<kernels::LowRankSegment*>(header + 1);
      return std::tuple(header, segments, reinterpret_cast<int32_t*>(segments + max_segments));
    };
    const auto [header, segments, tokens] = parts(ring_->next_slot().data());
    *header = {.products = static_cast<float*>(device_products_.view().data),
               .row_floats = static_cast<int32_t>(row_floats_),
               .num_segments = static_cast<int32_t>(num_segments),
               .num_all_segments = static_cast<int32_t>(num_all)};
    for (int64_t i = 0; i < num_all; ++i) {
      const kernels::TokenGroup& group = groups_.groups[static_cast<size_t>(i)];
      segments[i] = {.table = group.adapter == nullptr ? nullptr : group.adapter->table,
                     .first = static_cast<int32_t>(group.first),
                     .count = static_cast<int32_t>(group.count)};
    }
    std::ranges::copy(groups_.tokens, tokens);
    ring_->upload(num_bytes(max_segments, std::ssize(groups_.tokens)), stream);
    const auto [device_header, device_segments, device_tokens] = parts(ring_->device_bytes().data);
    return {.arrays = {.header = device_header,
                       .segments = device_segments,
                       .tokens = device_tokens,
                       .max_segments = static_cast<int32_t>(max_segments),
                       .segment_tokens = segment_tokens,
                       .lists_all = lists_all}};
  }

  int rank_;
  int64_t max_tokens_;
  std::vector<kernels::AdapterRun> runs_;
  std::vector<float> products_;  // CPUs
  // GPUs.
  std::optional<StagingRing> ring_;
  kernels::TokenGroups groups_;
  int64_t row_floats_ = 0;
  Tensor device_products_;  // f32 [max_tokens, row_floats]
};

}  // namespace attend
