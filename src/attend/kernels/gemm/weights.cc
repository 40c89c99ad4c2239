#include "attend/kernels/gemm/weights.h"

#include <array>
#include <cmath>
#include <string>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/decode_blocks.h"
#include "attend/kernels/common/element.h"

namespace attend::kernels {
namespace {

// Inputs that a kernel reads as one vector, all in one group.
constexpr int64_t kEightBitGroupUnit = 16, kFourBitGroupUnit = 32;
constexpr int64_t kMxFp4Group = 32;

void check_weight_data(const std::string& name, const Weight& weight) {
  require_rank(name, weight.data, 2);
  require(weight.data.is_contiguous(), name, " ", weight, ": expected a contiguous tensor");
  require_dtype(name, weight.data,
                weight.format == WeightFormat::kFp8    ? DType::kF8E4M3
                : weight.format == WeightFormat::kInt8 ? DType::kI8
                                                       : DType::kU8);
}

void check_weight_groups(const std::string& name, const Weight& weight) {
  const int64_t outs = weight.group_outs, ins = weight.group_ins, in_features = weight.in_features();
  require(outs >= 1 && ins >= 1, name, " ", weight, ": expected groups of at least 1 x 1");
  if (has_eight_bits(weight.format))
    return require(ins >= in_features || ins % kEightBitGroupUnit == 0, name, " ", weight,
                   ": expected groups of ", kEightBitGroupUnit, " inputs, a multiple of this, or all ",
                   in_features);
  require(outs == 1, name, " ", weight, ": expected groups of one output feature");
  if (weight.format == WeightFormat::kMxFp4)
    require(ins == kMxFp4Group, name, " ", weight, ": expected groups of ", kMxFp4Group, " inputs");
  require(ins % kFourBitGroupUnit == 0 && in_features % ins == 0, name, " ", weight,
          ": expected groups of a multiple of ", kFourBitGroupUnit, " inputs that divides ", in_features);
}

void check_weight_scales(const std::string& name, const Weight& weight, int64_t num_orders) {
  const int64_t rows = ceil_div(weight.out_features(), weight.group_outs);
  const int64_t columns = ceil_div(weight.in_features(), weight.group_ins);
  const TensorView& scales = weight.scales;
  require_shape(name + ".scales", scales, {rows, columns});
  require(scales.is_contiguous(), name, ".scales ", scales, ": expected a contiguous tensor");
  if (has_eight_bits(weight.format)) require_dtype(name + ".scales", scales, DType::kF32);
  if (weight.format == WeightFormat::kMxFp4) require_dtype(name + ".scales", scales, DType::kU8);
  if (weight.format == WeightFormat::kInt4) require_weight(name + ".scales", scales);
  if (!weight.zeros.empty()) {
    require(weight.format == WeightFormat::kInt4, name, " ", weight, ": zeros ", weight.zeros,
            ": expected none");
    require_shape(name + ".zeros", weight.zeros, {rows, columns});
    require_dtype(name + ".zeros", weight.zeros, DType::kU8);
    require(weight.zeros.is_contiguous(), name, ".zeros ", weight.zeros, ": expected a contiguous tensor");
  }
  if (weight.input_order.empty()) return;
  require(has_four_bits(weight.format), name, " ", weight, ": input_order: expected none");
  if (num_orders == 1)
    require_shape(name + ".input_order", weight.input_order, {weight.in_features()});
  else
    require_shape(name + ".input_order", weight.input_order, {num_orders, weight.in_features()});
  require(weight.input_order.is_contiguous(), name, ".input_order ", weight.input_order,
          ": expected a contiguous tensor");
  require_dtype(name + ".input_order", weight.input_order, DType::kI32);
}

// Decodes e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives (OCP MX specification).
double e2m1(int code) {
  constexpr std::array<double, 8> kMagnitudes = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  const double magnitude = kMagnitudes[static_cast<size_t>(code & 7)];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

}  // namespace

void require_weight_on(const Stream& stream, std::string_view view_name, const Weight& weight,
                       int64_t num_orders) {
  const std::string name(view_name);
  if (weight.format == WeightFormat::kPlain) {
    require_weight(name, weight.data);
    require_on(stream, name, weight.data);
    return require(weight.scales.empty(), name, " ", weight, ": scales ", weight.scales,
                   ": expected none with ", to_string(weight.format), " elements");
  }
  check_weight_data(name, weight);
  if (weight.format == WeightFormat::kBlocks) {
    const BlockLayout layout = block_layout(weight.block_format);
    require(weight.data.shape[1] % layout.bytes == 0, name, " ", weight, " of ", weight.data.shape[1],
            " bytes per output: expected blocks of ", layout.bytes);
    require(weight.scales.empty() && weight.zeros.empty() && weight.input_order.empty(), name, " ", weight,
            ": expected no scales, zeros and input_order");
    return require_on(stream, name, weight.data);
  }
  check_weight_groups(name, weight);
  check_weight_scales(name, weight, num_orders);
  for (const TensorView* view : {&weight.data, &weight.scales, &weight.zeros, &weight.input_order})
    if (!view->empty()) require_on(stream, name, *view);
}

std::string describe_elements(const Weight& weight) {
  if (weight.format == WeightFormat::kPlain) return std::string(to_string(weight.data.dtype));
  if (weight.format == WeightFormat::kBlocks) return std::string(block_layout(weight.block_format).name);
  const std::string format(to_string(weight.format));
  if (weight.group_ins < weight.in_features())
    return format + " in groups of " +
           (weight.group_outs == 1 ? "" : std::to_string(weight.group_outs) + " x ") +
           std::to_string(weight.group_ins);
  return format + (weight.group_outs == 1 ? " with a scale per output" : " with one scale");
}

std::vector<double> reference::weight_row(const Weight& weight, int64_t out) {
  const int64_t in_features = weight.in_features();
  if (weight.format == WeightFormat::kPlain)
    return load_row(weight.data, offset(weight.data, out), in_features);
  if (weight.format == WeightFormat::kBlocks) {
    std::vector<float> elements(static_cast<size_t>(in_features));
    decode_blocks(weight.block_format, weight.data[out].as<const uint8_t>(), in_features, elements.data());
    return {elements.begin(), elements.end()};
  }
  const bool four_bits = has_four_bits(weight.format);
  std::vector<double> row(static_cast<size_t>(in_features));
  const int32_t* order = weight.input_order.empty() ? nullptr : weight.input_order.as<const int32_t>();
  if (order != nullptr && weight.input_order.rank == 2)
    order += out / (weight.out_features() / weight.input_order.shape[0]) * in_features;
  for (int64_t i = 0; i < in_features; ++i) {
    const int64_t group = offset(weight.scales, out / weight.group_outs, i / weight.group_ins);
    int code = 0;
    if (four_bits)
      code = weight.data.as<const uint8_t>()[offset(weight.data, out, i / 2)] >> (i % 2 * 4) & 15;
    double value = 0;
    if (weight.format == WeightFormat::kFp8)
      value = load(weight.data, offset(weight.data, out, i)) * load(weight.scales, group);
    if (weight.format == WeightFormat::kInt8)
      value = weight.data.as<const int8_t>()[offset(weight.data, out, i)] * load(weight.scales, group);
    if (weight.format == WeightFormat::kInt4) {
      const int zero = weight.zeros.empty() ? 8 : weight.zeros.as<const uint8_t>()[group];
      value = (code - zero) * load(weight.scales, group);
    }
    if (weight.format == WeightFormat::kMxFp4)
      value = std::ldexp(e2m1(code), weight.scales.as<const uint8_t>()[group] - 127);
    const int64_t input = order == nullptr ? i : order[i];
    row[static_cast<size_t>(input)] = value;
  }
  return row;
}

}  // namespace attend::kernels
