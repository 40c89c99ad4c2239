// Where a producer or consumer stands in a pipeline of stages, in one register.
#pragma once

#include <cstdint>

#include "attend/kernels/common/host_device.h"

namespace attend::kernels::cuda::sm90 {

// What counts begin anew at: 0, as they overflow, where stages are a power of two.
constexpr uint32_t count_wrap(uint32_t num_stages) {
  return (num_stages & (num_stages - 1)) == 0 ? 0 : 2 * num_stages;
}

// As PipelineState (pipeline_state.cuh). `kRounds`: 0, or a multiple of twice the stages.
template <uint32_t kStages, uint32_t kRounds = count_wrap(kStages)>
class PackedPipelineState {
 public:
  PackedPipelineState() = default;
  ATTEND_HOST_DEVICE int stage() const {
    return static_cast<int>(kRounds == 0 ? count_ % kStages : kCountToStage >> 2 * count_ & 3);
  }
  ATTEND_HOST_DEVICE uint32_t parity() const {
    return kRounds == 0 ? count_ / kStages % 2 : kCountToParity >> count_ & 1;
  }
  ATTEND_HOST_DEVICE void advance() {
    if (++count_ == kRounds) count_ = 0;
  }
  // What it was `num_advances` ago.
  ATTEND_HOST_DEVICE PackedPipelineState before(uint32_t num_advances) const {
    return PackedPipelineState(count_ >= num_advances ? count_ - num_advances
                                                      : count_ + kRounds - num_advances);
  }
  // Of a pipeline through which the same goes in other stages.
  template <uint32_t kOther>
  ATTEND_HOST_DEVICE PackedPipelineState<kOther, kRounds> with_stages() const {
    return PackedPipelineState<kOther, kRounds>(count_);
  }

 private:
  template <uint32_t, uint32_t>
  friend class PackedPipelineState;
  ATTEND_HOST_DEVICE explicit PackedPipelineState(uint32_t count) : count_(count) {}

  static_assert(kRounds == 0 ? count_wrap(kStages) == 0
                             : kRounds % (2 * kStages) == 0 && kRounds <= 16 && kStages <= 4);
  // Where stages are no power of two: two bits of each count, and one. A division would take longer.
  static constexpr uint32_t count_to_stage_table() {
    uint32_t bits = 0;
    for (uint32_t count = 0; count < 16; ++count) bits |= count % kStages % 4 << 2 * count;
    return bits;
  }
  static constexpr uint32_t count_to_parity_table() {
    uint32_t bits = 0;
    for (uint32_t count = 0; count < 16; ++count) bits |= count / kStages % 2 << count;
    return bits;
  }
  static constexpr uint32_t kCountToStage = count_to_stage_table(), kCountToParity = count_to_parity_table();
  uint32_t count_ = 0;
};

}  // namespace attend::kernels::cuda::sm90
