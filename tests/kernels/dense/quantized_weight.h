// Quantized weights of random bits, for tests of products.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>

#include "tests/kernels/dense/test_tensor.h"

namespace attend::testing_support {

// Weight that owns its memory.
struct TestWeight {
  TestTensor data, scales, zeros, order;
  Weight view;

  TestWeight(WeightFormat format, int64_t num_outs, int64_t in_features, int64_t group_outs,
             int64_t group_ins, DType scale_dtype)
      : data({num_outs, has_four_bits(format) ? in_features / 2 : in_features},
             has_four_bits(format)           ? DType::kU8
             : format == WeightFormat::kInt8 ? DType::kI8
                                             : DType::kF8E4M3),
        scales({(num_outs - 1) / group_outs + 1, (in_features - 1) / group_ins + 1}, scale_dtype),
        zeros({scales.view().shape[0], scales.view().shape[1]}, DType::kU8),
        order({in_features}, DType::kI32),
        view(data.view()) {
    view.format = format;
    view.scales = scales;
    view.group_outs = group_outs;
    view.group_ins = group_ins;
  }
  TestWeight(const TestWeight&) = delete;

  uint8_t* codes() { return static_cast<uint8_t*>(data.view().data); }
};

struct Format {
  WeightFormat format;
  int64_t group_outs, group_ins;  // 0: all
  DType scale_dtype;
  bool has_zeros = false, reordered = false;
};

inline std::ostream& operator<<(std::ostream& out, const Format& format) {
  return out << to_string(format.format) << " " << format.group_outs << " x " << format.group_ins << " "
             << format.scale_dtype << (format.has_zeros ? " zeros" : "")
             << (format.reordered ? " reordered" : "");
}

inline constexpr Format kFormats[] = {
    {WeightFormat::kFp8, 0, 0, DType::kF32},     {WeightFormat::kFp8, 1, 0, DType::kF32},
    {WeightFormat::kFp8, 128, 128, DType::kF32}, {WeightFormat::kFp8, 5, 16, DType::kF32},
    {WeightFormat::kInt8, 1, 0, DType::kF32},    {WeightFormat::kInt8, 1, 128, DType::kF32},
    {WeightFormat::kInt8, 0, 32, DType::kF32},   {WeightFormat::kInt4, 1, 32, DType::kF32},
    {WeightFormat::kInt4, 1, 64, DType::kBF16},  {WeightFormat::kInt4, 1, 128, DType::kF16, true},
    {WeightFormat::kInt4, 1, 0, DType::kF16},    {WeightFormat::kInt4, 1, 32, DType::kBF16, true, true},
    {WeightFormat::kMxFp4, 1, 32, DType::kU8},
};

// Random bits: every quantized value, and scales of many magnitudes.
inline std::unique_ptr<TestWeight> random_weight(const Format& format, int64_t num_outs,
                                                 int64_t in_features) {
  auto made = std::make_unique<TestWeight>(
      format.format, num_outs, in_features, format.group_outs == 0 ? num_outs : format.group_outs,
      format.group_ins == 0 ? in_features : format.group_ins, format.scale_dtype);
  std::mt19937 random(static_cast<unsigned>(num_outs * 7 + in_features));
  for (int64_t i = 0; i < made->data.size(); ++i) {
    auto code = static_cast<uint8_t>(random());
    if (format.format == WeightFormat::kFp8 && (code & 0x7f) == 0x7f) code = 0x7e;
    made->codes()[i] = code;
  }
  for (int64_t i = 0; i < made->scales.size(); ++i) {
    const float scale =
        std::ldexp(1.0f + static_cast<float>(random() % 97) / 97.0f, static_cast<int>(random() % 9) - 10);
    if (format.scale_dtype == DType::kU8)
      static_cast<uint8_t*>(made->scales.view().data)[i] = static_cast<uint8_t>(120 + random() % 12);
    else
      made->scales.set(i, scale);
  }
  if (format.has_zeros) {
    for (int64_t i = 0; i < made->zeros.size(); ++i)
      static_cast<uint8_t*>(made->zeros.view().data)[i] = static_cast<uint8_t>(random() % 17);
    made->view.zeros = made->zeros;
  }
  if (format.reordered) {
    const View<int32_t> order = made->order.span<int32_t>();
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    made->view.input_order = made->order;
  }
  return made;
}

}  // namespace attend::testing_support
