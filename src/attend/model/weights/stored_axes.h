// StoredAxes: where the outputs and inputs of a weight are in a stored tensor. Shapes that are expected, the
// bytes that a part reads and the elements that it has all follow from them. Internal to the model floor.
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

// [begin, end) of `total`.
struct Extent {
  int64_t begin = 0, end = 0, total = 0;

  int64_t size() const { return end - begin; }
  bool is_whole() const { return begin == 0 && end == total; }
};

// Matrix elements that a part has of its tensors.
struct StoredRange {
  Extent experts, outs, ins;
};

// `splits_experts`: the tensors have an axis of experts, whose outputs count anew. A part has whole experts,
// or outputs of one.
StoredRange stored_range(const WeightSlot& slot, const WeightPart& part, bool splits_experts);

// An axis of a stored tensor.
struct StoredAxis {
  enum class Kind : uint8_t { kExperts, kOuts, kIns, kOther };
  Kind kind = Kind::kOther;
  // Outputs or inputs of an index: 8 where words pack 8 codes, a group's of scales. kOther: the extent.
  int64_t per_index = 1;
  // A part may begin and end within one index: a scale serves any outputs and inputs of its block, while
  // words are whole.
  bool is_shared = false;

  Extent indices(const StoredRange& range) const;
  // Returns true if the indices hold the range and nothing else, or are one shared index.
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

// The range of a contiguous tensor that has these axes: a view that shares its storage where the range is one
// run, else a copy.
Tensor slice(const Tensor& stored, const StoredAxes& axes, const StoredRange& range);

}  // namespace attend
