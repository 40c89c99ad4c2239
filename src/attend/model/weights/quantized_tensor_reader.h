// The tensors of a quantized part, held against its slot. Internal to the model floor.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>

#include "attend/base/error.h"
#include "attend/model/weights/quantized/quantized_tensor.h"
#include "attend/model/weights/shape_text.h"

namespace attend {

class QuantizedTensorReader {
 public:
  QuantizedTensorReader(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                        const CheckpointTensors& files)
      : num_outs_(part.rows),
        num_ins_(slot.columns),
        part_(part),
        quantization_(quantization),
        files_(files) {}

 protected:
  static constexpr std::initializer_list<DType> kScaleTypes = {DType::kF32, DType::kF16, DType::kBF16};

  // The tensor whose name ends so, if the part has one.
  const std::string* find(std::string_view ending) const {
    const auto found =
        std::ranges::find_if(part_.tensors, [&](const std::string& name) { return name.ends_with(ending); });
    return found == part_.tensors.end() ? nullptr : &*found;
  }
  const std::string& name(std::string_view ending) const {
    const std::string* const found = find(ending);
    ensure(found != nullptr, "part ", part_.name, " without ", ending);
    return *found;
  }
  Tensor tensor(std::string_view ending) const { return files_.tensor(name(ending)); }
  std::string where(std::string_view ending) const { return files_.where(name(ending)); }

  void require_dtypes(std::string_view ending, std::initializer_list<DType> accepted) const {
    const DType dtype = tensor(ending).dtype();
    if (std::ranges::find(accepted, dtype) != accepted.end()) return;
    std::string names;
    for (const DType each : accepted) names += (names.empty() ? "" : ", ") + std::string(to_string(each));
    fail(ErrorCode::kUnsupported, where(ending), ": dtype ", dtype, ": attend has ", names, " with ",
         quantization_.method);
  }
  void require_shape(std::string_view ending, const Shape& expected) const {
    const Shape shape = shape_of(tensor(ending));
    if (shape != expected)
      fail(ErrorCode::kCorruptFile, where(ending), ": shape ", text_of(shape), ": expected ",
           text_of(expected), " by config.json");
  }
  void require_tensor(std::string_view ending, std::initializer_list<DType> accepted,
                      const Shape& expected) const {
    require_dtypes(ending, accepted);
    require_shape(ending, expected);
  }

  // Inputs of a group of integers, and groups of an output.
  int64_t group() const { return quantization_.group_ins > 0 ? quantization_.group_ins : num_ins_; }
  int64_t num_groups() const { return num_ins_ / group(); }
  void require_whole_groups(std::string_view ending) const {
    if (num_ins_ % group() != 0)
      fail(ErrorCode::kCorruptFile, where(ending), ": groups of ", group(),
           " inputs: expected a divisor of its ", num_ins_);
  }
  // compressed-tensors' own word of a packed weight's shape, where there is one.
  void check_declared_shape() const {
    if (find(".weight_shape") == nullptr) return;
    require_tensor(".weight_shape", {DType::kI64, DType::kI32}, {2});
    const Tensor said = tensor(".weight_shape");
    const auto at = [&](int i) {
      return said.dtype() == DType::kI64 ? said.as<const int64_t>()[i] : said.as<const int32_t>()[i];
    };
    if (at(0) != num_outs_ || at(1) != num_ins_)
      fail(ErrorCode::kCorruptFile, where(".weight_shape"), ": [", at(0), ", ", at(1), "]: expected ",
           text_of(Shape{num_outs_, num_ins_}), " by config.json");
  }

  int64_t num_outs_, num_ins_;
  const WeightPart& part_;
  const Quantization& quantization_;
  const CheckpointTensors& files_;
};

}  // namespace attend
