// A latent row's norm, rotation and store on a GPU. Arguments as the entry checks them.
#pragma once

#include "attend/kernels/norm_rope/latent_norm_rope_store.h"

namespace attend::kernels::cuda {

void latent_norm_rope_store(const LatentNormRopeStoreArgs& args, Stream& stream);

}  // namespace attend::kernels::cuda
