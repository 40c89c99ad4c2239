// Position of a producer or consumer in a pipeline of stages, in one register.
#pragma once

#include <cstdint>

#include "attend/kernels/common/host_device.h"

namespace attend::kernels::cuda::sm90 {

// Returns the value at which counts wrap around: 0 (integer overflow) if the number of stages is a power of
// two.
constexpr uint32_t count_wrap(uint32_t num_stages) {
  return (num_stages & (num_stages - 1)) == 0 ? 0 : 2 * num_stages;
}

// Like PipelineState (pipeline_state.cuh). `kRounds`: 0, or a multiple of twice the stages.
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
  // Returns the state `num_advances` ago.
  ATTEND_HOST_DEVICE PackedPipelineState before(uint32_t num_advances) const {
    return PackedPipelineState(count_ >= num_advances ? count_ - num_advances
                                                      : count_ + kRounds - num_advances);
  }
  // Returns the state of a pipeline with other stages for the same sequence.
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
  // Tables for stages that are not a power of two: two bits per count, and one bit. A division would be
  // slower.
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
