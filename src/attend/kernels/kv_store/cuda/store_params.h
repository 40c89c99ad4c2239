// A store's arguments as they cross to the device.
#pragma once

#include "attend/kernels/kv_store/cuda/store_kernel.h"
#include "attend/kernels/kv_store/store.h"

namespace attend::kernels::cuda {

// Throws Error(kInvalidArgument) for a tensor that does not lie on the stream's device.
StoreParams store_params(const StoreKvArgs& args, const Stream& stream);

}  // namespace attend::kernels::cuda
