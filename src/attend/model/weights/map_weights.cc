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

// Returns whether parts can be joined as they are: no quantization, and the same dtype.
bool can_join_plain(const WeightSlot& slot, std::span<const Weight> parts) {
  return slot.joins_parts && parts.size() > 1 && std::ranges::all_of(parts, [&](const Weight& part) {
           return part.format == WeightFormat::kPlain && part.data.dtype == parts.front().data.dtype;
         });
}

// Joins parts in host memory.
Tensor joined(const WeightSlot& slot, std::span<const Weight> parts) {
  const DType dtype = parts.front().data.dtype;
  Tensor all = slot.columns > 0 ? Tensor::empty({slot.rows(), slot.columns}, dtype)
                                : Tensor::empty({slot.rows()}, dtype);
  auto* to = static_cast<std::byte*>(all.view().data);
  for (const Weight& part : parts)
    to = std::copy_n(static_cast<const std::byte*>(part.data.data), part.data.num_bytes(), to);
  return all;
}

}  // namespace

void place(const WeightSlot& slot, std::vector<Weight> weights, std::vector<Tensor>& tensors) {
  if (can_join_plain(slot, weights)) {
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
