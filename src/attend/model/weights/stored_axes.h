// StoredAxes: the axes of a stored tensor in terms of the weight's outputs and inputs. They determine the
// expected shape, the bytes that a part reads and its elements. Internal to the model floor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "attend/model/weights/shape_text.h"
#include "attend/model/weights/weight_slot.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Range [begin, end) of `total` indices.
struct Extent {
  int64_t begin = 0, end = 0, total = 0;

  int64_t size() const { return end - begin; }
  bool is_whole() const { return begin == 0 && end == total; }
};

// Range of matrix elements in the stored tensors that belongs to a part.
struct StoredRange {
  Extent experts, outs, ins;
};

// With `splits_experts`, the tensors have an axis of experts, and outputs are numbered per expert. A part has
// whole experts, or outputs of one expert.
StoredRange stored_range(const WeightSlot& slot, const WeightPart& part, bool splits_experts);

// Axis of a stored tensor.
struct StoredAxis {
  enum class Kind : uint8_t { kExperts, kOuts, kIns, kOther };
  Kind kind = Kind::kOther;
  // Outputs or inputs per index: 8 if words pack 8 codes, the group size for scales. kOther: the extent.
  int64_t per_index = 1;
  // Parts may begin and end within one index. True for scales, which apply to any part of their block; false
  // for packed words.
  bool is_shared = false;

  Extent indices(const StoredRange& range) const;
  // Returns true if the indices cover exactly the range, or are one shared index.
  bool divides(const StoredRange& range) const;
};
using StoredAxes = std::vector<StoredAxis>;

inline StoredAxis experts_axis() { return {.kind = StoredAxis::Kind::kExperts}; }
inline StoredAxis outs_axis(int64_t per_index = 1, bool is_shared = false) {
  return {.kind = StoredAxis::Kind::kOuts, .per_index = per_index, .is_shared = is_shared};
}
inline StoredAxis ins_axis(int64_t per_index = 1, bool is_shared = false) {
  return {.kind = StoredAxis::Kind::kIns, .per_index = per_index, .is_shared = is_shared};
}
inline StoredAxis other_axis(int64_t extent) { return {.per_index = extent}; }

// Shape of the whole tensor.
Shape stored_shape(const StoredAxes& axes, const StoredRange& range);

// Calls fn(first element, number of elements) for each contiguous run of the range, in order.
void for_each_run(const StoredAxes& axes, const StoredRange& range,
                  const std::function<void(int64_t first, int64_t count)>& fn);

// Returns the range of a contiguous tensor with these axes: a view that shares its storage if the range is
// one run, otherwise a copy.
Tensor slice(const Tensor& stored, const StoredAxes& axes, const StoredRange& range);

}  // namespace attend
