#include "attend/model/weights/weight_slot.h"

#include "attend/tensor/arena.h"

namespace attend {
namespace {

std::function<void(std::span<const Weight>)> set_linears(std::vector<Linear>& into) {
  return [&into](std::span<const Weight> weights) {
    into.resize(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) into[i].weight = weights[i];
  };
}

// Of the linears that set_linears() fills.
std::function<void(std::span<const Weight>)> set_biases(std::vector<Linear>& into) {
  return [&into](std::span<const Weight> weights) {
    into.resize(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) into[i].bias = weights[i].data;
  };
}

}  // namespace

int64_t WeightSlot::rows() const {
  int64_t sum = 0;
  for (const WeightPart& part : parts) sum += part.rows;
  return sum;
}

std::vector<int64_t> WeightSlot::shape_of_rows(int64_t num_rows) const {
  if (columns == 0) return {num_rows};
  return {num_rows, columns};
}

std::vector<int64_t> WeightSlot::stored_shape(size_t part) const {
  const int64_t of_one = parts[part].rows / num_experts;
  switch (layout) {
    case StoredLayout::kRows:
      break;
    case StoredLayout::kExpertRows:
      if (columns == 0) return {num_experts, of_one};
      return {num_experts, of_one, columns};
    case StoredLayout::kExpertColumns:
      return {num_experts, columns, of_one};
  }
  return part_shape(part);
}

void SlotWriter::norm(std::string_view name, int64_t size, TensorView& into, float scale) {
  slots_.push_back({.parts = {{name_of(name, ".weight"), size}},
                    .use = WeightUse::kNorm,
                    .zero_centered = zero_centered_norms_,
                    .scale = scale,
                    .place = [&into](std::span<const Weight> weights) { into = weights[0].data; }});
}

void SlotWriter::layer_norm(std::string_view name, int64_t size, kernels::LayerNorm& into) {
  slots_.push_back({.parts = {{name_of(name, ".weight"), size}},
                    .use = WeightUse::kNorm,
                    .place = [&into](std::span<const Weight> weights) { into.weight = weights[0].data; }});
  slots_.push_back({.parts = {{name_of(name, ".bias"), size}},
                    .use = WeightUse::kBias,
                    .place = [&into](std::span<const Weight> weights) { into.bias = weights[0].data; }});
}

void SlotWriter::vector_in_f32(std::string_view name, int64_t size, TensorView& into) {
  slots_.push_back({.parts = {{name_of(name, ""), size}},
                    .use = WeightUse::kBias,
                    .in_f32 = true,
                    .place = [&into](std::span<const Weight> weights) { into = weights[0].data; }});
}

void SlotWriter::matrix(std::string_view name, int64_t rows, int64_t columns, WeightUse use, Weight& into) {
  slots_.push_back({.parts = {{name_of(name, ".weight"), rows}},
                    .columns = columns,
                    .use = use,
                    .place = [&into](std::span<const Weight> weights) { into = weights[0]; }});
}

void SlotWriter::linear(std::initializer_list<Part> parts, int64_t in_features, bool bias, ShardAxis shard,
                        std::vector<Linear>& into, bool dequantize_on_load, WeightUse use) {
  WeightSlot weight{
      .columns = in_features, .use = use, .shard = shard, .dequantize_on_load = dequantize_on_load};
  WeightSlot biases{.use = WeightUse::kBias,
                    .shard = shard == ShardAxis::kOutFeatures ? shard : ShardAxis::kNone};
  for (const Part& part : parts) {
    weight.parts.push_back({name_of(part.name, ".weight"), part.out_features});
    biases.parts.push_back({name_of(part.name, ".bias"), part.out_features});
  }
  weight.place = set_linears(into);
  biases.place = set_biases(into);
  slots_.push_back(std::move(weight));
  if (bias) slots_.push_back(std::move(biases));
}

std::vector<WeightPart> SlotWriter::parts_per_expert(const Experts& experts,
                                                     std::initializer_list<Part> parts) const {
  std::vector<WeightPart> all;
  const std::string name = std::string(experts.name) + ".";
  for (int expert = 0; expert < experts.num_experts; ++expert)
    for (const Part& part : parts)
      all.push_back({name_of(name + std::to_string(expert) + "." + std::string(part.name), ".weight"),
                     part.out_features});
  return all;
}

void SlotWriter::experts(const Experts& experts, std::initializer_list<Part> parts, int64_t in_features,
                         ShardAxis shard, std::vector<Linear>& into) {
  slots_.push_back({.parts = parts_per_expert(experts, parts),
                    .columns = in_features,
                    .use = WeightUse::kLinear,
                    .shard = shard,
                    .num_experts = experts.num_experts,
                    .experts_per_token = experts.per_token,
                    .place = set_linears(into)});
}

void SlotWriter::fused_experts(const Experts& experts, const Part& part, std::initializer_list<Part> of_one,
                               int64_t in_features, bool bias, ShardAxis shard, std::vector<Linear>& into) {
  const std::string name = name_of(experts.name, ".") + std::string(part.name);
  const int64_t rows = experts.num_experts * part.out_features;
  slots_.push_back({.parts = {{name, rows}},
                    .parts_per_expert = bias ? std::vector<WeightPart>{} : parts_per_expert(experts, of_one),
                    .columns = in_features,
                    .use = WeightUse::kLinear,
                    .shard = shard,
                    .layout = StoredLayout::kExpertColumns,
                    .num_experts = experts.num_experts,
                    .experts_per_token = experts.per_token,
                    .place = set_linears(into)});
  if (!bias) return;
  slots_.push_back({.parts = {{name + "_bias", rows}},
                    .use = WeightUse::kBias,
                    .shard = shard == ShardAxis::kOutFeatures ? shard : ShardAxis::kNone,
                    .layout = StoredLayout::kExpertRows,
                    .num_experts = experts.num_experts,
                    .experts_per_token = experts.per_token,
                    .place = set_biases(into)});
}

size_t num_bytes(std::span<const WeightSlot> slots, DType dtype) {
  size_t bytes = 0;
  for (const WeightSlot& slot : slots)
    for (size_t part = 0; part < slot.parts.size(); ++part)
      if (slot.parts[part].storage == WeightStorage::kPlain)
        bytes += Arena::padded_bytes(static_cast<size_t>(slot.part_elements(part)) *
                                     size_of(slot.loaded_dtype(dtype)));
  return bytes;
}

}  // namespace attend
