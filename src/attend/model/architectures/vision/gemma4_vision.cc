// Vision tower of Gemma 4: norms around sublayers, rotary embeddings by column and row, images of any ratio.
#include "attend/model/architectures/vision/vision_fields.h"

namespace attend {
namespace {

int32_t find_token(const JsonNode& file, const char* key, int32_t missing) {
  const auto id = file.find(key);
  return id ? id->token_id() : missing;
}

void read_gemma4_vision(const VisionConfig& config, ModelSpec& spec) {
  constexpr int kMaxTokens = 280;
  constexpr double kTheta = 100.0;
  constexpr int32_t kBegin = 255999, kEnd = 258882;
  const JsonNode& json = config.vision;
  const auto rope = json.find("rope_parameters");
  VisionSpec vision{.processor = {.sizing = ImageSizing::kTokenBudget,
                                  .patch_size = read_tower_size(json, "patch_size", 16),
                                  .merge_size = read_tower_size(json, "pooling_kernel_size", 3),
                                  .num_frames = 0,
                                  .max_tokens = kMaxTokens,
                                  .channels_last = true},
                    .markers = {.image_begin_id = find_token(config.file, "boi_token_id", kBegin),
                                .image_end_id = find_token(config.file, "eoi_token_id", kEnd)},
                    .num_layers = read_tower_size(json, "num_hidden_layers", 16),
                    .hidden_size = read_tower_size(json, "hidden_size", 768),
                    .num_heads = read_tower_size(json, "num_attention_heads", 12),
                    .intermediate_size = read_tower_size(json, "intermediate_size", 3072),
                    .out_size = spec.hidden_size,
                    .norm_kind = kernels::NormKind::kRms,
                    .norm_eps = static_cast<float>(json.find_positive("rms_norm_eps").value_or(1e-6)),
                    .biases = false,
                    .rope_theta = (rope ? *rope : json).find_positive("rope_theta").value_or(kTheta),
                    .split_heads = true,
                    .head_norms = true,
                    .attention_scale = 1.0f,
                    .post_norms = true,
                    .clamps = json.boolean_or("use_clipped_linears", false),
                    .gated_mlp = true,
                    .gate = kernels::Activation::kGeluTanh,
                    .axis_positions = read_tower_size(json, "position_embedding_size", 10240),
                    .merge = VisionMerge::kScaledMean,
                    .standardizes = json.boolean_or("standardize", false)};
  expect_string(json, "hidden_activation", "gelu_pytorch_tanh");
  check_heads(json, vision);
  if (json.find_integer("head_dim", 1, kMaxTowerSize).value_or(vision.head_dim()) != vision.head_dim())
    json.reject("head_dim", std::to_string(vision.head_dim()) + ", hidden_size / num_attention_heads");
  if (json.find_integer("num_key_value_heads", 1, kMaxTowerSize).value_or(vision.num_heads) !=
      vision.num_heads)
    json.reject("num_key_value_heads", std::to_string(vision.num_heads) + ", as num_attention_heads");
  vision.merge_eps = vision.norm_eps;
  if (spec.layer_embeddings) vision.markers.pad_id = find_token(config.decoder, "pad_token_id", 0);
  spec.vision = vision;
  // Tokens of an image attend to all of them in layers with windows.
  if (config.decoder.find_string("use_bidirectional_attention").value_or("") != "vision") return;
  for_each_attention(
      spec, [](AttentionSpec& attention) { attention.bidirectional_items = attention.window_left >= 0; });
}

constexpr VisionPrefix kGemma4VisionPrefixes[] = {{"model.vision_tower.", "model.embed_vision."},
                                                  {"vision_tower.", "embed_vision."}};

}  // namespace

constinit const VisionArchitecture kGemma4Vision{
    .read = read_gemma4_vision,
    .names = {.patch_embedding = "patch_embedder.input_proj",
              .positions = "patch_embedder.position_embedding_table",
              .layers = "encoder.layers",
              .attention_norm = "input_layernorm",
              .q_proj = "self_attn.q_proj",
              .k_proj = "self_attn.k_proj",
              .v_proj = "self_attn.v_proj",
              .q_norm = "self_attn.q_norm",
              .k_norm = "self_attn.k_norm",
              .o_proj = "self_attn.o_proj",
              .attention_post_norm = "post_attention_layernorm",
              .mlp_norm = "pre_feedforward_layernorm",
              .gate_proj = "mlp.gate_proj",
              .up_proj = "mlp.up_proj",
              .down_proj = "mlp.down_proj",
              .mlp_post_norm = "post_feedforward_layernorm",
              .clipped = ".linear",
              .std_bias = "std_bias",
              .std_scale = "std_scale",
              .merger_out = "embedding_projection",
              .prefixes = kGemma4VisionPrefixes}};

}  // namespace attend
