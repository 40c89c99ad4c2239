// Vision tower of Gemma 3: SigLIP (arXiv 2303.15343), with the mean of neighboring patches as a token.
#include "attend/model/architectures/vision/vision_fields.h"

namespace attend {
namespace {

// Returns the side of the square of patches that become one token.
int read_pooled_side(const JsonNode& file, int side) {
  constexpr int kMaxTokens = 1 << 14;
  const int num_tokens = file.find_integer("mm_tokens_per_image", 1, kMaxTokens).value_or(256);
  int tokens_per_side = 1;
  while (tokens_per_side * tokens_per_side < num_tokens) ++tokens_per_side;
  if (tokens_per_side * tokens_per_side != num_tokens || side % tokens_per_side != 0)
    file.reject("mm_tokens_per_image",
                "the square of a divisor of " + std::to_string(side) + ", the patches of a side");
  return side / tokens_per_side;
}

void read_gemma3_vision(const VisionConfig& config, ModelSpec& spec) {
  const JsonNode& json = config.vision;
  constexpr std::array<float, 3> kHalf{0.5f, 0.5f, 0.5f};
  VisionSpec vision{.processor = {.sizing = ImageSizing::kSquare,
                                  .filter = ResizeFilter::kBilinear,
                                  .patch_size = read_tower_size(json, "patch_size", 16),
                                  .num_frames = 0,
                                  .edge = read_tower_size(json, "image_size", 224),
                                  .mean = kHalf,
                                  .std = kHalf},
                    .markers = {.template_text = "<start_of_image>",
                                .prompt_text = "\n\n<start_of_image><image_soft_token><end_of_image>\n\n"},
                    .num_layers = read_tower_size(json, "num_hidden_layers", 12),
                    .hidden_size = read_tower_size(json, "hidden_size", 768),
                    .num_heads = read_tower_size(json, "num_attention_heads", 12),
                    .intermediate_size = read_tower_size(json, "intermediate_size", 3072),
                    .out_size = spec.hidden_size,
                    .norm_eps = static_cast<float>(json.find_positive("layer_norm_eps").value_or(1e-6)),
                    .patch_bias = true,
                    .rotates = false,
                    .merge = VisionMerge::kMean};
  expect_string(json, "hidden_act", "gelu_pytorch_tanh");
  expect_channels(json, "num_channels");
  check_heads(json, vision);
  vision.merge_eps = vision.norm_eps;
  vision.position_side = patches_per_side(json, vision.processor.edge, vision.processor.patch_size);
  vision.processor.merge_size = read_pooled_side(config.file, vision.position_side);
  spec.vision = vision;
  // Tokens of an image attend to all of them, in layers with windows too.
  for_each_attention(spec, [](AttentionSpec& attention) { attention.bidirectional_items = true; });
}

// Names in Google's checkpoints, and as later versions of transformers save them.
constexpr VisionPrefix kGemma3VisionPrefixes[] = {
    {"vision_tower.vision_model.", "multi_modal_projector."},
    {"model.vision_tower.vision_model.", "model.multi_modal_projector."},
    {"vision_tower.", "multi_modal_projector."},
    {"model.vision_tower.", "model.multi_modal_projector."}};

}  // namespace

constinit const VisionArchitecture kGemma3Vision{.read = read_gemma3_vision,
                                                 .names = {.patch_embedding = "embeddings.patch_embedding",
                                                           .positions = "embeddings.position_embedding",
                                                           .layers = "encoder.layers",
                                                           .attention_norm = "layer_norm1",
                                                           .q_proj = "self_attn.q_proj",
                                                           .k_proj = "self_attn.k_proj",
                                                           .v_proj = "self_attn.v_proj",
                                                           .o_proj = "self_attn.out_proj",
                                                           .mlp_norm = "layer_norm2",
                                                           .up_proj = "mlp.fc1",
                                                           .down_proj = "mlp.fc2",
                                                           .merger_norm = "post_layernorm",
                                                           .merger_token_norm = "mm_soft_emb_norm",
                                                           .merger_out = "mm_input_projection_weight",
                                                           .prefixes = kGemma3VisionPrefixes}};

}  // namespace attend
