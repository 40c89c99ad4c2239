// derive_batch and append_keys (batch_arrays.h) on a GPU: one launch each, over arrays in its memory.
#pragma once

#include "attend/kernels/kv_store/batch_arrays.h"

namespace attend::kernels::cuda {

void derive_batch(const BatchSource& source, const BatchArrays& arrays, Stream& stream);
void append_keys(const BatchSource& source, const BatchArrays& arrays, const StoreKvArgs& store,
                 Stream& stream);

}  // namespace attend::kernels::cuda
