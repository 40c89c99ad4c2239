#include "attend/model/adapters/adapter_layers.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/model/weights/check_tensors.h"

namespace attend {
namespace {

std::string module_name(const WeightPart& part) {
  constexpr std::string_view kEnding = ".weight";
  return part.name.ends_with(kEnding) ? part.name.substr(0, part.name.size() - kEnding.size()) : part.name;
}

// Returns the parts of consecutive weight parts, which are the rows of one layer.
std::vector<AdapterPart> join_rows(std::span<const WeightPart> weight_parts) {
  std::vector<AdapterPart> parts;
  int64_t first_out = 0;
  for (const WeightPart& part : weight_parts) {
    std::string module = module_name(part);
    if (parts.empty() || parts.back().module != module)
      parts.push_back({.module = std::move(module), .first_out = first_out, .rows = {}});
    parts.back().rows.push_back({part.first_row, part.rows});
    first_out += part.rows;
  }
  return parts;
}

}  // namespace

int64_t AdapterPart::num_outputs() const {
  int64_t count = 0;
  for (const Rows& range : rows) count += range.count;
  return count;
}

AdapterLayers::AdapterLayers(std::span<const WeightSlot> slots, const ModelArchitecture& architecture,
                             WeightPrefixes stored, const ModelPlacement& placement)
    : device_(placement.device),
      dtype_(placement.dtype),
      schemes_(architecture.prefixes.begin(), architecture.prefixes.end()),
      stored_(stored) {
  schemes_.emplace_back();  // DecoderNames themselves
  for (const WeightSlot& slot : slots) {
    const bool is_matrix = slot.columns > 0;
    if (slot.adapted == nullptr) {
      if (is_matrix)
        for (const WeightPart& part : slot.parts) fixed_.push_back(module_name(part));
      continue;
    }
    std::vector<Linear>& linears = *slot.adapted;
    const bool joined = linears.size() == 1;
    ensure(joined || linears.size() == slot.parts.size(), slot.parts.front().name, ": ", linears.size(),
           " layers of ", slot.parts.size(), " parts");
    for (size_t i = 0; i < linears.size(); ++i) {
      const std::span<const WeightPart> parts =
          joined ? std::span(slot.parts) : std::span(slot.parts).subspan(i, 1);
      linears[i].adapter_index = static_cast<int>(layers_.size());
      layers_.push_back(
          {.parts = join_rows(parts), .first_column = slot.first_column, .num_columns = slot.columns});
      for (const WeightPart& part : parts)
        modules_[module_name(part)] = {
            .out_features = part.tensor_rows > 0 ? part.tensor_rows : part.rows,
            .in_features = slot.tensor_columns > 0 ? slot.tensor_columns : slot.columns};
    }
  }
}

std::vector<std::string> AdapterLayers::possible_names(const std::string& peft_name) const {
  std::vector<std::string> names = {peft_name, stored_name(peft_name, stored_)};
  for (const WeightPrefixes& scheme : schemes_)
    for (const WeightPrefix& prefix : scheme)
      if (peft_name.starts_with(prefix.to))
        names.push_back(stored_name(std::string(prefix.from) + peft_name.substr(prefix.to.size()), stored_));
  return names;
}

std::optional<std::string> AdapterLayers::find(const std::string& peft_name) const {
  for (std::string& name : possible_names(peft_name))
    if (modules_.contains(name)) return std::move(name);
  return std::nullopt;
}

bool AdapterLayers::is_fixed(const std::string& peft_name) const {
  return std::ranges::any_of(possible_names(peft_name), [&](const std::string& name) {
    return std::ranges::find(fixed_, name) != fixed_.end();
  });
}

}  // namespace attend
