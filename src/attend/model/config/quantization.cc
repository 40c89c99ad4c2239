#include "attend/model/config/quantization.h"

namespace attend {
namespace {

std::string_view element_name(WeightStorage storage) {
  switch (storage) {
    case WeightStorage::kPlain:
      return "plain";
    case WeightStorage::kFp8:
      return "fp8";
    case WeightStorage::kInt8:
    case WeightStorage::kPackedInt8:
    case WeightStorage::kGptqInt8:
      return "int8";
    case WeightStorage::kPackedInt4:
    case WeightStorage::kGptq:
    case WeightStorage::kAwq:
      return "int4";
    case WeightStorage::kMxFp4:
    case WeightStorage::kPackedMxFp4:
      return "mxfp4";
    case WeightStorage::kBlocks:
      return "blocks";
  }
  return "?";
}

}  // namespace

std::string format_name(const Quantization& quantization) {
  std::string text(element_name(quantization.storage));
  if (quantization.group_outs > 0)
    text += " in blocks of " + std::to_string(quantization.group_outs) + " x " +
            std::to_string(quantization.group_ins);
  else if (quantization.group_ins > 0)
    text += " in groups of " + std::to_string(quantization.group_ins);
  if (quantization.reorders) text += " by act-order";
  return text;
}

std::string to_string(const Quantization& quantization) {
  if (quantization.storage == WeightStorage::kPlain) return "";
  std::string text;
  for (size_t i = 0; i < num_kinds(quantization); ++i)
    text += (i == 0 ? "" : " and ") + format_name(weight_kind(quantization, i));
  return text + " (" + quantization.method + ")";
}

double bytes_per_weight(const Quantization& quantization) {
  const auto share = [](int64_t elements, double bytes) {
    return elements == 0 ? 0.0 : bytes / static_cast<double>(elements);
  };
  switch (quantization.storage) {
    case WeightStorage::kPlain:
      break;
    case WeightStorage::kFp8:
      return 1.0 + share(quantization.group_outs * quantization.group_ins, 4.0);
    case WeightStorage::kInt8:
    case WeightStorage::kPackedInt8:
    case WeightStorage::kGptqInt8:
      return 1.0 + share(quantization.group_ins, 4.0);
    case WeightStorage::kPackedInt4:
    case WeightStorage::kGptq:
    case WeightStorage::kAwq:
      return 0.5 + share(quantization.group_ins, 2.0);
    case WeightStorage::kMxFp4:
    case WeightStorage::kPackedMxFp4:
      return 0.5 + share(quantization.group_ins, 1.0);
    case WeightStorage::kBlocks:
      break;  // each tensor has its own format
  }
  return 0.0;
}

}  // namespace attend
