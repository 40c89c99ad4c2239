#include <algorithm>

#include "attend/model/weights/part_reader.h"
#include "attend/model/weights/quantized/part_readers.h"

namespace attend {
namespace {

constexpr int kMxFp4GroupInputs = 32;
constexpr uint8_t kE8M0NaN = 255;

class MxFp4TensorReader : public PartReader {
 public:
  MxFp4TensorReader(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                    const CheckpointTensors& files)
      : PartReader(slot, part, quantization, files, splits_experts(slot, part)) {}

  void check() const override {
    if (range_.ins.total % kMxFp4GroupInputs != 0)
      fail(ErrorCode::kUnsupported, where(blocks_name()), ": ", range_.ins.total,
           " inputs: expected a multiple of ", kMxFp4GroupInputs);
    require_tensor(blocks_name(), {DType::kU8});
    require_tensor(exponents_name(), {DType::kU8});
  }
  LoadedPart read() const override {
    const Tensor codes = tensor(blocks_name()), scales = tensor(exponents_name());
    const View<const uint8_t> exponents = scales.span<const uint8_t>();
    if (const auto nan = std::ranges::find(exponents, kE8M0NaN); nan != exponents.end())
      fail(ErrorCode::kCorruptFile, where(exponents_name()), ": element ", nan - exponents.begin(),
           " is 255, which is NaN: expected finite numbers");
    LoadedPart result{.weight = {}, .tensors = {codes, scales}};
    result.weight.format = WeightFormat::kMxFp4;
    result.weight.data = TensorView::contiguous(codes.view().data, DType::kU8, {num_outs_, num_ins_ / 2});
    result.weight.scales =
        TensorView::contiguous(scales.view().data, DType::kU8, {num_outs_, num_ins_ / kMxFp4GroupInputs});
    result.weight.group_outs = 1;
    result.weight.group_ins = kMxFp4GroupInputs;
    return result;
  }

 private:
  // Tensors of gpt-oss have the matrices of several experts.
  static bool splits_experts(const WeightSlot& slot, const WeightPart& part) {
    return part.storage == WeightStorage::kMxFp4 && slot.layout != StoredLayout::kRows;
  }
  StoredAxes axes(std::string_view name) const override {
    StoredAxes axes;
    if (splits_experts(slot_, part_)) axes.push_back(experts_axis());
    axes.push_back(outs_axis());
    if (!name.ends_with(blocks_name()) || part_.storage == WeightStorage::kMxFp4)
      axes.push_back(ins_axis(kMxFp4GroupInputs));
    else
      axes.push_back(ins_axis(2));
    if (name.ends_with("_blocks")) axes.push_back(other_axis(kMxFp4GroupInputs / 2));
    return axes;
  }
  std::string_view blocks_name() const {
    return part_.storage == WeightStorage::kMxFp4 ? "_blocks" : ".weight_packed";
  }
  std::string_view exponents_name() const {
    return part_.storage == WeightStorage::kMxFp4 ? "_scales" : ".weight_scale";
  }
};

}  // namespace

std::unique_ptr<PartReader> make_mxfp4_reader(const WeightSlot& slot, const WeightPart& part,
                                              const Quantization& quantization,
                                              const CheckpointTensors& files) {
  return std::make_unique<MxFp4TensorReader>(slot, part, quantization, files);
}

}  // namespace attend
