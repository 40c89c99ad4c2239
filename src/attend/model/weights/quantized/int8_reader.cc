#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/model/weights/check_finite.h"
#include "attend/model/weights/load_weights.h"
#include "attend/model/weights/part_reader.h"
#include "attend/model/weights/quantized/int4_packing.h"
#include "attend/model/weights/quantized/part_readers.h"

namespace attend {
namespace {

// Codes per 32-bit word, with the first in the low bits. A code is the integer plus 128.
constexpr int64_t kValuesPerWord = 4;
constexpr uint8_t kInt8ZeroPoint = 128;
// Outputs per task of a thread. Their words of one row fill whole cache lines.
constexpr int64_t kRepackedOuts = 64;

class Int8TensorReader : public PartReader {
 public:
  using PartReader::PartReader;

  void check() const override {
    if (part_.storage == WeightStorage::kInt8) {
      require_whole_groups(".weight");
      require_tensor(".weight", {DType::kI8});
      check_scales();
      if (find(".weight_zero_point") != nullptr) require_tensor(".weight_zero_point", {DType::kI8});
    } else if (part_.storage == WeightStorage::kPackedInt8) {
      check_words(".weight_packed");
      check_scales();
      if (find(".weight_zero_point") != nullptr) require_tensor(".weight_zero_point", {DType::kI32});
      check_declared_shape();
    } else {
      if (range_.outs.total % kValuesPerWord != 0)
        fail(ErrorCode::kUnsupported, where(".qweight"), ": ", range_.outs.total,
             " outputs: expected a multiple of ", kValuesPerWord);
      check_words(".qweight");
      require_tensor(".qzeros", {DType::kI32});
      require_tensor(".scales", kScaleTypes);
    }
    if (find("g_idx") != nullptr) require_tensor("g_idx", {DType::kI32});
  }

  LoadedPart read() const override {
    reject_act_order();
    const bool gptq = part_.storage == WeightStorage::kGptqInt8;
    const std::string_view scale_name = gptq ? ".scales" : ".weight_scale";
    const Tensor stored = tensor(scale_name);
    check_finite(stored, where(scale_name));
    reject_zero_points();
    const bool one_scale = !gptq && has_one_scale();
    const Shape shape = one_scale ? Shape{1, 1} : Shape{num_outs_, num_groups()};
    const Tensor wide = converted(gptq ? transposed(stored) : stored, DType::kF32);
    const Tensor codes = part_.storage == WeightStorage::kInt8 ? tensor(".weight") : repacked();
    Weight weight(codes.view());
    weight.format = WeightFormat::kInt8;
    weight.scales = TensorView::contiguous(wide.view().data, DType::kF32, {shape[0], shape[1]});
    weight.group_outs = one_scale ? num_outs_ : 1;
    weight.group_ins = group();
    return {weight, {codes, wide}};
  }

 private:
  StoredAxes axes(std::string_view name) const override {
    const bool packed = part_.storage == WeightStorage::kPackedInt8;
    if (name.ends_with(".weight")) return {outs_axis(), ins_axis()};
    if (name.ends_with(".weight_packed")) return {outs_axis(), ins_axis(kValuesPerWord)};
    if (name.ends_with(".weight_scale")) return scale_axes();
    if (name.ends_with(".weight_zero_point"))
      return packed ? StoredAxes{outs_axis(kValuesPerWord), groups_axis()} : scale_axes();
    if (name.ends_with(".qweight")) return {ins_axis(kValuesPerWord), outs_axis()};
    if (name.ends_with(".qzeros")) return {groups_axis(), outs_axis(kValuesPerWord)};
    if (name.ends_with(".scales")) return {groups_axis(), outs_axis()};
    if (name.ends_with(".weight_shape")) return {other_axis(2)};
    return {other_axis(range_.ins.total)};  // group indices: the input order depends on all
  }

  void check_words(std::string_view ending) const {
    if (range_.ins.total % kValuesPerWord != 0)
      fail(ErrorCode::kUnsupported, where(ending), ": ", range_.ins.total, " inputs: expected a multiple of ",
           kValuesPerWord);
    require_whole_groups(ending);
    require_tensor(ending, {DType::kI32});
  }
  void check_scales() const {
    require_dtypes(".weight_scale", kScaleTypes);
    require_division(".weight_scale");
  }

  bool has_one_scale() const {
    return std::ranges::none_of(scale_axes(),
                                [](const StoredAxis& axis) { return axis.kind == StoredAxis::Kind::kOuts; });
  }
  // Shape [outputs, groups]; with one group also [outputs], or one scale for the tensor.
  StoredAxes scale_axes() const {
    const StoredAxes axes = {outs_axis(), groups_axis()};
    const Shape shape = view_shape(whole(".weight_scale")), groups = stored_shape(axes, range_);
    const bool one_group = groups[1] == 1;
    if (shape == groups) return axes;
    if (one_group && shape == Shape{groups[0]}) return {outs_axis()};
    if (one_group && (shape.empty() || shape == Shape{1} || shape == Shape{1, 1}))
      return StoredAxes(shape.size(), other_axis(1));
    fail(ErrorCode::kCorruptFile, where(".weight_scale"), ": shape ", shape_string(shape), ": expected ",
         one_group ? "[1] or " : "", shape_string(groups), " according to config.json");
  }

  void reject_act_order() const {
    if (find("g_idx") == nullptr) return;
    if (!order_by_group(tensor("g_idx").span<const int32_t>(), stored_group(), where("g_idx")).empty())
      fail(ErrorCode::kUnsupported, where("g_idx"),
           ": inputs are reordered by group: attend supports act-order only in 4 bits");
  }

  void reject_zero_point(std::string_view ending, int64_t output, int64_t group_idx, int zero) const {
    fail(ErrorCode::kUnsupported, where(ending), ": the zero point of output ", output, ", group ", group_idx,
         ", is ", zero, ": attend supports only symmetric weights in 8 bits, with zero point 0");
  }
  void reject_zero_points() const {
    if (part_.storage == WeightStorage::kGptqInt8) {
      const Tensor words = tensor(".qzeros");
      const auto* const zeros = static_cast<const uint8_t*>(words.view().data);
      const int less = quantization_.zeros_less_one ? 1 : 0;
      for (int64_t i = 0; i < num_groups() * num_outs_; ++i)
        if (zeros[i] + less != kInt8ZeroPoint)
          reject_zero_point(".qzeros", i % num_outs_, i / num_outs_, zeros[i] + less - kInt8ZeroPoint);
    } else if (find(".weight_zero_point") != nullptr) {
      const Tensor stored = tensor(".weight_zero_point");
      const bool packed = part_.storage == WeightStorage::kPackedInt8;
      const auto* const zeros = static_cast<const uint8_t*>(stored.view().data);
      const int64_t count = packed ? num_outs_ * num_groups() : stored.view().num_elements();
      for (int64_t i = 0; i < count; ++i) {
        const int64_t out = i / num_groups(), group_idx = i % num_groups();
        // Words hold neighboring outputs.
        const int64_t at =
            packed ? (out / kValuesPerWord * num_groups() + group_idx) * kValuesPerWord + out % kValuesPerWord
                   : i;
        const int zero = packed ? zeros[at] - kInt8ZeroPoint : static_cast<int8_t>(zeros[at]);
        if (zero != 0) reject_zero_point(".weight_zero_point", out, group_idx, zero);
      }
    }
  }

  // Unpacks the words to int8 [outputs, inputs].
  Tensor repacked() const {
    const bool gptq = part_.storage == WeightStorage::kGptqInt8;
    const Tensor words = tensor(gptq ? ".qweight" : ".weight_packed");
    const auto* const from = static_cast<const uint8_t*>(words.view().data);
    const Tensor result = Tensor::empty({num_outs_, num_ins_}, DType::kI8);
    auto* const to = static_cast<uint8_t*>(result.view().data);
    parallel_for(ceil_div(num_outs_, kRepackedOuts), [&](int64_t run, int) {
      const int64_t begin = run * kRepackedOuts, end = std::min(num_outs_, begin + kRepackedOuts);
      if (!gptq) {
        for (int64_t i = begin * num_ins_; i < end * num_ins_; ++i) to[i] = from[i] ^ kInt8ZeroPoint;
        return;
      }
      for (int64_t row = 0; row < num_ins_ / kValuesPerWord; ++row)
        for (int64_t out = begin; out < end; ++out)
          for (int64_t i = 0; i < kValuesPerWord; ++i)
            to[out * num_ins_ + kValuesPerWord * row + i] =
                from[(row * num_outs_ + out) * kValuesPerWord + i] ^ kInt8ZeroPoint;
    });
    return result;
  }
};

}  // namespace

std::unique_ptr<PartReader> make_int8_reader(const WeightSlot& slot, const WeightPart& part,
                                             const Quantization& quantization,
                                             const CheckpointTensors& files) {
  return std::make_unique<Int8TensorReader>(slot, part, quantization, files);
}

}  // namespace attend
