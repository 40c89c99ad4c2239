#include "attend/tensor/weight.h"

#include "attend/base/math.h"

namespace attend {
namespace {

size_t view_bytes(const TensorView& view) { return view.empty() ? 0 : view.num_bytes(); }

}  // namespace

std::string_view to_string(WeightFormat format) {
  switch (format) {
    case WeightFormat::kPlain:
      return "plain";
    case WeightFormat::kFp8:
      return "fp8";
    case WeightFormat::kInt8:
      return "int8";
    case WeightFormat::kInt4:
      return "int4";
    case WeightFormat::kMxFp4:
      return "mxfp4";
    case WeightFormat::kBlocks:
      return "blocks";
  }
  return "?";
}

Weight Weight::rows(int64_t begin, int64_t end) const {
  Weight some = *this;
  some.data = data.slice(0, begin, end);
  // A single row of groups serves whatever output features there are.
  if (scales.empty() || scales.shape[0] == 1) return some;
  ensure(begin % group_outs == 0, "output feature ", begin, " of ", *this, ": not the first of a group");
  some.scales = scales.slice(0, begin / group_outs, ceil_div(end, group_outs));
  if (!zeros.empty()) some.zeros = zeros.slice(0, begin, end);
  return some;
}

size_t Weight::num_bytes() const {
  return data.num_bytes() + view_bytes(scales) + view_bytes(zeros) + view_bytes(input_order);
}

std::ostream& operator<<(std::ostream& out, const Weight& weight) {
  if (weight.format == WeightFormat::kPlain || weight.data.rank != 2) return out << weight.data;
  if (weight.format == WeightFormat::kBlocks)
    return out << block_layout(weight.block_format).name << " weight[" << weight.out_features() << ", "
               << weight.in_features() << "]";
  return out << to_string(weight.format) << " weight[" << weight.out_features() << ", "
             << weight.in_features() << "], groups of " << weight.group_outs << " x " << weight.group_ins;
}

}  // namespace attend
