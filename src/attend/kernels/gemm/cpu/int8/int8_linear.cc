#include "attend/kernels/gemm/cpu/int8/int8_linear.h"

namespace attend::kernels::cpu {

bool has_int8_products(const Weight& weight) {
  switch (weight.format) {
    case WeightFormat::kPlain:
    case WeightFormat::kFp8:
      return false;
    case WeightFormat::kInt8:
      return weight.in_features() % kInt8UnitInputs == 0 &&
             (weight.group_ins % kInt8UnitInputs == 0 || weight.group_ins >= weight.in_features());
    case WeightFormat::kInt4:
    case WeightFormat::kMxFp4:
    case WeightFormat::kBlocks:
      return true;
  }
  return false;
}

Int8Source int8_source(const LinearPart& part, int64_t row) {
  return {.x = part.x + row * part.x_stride,
          .in_features = part.in_features,
          .input_order = part.groups.input_order,
          .splits_pairs = has_four_bits(part.groups.format)};
}

Int8Linear int8_linear(Isa isa) {
  if constexpr (kX86Kernels) {
    if (isa >= Isa::kAvx512Bf16) return int8_linear_avx512bf16();
    if (isa >= Isa::kAvx2) return int8_linear_avx2();
  }
  return int8_linear_portable();
}

}  // namespace attend::kernels::cpu
