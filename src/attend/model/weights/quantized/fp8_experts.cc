#include <algorithm>
#include <array>

#include "attend/base/math.h"
#include "attend/model/weights/check_finite.h"
#include "attend/model/weights/load_weights.h"
#include "attend/model/weights/part_reader.h"
#include "attend/model/weights/quantized/part_readers.h"

namespace attend {
namespace {

// Names by ModelOpt, Qwen and fbgemm.
constexpr std::array<std::string_view, 3> kScaleEndings = {"_weight_scale", "_scale_inv", "_scale"};

class Fp8ExpertReader : public PartReader {
 public:
  Fp8ExpertReader(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                  const CheckpointTensors& files)
      : PartReader(slot, part, quantization, files, /*splits_experts=*/true),
        outs_per_expert_(range_.outs.size()) {}

  void check() const override {
    require_tensor(part_.name, {DType::kF8E4M3});
    require_dtypes(scale_name(), kScaleTypes);
    require_division(scale_name());
  }

  LoadedPart read() const override {
    const ScaleLayout of = scale_layout();
    const Tensor stored = tensor(part_.name), stored_scales = tensor(scale_name());
    check_finite(stored, where(part_.name));
    check_finite(stored_scales, where(scale_name()));
    const Tensor data = to_slot_layout(slot_, stored), wide = converted(stored_scales, DType::kF32);
    // Distances between the scales of neighboring experts, groups of outputs and groups of inputs.
    const int64_t expert_step = step(of.axes, StoredAxis::Kind::kExperts),
                  out_step = step(of.axes, StoredAxis::Kind::kOuts),
                  in_step = step(of.axes, StoredAxis::Kind::kIns);
    // If groups of outputs do not divide an expert's outputs, each output gets its own row of scales.
    const bool whole_groups = of.group_outs < outs_per_expert_ && outs_per_expert_ % of.group_outs == 0;
    const int64_t group_outs = whole_groups ? of.group_outs : 1, rows = num_outs_ / group_outs,
                  columns = ceil_div(num_ins_, of.group_ins);
    const Tensor scales = Tensor::empty({rows, columns}, DType::kF32);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t out = row * group_outs;
      const int64_t first =
          out / outs_per_expert_ * expert_step + out % outs_per_expert_ / of.group_outs * out_step;
      for (int64_t column = 0; column < columns; ++column)
        scales.as<float>()[row * columns + column] = wide.as<const float>()[first + column * in_step];
    }
    Weight weight(TensorView::contiguous(data.view().data, DType::kF8E4M3, {num_outs_, num_ins_}));
    weight.format = WeightFormat::kFp8;
    weight.scales = scales;
    weight.group_outs = group_outs;
    weight.group_ins = of.group_ins;
    return {weight, {data, scales}};
  }

 private:
  // Axes of the scales, and the numbers of outputs and inputs that share one.
  struct ScaleLayout {
    StoredAxes axes;
    int64_t group_outs, group_ins;
  };

  std::string_view scale_name() const { return part_.tensors.front(); }
  StoredAxes axes(std::string_view name) const override {
    if (name == part_.name) return {experts_axis(), ins_axis(), outs_axis()};
    return scale_layout().axes;
  }

  // Returns the stride in elements of the axis of this kind in the part's scales; 0 without such an axis.
  int64_t step(const StoredAxes& axes, StoredAxis::Kind kind) const {
    int64_t elements = 1;
    for (size_t axis = axes.size(); axis-- > 0;) {
      if (axes[axis].kind == kind) return elements;
      elements *= axes[axis].indices(range_).size();
    }
    return 0;
  }

  ScaleLayout scale_layout() const {
    const Tensor scales = whole(scale_name());
    const Shape shape = view_shape(scales);
    const int64_t experts = range_.experts.total, outs = range_.outs.total;
    const int64_t block_outs = quantization_.group_outs, block_ins = quantization_.group_ins;
    std::string expected;
    if (block_outs > 0) {
      const StoredAxes axes = {experts_axis(), ins_axis(block_ins, true), outs_axis(block_outs, true)};
      const Shape blocks = stored_shape(axes, range_);
      if (shape == blocks) return {axes, block_outs, block_ins};
      expected = shape_string(blocks) + " of blocks of " + std::to_string(block_outs) + " x " +
                 std::to_string(block_ins);
    } else {
      const Shape one_per_expert = {experts, 1, 1}, outs_last = {experts, 1, outs},
                  outs_first = {experts, outs, 1};
      const StoredAxis one = other_axis(1);
      if (scales.view().num_elements() == 1)
        return {StoredAxes(shape.size(), one), outs_per_expert_, num_ins_};
      if (shape == Shape{experts}) return {{experts_axis()}, outs_per_expert_, num_ins_};
      if (shape == one_per_expert) return {{experts_axis(), one, one}, outs_per_expert_, num_ins_};
      if (shape == outs_last) return {{experts_axis(), one, outs_axis()}, 1, num_ins_};
      if (shape == outs_first) return {{experts_axis(), outs_axis(), one}, 1, num_ins_};
      expected = "[1], " + shape_string(one_per_expert) + ", " + shape_string(outs_last) + " or " +
                 shape_string(outs_first);
    }
    fail(ErrorCode::kCorruptFile, where(scale_name()), ": shape ", shape_string(shape), ": expected ",
         expected, " according to config.json");
  }

  const int64_t outs_per_expert_;  // outputs of the part in each expert
};

}  // namespace

bool shares_fp8_experts(const WeightSlot& slot, const Quantization& quantization) {
  return quantization.storage == WeightStorage::kFp8 && slot.layout == StoredLayout::kExpertColumns;
}

std::vector<std::string> fp8_expert_tensors(const WeightPart& part, const CheckpointTensors& files) {
  for (const std::string_view ending : kScaleEndings)
    if (std::string scales = part.name + std::string(ending); files.contains(scales))
      return {std::move(scales), part.name};
  return {};
}

std::unique_ptr<PartReader> make_fp8_expert_reader(const WeightSlot& slot, const WeightPart& part,
                                                   const Quantization& quantization,
                                                   const CheckpointTensors& files) {
  return std::make_unique<Fp8ExpertReader>(slot, part, quantization, files);
}

}  // namespace attend
