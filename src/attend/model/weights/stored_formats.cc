#include "attend/model/weights/stored_formats.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace attend {
namespace {

bool is_linear_layer(const WeightSlot& slot, const WeightPart& part) {
  if (slot.use == WeightUse::kLinear) return slot.columns > 0;
  return part.storage != WeightStorage::kPlain;
}

// Returns whether the part has a tensor with the group of each input, and groups are not contiguous.
bool is_reordered(const WeightSlot& slot, const WeightPart& part, const Quantization& kind,
                  const CheckpointTensors& files) {
  const auto name =
      std::ranges::find_if(part.tensors, [](const std::string& each) { return each.ends_with("g_idx"); });
  if (name == part.tensors.end() || kind.group_ins == 0) return false;
  const TensorEntry& entry = files.entry(*name);
  if (entry.dtype != DType::kI32 || entry.shape != std::vector<int64_t>{slot.columns}) return false;
  // Each matrix has such a tensor. Access through the mapping with its large pages would read the whole file.
  const std::string bytes = files.read(*name);
  std::vector<int32_t> groups(bytes.size() / sizeof(int32_t));
  std::memcpy(groups.data(), bytes.data(), groups.size() * sizeof(int32_t));
  for (size_t input = 0; input < groups.size(); ++input)
    if (groups[input] != static_cast<int64_t>(input) / kind.group_ins) return true;
  return false;
}

// Returns the unit that shares a scale, from the scales' shape. For formats without groups of inputs.
std::string scale_owner(const WeightSlot& slot, const WeightPart& part, const CheckpointTensors& files) {
  const auto name = std::ranges::find_if(
      part.tensors, [](const std::string& each) { return each.find("scale") != std::string::npos; });
  if (name == part.tensors.end()) return "";
  int64_t num_scales = 1;
  for (const int64_t extent : files.entry(*name).shape) num_scales *= extent;
  if (num_scales == part.rows) return " per output";
  return num_scales == 1 ? " per tensor" : num_scales == slot.num_experts ? " per expert" : "";
}

StoredFormat format_in_files(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                             const CheckpointTensors& files) {
  StoredFormat format{.name = {}, .storage = part.storage, .num_elements = part.rows * slot.columns};
  for (const std::string& name : part.tensor_names())
    format.num_bytes += static_cast<double>(files.entry(name).num_bytes());
  if (part.storage == WeightStorage::kPlain) {
    const TensorEntry& entry = files.entry(part.name);
    format.name = entry.dtype ? to_string(*entry.dtype) : entry.dtype_name;
    return format;
  }
  if (part.storage == WeightStorage::kBlocks) {
    format.name = files.entry(part.name).dtype_name;
    return format;
  }
  Quantization kind = weight_kind(quantization, part.kind);
  kind.reorders = is_reordered(slot, part, kind, files);
  format.name = format_name(kind);
  if (kind.group_ins == 0) format.name += scale_owner(slot, part, files);
  return format;
}

StoredFormat dummy_format(const WeightSlot& slot, const WeightPart& part, const Quantization& quantization,
                          DType dtype) {
  const bool plain = part.storage == WeightStorage::kPlain;
  const Quantization& kind = weight_kind(quantization, part.kind);
  const int64_t num_elements = part.rows * slot.columns;
  const double bytes = plain ? static_cast<double>(size_of(dtype)) : bytes_per_weight(kind);
  return {.name = plain ? std::string(to_string(dtype)) : format_name(kind),
          .storage = part.storage,
          .num_elements = num_elements,
          .num_bytes = bytes * static_cast<double>(num_elements)};
}

}  // namespace

std::vector<StoredFormat> stored_formats(std::span<const WeightSlot> slots, const Quantization& quantization,
                                         const CheckpointTensors* files, DType dtype) {
  std::vector<StoredFormat> formats;
  for (const WeightSlot& slot : slots)
    for (const WeightPart& part : slot.parts) {
      const bool is_there =
          files == nullptr || std::ranges::all_of(part.tensor_names(), [&](const std::string& name) {
            return files->contains(name);
          });
      if (!is_linear_layer(slot, part) || !is_there) continue;
      StoredFormat format = files != nullptr ? format_in_files(slot, part, quantization, *files)
                                             : dummy_format(slot, part, quantization, dtype);
      const auto same = std::ranges::find(formats, format.name, &StoredFormat::name);
      if (same == formats.end()) {
        formats.push_back(std::move(format));
      } else {
        same->num_elements += format.num_elements;
        same->num_bytes += format.num_bytes;
      }
    }
  std::ranges::stable_sort(formats, std::ranges::greater(), &StoredFormat::num_elements);
  return formats;
}

}  // namespace attend
