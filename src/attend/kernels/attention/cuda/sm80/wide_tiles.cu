// Attention at head dims up to 512 on mma.sync, by the kernel of MLA.
#include "attend/kernels/attention/cuda/sm80/attention_launch.h"
#include "attend/kernels/attention/cuda/sm80/mla.cuh"

namespace attend::kernels::cuda::sm80 {

void launch_wide_tiles(const AttentionParams& params, int num_row_tiles, void* stream) {
  params.kv_element == Element::kBF16
      ? launch_mla_plan<__nv_bfloat16, MlaRows::kSeparate>(params, num_row_tiles, stream)
      : launch_mla_plan<__half, MlaRows::kSeparate>(params, num_row_tiles, stream);
}

}  // namespace attend::kernels::cuda::sm80
