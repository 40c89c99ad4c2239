// Absorbed MLA on mma.sync over scaled latent rows.
#include "attend/kernels/attention/cuda/sm80/attention_launch.h"
#include "attend/kernels/attention/cuda/sm80/mla.cuh"

namespace attend::kernels::cuda::sm80 {

void launch_scaled_mla(const AttentionParams& params, int num_row_tiles, void* stream) {
  params.q_element == Element::kBF16
      ? launch_mla_plan<__nv_bfloat16, MlaRows::kScaled>(params, num_row_tiles, stream)
      : launch_mla_plan<__half, MlaRows::kScaled>(params, num_row_tiles, stream);
}

}  // namespace attend::kernels::cuda::sm80
