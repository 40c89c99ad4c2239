// Arguments of norm_rope_store() as they cross to the device.
#pragma once

#include "attend/kernels/kv_store/store.h"
#include "attend/kernels/norm_rope/cuda/elementwise_kernels.h"

namespace attend::kernels::cuda {

// Throws Error(kInvalidArgument) for a tensor that does not lie on the stream's device, Error(kUnsupported)
// for more than kMaxRopeHalf pairs.
NormRopeParams norm_rope_store_params(const NormRopeArgs& rope, const StoreKvArgs& store,
                                      const Stream& stream);

}  // namespace attend::kernels::cuda
