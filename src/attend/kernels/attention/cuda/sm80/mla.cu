#include "attend/kernels/attention/cuda/common/tile_config.h"
#include "attend/kernels/attention/cuda/sm80/attention_launch.h"
#include "attend/kernels/attention/cuda/sm80/mla_kernel.cuh"
#include "attend/kernels/common/cuda/launch.cuh"

namespace attend::kernels::cuda::sm80 {
namespace {

template <class T, int kRowBlocks, bool kPlans>
void launch(const AttentionParams& params, int num_row_tiles, void* stream) {
  constexpr int kSharedBytes = MlaCta<T, kRowBlocks, kPlans>::kSharedBytes;
  static_assert(kRowBlocks == 4 ? kSharedBytes == kMlaSharedBytes : kSharedBytes < kMlaSharedBytes);
  constexpr auto kKernel = mla_kernel<T, kRowBlocks, kPlans>;
  allow_shared_memory<kKernel>(kSharedBytes, "MLA: shared memory");
  const dim3 grid(static_cast<unsigned>(params.plan.streamed ? params.plan.num_ctas : num_row_tiles));
  launch_dependent<AttentionParams>(kKernel, grid, kMlaThreads, kSharedBytes, stream, params, "MLA");
}

template <class T, bool kPlans>
void launch_rows(const AttentionParams& params, int num_row_tiles, void* stream) {
  params.plan.tile_rows == 16 ? launch<T, 1, kPlans>(params, num_row_tiles, stream)
                              : launch<T, 4, kPlans>(params, num_row_tiles, stream);
}

template <class T>
void launch_plan_of(const AttentionParams& params, int num_row_tiles, void* stream) {
  params.plan.ctas_plan ? launch_rows<T, true>(params, num_row_tiles, stream)
                        : launch_rows<T, false>(params, num_row_tiles, stream);
}

}  // namespace

void launch_mla(const AttentionParams& params, int num_row_tiles, void* stream) {
  params.kv_element == Element::kBF16 ? launch_plan_of<__nv_bfloat16>(params, num_row_tiles, stream)
                                      : launch_plan_of<__half>(params, num_row_tiles, stream);
}

}  // namespace attend::kernels::cuda::sm80
