#include <algorithm>
#include <utility>

#include "attend/base/error.h"
#include "attend/model/architecture.h"
#include "attend/model/claim_tensors.h"
#include "attend/model/dummy_part.h"
#include "attend/model/find_quantised_parts.h"
#include "attend/model/join_parts.h"
#include "attend/model/loadable_model.h"
#include "attend/model/place_weights.h"
#include "attend/model/quantised_part.h"

namespace attend {
namespace {

LoadedWeights load_weights(std::span<const WeightSlot> slots, const Quantization& quantization,
                           ModelWeights files, const LoadProgress& progress,
                           const ModelPlacement& placement) {
  if (placement.device.type == DeviceType::kCpu) {
    LoadedWeights weights = map_weights(slots, quantization, std::move(files), progress);
    // What was read last may have been written while the other files were read.
    weights.files->check_unchanged();
    return weights;
  }
  // Reading a file's pages and copying them to a GPU are one way, so only one of them is shown.
  check_weights(slots, quantization, files);
  LoadedWeights weights =
      upload_weights(slots, quantization, files, placement.dtype, placement.device, progress);
  files.check_unchanged();
  return weights;
}

// Whether the files have a tensor of the weight "a.b.weight", plain or quantised.
bool has_weight(const ModelWeights& files, std::string stem) {
  stem.resize(stem.size() - std::string_view(".weight").size());
  constexpr std::string_view kEndings[] = {".weight", ".weight_packed", ".qweight"};
  return std::ranges::any_of(
      kEndings, [&](std::string_view ending) { return files.contains(stem + std::string(ending)); });
}

// By the names that the files have, with what they have quantised. Tools that quantise experts one by one
// leave a tensor of each, where the model as it was published has one of all.
void name_parts(std::vector<WeightSlot>& slots, const ModelSpec& spec, const WeightPrefix* prefix,
                const ModelWeights& files) {
  for (WeightSlot& slot : slots)
    for (std::vector<WeightPart>* const parts : {&slot.parts, &slot.parts_by_expert})
      for (WeightPart& part : *parts) part.name = stored_name(part.name, prefix);
  for (WeightSlot& slot : slots) {
    const auto is_there = [&](const WeightPart& part) { return has_weight(files, part.name); };
    if (std::ranges::none_of(slot.parts_by_expert, is_there)) continue;
    slot.parts = std::move(slot.parts_by_expert);
    slot.layout = StoredLayout::kRows;
  }
  find_quantised_parts(slots, spec.quantization, files);
}

}  // namespace

size_t device_weight_bytes(const ModelSpec& spec, DType dtype, const std::filesystem::path& directory) {
  std::vector<WeightSlot> slots = make_model(spec, {}, !spec.tie_word_embeddings)->weight_slots();
  if (spec.quantization.storage == WeightStorage::kPlain) return num_bytes(slots, dtype);
  if (directory.empty()) {
    quantise_dummy_parts(slots, spec.quantization);
  } else {
    const ModelWeights files(directory);
    name_parts(slots, spec, find_prefix(find_architecture(spec.architecture, "architecture"), files), files);
  }
  return device_bytes(slots, spec.quantization, dtype);
}

size_t copied_weight_bytes(const ModelSpec& spec, const std::filesystem::path& directory) {
  std::vector<WeightSlot> slots = make_model(spec, {}, !spec.tie_word_embeddings)->weight_slots();
  const bool quantised = spec.quantization.storage != WeightStorage::kPlain;
  if (quantised && !directory.empty() && ModelWeights::are_in(directory)) {
    const ModelWeights files(directory);
    name_parts(slots, spec, find_prefix(find_architecture(spec.architecture, "architecture"), files), files);
  }
  size_t bytes = 0;
  for (const WeightSlot& slot : slots)
    for (size_t i = 0; i < slot.parts.size(); ++i) {
      const WeightPart& part = slot.parts[i];
      const bool plain = part.storage == WeightStorage::kPlain;
      const auto num_elements = static_cast<size_t>(slot.part_elements(i));
      if (!plain && slot.as_elements)
        bytes += num_elements * sizeof(float);
      else if (plain && is_repacked(slot))
        bytes += num_elements * size_of(spec.dtype);
      else if (copies_codes(slot, part, spec.quantization))
        bytes += device_bytes(slot, part, spec.quantization);
    }
  return bytes;
}

double activation_bytes(const ModelSpec& spec, const BatchLimits& limits, const ModelPlacement& placement) {
  return make_model(spec, placement, !spec.tie_word_embeddings)->prepared_bytes(limits);
}

std::unique_ptr<Model> load_model(const std::filesystem::path& directory, const ModelSpec& spec,
                                  LoadFormat format, const LoadProgress& progress,
                                  const ModelPlacement& placement) {
  if (format == LoadFormat::kDummy)
    return load_model(std::optional<ModelWeights>(), spec, progress, placement);
  return load_model(ModelWeights(directory), spec, progress, placement);
}

std::unique_ptr<Model> load_model(std::optional<ModelWeights> files, const ModelSpec& spec,
                                  const LoadProgress& progress, const ModelPlacement& placement) {
  const ModelArchitecture& architecture = find_architecture(spec.architecture, "architecture");
  const WeightPrefix* const prefix = files ? find_prefix(architecture, *files) : nullptr;
  const std::string head = stored_name(std::string(architecture.names.lm_head) + ".weight", prefix);
  // A file that holds a head although the config ties it wins, as in transformers.
  const bool own_head = !spec.tie_word_embeddings || (files && has_weight(*files, head));
  std::unique_ptr<LoadableModel> model = make_model(spec, placement, own_head);
  std::vector<WeightSlot> slots = model->weight_slots();
  if (files) {
    name_parts(slots, spec, prefix, *files);
    check_claims(slots, *files, spec, stored_name(std::string(architecture.names.layers) + ".", prefix),
                 architecture.predicts_more_tokens);
  }
  if (!files) quantise_dummy_parts(slots, spec.quantization);
  const DType dummy_dtype = placement.device.type == DeviceType::kCuda ? placement.dtype : spec.dtype;
  model->adopt(files ? load_weights(slots, spec.quantization, std::move(*files), progress, placement)
                     : make_dummy_weights(slots, dummy_dtype, placement.device, progress, spec.quantization));
  return model;
}

}  // namespace attend
