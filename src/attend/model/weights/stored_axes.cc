#include "attend/model/weights/stored_axes.h"

#include <cstring>
#include <optional>

#include "attend/base/error.h"
#include "attend/base/math.h"

namespace attend {
namespace {

const Extent& axis_extent(const StoredRange& range, StoredAxis::Kind kind) {
  return kind == StoredAxis::Kind::kExperts ? range.experts
         : kind == StoredAxis::Kind::kOuts  ? range.outs
                                            : range.ins;
}

std::vector<Extent> indices(const StoredAxes& axes, const StoredRange& range) {
  std::vector<Extent> extents;
  for (const StoredAxis& axis : axes) extents.push_back(axis.indices(range));
  return extents;
}

}  // namespace

StoredRange stored_range(const WeightSlot& slot, const WeightPart& part, bool splits_experts) {
  const int64_t tensor_rows = part.tensor_rows > 0 ? part.tensor_rows : part.rows;
  const int64_t num_experts = splits_experts ? slot.num_experts : 1, outs = tensor_rows / num_experts;
  StoredRange range{.experts = {0, num_experts, num_experts},
                    .outs = {0, outs, outs},
                    .ins = {slot.first_column, slot.first_column + slot.columns,
                            slot.tensor_columns > 0 ? slot.tensor_columns : slot.columns}};
  if (part.rows == tensor_rows) return range;
  const int64_t expert = part.first_row / outs, first = part.first_row % outs;
  if (first == 0 && part.rows % outs == 0) {
    range.experts = {expert, expert + part.rows / outs, num_experts};
    return range;
  }
  ensure(first + part.rows <= outs, "part ", part.name, ": rows ", part.first_row, " to ",
         part.first_row + part.rows, " of several experts with ", outs, " each");
  range.experts = {expert, expert + 1, num_experts};
  range.outs = {first, first + part.rows, outs};
  return range;
}

Extent StoredAxis::indices(const StoredRange& range) const {
  if (kind == Kind::kOther) return {0, per_index, per_index};
  const Extent& extent = axis_extent(range, kind);
  return {extent.begin / per_index, ceil_div(extent.end, per_index), ceil_div(extent.total, per_index)};
}

bool StoredAxis::divides(const StoredRange& range) const {
  if (kind == Kind::kOther) return true;
  const Extent& extent = axis_extent(range, kind);
  if (is_shared && indices(range).size() == 1) return true;
  return extent.begin % per_index == 0 && (extent.end % per_index == 0 || extent.end == extent.total);
}

Shape stored_shape(const StoredAxes& axes, const StoredRange& range) {
  Shape shape;
  for (const StoredAxis& axis : axes) shape.push_back(axis.indices(range).total);
  return shape;
}

void for_each_run(const StoredAxes& axes, const StoredRange& range,
                  const std::function<void(int64_t first, int64_t count)>& fn) {
  const std::vector<Extent> extents = indices(axes, range);
  // A run covers the range of the last partial axis, and all axes after it.
  size_t num_outer = extents.size();
  while (num_outer > 0 && extents[num_outer - 1].is_whole()) --num_outer;
  if (num_outer > 0) --num_outer;
  int64_t run = 1;
  for (size_t axis = num_outer; axis < extents.size(); ++axis) run *= extents[axis].size();
  int64_t inner = 1;  // elements per index of the run's axis
  for (size_t axis = num_outer + 1; axis < extents.size(); ++axis) inner *= extents[axis].total;
  const auto visit = [&](const auto& self, size_t axis, int64_t first) -> void {
    if (axis == extents.size()) return fn(first, run);
    const int64_t next = first * extents[axis].total;
    if (axis == num_outer) return fn((next + extents[axis].begin) * inner, run);
    for (int64_t i = extents[axis].begin; i < extents[axis].end; ++i) self(self, axis + 1, next + i);
  };
  visit(visit, 0, 0);
}

Tensor slice(const Tensor& stored, const StoredAxes& axes, const StoredRange& range) {
  Shape shape;
  int64_t count = 1;
  for (const Extent& extent : indices(axes, range)) {
    shape.push_back(extent.size());
    count *= extent.size();
  }
  const TensorView& view = stored.view();
  if (count == view.num_elements()) return stored;
  const auto element_bytes = static_cast<int64_t>(size_of(view.dtype));
  auto* const bytes = static_cast<std::byte*>(view.data);
  std::optional<int64_t> only_run;
  for_each_run(axes, range, [&](int64_t first, int64_t run) {
    if (run == count) only_run = first;
  });
  if (only_run)
    return Tensor(TensorView::contiguous(bytes + *only_run * element_bytes, view.dtype, shape),
                  stored.storage());
  const Tensor copy = Tensor::empty({count}, view.dtype);
  auto* to = static_cast<std::byte*>(copy.view().data);
  for_each_run(axes, range, [&](int64_t first, int64_t run) {
    const int64_t run_bytes = run * element_bytes;
    std::memcpy(to, bytes + first * element_bytes, static_cast<size_t>(run_bytes));
    to += run_bytes;
  });
  return Tensor(TensorView::contiguous(copy.view().data, view.dtype, shape), copy.storage());
}

}  // namespace attend
