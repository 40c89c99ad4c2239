// What becomes of the sums of a few-row product.
#pragma once

#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/gemm/cuda/sm80/few_rows_kernel.h"

namespace attend::kernels::cuda {

// They go to out: as they are, added to what it holds, or as silu(gate) * up.
class SumsOut {
 public:
  static constexpr bool kHeads = false, kMeets = false;
  // What is asked for before the weights of a pass, behind which it would come late.
  struct Early {
    float before = 0.0f;
  };

  __device__ explicit SumsOut(const FewRowsParams& params) : params_(params) {}

  __device__ void ask(int token, int unit, int row, Early& early) const {
    if (params_.accumulate)
      early.before = load_element(params_.out, at(token, unit, row), params_.out_element);
  }
  // sum(group, feature): the output `feature`, which is row `row` of that group of the unit.
  template <class Sum>
  __device__ void write(int token, int unit, int row, const Early& early, const Sum& sum) const {
    const int feature = unit * kFeatures + row;
    float value = sum(0, feature);
    if (params_.gated) value = value / (1.0f + expf(-value)) * sum(1, params_.out_features + feature);
    if (params_.accumulate) value += early.before;
    store_element(params_.out, at(token, unit, row), params_.out_element, value);
  }

 private:
  __device__ int64_t at(int token, int unit, int row) const {
    return token * params_.out_stride + unit * kFeatures + row;
  }

  const FewRowsParams& params_;
};

}  // namespace attend::kernels::cuda
