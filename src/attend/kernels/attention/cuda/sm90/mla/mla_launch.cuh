// The launch of MLA on sm_90a for one dtype of queries.
#pragma once

#include "attend/kernels/attention/cuda/sm90/mla/mla.cuh"
#include "attend/kernels/common/cuda/launch.cuh"

namespace attend::kernels::cuda::sm90 {

template <class T, bool kFp8, bool kPlans, bool kPlain>
void launch_mla_instance(const MlaParams& params, int num_ctas, void* stream) {
  constexpr auto kKernel = mla_kernel<T, kFp8, kPlans, kPlain>;
  allow_shared_memory<kKernel>(MlaShared::kBytes, "MLA: shared memory");
  launch_dependent<MlaParams>(kKernel, dim3(static_cast<unsigned>(num_ctas)), MlaTile::kThreads,
                              MlaShared::kBytes, stream, params, "MLA");
}

template <class T, bool kFp8, bool kPlain>
void launch_mla_planned(const MlaParams& params, int num_ctas, void* stream) {
  params.attention.plan.inline_plan ? launch_mla_instance<T, kFp8, true, kPlain>(params, num_ctas, stream)
                                    : launch_mla_instance<T, kFp8, false, kPlain>(params, num_ctas, stream);
}

template <class T, bool kFp8>
void launch_mla_rows(const MlaParams& params, int num_ctas, void* stream) {
  params.plain ? launch_mla_planned<T, kFp8, true>(params, num_ctas, stream)
               : launch_mla_planned<T, kFp8, false>(params, num_ctas, stream);
}

template <class T>
void launch_mla_of(const MlaParams& params, int num_ctas, void* stream) {
  const Element latent = params.attention.kv_element;
  latent == Element::kF8E4M3 || latent == Element::kF8E5M2
      ? launch_mla_rows<T, true>(params, num_ctas, stream)
      : launch_mla_rows<T, false>(params, num_ctas, stream);
}

}  // namespace attend::kernels::cuda::sm90
