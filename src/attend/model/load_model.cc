#include <utility>

#include "attend/model/loadable_model.h"
#include "attend/model/place_weights.h"

namespace attend {
namespace {

LoadedWeights load_weights(std::span<const WeightSlot> slots, ModelWeights files,
                           const LoadProgress& progress, const ModelPlacement& placement) {
  if (placement.device.type == DeviceType::kCpu) {
    LoadedWeights weights = map_weights(slots, std::move(files), progress);
    // What was read last may have been written while the other files were read.
    weights.files->check_unchanged();
    return weights;
  }
  // Reading a file's pages and copying them to a GPU are one way, so only one of them is shown.
  const LoadedWeights mapped = map_weights(slots, std::move(files), {});
  LoadedWeights weights = upload_weights(slots, *mapped.files, placement.dtype, placement.device, progress);
  mapped.files->check_unchanged();
  return weights;
}

}  // namespace

size_t device_weight_bytes(const ModelSpec& spec, DType dtype) {
  return num_bytes(make_model(spec, {}, !spec.tie_word_embeddings)->weight_slots(), dtype);
}

double activation_bytes(const ModelSpec& spec, const BatchLimits& limits, const ModelPlacement& placement) {
  return make_model(spec, placement, !spec.tie_word_embeddings)->prepared_bytes(limits);
}

std::unique_ptr<Model> load_model(const std::filesystem::path& directory, const ModelSpec& spec,
                                  LoadFormat format, const LoadProgress& progress,
                                  const ModelPlacement& placement) {
  std::optional<ModelWeights> files;
  if (format != LoadFormat::kDummy) files.emplace(directory);
  const bool own_head = !spec.tie_word_embeddings || (files && files->contains(head_name(spec)));
  std::unique_ptr<LoadableModel> model = make_model(spec, placement, own_head);
  const std::vector<WeightSlot> slots = model->weight_slots();
  const DType dummy_dtype = placement.device.type == DeviceType::kCuda ? placement.dtype : spec.dtype;
  model->adopt(files ? load_weights(slots, std::move(*files), progress, placement)
                     : make_dummy_weights(slots, dummy_dtype, placement.device, progress));
  return model;
}

}  // namespace attend
