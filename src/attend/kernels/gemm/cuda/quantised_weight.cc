#include "attend/kernels/gemm/cuda/common/quantised_weight.h"

#include <bit>

#include "attend/kernels/common/cuda/view_params.h"

namespace attend::kernels::cuda {
namespace {

// By which an input is shifted to its group.
int32_t group_shift_of(const Weight& weight) {
  constexpr int32_t kOneGroup = 31;
  if (weight.format == WeightFormat::kPlain || weight.group_ins >= weight.in_features()) return kOneGroup;
  const auto group = static_cast<uint64_t>(weight.group_ins);
  return std::has_single_bit(group) ? std::countr_zero(group) : -1;
}

}  // namespace

QuantisedWeight quantised_weight(const Weight& weight) {
  const bool plain = weight.format == WeightFormat::kPlain;
  const bool float_scales = has_eight_bits(weight.format) || weight.format == WeightFormat::kInt4;
  return {.data = weight.data.data,
          .scales = weight.scales.data,
          .zeros = static_cast<const uint8_t*>(weight.zeros.data),
          .input_order = static_cast<const int32_t*>(weight.input_order.data),
          .in_features = static_cast<int32_t>(weight.in_features()),
          .group_outs = plain ? 1 : static_cast<int32_t>(weight.group_outs),
          .group_ins = plain ? 1 : static_cast<int32_t>(weight.group_ins),
          .group_shift = group_shift_of(weight),
          .scale_columns = plain ? 0 : static_cast<int32_t>(weight.scales.shape[1]),
          .format = weight.format,
          .element = plain ? element_of(weight.data.dtype) : Element::kF32,
          .scale_element = float_scales ? element_of(weight.scales.dtype) : Element::kF32};
}

}  // namespace attend::kernels::cuda
