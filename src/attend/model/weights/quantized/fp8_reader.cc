#include <array>

#include "attend/base/math.h"
#include "attend/model/weights/check_finite.h"
#include "attend/model/weights/load_weights.h"
#include "attend/model/weights/quantized/part_readers.h"
#include "attend/model/weights/quantized_tensor_reader.h"

namespace attend {
namespace {

class Fp8TensorReader : QuantizedTensorReader {
 public:
  using QuantizedTensorReader::QuantizedTensorReader;

  void check() const {
    require_tensor(".weight", {DType::kF8E4M3}, {num_outs_, num_ins_});
    require_dtypes(scale_name(), kScaleTypes);
    groups();
  }
  QuantizedTensor read() const {
    const auto [outs, ins] = groups();
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
  // Outputs and inputs that share a scale, by the scale's shape.
  std::array<int64_t, 2> groups() const {
    const Tensor scales = tensor(scale_name());
    const Shape shape = shape_of(scales);
    const int64_t outs = quantization_.group_outs, ins = quantization_.group_ins;
    const Shape one = {1, 1}, channels = {num_outs_, 1};
    std::string expected = "[1] or " + text_of(channels);
    if (outs > 0) {
      const Shape blocks = {ceil_div(num_outs_, outs), ceil_div(num_ins_, ins)};
      if (shape == blocks) return {outs, ins};
      expected = text_of(blocks) + " of blocks of " + std::to_string(outs) + " x " + std::to_string(ins);
    } else {
      if (shape.empty() || shape == Shape{1} || shape == one) return {num_outs_, num_ins_};
      if (shape == channels || shape == Shape{num_outs_}) return {1, num_ins_};
    }
    fail(ErrorCode::kCorruptFile, where(scale_name()), ": shape ", text_of(shape), ": expected ", expected,
         " by config.json");
  }
};

}  // namespace

void check_fp8_tensor(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                      const CheckpointTensors& files) {
  Fp8TensorReader(slot, part, quantization, files).check();
}

QuantizedTensor read_fp8_tensor(const WeightSlot& slot, const WeightPart& part,
                                const Quantization& quantization, const CheckpointTensors& files) {
  return Fp8TensorReader(slot, part, quantization, files).read();
}

}  // namespace attend
