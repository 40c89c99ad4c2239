#include <numeric>
#include <utility>

#include "attend/model/architecture.h"
#include "attend/model/decoder.h"
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

std::unique_ptr<Model> load_model(const std::filesystem::path& directory, const ModelConfig& config,
                                  LoadFormat format, const LoadProgress& progress) {
  const DecoderNames& names = find_architecture(config.architecture, directory.string()).names;
  DecoderWeights weights;
  std::vector<WeightSlot> slots;
  if (format == LoadFormat::kDummy) {
    slots = weight_slots(config, names, !config.tie_word_embeddings, weights);
    make_dummy_weights(slots, config.dtype, progress);
  } else {
    const ModelWeights files(directory);
    // A file that holds an lm_head although the config ties it wins, as in transformers.
    const bool has_lm_head = files.contains(std::string(names.lm_head) + ".weight");
    slots = weight_slots(config, names, has_lm_head || !config.tie_word_embeddings, weights);
    load_weights(slots, files, progress);
  }
  const size_t weight_bytes = bytes_of(slots);
  // Activations are float32 on the CPU, the one device that loads models so far.
  return std::make_unique<DecoderModel>(config, std::move(weights), weight_bytes, DType::kF32);
}

}  // namespace attend
