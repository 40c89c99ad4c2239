#include <algorithm>

#include "attend/model/weights/quantized/part_readers.h"
#include "attend/model/weights/quantized_tensor_reader.h"

namespace attend {
namespace {

constexpr int kMxFp4GroupInputs = 32;
constexpr uint8_t kE8M0NaN = 255;

class MxFp4TensorReader : QuantizedTensorReader {
 public:
  MxFp4TensorReader(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                    const CheckpointTensors& files)
      : QuantizedTensorReader(slot, part, quantization, files),
        num_experts_(slot.layout == StoredLayout::kRows ? 0 : slot.num_experts) {}

  // Matrices of several experts stand one after another.
  void check() const {
    if (num_ins_ % kMxFp4GroupInputs != 0)
      fail(ErrorCode::kUnsupported, where(blocks_name()), ": ", num_ins_, " inputs: expected a multiple of ",
           kMxFp4GroupInputs);
    const int64_t groups = num_ins_ / kMxFp4GroupInputs;
    Shape codes = {num_outs_, num_ins_ / 2}, scales = {num_outs_, groups};
    if (part_.storage == WeightStorage::kMxFp4) {
      codes = {num_outs_, groups, kMxFp4GroupInputs / 2};
      if (num_experts_ > 0) {
        codes = {num_experts_, num_outs_ / num_experts_, groups, kMxFp4GroupInputs / 2};
        scales = {num_experts_, num_outs_ / num_experts_, groups};
      }
    }
    require_tensor(blocks_name(), {DType::kU8}, codes);
    require_tensor(exponents_name(), {DType::kU8}, scales);
  }
  QuantizedTensor read() const {
    const Tensor codes = tensor(blocks_name()), scales = tensor(exponents_name());
    const View<const uint8_t> exponents = scales.span<const uint8_t>();
    if (const auto nan = std::ranges::find(exponents, kE8M0NaN); nan != exponents.end())
      fail(ErrorCode::kCorruptFile, where(exponents_name()), ": element ", nan - exponents.begin(),
           " is 255, which is NaN: expected finite numbers");
    QuantizedTensor made{.weight = {}, .tensors = {codes, scales}};
    made.weight.format = WeightFormat::kMxFp4;
    made.weight.data = TensorView::contiguous(codes.view().data, DType::kU8, {num_outs_, num_ins_ / 2});
    made.weight.scales =
        TensorView::contiguous(scales.view().data, DType::kU8, {num_outs_, num_ins_ / kMxFp4GroupInputs});
    made.weight.group_outs = 1;
    made.weight.group_ins = kMxFp4GroupInputs;
    return made;
  }

 private:
  std::string_view blocks_name() const {
    return part_.storage == WeightStorage::kMxFp4 ? "_blocks" : ".weight_packed";
  }
  std::string_view exponents_name() const {
    return part_.storage == WeightStorage::kMxFp4 ? "_scales" : ".weight_scale";
  }

  int64_t num_experts_;  // that share a tensor; 0: it is one matrix
};

}  // namespace

void check_mxfp4_tensor(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                        const CheckpointTensors& files) {
  MxFp4TensorReader(slot, part, quantization, files).check();
}

QuantizedTensor read_mxfp4_tensor(const WeightSlot& slot, const WeightPart& part,
                                  const Quantization& quantization, const CheckpointTensors& files) {
  return MxFp4TensorReader(slot, part, quantization, files).read();
}

}  // namespace attend
