#include <algorithm>

#include "attend/kernels/cuda/device_attribute.h"
#include "attend/kernels/cuda/launch.cuh"
#include "attend/kernels/cuda/sm80/attention_launch.h"
#include "attend/kernels/cuda/sm80/mla_kernel.cuh"

namespace attend::kernels::cuda::sm80 {
namespace {

template <class T, int kRowBlocks>
void launch(const AttentionParams& params, int num_row_tiles, void* stream) {
  constexpr int kSharedBytes = MlaCta<T, kRowBlocks>::kSharedBytes;
  constexpr auto kKernel = mla_kernel<T, kRowBlocks>;
  allow_shared_memory<kKernel>(kSharedBytes, "MLA: shared memory");
  const dim3 grid(static_cast<unsigned>(params.plan.streamed ? params.plan.num_ctas : num_row_tiles));
  launch_dependent<AttentionParams>(kKernel, grid, kMlaThreads, kSharedBytes, stream, params, "MLA");
}

}  // namespace

void launch_mla(const AttentionParams& params, int num_row_tiles, void* stream) {
  const bool few_rows = params.plan.tile_rows == 16;
  if (params.kv_element == Element::kBF16)
    few_rows ? launch<__nv_bfloat16, 1>(params, num_row_tiles, stream)
             : launch<__nv_bfloat16, 4>(params, num_row_tiles, stream);
  else
    few_rows ? launch<__half, 1>(params, num_row_tiles, stream)
             : launch<__half, 4>(params, num_row_tiles, stream);
}

bool device_takes_mla() {
  return current_device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) >=
         std::max(MlaCta<__half, 1>::kSharedBytes, MlaCta<__half, 4>::kSharedBytes);
}

}  // namespace attend::kernels::cuda::sm80
