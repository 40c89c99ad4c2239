#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/model/weights/check_finite.h"
#include "attend/model/weights/load_weights.h"
#include "attend/model/weights/quantized/int4_packing.h"
#include "attend/model/weights/quantized/part_readers.h"
#include "attend/model/weights/quantized_tensor_reader.h"

namespace attend {
namespace {

// Codes of a word of 32 bits, the first one lowest; each is 128 more than the integer.
constexpr int64_t kValuesPerWord = 4;
constexpr uint8_t kInt8ZeroPoint = 128;
// Outputs that a thread repacks at once: their words of one row fill lines of memory.
constexpr int64_t kRepackedOuts = 64;

class Int8TensorReader : QuantizedTensorReader {
 public:
  using QuantizedTensorReader::QuantizedTensorReader;

  void check() const {
    if (part_.storage == WeightStorage::kInt8) {
      require_whole_groups(".weight");
      require_tensor(".weight", {DType::kI8}, {num_outs_, num_ins_});
      scales_shape(".weight_scale");
      if (find(".weight_zero_point") != nullptr)
        require_tensor(".weight_zero_point", {DType::kI8}, shape_of(tensor(".weight_scale")));
    } else if (part_.storage == WeightStorage::kPackedInt8) {
      check_words(".weight_packed", {num_outs_, num_ins_ / kValuesPerWord});
      scales_shape(".weight_scale");
      if (find(".weight_zero_point") != nullptr)
        require_tensor(".weight_zero_point", {DType::kI32},
                       {ceil_div(num_outs_, kValuesPerWord), num_groups()});
      check_declared_shape();
    } else {
      if (num_outs_ % kValuesPerWord != 0)
        fail(ErrorCode::kUnsupported, where(".qweight"), ": ", num_outs_, " outputs: expected a multiple of ",
             kValuesPerWord);
      check_words(".qweight", {num_ins_ / kValuesPerWord, num_outs_});
      require_tensor(".qzeros", {DType::kI32}, {num_groups(), num_outs_ / kValuesPerWord});
      require_tensor(".scales", kScaleTypes, {num_groups(), num_outs_});
    }
    if (find("g_idx") != nullptr) require_tensor("g_idx", {DType::kI32}, {num_ins_});
  }

  QuantizedTensor read() const {
    reject_act_order();
    const bool gptq = part_.storage == WeightStorage::kGptqInt8;
    const std::string_view scale_name = gptq ? ".scales" : ".weight_scale";
    const Tensor stored = tensor(scale_name);
    check_finite(stored, where(scale_name));
    refuse_zero_points();
    const Shape shape = gptq ? Shape{num_outs_, num_groups()} : scales_shape(scale_name);
    const Tensor wide = converted(gptq ? transposed(stored) : stored, DType::kF32);
    const Tensor codes = part_.storage == WeightStorage::kInt8 ? tensor(".weight") : repacked();
    Weight weight(codes.view());
    weight.format = WeightFormat::kInt8;
    weight.scales = TensorView::contiguous(wide.view().data, DType::kF32, {shape[0], shape[1]});
    weight.group_outs = shape[0] == 1 ? num_outs_ : 1;
    weight.group_ins = group();
    return {weight, {codes, wide}};
  }

 private:
  void check_words(std::string_view ending, const Shape& shape) const {
    if (num_ins_ % kValuesPerWord != 0)
      fail(ErrorCode::kUnsupported, where(ending), ": ", num_ins_, " inputs: expected a multiple of ",
           kValuesPerWord);
    require_whole_groups(ending);
    require_tensor(ending, {DType::kI32}, shape);
  }

  // Of [outputs, groups]; one of all is [1, 1].
  Shape scales_shape(std::string_view ending) const {
    require_dtypes(ending, kScaleTypes);
    const Shape shape = shape_of(tensor(ending)), groups = {num_outs_, num_groups()};
    if (shape == groups) return groups;
    if (num_groups() == 1 && shape == Shape{num_outs_}) return groups;
    if (num_groups() == 1 && (shape.empty() || shape == Shape{1} || shape == Shape{1, 1})) return {1, 1};
    fail(ErrorCode::kCorruptFile, where(ending), ": shape ", text_of(shape), ": expected ",
         num_groups() == 1 ? "[1] or " : "", text_of(groups), " by config.json");
  }

  void reject_act_order() const {
    if (find("g_idx") == nullptr) return;
    if (!order_by_group(tensor("g_idx").span<const int32_t>(), group(), where("g_idx")).empty())
      fail(ErrorCode::kUnsupported, where("g_idx"),
           ": inputs in the order of their groups: attend has act-order in 4 bits");
  }

  void refuse_zero_point(std::string_view ending, int64_t output, int64_t group_idx, int zero) const {
    fail(ErrorCode::kUnsupported, where(ending), ": the zero point of output ", output, ", group ", group_idx,
         ", is ", zero, ": attend has symmetric weights in 8 bits, of which it is 0");
  }
  void refuse_zero_points() const {
    if (part_.storage == WeightStorage::kGptqInt8) {
      const Tensor words = tensor(".qzeros");
      const auto* const zeros = static_cast<const uint8_t*>(words.view().data);
      const int less = quantization_.zeros_less_one ? 1 : 0;
      for (int64_t i = 0; i < num_groups() * num_outs_; ++i)
        if (zeros[i] + less != kInt8ZeroPoint)
          refuse_zero_point(".qzeros", i % num_outs_, i / num_outs_, zeros[i] + less - kInt8ZeroPoint);
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
        if (zero != 0) refuse_zero_point(".weight_zero_point", out, group_idx, zero);
      }
    }
  }

  // int8 [outputs, inputs] of words.
  Tensor repacked() const {
    const bool gptq = part_.storage == WeightStorage::kGptqInt8;
    const Tensor words = tensor(gptq ? ".qweight" : ".weight_packed");
    const auto* const from = static_cast<const uint8_t*>(words.view().data);
    const Tensor made = Tensor::empty({num_outs_, num_ins_}, DType::kI8);
    auto* const to = static_cast<uint8_t*>(made.view().data);
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
    return made;
  }
};

}  // namespace

void check_int8_tensor(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                       const CheckpointTensors& files) {
  Int8TensorReader(slot, part, quantization, files).check();
}

QuantizedTensor read_int8_tensor(const WeightSlot& slot, const WeightPart& part,
                                 const Quantization& quantization, const CheckpointTensors& files) {
  return Int8TensorReader(slot, part, quantization, files).read();
}

}  // namespace attend
