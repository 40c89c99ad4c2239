#include "attend/model/weights/quantized/quantised_part.h"

#include <algorithm>
#include <string>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/kernels/gemm/weights.h"
#include "attend/model/weights/quantized/part_readers.h"

namespace attend {
namespace {

struct PartReader {
  void (*check)(const WeightSlot&, const WeightPart&, const Quantization&, const CheckpointTensors&);
  QuantisedPart (*read)(const WeightSlot&, const WeightPart&, const Quantization&, const CheckpointTensors&);
};

PartReader reader_of(const WeightSlot& slot, const WeightPart& part, const Quantization& kind) {
  switch (part.storage) {
    case WeightStorage::kPlain:
      break;
    case WeightStorage::kFp8:
      if (shares_fp8_experts(slot, kind)) return {check_fp8_experts, read_fp8_experts};
      return {check_fp8_part, read_fp8_part};
    case WeightStorage::kInt8:
    case WeightStorage::kPackedInt8:
    case WeightStorage::kGptqInt8:
      return {check_int8_part, read_int8_part};
    case WeightStorage::kPackedInt4:
    case WeightStorage::kGptq:
    case WeightStorage::kAwq:
      return {check_int4_part, read_int4_part};
    case WeightStorage::kMxFp4:
    case WeightStorage::kPackedMxFp4:
      return {check_mxfp4_part, read_mxfp4_part};
  }
  fail(ErrorCode::kInternal, "part ", part.name, ": not quantised");
}

}  // namespace

bool copies_codes(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization) {
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

void check_quantised_part(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                          const CheckpointTensors& files) {
  const Quantization& kind = kind_of(quantization, part.kind);
  reader_of(slot, part, kind).check(slot, part, kind, files);
}

QuantisedPart read_quantised_part(const WeightSlot& slot, const WeightPart& part,
                                  const Quantization& quantization, const CheckpointTensors& files) {
  const Quantization& kind = kind_of(quantization, part.kind);
  return reader_of(slot, part, kind).read(slot, part, kind, files);
}

Tensor elements_of(const Weight& weight) {
  const Tensor made = Tensor::empty({weight.out_features(), weight.in_features()}, DType::kF32);
  parallel_for(weight.out_features(), [&](int64_t out, int) {
    std::ranges::transform(kernels::reference::weight_row(weight, out),
                           made.as<float>() + out * weight.in_features(),
                           [](double element) { return static_cast<float>(element); });
  });
  return made;
}

}  // namespace attend
