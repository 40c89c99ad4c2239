#include <algorithm>

#include "attend/base/math.h"
#include "attend/model/weights/check_finite.h"
#include "attend/model/weights/part_reader.h"
#include "attend/model/weights/quantized/int4_packing.h"
#include "attend/model/weights/quantized/part_readers.h"

namespace attend {
namespace {

// Number of inputs that kernels load at once.
constexpr int64_t kInputUnit = 32;
constexpr int64_t kInt4ValuesPerWord = 8;

class Int4TensorReader : public PartReader {
 public:
  using PartReader::PartReader;

  void check() const override {
    part_.storage == WeightStorage::kPackedInt4 ? check_packed() : check_words();
  }
  LoadedPart read() const override {
    return part_.storage == WeightStorage::kPackedInt4 ? read_packed() : read_words();
  }

 private:
  StoredAxes axes(std::string_view name) const override {
    const bool awq = part_.storage == WeightStorage::kAwq;
    if (name.ends_with(".weight_packed")) return {outs_axis(), ins_axis(kInt4ValuesPerWord)};
    if (name.ends_with(".weight_scale")) return {outs_axis(), groups_axis()};
    if (name.ends_with(".weight_zero_point")) return {outs_axis(kInt4ValuesPerWord), groups_axis()};
    if (name.ends_with(".weight_shape")) return {other_axis(2)};
    if (name.ends_with(".qweight"))
      return awq ? StoredAxes{ins_axis(), outs_axis(kInt4ValuesPerWord)}
                 : StoredAxes{ins_axis(kInt4ValuesPerWord), outs_axis()};
    if (name.ends_with(".qzeros")) return {groups_axis(), outs_axis(kInt4ValuesPerWord)};
    if (name.ends_with(".scales")) return {groups_axis(), outs_axis()};
    return {other_axis(range_.ins.total)};  // group indices: the input order depends on all
  }

  void check_groups(std::string_view ending) const {
    if (num_ins_ % kInputUnit != 0)
      fail(ErrorCode::kUnsupported, where(ending), ": ", num_ins_, " inputs: attend supports multiples of ",
           kInputUnit, " in 4 bits");
    require_whole_groups(ending);
  }

  void check_packed() const {
    check_groups(".weight_packed");
    require_tensor(".weight_packed", {DType::kI32});
    require_tensor(".weight_scale", kScaleTypes);
    if (find(".weight_zero_point") != nullptr) require_tensor(".weight_zero_point", {DType::kI32});
    if (find(".weight_g_idx") != nullptr) require_tensor(".weight_g_idx", {DType::kI32});
    if (!range_.ins.is_whole()) stored_order(".weight_g_idx");
    check_declared_shape();
  }
  LoadedPart read_packed() const {
    const Tensor words = tensor(".weight_packed"), scales = tensor(".weight_scale");
    check_finite(scales, where(".weight_scale"));
    LoadedPart result = int4_weight(scales);
    set_order(".weight_g_idx", result);
    if (result.weight.input_order.empty()) {
      result.tensors.push_back(words);
      result.weight.data = TensorView::contiguous(words.view().data, DType::kU8, {num_outs_, num_ins_ / 2});
    } else {
      set_data(
          repack_int4(words, PackingLayout::kInputsInOrder, num_outs_, num_ins_, activation_order(result)),
          result);
    }
    if (find(".weight_zero_point") != nullptr)
      set_zeros(
          unpack_int4(tensor(".weight_zero_point"), PackingLayout::kOutputsByRow, num_outs_, num_groups(), 0),
          result);
    return result;
  }

  void check_words() const {
    check_groups(".qweight");
    if (range_.outs.total % kInt4ValuesPerWord != 0)
      fail(ErrorCode::kUnsupported, where(".qweight"), ": ", range_.outs.total,
           " outputs: expected a multiple of ", kInt4ValuesPerWord);
    require_tensor(".qweight", {DType::kI32});
    require_tensor(".qzeros", {DType::kI32});
    require_tensor(".scales", kScaleTypes);
    if (find(".g_idx") != nullptr) require_tensor(".g_idx", {DType::kI32});
    if (!range_.ins.is_whole()) stored_order(".g_idx");
  }
  LoadedPart read_words() const {
    const bool awq = part_.storage == WeightStorage::kAwq;
    const Tensor scales = tensor(".scales"), zeros = tensor(".qzeros");
    check_finite(scales, where(".scales"));
    LoadedPart result = int4_weight(transposed(scales));
    set_order(".g_idx", result);
    set_data(repack_int4(tensor(".qweight"), awq ? PackingLayout::kOutputsMixed : PackingLayout::kInputsByRow,
                         num_outs_, num_ins_, activation_order(result)),
             result);
    const Tensor unpacked =
        unpack_int4(zeros, awq ? PackingLayout::kOutputsMixed : PackingLayout::kOutputsInOrder, num_outs_,
                    num_groups(), !awq && quantization_.zeros_less_one ? 1 : 0);
    // Some tools store the zero point 0 as 15 (it wraps around), others store 16 as 15.
    const View<const uint8_t> values = unpacked.span<const uint8_t>();
    if (const auto wrapped = std::ranges::find(values, 16); wrapped != values.end())
      fail(ErrorCode::kUnsupported, where(".qzeros"), ": the zero point of output ",
           (wrapped - values.begin()) / num_groups(), ", group ", (wrapped - values.begin()) % num_groups(),
           ", is stored as 15, which means 0 or 16 in checkpoint_format gptq: expected gptq_v2");
    set_zeros(unpacked, result);
    return result;
  }

  // Returns a weight with these scales per output and group, without data.
  LoadedPart int4_weight(const Tensor& scales) const {
    LoadedPart result{.weight = {}, .tensors = {scales}};
    result.weight.format = WeightFormat::kInt4;
    result.weight.scales = scales;
    result.weight.group_outs = 1;
    result.weight.group_ins = group();
    return result;
  }
  static void set_data(const Tensor& codes, LoadedPart& result) {
    result.tensors.push_back(codes);
    result.weight.data = codes;
  }
  static void set_zeros(const Tensor& zeros, LoadedPart& result) {
    if (std::ranges::all_of(zeros.span<const uint8_t>(), [](uint8_t zero) { return zero == 8; })) return;
    result.tensors.push_back(zeros);
    result.weight.zeros = zeros;
  }
  // Returns the order of inputs by group; empty: they are in order. Throws if a rank has some of reordered
  // inputs.
  std::vector<int32_t> stored_order(std::string_view ending) const {
    if (find(ending) == nullptr) return {};
    std::vector<int32_t> order =
        order_by_group(tensor(ending).span<const int32_t>(), stored_group(), where(ending));
    if (!order.empty() && !range_.ins.is_whole())
      fail(ErrorCode::kUnsupported, where(ending), ": inputs are reordered by group, and a rank has inputs ",
           range_.ins.begin, " to ", range_.ins.end, ": expected inputs in order");
    return order;
  }
  void set_order(std::string_view ending, LoadedPart& result) const {
    const std::vector<int32_t> order = stored_order(ending);
    if (order.empty()) return;
    result.tensors.push_back(Tensor::from<int32_t>(order, {num_ins_}));
    result.weight.input_order = result.tensors.back();
  }
  static View<const int32_t> activation_order(const LoadedPart& result) {
    if (result.weight.input_order.empty()) return {};
    return result.weight.input_order.span<const int32_t>();
  }
};

}  // namespace

std::unique_ptr<PartReader> make_int4_reader(const WeightSlot& slot, const WeightPart& part,
                                             const Quantization& quantization,
                                             const CheckpointTensors& files) {
  return std::make_unique<Int4TensorReader>(slot, part, quantization, files);
}

}  // namespace attend
