// MiMoV2FlashForCausalLM: heads of v smaller than those of k, twice as many key heads and sinks in layers
// with a window, and the experts of DeepSeek-V3 without groups or a shared expert.
#include "attend/model/architectures/latent/deepseek.h"

namespace attend {
namespace {

constexpr int kMiMoFull = 0, kMiMoSliding = 1;  // indices into spec.ropes
constexpr double kRotatedShare = 0.334;

// The first layer and each sixth one have full attention, unless there are layer_types.
std::vector<bool> read_sliding_layers(const JsonNode& json, const ModelSpec& spec) {
  if (const auto types = json.find("layer_types")) return read_layer_types(*types, spec.num_layers());
  std::vector<bool> slides;
  for (int i = 0; i < spec.num_layers(); ++i) slides.push_back(i != 0 && (i + 1) % 6 != 0);
  return slides;
}

void read_mimo_v2_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  make_dense_layers(json, defaults, spec);
  const std::vector<bool> slides = read_sliding_layers(json, spec);
  const auto previous = json.find_integer("sliding_window_size", 1, 1 << 30);
  set_windows(spec, slides,
              previous ? *previous + 1 : json.find_integer("sliding_window", 1, 1 << 30).value_or(129));
  const bool bias = json.boolean_or("attention_bias", false);
  const int v_dim = json.find_integer("v_head_dim", 1, 1 << 12).value_or(128);
  const bool scales = json.has("attention_value_scale") || !json.mentions("attention_value_scale");
  const double value_scale = scales ? json.find_positive("attention_value_scale").value_or(0.707) : 1.0;
  int head_dim = 0;
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    const bool slides_here = attention.window_left >= 0;
    head_dim = attention.head_dim;
    attention.v_dim = v_dim;
    // A factor of v is one of the output.
    attention.output_scale = static_cast<float>(value_scale);
    attention.qkv_bias = bias;
    attention.sinks = slides_here;
    attention.rope_set = slides_here ? kMiMoSliding : kMiMoFull;
    if (slides_here) attention.num_kv_heads *= 2;
    if (attention.num_q_heads % attention.num_kv_heads != 0)
      json.reject("num_key_value_heads", "a divisor of half of num_attention_heads");
  }
  const LayerRopes ropes = read_layer_ropes(
      json, {.full = head_dim, .sliding = head_dim}, spec.max_position_embeddings,
      {.theta = 5e6, .partial_rotary_factor = kRotatedShare}, {.partial_rotary_factor = kRotatedShare});
  spec.ropes = {ropes.full, ropes.sliding};
}

void read_mimo_v2_config(const JsonNode& json, ModelSpec& spec) {
  read_corrected_experts(json,
                         {.intermediate_size = 16384,
                          .moe_intermediate_size = 2048,
                          .num_experts = 256,
                          .top_k = 8,
                          .first_dense_layers = 1},
                         /*normalized=*/true, spec);
}

}  // namespace

constinit const ModelArchitecture kMiMoV2Flash{
    .name = "MiMoV2FlashForCausalLM",
    .models = "MiMo-V2-Flash",
    .read_layers = read_mimo_v2_layers,
    .read_config = read_mimo_v2_config,
    .defaults = {.intermediate_size = 16384, .num_kv_heads = 4, .head_dim = 192, .norm_eps = 1e-5},
    .predicts_more_tokens = true,
    .names = {.sinks = "self_attn.attention_sink_bias"}};

}  // namespace attend
