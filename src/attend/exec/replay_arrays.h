// ReplayArrays: arrays on the device of a batch that steps recurrent states through accepted tokens.
#pragma once

#include "attend/attention/attention_layer.h"
#include "attend/exec/executor_batch.h"
#include "attend/kernels/recurrent/recurrent.h"
#include "attend/tensor/staging_ring.h"

namespace attend {

// Allocates for the limits in its constructor; build() only fills and uploads, with one copy.
class ReplayArrays {
 public:
  ReplayArrays(const BatchLimits& limits, Device device);

  // Returns the batch of all tokens of `verified`. Each part is two requests: one with the accepted tokens,
  // and a padding request with the rejected ones.
  kernels::RecurrentBatch build(const VerifiedStates& verified, Stream& stream);

 private:
  StagingRing ring_;
};

}  // namespace attend
