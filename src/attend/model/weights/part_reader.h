// PartReader: checks the tensors of a part against its slot and reads them. Each stored format has its own
// reader. Internal to the model floor.
#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>

#include "attend/base/error.h"
#include "attend/model/weights/read_part.h"
#include "attend/model/weights/shape_text.h"
#include "attend/model/weights/stored_axes.h"

namespace attend {

class PartReader {
 public:
  PartReader(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
             const CheckpointTensors& files, bool splits_experts = false)
      : slot_(slot),
        part_(part),
        quantization_(quantization),
        files_(files),
        range_(stored_range(slot, part, splits_experts)),
        num_outs_(part.rows),
        num_ins_(slot.columns) {}
  virtual ~PartReader() = default;
  PartReader(const PartReader&) = delete;

  // Implementations of check_part() and read_part().
  virtual void check() const = 0;
  virtual LoadedPart read() const = 0;
  // Calls fn(name, first byte, last byte + 1) for the ranges of the part's tensors that read() reads.
  void for_each_byte_range(const std::function<void(const std::string&, uint64_t, uint64_t)>& fn) const;

 protected:
  static constexpr std::initializer_list<DType> kScaleTypes = {DType::kF32, DType::kF16, DType::kBF16};

  // Axes of one of the part's tensors.
  virtual StoredAxes axes(std::string_view name) const = 0;

  // Returns the name of the part's tensor with this ending, or nullptr.
  const std::string* find(std::string_view ending) const {
    const auto names = part_.tensor_names();
    const auto found =
        std::ranges::find_if(names, [&](const std::string& name) { return name.ends_with(ending); });
    return found == names.end() ? nullptr : &*found;
  }
  const std::string& name(std::string_view ending) const {
    const std::string* const found = find(ending);
    ensure(found != nullptr, "part ", part_.name, " without ", ending);
    return *found;
  }
  // Return the stored tensor, and the part's range of it.
  Tensor whole(std::string_view ending) const { return files_.tensor(name(ending)); }
  Tensor tensor(std::string_view ending) const { return slice(whole(ending), axes(name(ending)), range_); }
  std::string where(std::string_view ending) const { return files_.where(name(ending)); }

  void require_dtypes(std::string_view ending, std::initializer_list<DType> accepted) const;
  // Require the shape that follows from the axes, and a range that does not split words or groups.
  void require_shape(std::string_view ending) const;
  void require_division(std::string_view ending) const;
  void require_tensor(std::string_view ending, std::initializer_list<DType> accepted) const {
    require_dtypes(ending, accepted);
    require_shape(ending);
  }

  // Inputs per group of integers in the files.
  int64_t stored_group() const {
    return quantization_.group_ins > 0 ? quantization_.group_ins : range_.ins.total;
  }
  StoredAxis groups_axis() const { return ins_axis(stored_group(), /*is_shared=*/true); }
  // Inputs per group of the part, and groups per output.
  int64_t group() const { return std::min(stored_group(), num_ins_); }
  int64_t num_groups() const { return num_ins_ / group(); }
  void require_whole_groups(std::string_view ending) const {
    if (range_.ins.total % stored_group() != 0)
      fail(ErrorCode::kCorruptFile, where(ending), ": groups of ", stored_group(),
           " inputs: expected a divisor of its number of inputs ", range_.ins.total);
  }
  // Checks the shape that compressed-tensors declares for a packed weight, if the part has this tensor.
  void check_declared_shape() const;

  const WeightSlot& slot_;
  const WeightPart& part_;
  const Quantization& quantization_;
  const CheckpointTensors& files_;
  const StoredRange range_;
  const int64_t num_outs_, num_ins_;  // outputs and inputs of the part
};

}  // namespace attend
