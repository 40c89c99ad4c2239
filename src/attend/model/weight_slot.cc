#include "attend/model/weight_slot.h"

#include "attend/tensor/arena.h"

namespace attend {

int64_t WeightSlot::rows() const {
  int64_t sum = 0;
  for (const WeightPart& part : parts) sum += part.rows;
  return sum;
}

std::vector<int64_t> WeightSlot::shape_of_rows(int64_t num_rows) const {
  if (columns == 0) return {num_rows};
  return {num_rows, columns};
}

void SlotWriter::norm(std::string_view name, int64_t size, TensorView& into) {
  slots_.push_back({.parts = {{name_of(name, ".weight"), size}},
                    .use = WeightUse::kNorm,
                    .place = [&into](std::span<const Weight> weights) { into = weights[0].data; }});
}

void SlotWriter::matrix(std::string_view name, int64_t rows, int64_t columns, WeightUse use, Weight& into) {
  slots_.push_back({.parts = {{name_of(name, ".weight"), rows}},
                    .columns = columns,
                    .use = use,
                    .place = [&into](std::span<const Weight> weights) { into = weights[0]; }});
}

void SlotWriter::linear(std::initializer_list<Part> parts, int64_t in_features, bool bias, ShardAxis shard,
                        std::vector<Linear>& into) {
  WeightSlot weight{.columns = in_features, .use = WeightUse::kLinear, .shard = shard};
  WeightSlot biases{.use = WeightUse::kBias,
                    .shard = shard == ShardAxis::kOutFeatures ? shard : ShardAxis::kNone};
  for (const Part& part : parts) {
    weight.parts.push_back({name_of(part.name, ".weight"), part.out_features});
    biases.parts.push_back({name_of(part.name, ".bias"), part.out_features});
  }
  weight.place = [&into, shard](std::span<const Weight> weights) {
    into.resize(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      into[i].weight = weights[i];
      into[i].weight.shard = shard;
    }
  };
  biases.place = [&into](std::span<const Weight> weights) {
    into.resize(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) into[i].bias = weights[i].data;
  };
  slots_.push_back(std::move(weight));
  if (bias) slots_.push_back(std::move(biases));
}

size_t num_bytes(std::span<const WeightSlot> slots, DType dtype) {
  size_t bytes = 0;
  for (const WeightSlot& slot : slots)
    for (size_t part = 0; part < slot.parts.size(); ++part)
      bytes += Arena::padded_bytes(static_cast<size_t>(slot.part_elements(part)) * size_of(dtype));
  return bytes;
}

}  // namespace attend
