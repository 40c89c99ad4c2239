#include "attend/model/architectures/architecture.h"

#include <algorithm>
#include <string>

#include "attend/base/error.h"
#include "attend/model/architectures/unsupported_architectures.h"
#include "attend/model/config/read_classifier.h"

namespace attend {
namespace {

// Sorted by name.
constexpr const ModelArchitecture* kTable[] = {&kApertus,
                                               &kArcee,
                                               &kBamba,
                                               &kBert,
                                               &kCohere2,
                                               &kCohere2Moe,
                                               &kCohere,
                                               &kDeepseekV2,
                                               &kDeepseekV32,
                                               &kDeepseekV3,
                                               &kDeepseekV3Prediction,
                                               &kDots1,
                                               &kErnie45,
                                               &kErnie45Prediction,
                                               &kErnie45Moe,
                                               &kExaone4,
                                               &kExaoneMoe,
                                               &kFalcon,
                                               &kFalconH1,
                                               &kGpt2,
                                               &kGptJ,
                                               &kGptNeoX,
                                               &kGemma2,
                                               &kGemma3,
                                               &kGemma3Multimodal,
                                               &kGemma3Embedding,
                                               &kGemma4,
                                               &kGemma4Multimodal,
                                               &kGemma4Unified,
                                               &kGemma4UnifiedMultimodal,
                                               &kGemma,
                                               &kGlm4,
                                               &kGlm4Moe,
                                               &kGlm4MoePrediction,
                                               &kGlm4MoeLite,
                                               &kGlm4MoeLitePrediction,
                                               &kGlm,
                                               &kGlmMoeDsa,
                                               &kGptOss,
                                               &kGranite,
                                               &kGraniteMoe,
                                               &kGraniteMoeHybrid,
                                               &kGraniteMoeShared,
                                               &kHyV3,
                                               &kHunYuanDenseV1,
                                               &kHunYuanMoeV1,
                                               &kInternLm3,
                                               &kKimiK25,
                                               &kKimiLinear,
                                               &kKimiK25Saved,
                                               &kLaguna,
                                               &kLfm2,
                                               &kLfm2Moe,
                                               &kLlama4,
                                               &kLlama4Multimodal,
                                               &kLlama,
                                               &kEagle,
                                               &kEagle3,
                                               &kMiMo,
                                               &kMiMoPrediction,
                                               &kMiMoV2Flash,
                                               &kMiniCpm3,
                                               &kMiniMaxM2,
                                               &kMinistral3,
                                               &kMinistral,
                                               &kMistral3,
                                               &kMistral4,
                                               &kMistral,
                                               &kMixtral,
                                               &kMuseGlimmer,
                                               &kNemotron,
                                               &kNemotronH,
                                               &kOpt,
                                               &kOlmo2,
                                               &kOlmo3,
                                               &kOlmo,
                                               &kOlmoHybrid,
                                               &kOlmoe,
                                               &kPhi3,
                                               &kPhi,
                                               &kPhiMoe,
                                               &kPhiMoeSaved,
                                               &kQwen2,
                                               &kQwen2Moe,
                                               &kQwen2Vl,
                                               &kQwen25Vl,
                                               &kQwen3,
                                               &kQwen3Moe,
                                               &kQwen3Next,
                                               &kQwen3NextPrediction,
                                               &kQwen3Vl,
                                               &kQwen3VlMoe,
                                               &kQwen35Text,
                                               &kQwen35,
                                               &kQwen35MoeText,
                                               &kQwen35Moe,
                                               &kRoberta,
                                               &kSeedOss,
                                               &kSmolLm3,
                                               &kStableLm,
                                               &kStarcoder2,
                                               &kXlmRoberta};

}  // namespace

std::vector<bool> read_layer_types(const JsonNode& types, int num_layers) {
  const std::string expected =
      "an array of " + std::to_string(num_layers) + " times \"full_attention\" or \"sliding_attention\"";
  if (!types.value().is_array() || types.value().size() != static_cast<size_t>(num_layers))
    types.reject(expected);
  std::vector<bool> slides;
  for (const Json& type : types.value()) {
    const bool slide = is_string(type, "sliding_attention");
    if (!slide && !is_string(type, "full_attention")) types.reject(expected);
    slides.push_back(slide);
  }
  return slides;
}

void expect_string(const JsonNode& json, const char* key, std::string_view expected) {
  const std::string value = json.find_string(key).value_or(std::string(expected));
  if (value != expected)
    fail(ErrorCode::kUnsupported, json.where(key), " \"", value, "\": attend supports \"", expected, "\"");
}

const ModelArchitecture& find_architecture(std::string_view name, const std::string& where) {
  const bool classifies = name.ends_with(kClassifierSuffix);
  const std::string family(classifies ? name.substr(0, name.size() - kClassifierSuffix.size()) : "");
  std::string known;
  for (const ModelArchitecture* architecture : kTable) {
    const std::string_view base = architecture->name;
    if (base == name || (classifies && (base == family + "ForCausalLM" || base == family + "Model")))
      return *architecture;
    known += (known.empty() ? "" : ", ") + std::string(base);
  }
  if (const std::string_view missing = find_missing_part(name); !missing.empty())
    fail(ErrorCode::kUnsupported, where, " \"", name, "\": needs ", missing, ", which attend does not have");
  fail(ErrorCode::kUnsupported, where, " \"", name, "\": attend supports ", known, ", and ",
       kClassifierSuffix, " in place of ForCausalLM or Model");
}

std::vector<bool> read_rotated_layers(const JsonNode& json, size_t num_layers) {
  const auto interval =
      static_cast<size_t>(json.find_integer("no_rope_layer_interval", 1, 1 << 16).value_or(4));
  std::vector<bool> rotated;
  const auto layers = json.find("no_rope_layers");
  if (layers && layers->array_size() > 0) {
    if (layers->array_size() < num_layers)
      layers->reject("an array of " + std::to_string(num_layers) + " times 0 or 1, one per layer");
    for (size_t i = 0; i < num_layers; ++i) rotated.push_back(layers->at(i).integer(0, 1) == 1);
    return rotated;
  }
  for (size_t i = 0; i < num_layers; ++i) rotated.push_back((i + 1) % interval != 0);
  return rotated;
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
           " is sliding: expected use_sliding_window true and a sliding_window");
  }
  set_windows(spec, slides, window);
}

void read_alternating_windows(const JsonNode& json, int full_every, int missing, ModelSpec& spec) {
  std::vector<bool> slides;
  if (const auto types = json.find("layer_types"))
    slides = read_layer_types(*types, spec.num_layers());
  else
    for (int i = 0; i < spec.num_layers(); ++i) slides.push_back((i + 1) % full_every != 0);
  read_windows(json, slides, spec, missing);
}

void read_windows(const JsonNode& json, const std::vector<bool>& slides, ModelSpec& spec, int missing) {
  if (std::ranges::find(slides, true) == slides.end()) return;
  if (json.mentions("sliding_window") && !json.has("sliding_window"))
    fail(ErrorCode::kCorruptFile, json.where("sliding_window"),
         " null: expected the window of the sliding layers");
  set_windows(spec, slides, json.find_integer("sliding_window", 1, 1 << 30).value_or(missing));
}

void set_windows(ModelSpec& spec, const std::vector<bool>& slides, int sliding_window) {
  for (size_t i = 0; i < slides.size(); ++i)
    if (slides[i]) std::get<AttentionSpec>(spec.layers[i].mixer).window_left = sliding_window - 1;
}

void set_residual_scale(double residual, double embedding, ModelSpec& spec) {
  spec.embedding_scale = static_cast<float>(embedding / residual);
  spec.norm_eps = static_cast<float>(static_cast<double>(spec.norm_eps) / (residual * residual));
}

void for_each_attention(ModelSpec& spec, const std::function<void(AttentionSpec&)>& change) {
  for (LayerSpec& layer : spec.layers)
    if (auto* attention = std::get_if<AttentionSpec>(&layer.mixer)) change(*attention);
}

void for_each_gated_mlp(ModelSpec& spec, const std::function<void(GatedMlpSpec&)>& change) {
  for (LayerSpec& layer : spec.layers)
    if (auto* mlp = std::get_if<GatedMlpSpec>(&layer.mlp)) change(*mlp);
}

std::string_view published_models(std::string_view architecture) {
  const auto found = std::ranges::find(kTable, architecture, &ModelArchitecture::name);
  return found == std::end(kTable) ? std::string_view() : (*found)->models;
}

std::vector<std::string> supported_architectures() {
  std::vector<std::string> names;
  for (const ModelArchitecture* architecture : kTable) names.emplace_back(architecture->name);
  return names;
}

}  // namespace attend
