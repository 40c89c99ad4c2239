#include "attend/model/weights/quantized/quantized_tensor.h"

#include <algorithm>
#include <string>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/kernels/gemm/weights.h"
#include "attend/model/weights/quantized/part_readers.h"

namespace attend {
std::unique_ptr<PartReader> make_quantized_reader(const WeightSlot& slot, const WeightPart& part,
                                                  const Quantization& quantization,
                                                  const CheckpointTensors& files) {
  switch (part.storage) {
    case WeightStorage::kPlain:
      break;
    case WeightStorage::kFp8:
      if (shares_fp8_experts(slot, quantization))
        return make_fp8_expert_reader(slot, part, quantization, files);
      return make_fp8_reader(slot, part, quantization, files);
    case WeightStorage::kInt8:
    case WeightStorage::kPackedInt8:
    case WeightStorage::kGptqInt8:
      return make_int8_reader(slot, part, quantization, files);
    case WeightStorage::kPackedInt4:
    case WeightStorage::kGptq:
    case WeightStorage::kAwq:
      return make_int4_reader(slot, part, quantization, files);
    case WeightStorage::kMxFp4:
    case WeightStorage::kPackedMxFp4:
      return make_mxfp4_reader(slot, part, quantization, files);
    case WeightStorage::kBlocks:
      return make_block_reader(slot, part, quantization, files);
  }
  fail(ErrorCode::kInternal, "part ", part.name, ": not quantized");
}

bool copies_quantized_values(const WeightSlot& slot, const WeightPart& part,
                             const Quantization& quantization) {
  switch (part.storage) {
    case WeightStorage::kPlain:
    case WeightStorage::kInt8:
    case WeightStorage::kMxFp4:
    case WeightStorage::kPackedMxFp4:
    case WeightStorage::kBlocks:
      return false;
    case WeightStorage::kFp8:
      return shares_fp8_experts(slot, weight_kind(quantization, part.kind));
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

void require_gpu_weights(const Quantization& quantization) {
  if (quantization.storage == WeightStorage::kBlocks)
    fail(ErrorCode::kUnsupported,
         "device cuda: attend supports quantized GGUF weights on CPUs only: expected --device cpu, a GGUF "
         "file in F32, F16 or BF16, or the model's Hugging Face directory");
}

Tensor dequantize(const Weight& weight) {
  const Tensor result = Tensor::empty({weight.out_features(), weight.in_features()}, DType::kF32);
  parallel_for(weight.out_features(), [&](int64_t out, int) {
    std::ranges::transform(kernels::reference::weight_row(weight, out),
                           result.as<float>() + out * weight.in_features(),
                           [](double element) { return static_cast<float>(element); });
  });
  return result;
}

}  // namespace attend
