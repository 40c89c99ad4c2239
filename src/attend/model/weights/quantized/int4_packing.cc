#include "attend/model/weights/quantized/int4_packing.h"

#include <algorithm>
#include <numeric>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/base/parallel.h"

namespace attend {
namespace {

// Outputs per task of a thread. Their words of one row fill whole cache lines.
constexpr int64_t kRunOuts = 128;

// Word and shift of a packed code.
struct PackedPosition {
  int64_t word;
  int shift;
};

template <PackingLayout kPacking>
PackedPosition packed_position(int64_t n, int64_t k, int64_t num_outs, int64_t num_ins) {
  constexpr int kMixed[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  switch (kPacking) {
    case PackingLayout::kInputsInOrder:
      return {n * (num_ins / 8) + k / 8, static_cast<int>(k % 8) * 4};
    case PackingLayout::kInputsByRow:
      return {k / 8 * num_outs + n, static_cast<int>(k % 8) * 4};
    case PackingLayout::kOutputsMixed:
      return {k * (num_outs / 8) + n / 8, kMixed[n % 8] * 4};
    case PackingLayout::kOutputsByRow:
      return {n / 8 * num_ins + k, static_cast<int>(n % 8) * 4};
    case PackingLayout::kOutputsInOrder:
      return {k * (num_outs / 8) + n / 8, static_cast<int>(n % 8) * 4};
  }
  return {0, 0};
}

// Calls fn(value_at); value_at(n, k) returns the code of output n and input k.
template <class Fn>
void visit_packed_values(const TensorView& words, PackingLayout packing, int64_t num_outs, int64_t num_ins,
                         const Fn& fn) {
  const auto* const data = words.as<const int32_t>();
  const auto with = [&]<PackingLayout kPacking>() {
    fn([=](int64_t n, int64_t k) {
      const PackedPosition place = packed_position<kPacking>(n, k, num_outs, num_ins);
      return static_cast<uint8_t>(static_cast<uint32_t>(data[place.word]) >> place.shift & 15u);
    });
  };
  switch (packing) {
    case PackingLayout::kInputsInOrder:
      return with.template operator()<PackingLayout::kInputsInOrder>();
    case PackingLayout::kInputsByRow:
      return with.template operator()<PackingLayout::kInputsByRow>();
    case PackingLayout::kOutputsMixed:
      return with.template operator()<PackingLayout::kOutputsMixed>();
    case PackingLayout::kOutputsByRow:
      return with.template operator()<PackingLayout::kOutputsByRow>();
    case PackingLayout::kOutputsInOrder:
      return with.template operator()<PackingLayout::kOutputsInOrder>();
  }
}

template <class T>
void transpose_into(const TensorView& matrix, T* to) {
  const auto* const from = static_cast<const T*>(matrix.data);
  const int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  parallel_for(ceil_div(columns, kRunOuts), [&](int64_t run, int) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = run * kRunOuts; column < std::min(columns, (run + 1) * kRunOuts); ++column)
        to[column * rows + row] = from[row * columns + column];
  });
}

}  // namespace

Tensor repack_int4(const TensorView& words, PackingLayout packing, int64_t num_outs, int64_t num_ins,
                   View<const int32_t> order) {
  const Tensor result = Tensor::empty({num_outs, num_ins / 2}, DType::kU8);
  auto* const to = result.as<uint8_t>();
  visit_packed_values(words, packing, num_outs, num_ins, [&](const auto& value_at) {
    parallel_for(ceil_div(num_outs, kRunOuts), [&](int64_t run, int) {
      const int64_t begin = run * kRunOuts, end = std::min(num_outs, begin + kRunOuts);
      for (int64_t pair = 0; pair < num_ins / 2; ++pair) {
        const int64_t low = order.empty() ? 2 * pair : order[static_cast<size_t>(2 * pair)];
        const int64_t high = order.empty() ? 2 * pair + 1 : order[static_cast<size_t>(2 * pair + 1)];
        for (int64_t n = begin; n < end; ++n)
          to[n * (num_ins / 2) + pair] = static_cast<uint8_t>(value_at(n, low) | value_at(n, high) << 4);
      }
    });
  });
  return result;
}

Tensor unpack_int4(const TensorView& words, PackingLayout packing, int64_t num_outs, int64_t num_ins,
                   int add) {
  const Tensor result = Tensor::empty({num_outs, num_ins}, DType::kU8);
  auto* const to = result.as<uint8_t>();
  visit_packed_values(words, packing, num_outs, num_ins, [&](const auto& value_at) {
    parallel_for(ceil_div(num_outs, kRunOuts), [&](int64_t run, int) {
      for (int64_t k = 0; k < num_ins; ++k)
        for (int64_t n = run * kRunOuts; n < std::min(num_outs, (run + 1) * kRunOuts); ++n)
          to[n * num_ins + k] = static_cast<uint8_t>(value_at(n, k) + add);
    });
  });
  return result;
}

Tensor transposed(const TensorView& matrix) {
  const Tensor result = Tensor::empty({matrix.shape[1], matrix.shape[0]}, matrix.dtype);
  if (size_of(matrix.dtype) == 4)
    transpose_into(matrix, static_cast<uint32_t*>(result.view().data));
  else
    transpose_into(matrix, static_cast<uint16_t*>(result.view().data));
  return result;
}

std::vector<int32_t> order_by_group(View<const int32_t> input_group, int64_t group_size,
                                    const std::string& where) {
  const int64_t num_groups = std::ssize(input_group) / group_size;
  std::vector<int64_t> sizes(static_cast<size_t>(num_groups));
  for (size_t i = 0; i < input_group.size(); ++i) {
    const int32_t group = input_group[i];
    if (group < 0 || group >= num_groups)
      fail(ErrorCode::kCorruptFile, where, ": element ", i, " is ", group, ": expected a group from 0 to ",
           num_groups - 1);
    ++sizes[static_cast<size_t>(group)];
  }
  for (size_t group = 0; group < sizes.size(); ++group)
    if (sizes[group] != group_size)
      fail(ErrorCode::kCorruptFile, where, ": group ", group, " has ", sizes[group], " inputs: expected ",
           group_size);
  if (std::ranges::is_sorted(input_group)) return {};
  std::vector<int32_t> order(input_group.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int32_t i) { return input_group[static_cast<size_t>(i)]; });
  return order;
}

}  // namespace attend
