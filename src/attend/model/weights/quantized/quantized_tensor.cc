#include "attend/model/weights/quantized/quantized_tensor.h"

#include <algorithm>
#include <string>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/kernels/gemm/weights.h"
#include "attend/model/weights/quantized/part_readers.h"

namespace attend {
namespace {

struct QuantizedReaderEntry {
  void (*check)(const WeightSlot&, const WeightPart&, const Quantization&, const CheckpointTensors&);
  QuantizedTensor (*read)(const WeightSlot&, const WeightPart&, const Quantization&,
                          const CheckpointTensors&);
};

QuantizedReaderEntry find_reader(const WeightSlot& slot, const WeightPart& part, const Quantization& kind) {
  switch (part.storage) {
    case WeightStorage::kPlain:
      break;
    case WeightStorage::kFp8:
      if (shares_fp8_experts(slot, kind)) return {check_fp8_experts, read_fp8_experts};
      return {check_fp8_tensor, read_fp8_tensor};
    case WeightStorage::kInt8:
    case WeightStorage::kPackedInt8:
    case WeightStorage::kGptqInt8:
      return {check_int8_tensor, read_int8_tensor};
    case WeightStorage::kPackedInt4:
    case WeightStorage::kGptq:
    case WeightStorage::kAwq:
      return {check_int4_tensor, read_int4_tensor};
    case WeightStorage::kMxFp4:
    case WeightStorage::kPackedMxFp4:
      return {check_mxfp4_tensor, read_mxfp4_tensor};
  }
  fail(ErrorCode::kInternal, "part ", part.name, ": not quantized");
}

}  // namespace

bool copies_quantized_values(const WeightSlot& slot, const WeightPart& part,
                             const Quantization& quantization) {
  switch (part.storage) {
    case WeightStorage::kPlain:
    case WeightStorage::kInt8:
    case WeightStorage::kMxFp4:
    case WeightStorage::kPackedMxFp4:
      return false;
    case WeightStorage::kFp8:
      return shares_fp8_experts(slot, kind_of(quantization, part.kind));
    case WeightStorage::kPackedInt4:
      return std::ranges::any_of(part.tensors,
                                 [](const std::string& name) { return name.ends_with(".weight_g_idx"); });
    case WeightStorage::kPackedInt8:
    case WeightStorage::kGptqInt8:
    case WeightStorage::kGptq:
    case WeightStorage::kAwq:
      return true;
  }
  return true;
}

void check_quantized_tensor(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                            const CheckpointTensors& files) {
  const Quantization& kind = kind_of(quantization, part.kind);
  find_reader(slot, part, kind).check(slot, part, kind, files);
}

QuantizedTensor read_quantized_tensor(const WeightSlot& slot, const WeightPart& part,
                                      const Quantization& quantization, const CheckpointTensors& files) {
  const Quantization& kind = kind_of(quantization, part.kind);
  return find_reader(slot, part, kind).read(slot, part, kind, files);
}

Tensor dequantize(const Weight& weight) {
  const Tensor made = Tensor::empty({weight.out_features(), weight.in_features()}, DType::kF32);
  parallel_for(weight.out_features(), [&](int64_t out, int) {
    std::ranges::transform(kernels::reference::weight_row(weight, out),
                           made.as<float>() + out * weight.in_features(),
                           [](double element) { return static_cast<float>(element); });
  });
  return made;
}

}  // namespace attend
