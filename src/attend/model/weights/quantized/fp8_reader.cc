#include "attend/base/math.h"
#include "attend/model/weights/check_finite.h"
#include "attend/model/weights/load_weights.h"
#include "attend/model/weights/part_reader.h"
#include "attend/model/weights/quantized/part_readers.h"

namespace attend {
namespace {

class Fp8TensorReader : public PartReader {
 public:
  using PartReader::PartReader;

  void check() const override {
    require_tensor(".weight", {DType::kF8E4M3});
    require_dtypes(scale_name(), kScaleTypes);
    require_division(scale_name());
  }
  LoadedPart read() const override {
    const auto [axes, outs, ins] = scale_layout();
    const Tensor data = tensor(".weight"), stored = tensor(scale_name());
    check_finite(data, where(".weight"));
    check_finite(stored, where(scale_name()));
    const Tensor wide = converted(stored, DType::kF32);
    Weight weight(data.view());
    weight.format = WeightFormat::kFp8;
    weight.scales = TensorView::contiguous(wide.view().data, DType::kF32,
                                           {ceil_div(num_outs_, outs), ceil_div(num_ins_, ins)});
    weight.group_outs = outs;
    weight.group_ins = ins;
    return {weight, {data, wide}};
  }

 private:
  std::string_view scale_name() const {
    return find("_inv") != nullptr ? ".weight_scale_inv" : ".weight_scale";
  }
  StoredAxes axes(std::string_view name) const override {
    if (name.ends_with(".weight")) return {outs_axis(), ins_axis()};
    return scale_layout().axes;
  }
  // Axes of the scales and numbers of outputs and inputs that share one, from the scales' shape.
  struct ScaleLayout {
    StoredAxes axes;
    int64_t group_outs, group_ins;
  };
  ScaleLayout scale_layout() const {
    const Shape shape = view_shape(whole(scale_name()));
    const int64_t outs = quantization_.group_outs, ins = quantization_.group_ins;
    const Shape one = {1, 1}, channels = {range_.outs.total, 1};
    std::string expected = "[1] or " + shape_string(channels);
    if (outs > 0) {
      const StoredAxes axes = {outs_axis(outs, true), ins_axis(ins, true)};
      const Shape blocks = stored_shape(axes, range_);
      if (shape == blocks) return {axes, outs, ins};
      expected = shape_string(blocks) + " of blocks of " + std::to_string(outs) + " x " + std::to_string(ins);
    } else {
      if (shape.empty() || shape == Shape{1} || shape == one)
        return {StoredAxes(shape.size(), other_axis(1)), num_outs_, num_ins_};
      if (shape == channels) return {{outs_axis(), other_axis(1)}, 1, num_ins_};
      if (shape == Shape{range_.outs.total}) return {{outs_axis()}, 1, num_ins_};
    }
    fail(ErrorCode::kCorruptFile, where(scale_name()), ": shape ", shape_string(shape), ": expected ",
         expected, " according to config.json");
  }
};

}  // namespace

std::unique_ptr<PartReader> make_fp8_reader(const WeightSlot& slot, const WeightPart& part,
                                            const Quantization& quantization,
                                            const CheckpointTensors& files) {
  return std::make_unique<Fp8TensorReader>(slot, part, quantization, files);
}

}  // namespace attend
