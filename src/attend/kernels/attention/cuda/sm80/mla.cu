// Absorbed MLA on mma.sync over 16-bit latent rows.
#include "attend/kernels/attention/cuda/sm80/mla.cuh"

namespace attend::kernels::cuda::sm80 {

void launch_mla(const AttentionParams& params, int num_row_tiles, void* stream) {
  params.kv_element == Element::kBF16
      ? launch_mla_plan<__nv_bfloat16, MlaRows::kLatent>(params, num_row_tiles, stream)
      : launch_mla_plan<__half, MlaRows::kLatent>(params, num_row_tiles, stream);
}

}  // namespace attend::kernels::cuda::sm80
