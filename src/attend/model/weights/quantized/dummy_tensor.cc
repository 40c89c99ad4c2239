#include <algorithm>
#include <array>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/model/weights/quantized/quantized_tensor.h"

namespace attend {
namespace {

constexpr int64_t kRunWords = 1 << 15;
// Scales that give codes the standard deviation of other dummy weights, about 0.02.
constexpr float kFp8Scale = 0.02f, kInt8Scale = 0.00027f, kInt4Scale = 0.0045f;
constexpr uint8_t kMxFp4Exponent = 127 - 7;
// Mask that limits E4M3 magnitudes to less than 2.
constexpr uint64_t kSmallFp8 = 0xbfbfbfbfbfbfbfbfu;

// SplitMix64's mix of a counter.
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

void fill_random_values(const Tensor& codes, uint64_t mask) {
  auto* const words = static_cast<uint64_t*>(codes.view().data);
  const int64_t num_words = static_cast<int64_t>(codes.view().num_bytes() / sizeof(uint64_t));
  parallel_for(ceil_div(num_words, kRunWords), [&](int64_t run, int) {
    for (int64_t i = run * kRunWords; i < std::min(num_words, (run + 1) * kRunWords); ++i)
      words[i] = mixed(static_cast<uint64_t>(i)) & mask;
  });
}

WeightFormat to_weight_format(WeightStorage storage) {
  switch (storage) {
    case WeightStorage::kFp8:
      return WeightFormat::kFp8;
    case WeightStorage::kInt8:
    case WeightStorage::kPackedInt8:
    case WeightStorage::kGptqInt8:
      return WeightFormat::kInt8;
    case WeightStorage::kMxFp4:
    case WeightStorage::kPackedMxFp4:
      return WeightFormat::kMxFp4;
    default:
      return WeightFormat::kInt4;
  }
}

}  // namespace

void quantize_dummy_tensors(std::span<WeightSlot> slots, const Quantization& quantization) {
  if (quantization.storage == WeightStorage::kPlain) return;
  if (quantization.storage == WeightStorage::kBlocks)
    fail(ErrorCode::kUnsupported, "random weights in ", to_string(quantization),
         ": expected the weights of the file, or a model without quantization");
  for (WeightSlot& slot : slots) {
    if (slot.use != WeightUse::kLinear || slot.columns == 0 || slot.dequantize_on_load) continue;
    // The mxfp4 format of gpt-oss exists only for experts.
    if (quantization.storage == WeightStorage::kMxFp4 && slot.num_experts == 1) continue;
    const bool bytes = has_eight_bits(to_weight_format(quantization.storage));
    const int64_t multiple = bytes ? 8 : std::max<int64_t>(32, quantization.group_ins);
    if (slot.columns % multiple != 0)
      fail(ErrorCode::kUnsupported, "random weights in ", to_string(quantization), ": ", slot.parts[0].name,
           " has ", slot.columns, " inputs: expected a multiple of ", multiple,
           bytes || multiple == 32 ? "" : "; weight format int4-g32 uses groups of 32");
    const int64_t outs_per_expert = slot.rows() / slot.num_experts;
    if (slot.layout == StoredLayout::kExpertColumns && quantization.group_outs > 1 &&
        outs_per_expert % quantization.group_outs != 0)
      fail(ErrorCode::kUnsupported, "random weights in ", to_string(quantization), ": ", slot.parts[0].name,
           " has experts of ", outs_per_expert, " outputs: expected a multiple of ", quantization.group_outs);
    for (WeightPart& part : slot.parts) part.storage = quantization.storage;
  }
}

LoadedPart make_dummy_tensor(const WeightSlot& slot, const WeightPart& part,
                             const Quantization& quantization) {
  Weight weight;
  weight.format = to_weight_format(part.storage);
  const bool fp8 = weight.format == WeightFormat::kFp8, bytes = has_eight_bits(weight.format);
  weight.group_outs = !fp8 ? 1 : quantization.group_outs > 0 ? quantization.group_outs : part.rows;
  weight.group_ins = quantization.group_ins > 0 ? quantization.group_ins : slot.columns;
  const int64_t rows = ceil_div(part.rows, weight.group_outs);
  const int64_t columns = ceil_div(slot.columns, weight.group_ins);
  const Tensor codes = bytes ? Tensor::empty({part.rows, slot.columns}, fp8 ? DType::kF8E4M3 : DType::kI8)
                             : Tensor::empty({part.rows, slot.columns / 2}, DType::kU8);
  fill_random_values(codes, fp8 ? kSmallFp8 : ~uint64_t{0});
  weight.data = codes;
  const DType scale_dtype = bytes                                   ? DType::kF32
                            : weight.format == WeightFormat::kMxFp4 ? DType::kU8
                                                                    : DType::kBF16;
  const Tensor scales = Tensor::empty({rows, columns}, scale_dtype);
  if (scale_dtype == DType::kU8)
    std::ranges::fill(scales.span<uint8_t>(), kMxFp4Exponent);
  else if (scale_dtype == DType::kF32)
    std::ranges::fill(scales.span<float>(), fp8 ? kFp8Scale : kInt8Scale);
  else
    std::ranges::fill(scales.span<BF16>(), BF16(kInt4Scale));
  weight.scales = scales;
  return {weight, {codes, scales}};
}

Quantization dummy_quantization(std::string_view name) {
  struct Named {
    std::string_view name;
    WeightStorage storage;
    int64_t group_ins, group_outs;
  };
  constexpr std::array<Named, 6> kNamed{{{"fp8", WeightStorage::kFp8, 0, 0},
                                         {"fp8-block", WeightStorage::kFp8, 128, 128},
                                         {"int8", WeightStorage::kInt8, 0, 0},
                                         {"int4", WeightStorage::kPackedInt4, 128, 0},
                                         {"int4-g32", WeightStorage::kPackedInt4, 32, 0},
                                         {"mxfp4", WeightStorage::kPackedMxFp4, 32, 0}}};
  std::string names;
  for (const Named& each : kNamed) {
    if (each.name == name)
      return {.storage = each.storage,
              .method = "random",
              .group_ins = each.group_ins,
              .group_outs = each.group_outs,
              .rounds_x = each.storage == WeightStorage::kFp8};
    names += (names.empty() ? "" : ", ") + std::string(each.name);
  }
  fail(ErrorCode::kInvalidArgument, "weight format '", name, "': expected one of ", names);
}

}  // namespace attend
