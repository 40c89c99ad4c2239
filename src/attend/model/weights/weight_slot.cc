#include "attend/model/weights/weight_slot.h"

#include <utility>

#include "attend/base/error.h"
#include "attend/tensor/arena.h"

namespace attend {
namespace {

std::function<void(std::span<const Weight>)> set_linears(std::vector<Linear>& into) {
  return [&into](std::span<const Weight> weights) {
    into.resize(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) into[i].weight = weights[i];
  };
}

// Sets the biases of the layers that set_linears() fills.
std::function<void(std::span<const Weight>)> set_biases(std::vector<Linear>& into) {
  return [&into](std::span<const Weight> weights) {
    into.resize(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) into[i].bias = weights[i].data;
  };
}

WeightPart slot_part(std::string name, const SlotWriter::Part& part) {
  return {.name = std::move(name),
          .rows = part.out_features,
          .first_row = part.first_row,
          .tensor_rows = part.tensor_rows,
          .unit_rows = part.unit,
          .is_replicated = part.is_replicated,
          .set_idx = part.set_idx,
          .set_size = part.set_size};
}

// Sets tensor_rows and first_row of consecutive parts that are rows of a common tensor.
void set_tensor_rows(std::vector<WeightPart>& parts) {
  for (size_t begin = 0, end = 0; begin < parts.size(); begin = end) {
    if (parts[begin].tensor_rows > 0) {
      end = begin + 1;
      continue;
    }
    int64_t rows = 0;
    for (end = begin; end < parts.size() && parts[end].name == parts[begin].name; ++end) {
      parts[end].first_row = rows;
      rows += parts[end].rows;
    }
    for (size_t i = begin; i < end; ++i) parts[i].tensor_rows = rows;
  }
}

// Returns a rank's rows or columns [first, second) of `size`.
std::pair<int64_t, int64_t> rank_range(int64_t size, int64_t unit, bool is_replicated, int rank,
                                       int num_ranks, const std::string& name, std::string_view axis) {
  const int64_t num_units = size / unit;
  if (size % unit == 0 && num_units % num_ranks == 0) {
    const int64_t own = size / num_ranks;
    return {rank * own, (rank + 1) * own};
  }
  if (size % unit == 0 && is_replicated && num_units > 0 && num_ranks % num_units == 0) {
    const int64_t first = rank / (num_ranks / num_units) * unit;
    return {first, first + unit};
  }
  fail(ErrorCode::kUnsupported, name, ": ", size, " ", axis, " in units of ", unit, " on ", num_ranks,
       " ranks: expected a number of units that is a multiple of ", num_ranks,
       is_replicated ? " or divides it" : "");
}

// Rank of several that divide a part; num_ranks is 0: the rank does not have the part.
struct PartRank {
  int rank, num_ranks;
};

PartRank part_rank(const WeightPart& part, int rank, int num_ranks) {
  const int size = part.set_size;
  if (size == 0) return {rank, num_ranks};
  if (size % num_ranks == 0) {
    const int own = size / num_ranks;
    return part.set_idx / own == rank ? PartRank{0, 1} : PartRank{0, 0};
  }
  if (num_ranks % size != 0)
    fail(ErrorCode::kUnsupported, part.name, ": ", size, " groups of heads on ", num_ranks,
         " ranks: expected a multiple or a divisor of the number of ranks");
  const int num_copies = num_ranks / size;
  if (rank / num_copies != part.set_idx) return {0, 0};
  return part.is_replicated ? PartRank{0, 1} : PartRank{rank % num_copies, num_copies};
}

}  // namespace

std::vector<int64_t> balanced_bounds(int64_t size, int num_ranks) {
  constexpr int64_t kUnit = 64;
  const int64_t unit = size >= kUnit * num_ranks ? kUnit : 1, num_units = size / unit;
  std::vector<int64_t> bounds;
  for (int64_t rank = 0; rank < num_ranks; ++rank) bounds.push_back(rank * num_units / num_ranks * unit);
  bounds.push_back(size);
  return bounds;
}

WeightSlot shard(WeightSlot slot, int rank, int num_ranks) {
  require(num_ranks >= 1 && rank >= 0 && rank < num_ranks, "rank ", rank, " of ", num_ranks);
  if (slot.shard == ShardAxis::kInFeatures) {
    const auto [begin, end] =
        rank_range(slot.columns, slot.unit_columns, false, rank, num_ranks, slot.parts[0].name, "columns");
    slot.tensor_columns = std::exchange(slot.columns, end - begin);
    slot.first_column = begin;
  }
  std::vector<WeightPart> parts;
  for (WeightPart& part : slot.parts) {
    if (part.tensor_rows == 0) part.tensor_rows = part.rows;
    if (slot.shard == ShardAxis::kOutFeatures && slot.balanced) {
      const std::vector<int64_t> bounds = balanced_bounds(part.rows, num_ranks);
      const int64_t begin = bounds[static_cast<size_t>(rank)];
      part.rows = bounds[static_cast<size_t>(rank) + 1] - begin;
      part.first_row += begin;
    } else if (slot.shard == ShardAxis::kOutFeatures) {
      const PartRank own = part_rank(part, rank, num_ranks);
      if (own.num_ranks == 0) continue;
      const auto [begin, end] = rank_range(part.rows, part.unit_rows, part.is_replicated, own.rank,
                                           own.num_ranks, part.name, "rows");
      part.rows = end - begin;
      part.first_row += begin;
    }
    if (!parts.empty() && parts.back().name == part.name &&
        parts.back().first_row + parts.back().rows == part.first_row)
      parts.back().rows += part.rows;
    else
      parts.push_back(std::move(part));
  }
  slot.parts = std::move(parts);
  return slot;
}

int64_t WeightSlot::rows() const {
  int64_t sum = 0;
  for (const WeightPart& part : parts) sum += part.rows;
  return sum;
}

std::vector<int64_t> WeightSlot::shape_with_rows(int64_t num_rows) const {
  if (columns == 0) return {num_rows};
  return {num_rows, columns};
}

void SlotWriter::norm(std::string_view name, int64_t size, TensorView& into, float scale) {
  slots_.push_back({.parts = {{tensor_name(name, ".weight"), size}},
                    .use = WeightUse::kNorm,
                    .zero_centered = form_.zero_centered_norms,
                    .scale = scale,
                    .place = [&into](std::span<const Weight> weights) { into = weights[0].data; }});
}

void SlotWriter::head_norms(std::string_view name, int num_heads, int64_t head_dim, TensorView& into) {
  WeightSlot slot{.use = WeightUse::kNorm,
                  .shard = ShardAxis::kOutFeatures,
                  .place = [&into](std::span<const Weight> weights) {
                    into = weights[0].data.reshape({weights[0].data.num_elements()});
                  }};
  const std::string full = tensor_name(name, ".weight");
  if (const size_t star = full.find('*'); star != std::string::npos) {
    slot.joins_parts = true;
    for (int head = 0; head < num_heads; ++head)
      slot.parts.push_back({.name = std::string(full).replace(star, 1, std::to_string(head)),
                            .rows = head_dim,
                            .unit_rows = head_dim,
                            .is_replicated = true,
                            .set_idx = head,
                            .set_size = num_heads});
  } else {
    slot.columns = head_dim;
    slot.parts.push_back({.name = full, .rows = num_heads, .is_replicated = true});
  }
  slots_.push_back(std::move(slot));
}

void SlotWriter::gated_norm(std::string_view name, int64_t size, TensorView& into) {
  slots_.push_back({.parts = {{tensor_name(name, ".weight"), size}},
                    .use = WeightUse::kNorm,
                    .place = [&into](std::span<const Weight> weights) { into = weights[0].data; }});
}

void SlotWriter::factors(std::string_view name, int64_t size, TensorView& into, float scale) {
  slots_.push_back({.parts = {{tensor_name(name, ""), size}},
                    .use = WeightUse::kNorm,
                    .scale = scale,
                    .in_f32 = true,
                    .place = [&into](std::span<const Weight> weights) { into = weights[0].data; }});
}

void SlotWriter::convolution(std::initializer_list<Part> parts, int64_t taps, TensorView& into) {
  WeightSlot slot{.columns = taps,
                  .use = WeightUse::kBias,
                  .in_f32 = true,
                  .layout = StoredLayout::kConvolution,
                  .joins_parts = true,
                  .place = [&into](std::span<const Weight> weights) { into = weights[0].data; }};
  for (const Part& part : parts) slot.parts.push_back(slot_part(tensor_name(part.name, ".weight"), part));
  set_tensor_rows(slot.parts);
  slots_.push_back(std::move(slot));
}

void SlotWriter::norm(std::string_view name, int64_t size, kernels::Norm& into, float scale) {
  if (into.kind == kernels::NormKind::kRms) return norm(name, size, into.weight, scale);
  if (form_.norm_weights) norm(name, size, into.weight, scale);
  if (form_.norm_biases) norm_bias(name, size, into.bias, scale);
}

void SlotWriter::norm_bias(std::string_view name, int64_t size, TensorView& into, float scale) {
  slots_.push_back({.parts = {{tensor_name(name, ".bias"), size}},
                    .use = WeightUse::kBias,
                    .scale = scale,
                    .in_f32 = form_.zero_centered_norms,
                    .place = [&into](std::span<const Weight> weights) { into = weights[0].data; }});
}

void SlotWriter::vector_in_f32(std::string_view name, int64_t size, TensorView& into, ShardAxis shard,
                               StoredLayout layout) {
  slots_.push_back({.parts = {{tensor_name(name, ""), size}},
                    .use = WeightUse::kBias,
                    .shard = shard,
                    .in_f32 = true,
                    .layout = layout,
                    .place = [&into](std::span<const Weight> weights) { into = weights[0].data; }});
}

void SlotWriter::bias(std::string_view name, int64_t size, TensorView& into) {
  slots_.push_back({.parts = {{tensor_name(name, ".bias"), size}},
                    .use = WeightUse::kBias,
                    .shard = ShardAxis::kOutFeatures,
                    .balanced = true,
                    .place = [&into](std::span<const Weight> weights) { into = weights[0].data; }});
}

void SlotWriter::patches(std::string_view name, int64_t out_features, std::vector<int64_t> patch_axes,
                         bool bias, std::vector<Linear>& into) {
  int64_t in_features = 1;
  for (const int64_t extent : patch_axes) in_features *= extent;
  const size_t weight = slots_.size();
  linear({{name, out_features}}, in_features, bias, ShardAxis::kNone, into);
  slots_[weight].layout = StoredLayout::kPatches;
  slots_[weight].patch_axes = std::move(patch_axes);
}

void SlotWriter::matrix(std::string_view name, int64_t rows, int64_t columns, WeightUse use, Weight& into) {
  slots_.push_back({.parts = {{tensor_name(name, ".weight"), rows}},
                    .columns = columns,
                    .use = use,
                    .shard = use == WeightUse::kHead ? ShardAxis::kOutFeatures : ShardAxis::kNone,
                    .balanced = use == WeightUse::kHead,
                    .place = [&into](std::span<const Weight> weights) { into = weights[0]; }});
}

void SlotWriter::linear(const std::vector<Part>& parts, Inputs inputs, bool bias, ShardAxis shard,
                        std::vector<Linear>& into, bool dequantize_on_load, WeightUse use) {
  WeightSlot weight{.columns = inputs.features,
                    .unit_columns = inputs.unit,
                    .use = use,
                    .shard = shard,
                    .layout = form_.transposed_linears ? StoredLayout::kColumns : StoredLayout::kRows,
                    .joins_parts = parts.front().tensor_rows > 0,
                    .dequantize_on_load = dequantize_on_load};
  WeightSlot biases{.use = WeightUse::kBias,
                    .shard = shard == ShardAxis::kOutFeatures ? shard : ShardAxis::kNone,
                    .of_sum = shard == ShardAxis::kInFeatures,
                    .joins_parts = weight.joins_parts};
  for (const Part& part : parts) {
    weight.parts.push_back(slot_part(tensor_name(part.name, ".weight"), part));
    biases.parts.push_back(slot_part(tensor_name(part.name, ".bias"), part));
  }
  set_tensor_rows(weight.parts);
  set_tensor_rows(biases.parts);
  if (takes_adapters_ && use == WeightUse::kLinear && !dequantize_on_load) weight.adapted = &into;
  weight.place = set_linears(into);
  biases.place = set_biases(into);
  slots_.push_back(std::move(weight));
  if (bias) slots_.push_back(std::move(biases));
}

void SlotWriter::scalar(std::string_view name, TensorView& into) {
  vector_in_f32(name, 1, into, ShardAxis::kNone, StoredLayout::kScalar);
}

void SlotWriter::tables(std::string_view name, int64_t num_tables, int64_t rows, int64_t columns,
                        Weight& into) {
  slots_.push_back({.parts = {{tensor_name(name, ""), num_tables}},
                    .columns = rows * columns,
                    .use = WeightUse::kTable,
                    .layout = StoredLayout::kPatches,
                    .patch_axes = {rows, columns},
                    .place = [&into](std::span<const Weight> weights) { into = weights[0]; }});
}

void SlotWriter::transposed(std::string_view name, int64_t out_features, int64_t in_features,
                            std::vector<Linear>& into) {
  slots_.push_back({.parts = {{tensor_name(name, ""), out_features}},
                    .columns = in_features,
                    .use = WeightUse::kLinear,
                    .layout = StoredLayout::kColumns,
                    .place = set_linears(into)});
}

std::vector<WeightPart> SlotWriter::parts_per_expert(const Experts& experts,
                                                     std::initializer_list<Part> parts,
                                                     std::string_view kind) const {
  std::vector<WeightPart> all;
  const std::string name = std::string(experts.name) + ".";
  for (int expert = 0; expert < experts.num_experts; ++expert)
    for (const Part& part : parts)
      all.push_back(
          slot_part(tensor_name(name + std::to_string(expert) + "." + std::string(part.name), kind), part));
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

void SlotWriter::fused_experts(const Experts& experts, std::initializer_list<Part> parts,
                               std::initializer_list<Part> expert_parts, int64_t in_features, bool bias,
                               ShardAxis shard, std::vector<Linear>& into, StoredLayout layout) {
  std::vector<WeightPart> weights, biases;
  for (int expert = 0; expert < experts.num_experts; ++expert)
    for (const Part& part : parts) {
      const std::string name = tensor_name(experts.name, ".") + std::string(part.name);
      weights.push_back(slot_part(name, part));
      if (bias) biases.push_back(slot_part(name + "_bias", part));
    }
  set_tensor_rows(weights);
  set_tensor_rows(biases);
  slots_.push_back({.parts = std::move(weights),
                    .parts_per_expert = parts_per_expert(experts, expert_parts),
                    .alternates = expert_parts.size() > parts.size(),
                    .columns = in_features,
                    .use = WeightUse::kLinear,
                    .shard = shard,
                    .layout = layout,
                    .num_experts = experts.num_experts,
                    .experts_per_token = experts.per_token,
                    .place = set_linears(into)});
  if (!bias) return;
  slots_.push_back({.parts = std::move(biases),
                    .parts_per_expert = parts_per_expert(experts, expert_parts, ".bias"),
                    .use = WeightUse::kBias,
                    .shard = shard == ShardAxis::kOutFeatures ? shard : ShardAxis::kNone,
                    .of_sum = shard == ShardAxis::kInFeatures,
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
