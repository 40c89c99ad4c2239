// Arguments of norm_rope_store() as they cross to the device.
#pragma once

#include "attend/kernels/cuda/elementwise_kernels.h"
#include "attend/kernels/store.h"

namespace attend::kernels::cuda {

// Throws Error(kInvalidArgument) for a tensor that does not lie on the stream's device, Error(kUnsupported)
// for more than kMaxRopeHalf pairs.
NormRopeParams norm_rope_store_params(const NormRopeArgs& rope, const StoreKvArgs& store,
                                      const Stream& stream);

}  // namespace attend::kernels::cuda
