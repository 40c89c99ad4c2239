// The stores of store.h on a GPU.
#pragma once

#include "attend/kernels/kv_store/store.h"

namespace attend::kernels::cuda {

void store_kv(const StoreKvArgs& args, Stream& stream);
void store_mla(const StoreMlaArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda
