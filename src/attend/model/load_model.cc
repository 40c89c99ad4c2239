#include <numeric>
#include <utility>

#include "attend/model/architecture.h"
#include "attend/model/decoder.h"
#include "attend/model/device_weights.h"
#include "attend/model/fill_weights.h"
#include "attend/model/model.h"

namespace attend {
namespace {

size_t bytes_of(std::span<const WeightSlot> slots) {
  return std::accumulate(slots.begin(), slots.end(), size_t{0}, [](size_t sum, const WeightSlot& slot) {
    return sum + slot.tensor->view().num_bytes();
  });
}

}  // namespace

size_t device_weight_bytes(const ModelConfig& config, DType dtype) {
  DecoderWeights weights;
  const DecoderNames& names = find_architecture(config.architecture, "architecture").names;
  return device_weight_bytes(weight_slots(config, names, !config.tie_word_embeddings, weights), dtype);
}

std::unique_ptr<Model> load_model(const std::filesystem::path& directory, const ModelConfig& config,
                                  LoadFormat format, const LoadProgress& progress,
                                  const ModelPlacement& placement) {
  const DecoderNames& names = find_architecture(config.architecture, directory.string()).names;
  const bool on_gpu = placement.device.type == DeviceType::kCuda;
  DecoderWeights weights;
  std::vector<WeightSlot> slots;
  std::optional<ModelWeights> files;
  size_t weight_bytes = 0;
  if (format == LoadFormat::kDummy) {
    slots = weight_slots(config, names, !config.tie_word_embeddings, weights);
    if (!on_gpu) make_dummy_weights(slots, config.dtype, progress);
  } else {
    files.emplace(directory);
    // A file that holds an lm_head although the config ties it wins, as in transformers.
    const bool has_lm_head = files->contains(std::string(names.lm_head) + ".weight");
    slots = weight_slots(config, names, has_lm_head || !config.tie_word_embeddings, weights);
    // Reading a file's pages and copying them to a GPU are one way, so only one of them is shown.
    load_weights(slots, *files, on_gpu ? LoadProgress() : progress);
  }
  if (on_gpu) {
    weight_bytes = device_weight_bytes(slots, placement.dtype);
    const auto place = format == LoadFormat::kDummy ? make_dummy_weights_on_device : move_to_device;
    place(slots, placement.dtype, placement.device, progress, weights);
  } else {
    weight_bytes = bytes_of(slots);
  }
  // What was read last may have been written while the other files were read.
  if (files) files->check_unchanged();
  if (on_gpu) files.reset();
  return std::make_unique<DecoderModel>(config, std::move(weights), weight_bytes, placement,
                                        std::move(files));
}

}  // namespace attend
