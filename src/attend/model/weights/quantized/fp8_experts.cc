#include <algorithm>
#include <array>

#include "attend/base/math.h"
#include "attend/model/weights/check_finite.h"
#include "attend/model/weights/load_weights.h"
#include "attend/model/weights/quantized/part_readers.h"
#include "attend/model/weights/quantized_tensor_reader.h"

namespace attend {
namespace {

// ModelOpt's, Qwen's and fbgemm's.
constexpr std::array<std::string_view, 3> kScaleEndings = {"_weight_scale", "_scale_inv", "_scale"};

class Fp8ExpertReader : QuantizedTensorReader {
 public:
  Fp8ExpertReader(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                  const CheckpointTensors& files)
      : QuantizedTensorReader(slot, part, quantization, files),
        slot_(slot),
        num_experts_(slot.num_experts),
        outs_per_expert_(part.rows / slot.num_experts) {}

  void check() const {
    require_tensor(part_.name, {DType::kF8E4M3}, {num_experts_, num_ins_, outs_per_expert_});
    require_dtypes(scale_name(), kScaleTypes);
    places();
  }

  QuantizedTensor read() const {
    const ScaleLayout of = places();
    const Tensor stored = tensor(part_.name), stored_scales = tensor(scale_name());
    check_finite(stored, where(part_.name));
    check_finite(stored_scales, where(scale_name()));
    const Tensor data = to_slot_layout(slot_, stored), wide = converted(stored_scales, DType::kF32);
    // A row of scales for each output where groups of outputs do not divide an expert's.
    const bool whole = of.group_outs < outs_per_expert_ && outs_per_expert_ % of.group_outs == 0;
    const int64_t group_outs = whole ? of.group_outs : 1, rows = num_outs_ / group_outs,
                  columns = ceil_div(num_ins_, of.group_ins);
    const Tensor scales = Tensor::empty({rows, columns}, DType::kF32);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t out = row * group_outs;
      const int64_t first =
          out / outs_per_expert_ * of.expert_step + out % outs_per_expert_ / of.group_outs * of.out_step;
      for (int64_t column = 0; column < columns; ++column)
        scales.as<float>()[row * columns + column] = wide.as<const float>()[first + column * of.in_step];
    }
    Weight weight(TensorView::contiguous(data.view().data, DType::kF8E4M3, {num_outs_, num_ins_}));
    weight.format = WeightFormat::kFp8;
    weight.scales = scales;
    weight.group_outs = group_outs;
    weight.group_ins = of.group_ins;
    return {weight, {data, scales}};
  }

 private:
  // How many outputs and inputs share a scale, and how far apart the scales of neighboring experts, groups
  // of outputs and groups of inputs stand.
  struct ScaleLayout {
    int64_t group_outs, group_ins;
    int64_t expert_step, out_step, in_step;
  };

  std::string_view scale_name() const { return part_.tensors.front(); }

  ScaleLayout places() const {
    const Tensor scales = tensor(scale_name());
    const Shape shape = shape_of(scales);
    const int64_t experts = num_experts_, outs = outs_per_expert_;
    const int64_t block_outs = quantization_.group_outs, block_ins = quantization_.group_ins;
    std::string expected;
    if (block_outs > 0) {
      const Shape blocks = {experts, ceil_div(num_ins_, block_ins), ceil_div(outs, block_outs)};
      if (shape == blocks) return {block_outs, block_ins, blocks[1] * blocks[2], 1, blocks[2]};
      expected =
          text_of(blocks) + " of blocks of " + std::to_string(block_outs) + " x " + std::to_string(block_ins);
    } else {
      const Shape one_per_expert = {experts, 1, 1}, outs_last = {experts, 1, outs},
                  outs_first = {experts, outs, 1};
      if (scales.view().num_elements() == 1) return {outs, num_ins_, 0, 0, 0};
      if (shape == Shape{experts} || shape == one_per_expert) return {outs, num_ins_, 1, 0, 0};
      if (shape == outs_last || shape == outs_first) return {1, num_ins_, outs, 1, 0};
      expected = "[1], " + text_of(one_per_expert) + ", " + text_of(outs_last) + " or " + text_of(outs_first);
    }
    fail(ErrorCode::kCorruptFile, where(scale_name()), ": shape ", text_of(shape), ": expected ", expected,
         " by config.json");
  }

  const WeightSlot& slot_;
  int64_t num_experts_, outs_per_expert_;
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

void check_fp8_experts(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                       const CheckpointTensors& files) {
  Fp8ExpertReader(slot, part, quantization, files).check();
}

QuantizedTensor read_fp8_experts(const WeightSlot& slot, const WeightPart& part,
                                 const Quantization& quantization, const CheckpointTensors& files) {
  return Fp8ExpertReader(slot, part, quantization, files).read();
}

}  // namespace attend
