#include "attend/model/weights/check_tensors.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/model/weights/kv_scales.h"
#include "attend/model/weights/quantized/quantized_tensor.h"

namespace attend {
namespace {

// Returns whether the tensor follows from config.json: old checkpoints store RoPE frequencies or a causal
// mask in every layer, BERT checkpoints store position ids, and those of Apertus constants of xIELU.
bool is_derived(std::string_view name) {
  constexpr std::string_view kEndings[] = {
      ".rotary_emb.inv_freq", "embeddings.position_ids", ".attn.bias",   ".attention.bias",
      ".attn.masked_bias",    ".attention.masked_bias",  ".act_fn.beta", ".act_fn.eps"};
  return std::ranges::any_of(kEndings, [&](std::string_view ending) { return name.ends_with(ending); });
}

// Returns whether the tensor is part of the classification head, which the engine applies to pooled vectors.
bool is_in_head(std::string_view name, const std::optional<ClassifierSpec>& classifier) {
  if (!classifier) return false;
  return std::ranges::any_of(classifier->layers, [&](const HeadLayer& layer) {
    return name.starts_with(layer.name) && name.substr(layer.name.size()).starts_with(".");
  });
}

// Returns whether this is the zero bias that old tools wrote for each matrix packed by GPTQ.
bool is_zero_bias(const std::string& name, const std::set<std::string_view>& used,
                  const CheckpointTensors& files) {
  constexpr std::string_view kBias = ".bias";
  if (!name.ends_with(kBias)) return false;
  const std::string matrix = name.substr(0, name.size() - kBias.size()) + ".qweight";
  if (!used.contains(matrix)) return false;
  const Tensor bias = files.tensor(name);
  bool zeros = false;
  visit_float_dtype(bias.dtype(), [&]<class T>(TypeTag<T>) {
    zeros = std::ranges::all_of(bias.span<const T>(), [](T x) { return static_cast<float>(x) == 0.0f; });
  });
  return zeros;
}

// Returns "vision_tower.encoder" for "vision_tower.encoder.layers.0.weight".
std::string module_prefix(const std::string& name) {
  const size_t dot = name.find('.', name.find('.') + 1);
  return dot == std::string::npos ? name : name.substr(0, dot);
}

// Returns the number of the layer that the tensor belongs to, or -1.
int layer_of(const std::string& name, const std::string& layers) {
  int layer = -1;
  if (name.starts_with(layers))
    std::from_chars(name.data() + layers.size(), name.data() + name.size(), layer);
  return layer;
}

// Returns whether the tensor computes K or V of a layer that attends to those of another one: published files
// of Gemma 4 have them.
bool is_unused_kv(const std::string& name, const std::string& layers, const ModelSpec& spec) {
  const int layer = layer_of(name, layers);
  if (layer < 0 || layer >= spec.num_layers()) return false;
  const auto* const attention = std::get_if<AttentionSpec>(&spec.layers[static_cast<size_t>(layer)].mixer);
  if (attention == nullptr || attention->kv_layer < 0) return false;
  constexpr std::string_view kModules[] = {".k_proj.", ".v_proj.", ".k_norm."};
  return std::ranges::any_of(kModules,
                             [&](std::string_view module) { return name.find(module) != std::string::npos; });
}

// Returns whether the tensor belongs to the indexer of a layer that uses the selection of another one:
// published files of GLM-5.2 have them.
bool is_unused_indexer(const std::string& name, const std::string& layers, const ModelSpec& spec) {
  const int layer = layer_of(name, layers);
  if (layer < 0 || layer >= spec.num_layers()) return false;
  const auto* const mla = std::get_if<MlaSpec>(&spec.layers[static_cast<size_t>(layer)].mixer);
  return mla != nullptr && mla->indexer && mla->indexer->is_shared &&
         name.find(".indexer.") != std::string::npos;
}

// Lists the names of the layer's tensors, without the prefix "model.layers.0.".
std::string names_in_layer(std::span<const WeightSlot> slots, const std::string& layer) {
  // Slots of experts have hundreds of names. Only the first and the last one are listed.
  constexpr size_t kMaxNamed = 3;
  std::string names;
  for (const WeightSlot& slot : slots) {
    if (!slot.parts.front().name.starts_with(layer)) continue;
    const bool all = slot.parts.size() <= kMaxNamed;
    for (const WeightPart& part : slot.parts) {
      const bool last = &part == &slot.parts.back();
      if (!all && !last && &part != &slot.parts.front()) continue;
      names += (names.empty() ? "" : !all && last ? " to " : ", ") + part.name.substr(layer.size());
    }
  }
  return names;
}

// Rejects quantized files with the config.json of the model without quantization.
void reject_undeclared_quantization(std::span<const std::string> names, const CheckpointTensors& files,
                                    const std::string& layers) {
  constexpr std::string_view kEndings[] = {".qweight", ".weight_packed", "weight_scale", "_scale_inv",
                                           "_blocks"};
  for (const std::string& name : names)
    if (name.starts_with(layers) &&
        std::ranges::any_of(kEndings, [&](std::string_view ending) { return name.ends_with(ending); }))
      fail(ErrorCode::kCorruptFile, files.where(name),
           ": part of a quantized weight: expected a quantization_config in config.json");
}

// Warns if the files have dequantized weights, but config.json still has the quantization_config.
void warn_about_plain_weights(std::span<const WeightSlot> slots, const CheckpointTensors& files,
                              const Quantization& quantization) {
  for (const WeightSlot& slot : slots)
    for (const WeightPart& part : slot.parts)
      if (part.storage != WeightStorage::kPlain) return;
  log_warning(files.path().string(), ": config.json has a quantization_config for ", to_string(quantization),
              ", but no weight in the files is quantized: weights are loaded without dequantization");
}

[[noreturn]] void reject_unused_tensors(const std::string& name, std::span<const WeightSlot> slots,
                                        const CheckpointTensors& files, const ModelSpec& spec,
                                        const std::string& layers) {
  const size_t end = name.find('.', layers.size());
  const std::string layer = name.substr(0, end == std::string::npos ? end : end + 1);
  const std::string known = names_in_layer(slots, layer);
  const std::string expected = known.empty() ? "layers 0 to " + std::to_string(spec.num_layers() - 1) : known;
  fail(ErrorCode::kCorruptFile, files.where(name), ": ", spec.architecture,
       " has no such tensor according to config.json: expected ", expected);
}

}  // namespace

WeightPrefixes find_prefixes(const DecoderNames& names, std::span<const WeightPrefixes> known,
                             const CheckpointTensors& files) {
  const std::string sign = std::string(names.scheme.empty() ? names.embedding : names.scheme) + ".weight";
  const auto found = std::ranges::find_if(
      known, [&](WeightPrefixes prefixes) { return files.contains(stored_name(sign, prefixes)); });
  return found == known.end() ? WeightPrefixes() : *found;
}

std::string stored_name(std::string_view name, WeightPrefixes prefixes) {
  const auto fits = [&](const WeightPrefix& prefix) { return name.starts_with(prefix.from); };
  const auto prefix = std::ranges::find_if(prefixes, fits);
  if (prefix == prefixes.end()) return std::string(name);
  return std::string(prefix->to) + std::string(name.substr(prefix->from.size()));
}

namespace {

// Returns the names of the slots' tensors. Throws Error(kNotFound) if one is missing.
std::set<std::string_view> find_used_tensors(std::span<const WeightSlot> slots,
                                             const CheckpointTensors& files, const ModelSpec& spec) {
  std::set<std::string_view> used;
  std::vector<std::string> missing;
  for (const WeightSlot& slot : slots)
    for (const WeightPart& part : slot.parts)
      for (const std::string& name : part.tensor_names()) {
        const bool is_first = used.insert(name).second;
        if (is_first && !files.contains(name)) missing.push_back(name);
      }
  if (!missing.empty())
    fail(ErrorCode::kNotFound, files.path().string(), ": weights: no tensor \"", missing.front(), "\"",
         missing.size() == 1 ? "" : " and " + std::to_string(missing.size() - 1) + " more", ": ",
         spec.architecture, " with num_hidden_layers ", spec.num_layers(), " in config.json needs ",
         used.size());
  return used;
}

}  // namespace

void check_unused_tensors(std::span<const WeightSlot> slots, const CheckpointTensors& files,
                          const ModelSpec& spec, const UnusedTensorRules& rules) {
  const std::string& layers = rules.layers;
  std::vector<std::string> names = files.names();
  std::ranges::sort(names);
  const bool quantized = spec.quantization.storage != WeightStorage::kPlain;
  if (!quantized) reject_undeclared_quantization(names, files, layers);
  const std::set<std::string_view> used = find_used_tensors(slots, files, spec);
  if (quantized) warn_about_plain_weights(slots, files, spec.quantization);
  std::map<std::string, int> ignored;
  for (const std::string& name : names) {
    if (used.contains(name) || is_derived(name) || is_kv_scale(name)) continue;
    if (is_in_head(name, spec.classifier) || is_unused_kv(name, layers, spec)) continue;
    if (is_unused_indexer(name, layers, spec)) continue;
    if (quantized && (scales_activations(name) || is_zero_bias(name, used, files))) continue;
    if (std::ranges::any_of(rules.encoders,
                            [&](std::string_view prefix) { return name.starts_with(prefix); }))
      continue;
    const bool is_draft_layer = rules.predicts_more_tokens && layer_of(name, layers) >= spec.num_layers();
    if (name.starts_with(layers) && !is_draft_layer) reject_unused_tensors(name, slots, files, spec, layers);
    const auto has_prefix = [&](const std::string& prefix) { return name.starts_with(prefix); };
    if (std::ranges::none_of(rules.read_elsewhere, has_prefix)) ++ignored[module_prefix(name)];
  }
  if (ignored.empty()) return;
  std::string text;
  for (const auto& [group, count] : ignored)
    text += (text.empty() ? "" : ", ") + group + (count == 1 ? "" : " (" + std::to_string(count) + ")");
  log_warning(files.path().string(), ": tensors that ", spec.architecture,
              " does not use are not loaded: ", text);
}

void check_draft_tensors(std::span<const WeightSlot> slots, const CheckpointTensors& files,
                         const ModelSpec& spec, const std::string& layer) {
  std::vector<std::string> names = files.names();
  std::ranges::sort(names);
  const bool quantized = spec.quantization.storage != WeightStorage::kPlain;
  if (!quantized) reject_undeclared_quantization(names, files, layer);
  const std::set<std::string_view> used = find_used_tensors(slots, files, spec);
  // Maps between the vocabularies of draft and target, and copies of the target's table and head.
  const auto is_vocabulary = [](std::string_view name) {
    return name == "d2t" || name == "t2d" || name.ends_with("embed_tokens.weight") ||
           name.ends_with("head.weight");
  };
  for (const std::string& name : names) {
    if (used.contains(name) || is_derived(name) || is_kv_scale(name) || is_vocabulary(name)) continue;
    if (spec.draft->shares_vocab && !name.starts_with(layer)) continue;
    if (quantized && (scales_activations(name) || is_zero_bias(name, used, files))) continue;
    std::string known;
    for (const WeightSlot& slot : slots)
      if (slot.num_experts == 1)
        for (const WeightPart& part : slot.parts) known += (known.empty() ? "" : ", ") + part.name;
    fail(ErrorCode::kCorruptFile, files.where(name), ": ", spec.architecture,
         " has no such tensor according to config.json: expected ", known);
  }
}

}  // namespace attend
