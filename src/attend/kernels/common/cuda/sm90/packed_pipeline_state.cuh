// Where a consumer stands in a pipeline of stages, in one register.
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::sm90 {

// As PipelineState (pipeline_state.cuh).
template <uint32_t kStages>
class PackedPipelineState {
 public:
  PackedPipelineState() = default;
  __device__ __forceinline__ int stage() const { return static_cast<int>(count_ % kStages); }
  __device__ __forceinline__ uint32_t parity() const { return count_ / kStages % 2; }
  __device__ __forceinline__ void advance() {
    if (++count_ == kRounds) count_ = 0;
  }
  // What it was `num_stages` ago.
  __device__ __forceinline__ PackedPipelineState before(uint32_t num_stages) const {
    return PackedPipelineState(count_ >= num_stages ? count_ - num_stages : count_ + kRounds - num_stages);
  }
  // Of a pipeline through which the same goes in other stages. Both numbers are powers of two.
  template <uint32_t kOther>
  __device__ __forceinline__ PackedPipelineState<kOther> with_stages() const {
    static_assert(kRounds == 0 && PackedPipelineState<kOther>::kRounds == 0);
    return PackedPipelineState<kOther>(count_);
  }

 private:
  template <uint32_t>
  friend class PackedPipelineState;
  __device__ __forceinline__ explicit PackedPipelineState(uint32_t count) : count_(count) {}

  // Of powers of two the count overflows as it should: 0.
  static constexpr uint32_t kRounds = (kStages & (kStages - 1)) == 0 ? 0 : 2 * kStages;
  uint32_t count_ = 0;
};

}  // namespace attend::kernels::cuda::sm90
