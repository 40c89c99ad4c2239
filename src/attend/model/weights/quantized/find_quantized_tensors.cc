#include <algorithm>
#include <string>
#include <vector>

#include "attend/base/error.h"
#include "attend/model/weights/quantized/part_readers.h"
#include "attend/model/weights/quantized/quantized_tensor.h"

namespace attend {
namespace {

// Name endings of a quantized weight's tensors. If the files have the first one, the weight is quantized. The
// others are required or optional.
struct StorageNames {
  std::string_view first;
  std::vector<std::string_view> others, optional;
};

StorageNames storage_names(const Quantization& quantization) {
  switch (quantization.storage) {
    case WeightStorage::kPlain:
      break;
    case WeightStorage::kFp8:
      return {quantization.group_outs > 0 ? ".weight_scale_inv" : ".weight_scale", {".weight"}, {}};
    case WeightStorage::kInt8: {
      StorageNames names = {".weight_scale", {".weight"}, {}};
      (quantization.has_zeros ? names.others : names.optional).push_back(".weight_zero_point");
      return names;
    }
    case WeightStorage::kPackedInt4:
    case WeightStorage::kPackedInt8: {
      StorageNames names = {".weight_packed", {".weight_scale"}, {".weight_shape"}};
      (quantization.has_zeros ? names.others : names.optional).push_back(".weight_zero_point");
      (quantization.reorders ? names.others : names.optional).push_back(".weight_g_idx");
      return names;
    }
    case WeightStorage::kGptq:
    case WeightStorage::kGptqInt8: {
      StorageNames names = {".qweight", {".qzeros", ".scales"}, {}};
      (quantization.reorders ? names.others : names.optional).push_back(".g_idx");
      return names;
    }
    case WeightStorage::kAwq:
      return {".qweight", {".qzeros", ".scales"}, {}};
    case WeightStorage::kMxFp4:
      return {"_blocks", {"_scales"}, {}};
    case WeightStorage::kPackedMxFp4:
      return {".weight_packed", {".weight_scale"}, {}};
    case WeightStorage::kBlocks:
      return {".weight", {}, {}};
  }
  return {};
}

std::string name_stem(const WeightPart& part) {
  std::string stem = part.name;
  if (stem.ends_with(".weight")) stem.resize(stem.size() - std::string_view(".weight").size());
  return stem;
}

// Sets the part's storage and tensor names if the files have tensors of a weight of this kind.
bool find_tensors(const WeightSlot& slot, const Quantization& kind, const CheckpointTensors& files,
                  WeightPart& part) {
  if (kind.storage == WeightStorage::kBlocks) {
    if (!files.contains(part.name) || !files.entry(part.name).block_format) return false;
    part.storage = kind.storage;
    part.tensors = {part.name};
    return true;
  }
  if (shares_fp8_experts(slot, kind)) {
    part.tensors = fp8_expert_tensors(part, files);
    if (part.tensors.empty()) return false;
    part.storage = kind.storage;
    return true;
  }
  const StorageNames names = storage_names(kind);
  const std::string stem = name_stem(part);
  const auto has = [&](std::string_view ending) { return files.contains(stem + std::string(ending)); };
  std::string_view first = names.first;
  // compressed-tensors names block scales like per-tensor scales, and Mistral names per-tensor scales like
  // block scales.
  const std::string_view other = first == ".weight_scale" ? ".weight_scale_inv" : ".weight_scale";
  if (kind.storage == WeightStorage::kFp8 && !has(first) && has(other)) first = other;
  // If only the first tensor is missing, the weight still counts as quantized, so that an error names this
  // tensor.
  const auto has_other_tensors = [&] {
    if (!has(".weight")) return std::ranges::any_of(names.others, has);
    const DType dtype = files.tensor(stem + ".weight").dtype();
    return (kind.storage == WeightStorage::kFp8 && dtype == DType::kF8E4M3) ||
           (kind.storage == WeightStorage::kInt8 && dtype == DType::kI8);
  };
  if (!has(first) && !has_other_tensors()) return false;
  part.storage = kind.storage;
  part.tensors = {stem + std::string(first)};
  for (const std::string_view ending : names.others) part.tensors.push_back(stem + std::string(ending));
  for (const std::string_view ending : names.optional)
    if (has(ending)) part.tensors.push_back(stem + std::string(ending));
  return true;
}

// Names missing parts as the first quantized part of the slot, so that errors use the checkpoint's format.
void name_missing_tensors(WeightSlot& slot, const CheckpointTensors& files) {
  const auto is_quantized = [](const WeightPart& part) { return part.storage != WeightStorage::kPlain; };
  const auto first = std::ranges::find_if(slot.parts, is_quantized);
  if (first == slot.parts.end()) return;
  const size_t stem_size = name_stem(*first).size();
  for (WeightPart& part : slot.parts) {
    if (is_quantized(part) || files.contains(part.name)) continue;
    part.storage = first->storage;
    part.kind = first->kind;
    for (const std::string& name : first->tensors)
      part.tensors.push_back(name_stem(part) + name.substr(stem_size));
  }
}

// Returns whether the tensors, which must exist, have the shapes and dtypes of the part's kind.
bool fits_tensors(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                  const CheckpointTensors& files) {
  try {
    check_part(slot, part, quantization, files);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

void find_quantized_tensors(std::span<WeightSlot> slots, const Quantization& quantization,
                            const CheckpointTensors& files) {
  if (quantization.storage == WeightStorage::kPlain) return;
  for (WeightSlot& slot : slots) {
    const bool is_matrix =
        slot.use == WeightUse::kLinear || slot.use == WeightUse::kRouter || slot.use == WeightUse::kHead;
    const bool is_table = slot.use == WeightUse::kTable && quantization.storage == WeightStorage::kBlocks;
    if (!is_matrix && !is_table) continue;
    for (WeightPart& part : slot.parts) {
      const WeightPart plain = part;
      // If no kind matches, errors refer to the kind with the most tensors present.
      int64_t most = 0;
      for (size_t kind = 0; kind < num_kinds(quantization); ++kind) {
        WeightPart tried = plain;
        tried.kind = kind;
        if (!find_tensors(slot, weight_kind(quantization, kind), files, tried)) continue;
        const int64_t present = std::ranges::count_if(
            tried.tensors, [&](const std::string& name) { return files.contains(name); });
        const bool fits = present == std::ssize(tried.tensors) &&
                          (num_kinds(quantization) == 1 || fits_tensors(slot, tried, quantization, files));
        if (!fits && present <= most) continue;
        part = std::move(tried);
        most = present;
        if (fits) break;
      }
    }
    name_missing_tensors(slot, files);
  }
}

bool scales_activations(std::string_view name) {
  for (const std::string_view ending : {"input_scale", ".input_zero_point", "activation_scale", ".q_scale",
                                        ".prob_scale", ".q_proj.output_scale"})
    if (name.ends_with(ending)) return true;
  return false;
}

}  // namespace attend
