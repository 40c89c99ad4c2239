// Latent rows out of a pool, on a GPU. Arguments as the entries check them.
#pragma once

#include "attend/kernels/kv_store/latent_rows.h"

namespace attend::kernels::cuda {

void gather_latent(const GatherLatentArgs& args, Stream& stream);
void lengths_of(View<const int32_t> sums, View<int32_t> lengths, Stream& stream);
void copy_to_heads(const TensorView& from, const TensorView& to, Stream& stream);

}  // namespace attend::kernels::cuda
