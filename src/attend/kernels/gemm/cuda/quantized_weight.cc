#include "attend/kernels/gemm/cuda/common/quantized_weight.h"

#include <bit>

#include "attend/kernels/common/cuda/view_params.h"

namespace attend::kernels::cuda {
namespace {

// Number of bits by which an input index is shifted to get its group.
int32_t get_group_shift(const Weight& weight) {
  constexpr int32_t kOneGroup = 31;
  if (weight.format == WeightFormat::kPlain || weight.group_ins >= weight.in_features()) return kOneGroup;
  const auto group = static_cast<uint64_t>(weight.group_ins);
  return std::has_single_bit(group) ? std::countr_zero(group) : -1;
}

}  // namespace

QuantizedWeight quantized_weight(const Weight& weight) {
  const bool plain = weight.format == WeightFormat::kPlain;
  const bool float_scales = has_eight_bits(weight.format) || weight.format == WeightFormat::kInt4;
  return {.data = weight.data.data,
          .scales = weight.scales.data,
          .zeros = static_cast<const uint8_t*>(weight.zeros.data),
          .input_order = static_cast<const int32_t*>(weight.input_order.data),
          .in_features = static_cast<int32_t>(weight.in_features()),
          .group_outs = plain ? 1 : static_cast<int32_t>(weight.group_outs),
          .group_ins = plain ? 1 : static_cast<int32_t>(weight.group_ins),
          .group_shift = get_group_shift(weight),
          .scale_columns = plain ? 0 : static_cast<int32_t>(weight.scales.shape[1]),
          .format = weight.format,
          .element = plain ? to_element_type(weight.data.dtype) : Element::kF32,
          .scale_element = float_scales ? to_element_type(weight.scales.dtype) : Element::kF32};
}

}  // namespace attend::kernels::cuda
