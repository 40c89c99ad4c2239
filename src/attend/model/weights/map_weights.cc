#include <algorithm>
#include <iterator>
#include <utility>

#include "attend/model/weights/load_weights.h"
#include "attend/model/weights/read_part.h"

namespace attend {

uint64_t check_weights(std::span<const WeightSlot> slots, const Quantization& quantization,
                       const CheckpointTensors& files) {
  uint64_t num_bytes = 0;
  for (const WeightSlot& slot : slots)
    for (const WeightPart& part : slot.parts) num_bytes += check_part(slot, part, quantization, files);
  return num_bytes;
}

namespace {

// Joins f32 parts in host memory.
Tensor joined(const WeightSlot& slot, std::span<const Weight> parts) {
  Tensor all = Tensor::empty({slot.rows(), slot.columns}, DType::kF32);
  float* to = all.as<float>();
  for (const Weight& part : parts) to = std::ranges::copy(part.data.span<float>(), to).out;
  return all;
}

}  // namespace

void place(const WeightSlot& slot, std::vector<Weight> weights, std::vector<Tensor>& tensors) {
  if (slot.layout == StoredLayout::kConvolution && weights.size() > 1) {
    tensors.push_back(joined(slot, weights));
    weights = {Weight(tensors.back())};
  }
  for (Weight& weight : weights) weight.shard = slot.shard;
  slot.place(weights);
}

LoadedWeights map_weights(std::span<const WeightSlot> slots, const Quantization& quantization,
                          std::shared_ptr<const CheckpointTensors> files, const LoadProgress& progress) {
  const uint64_t total_bytes = check_weights(slots, quantization, *files);
  size_t done_bytes = 0;
  LoadedWeights weights;
  for (const WeightSlot& slot : slots) {
    std::vector<Weight> placed;
    for (const WeightPart& part : slot.parts) {
      fetch_part(slot, part, quantization, *files, [&](size_t bytes) {
        done_bytes += bytes;
        if (progress) progress(done_bytes, total_bytes);
      });
      LoadedPart read = read_part(slot, part, quantization, *files);
      std::ranges::move(read.tensors, std::back_inserter(weights.tensors));
      placed.push_back(read.weight);
      weights.count(slot, read.weight.num_bytes());
    }
    place(slot, std::move(placed), weights.tensors);
  }
  weights.files = std::move(files);
  return weights;
}

}  // namespace attend
