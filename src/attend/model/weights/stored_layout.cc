// Converts stored tensors to the layout of their slots.
#include <algorithm>

#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/model/weights/load_weights.h"

namespace attend {
namespace {

constexpr int64_t kConvertedRunElements = 1 << 16;
// Rows and columns of a transposed tile. Its cache lines fit into the L1 cache.
constexpr int64_t kTile = 32;

// Returns scale * (offset + weights) in float32.
Tensor scaled(const TensorView& weights, float offset, float scale) {
  const int64_t count = weights.num_elements();
  const Tensor result = Tensor::empty({count}, DType::kF32);
  visit_float_dtype(weights.dtype, [&]<class T>(TypeTag<T>) {
    for (int64_t i = 0; i < count; ++i)
      result.as<float>()[i] = scale * (offset + static_cast<float>(weights.as<const T>()[i]));
  });
  return result;
}

// [matrices, columns, rows] -> [matrices, rows, columns]. A stored tensor of rank 2 is one matrix.
Tensor transposed_matrices(const TensorView& stored) {
  const bool one = stored.rank == 2;
  const int64_t matrices = one ? 1 : stored.shape[0], columns = stored.shape[one ? 0 : 1],
                rows = stored.shape[one ? 1 : 2];
  const Tensor result = Tensor::empty({matrices, rows, columns}, stored.dtype);
  const int64_t row_tiles = ceil_div(rows, kTile);
  visit_float_dtype(stored.dtype, [&]<class T>(TypeTag<T>) {
    parallel_for(matrices * row_tiles, [&](int64_t task, int) {
      const int64_t first = task / row_tiles * rows * columns, begin = task % row_tiles * kTile;
      const int64_t end = std::min(rows, begin + kTile);
      const T* const from = stored.as<const T>() + first;
      T* const to = result.as<T>() + first;
      for (int64_t tile = 0; tile < columns; tile += kTile)
        for (int64_t row = begin; row < end; ++row)
          for (int64_t column = tile; column < std::min(columns, tile + kTile); ++column)
            to[row * columns + column] = from[column * rows + row];
    });
  });
  return result;
}

}  // namespace

Tensor converted(const Tensor& from, DType dtype) {
  if (from.dtype() == dtype) return from;
  const int64_t count = from.view().num_elements();
  const Tensor result = Tensor::empty({count}, dtype);
  visit_float_dtype(dtype, [&]<class To>(TypeTag<To>) {
    visit_float_dtype(from.dtype(), [&]<class From>(TypeTag<From>) {
      const From* const source = from.as<From>();
      To* const target = result.as<To>();
      parallel_for(ceil_div(count, kConvertedRunElements), [&](int64_t run, int) {
        const int64_t end = std::min(count, (run + 1) * kConvertedRunElements);
        for (int64_t i = run * kConvertedRunElements; i < end; ++i)
          target[i] = To(static_cast<float>(source[i]));
      });
    });
  });
  return result;
}

bool is_repacked(const WeightSlot& slot) {
  return slot.layout == StoredLayout::kExpertColumns ||
         (slot.layout == StoredLayout::kColumns && slot.columns > 0);
}

Tensor to_slot_layout(const WeightSlot& slot, const Tensor& stored) {
  if (slot.zero_centered || slot.scale != 1.0f)
    return scaled(stored, slot.zero_centered ? 1.0f : 0.0f, slot.scale);
  const Tensor rows = is_repacked(slot) ? transposed_matrices(stored) : stored;
  return slot.in_f32 ? converted(rows, DType::kF32) : rows;
}

}  // namespace attend
