// Chosen rows of a latent cache, on a GPU. Arguments as the entries check them.
#pragma once

#include "attend/kernels/kv_store/selected_rows.h"

namespace attend::kernels::cuda {

void compact_slots(const CompactSlotsArgs& args, Stream& stream);
void dequantise_rows(const DequantiseRowsArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda
