#include "attend/model/architecture.h"

#include <array>

#include "attend/base/error.h"

namespace attend {
namespace {

constexpr std::array<const ModelArchitecture*, 5> kTable{&kLlama, &kMistral, &kQwen2, &kQwen3, &kSeedOss};

// The layers that slide, as layer_types names them.
std::vector<bool> read_layer_types(const JsonNode& types, int num_layers) {
  const std::string expected =
      "an array of " + std::to_string(num_layers) + " times \"full_attention\" or \"sliding_attention\"";
  if (!types.value().is_array() || types.value().size() != static_cast<size_t>(num_layers))
    types.refuse(expected);
  std::vector<bool> slides;
  for (const Json& type : types.value()) {
    const bool slide = is_string(type, "sliding_attention");
    if (!slide && !is_string(type, "full_attention")) types.refuse(expected);
    slides.push_back(slide);
  }
  return slides;
}

}  // namespace

const ModelArchitecture& find_architecture(std::string_view name, const std::string& where) {
  std::string known;
  for (const ModelArchitecture* architecture : kTable) {
    if (architecture->name == name) return *architecture;
    known += (known.empty() ? "" : ", ") + std::string(architecture->name);
  }
  fail(ErrorCode::kUnsupported, where, " \"", name, "\": attend has ", known);
}

void read_layer_windows(const JsonNode& json, ModelSpec& spec) {
  const bool turned_off = json.mentions("sliding_window") && !json.has("sliding_window");
  const bool use_window = json.find_boolean("use_sliding_window").value_or(false) && !turned_off;
  const int window = json.find_integer("sliding_window", 1, 1 << 30).value_or(4096);
  const auto first_sliding =
      static_cast<size_t>(json.find_integer("max_window_layers", 0, 1 << 30).value_or(28));

  std::vector<bool> slides(spec.layers.size(), false);
  if (const auto types = json.find("layer_types"))
    slides = read_layer_types(*types, spec.num_layers());
  else
    for (size_t i = first_sliding; i < slides.size(); ++i) slides[i] = use_window;
  for (size_t i = 0; i < slides.size(); ++i) {
    if (slides[i] && !use_window)
      fail(ErrorCode::kCorruptFile, json.where("layer_types"), ": layer ", i,
           " slides: expected use_sliding_window true and a sliding_window");
    if (slides[i]) std::get<AttentionSpec>(spec.layers[i].mixer).window_left = window - 1;
  }
}

void for_each_attention(ModelSpec& spec, const std::function<void(AttentionSpec&)>& change) {
  for (LayerSpec& layer : spec.layers)
    if (auto* attention = std::get_if<AttentionSpec>(&layer.mixer)) change(*attention);
}

void set_mlp_bias(ModelSpec& spec, bool bias) {
  for (LayerSpec& layer : spec.layers)
    if (auto* mlp = std::get_if<GatedMlpSpec>(&layer.mlp)) mlp->bias = bias;
}

std::vector<std::string> supported_architectures() {
  std::vector<std::string> names;
  for (const ModelArchitecture* architecture : kTable) names.emplace_back(architecture->name);
  return names;
}

}  // namespace attend
