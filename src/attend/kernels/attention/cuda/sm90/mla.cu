#include "attend/kernels/attention/cuda/sm90/mla.cuh"

namespace attend::kernels::cuda::sm90 {
namespace {

template <class T, bool kFp8, bool kPlans>
void launch(const MlaParams& params, int num_ctas, void* stream) {
  constexpr auto kKernel = mla_kernel<T, kFp8, kPlans>;
  allow_shared_memory<kKernel>(MlaShared::kBytes, "MLA: shared memory");
  launch_dependent<MlaParams>(kKernel, dim3(static_cast<unsigned>(num_ctas)), MlaTile::kThreads,
                              MlaShared::kBytes, stream, params, "MLA");
}

template <class T, bool kFp8>
void launch_planned(const MlaParams& params, int num_ctas, void* stream) {
  params.attention.plan.inline_plan ? launch<T, kFp8, true>(params, num_ctas, stream)
                                    : launch<T, kFp8, false>(params, num_ctas, stream);
}

template <class T>
void launch_of(const MlaParams& params, int num_ctas, void* stream) {
  const Element latent = params.attention.kv_element;
  latent == Element::kF8E4M3 || latent == Element::kF8E5M2
      ? launch_planned<T, true>(params, num_ctas, stream)
      : launch_planned<T, false>(params, num_ctas, stream);
}

}  // namespace

void launch_mla(const MlaParams& params, int num_ctas, void* stream) {
  params.attention.q_element == Element::kBF16 ? launch_of<__nv_bfloat16>(params, num_ctas, stream)
                                               : launch_of<__half>(params, num_ctas, stream);
}

}  // namespace attend::kernels::cuda::sm90
