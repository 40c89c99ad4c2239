// Vision tower of Mistral 3: Pixtral (arXiv 2410.07073), with tokens of 2 x 2 patches.
#include "attend/model/architectures/vision/vision_fields.h"

namespace attend {
namespace {

// Returns the reason why attend does not have the tower; empty: it does.
std::string unsupported_tower(const VisionConfig& config) {
  const std::string activation = config.vision.find_string("hidden_act").value_or("gelu");
  if (activation != "silu") return "hidden_act \"" + activation + "\" in vision_config: attend supports silu";
  const std::string projector = config.file.find_string("projector_hidden_act").value_or("gelu");
  if (projector != "gelu") return "projector_hidden_act \"" + projector + "\": attend supports gelu";
  const auto layer = config.file.find("vision_feature_layer");
  if (layer && layer->value() != -1) return "vision_feature_layer: attend supports -1, the last layer";
  return "";
}

double read_theta(const JsonNode& json) {
  constexpr double kTheta = 10000.0;
  const auto rope = json.find("rope_parameters");
  return (rope ? *rope : json).find_positive("rope_theta").value_or(kTheta);
}

void read_mistral3_vision(const VisionConfig& config, ModelSpec& spec) {
  const JsonNode& json = config.vision;
  spec.no_vision = unsupported_tower(config);
  if (!spec.no_vision.empty()) return;
  constexpr float kNormEps = 1e-5f;
  const VisionSpec vision{
      .processor = {.sizing = ImageSizing::kLongestEdge,
                    .patch_size = read_tower_size(json, "patch_size", 16),
                    .merge_size = read_tower_size(config.file, "spatial_merge_size", 2),
                    .num_frames = 0,
                    .edge = read_tower_size(json, "image_size", 1024),
                    .mean = kClipMean,
                    .std = kClipStd},
      // Ids of the Tekken tokenizer.
      .markers = {.row_end_id = 12, .image_end_id = 13, .row_end = "[IMG_BREAK]", .image_end = "[IMG_END]"},
      .num_layers = read_tower_size(json, "num_hidden_layers", 24),
      .hidden_size = read_tower_size(json, "hidden_size", 1024),
      .num_heads = read_tower_size(json, "num_attention_heads", 16),
      .intermediate_size = read_tower_size(json, "intermediate_size", 4096),
      .out_size = spec.hidden_size,
      .norm_kind = kernels::NormKind::kRms,
      .norm_eps = kNormEps,
      .first_norm = true,
      .biases = false,
      .rope_theta = read_theta(json),
      .column_shift = 2,
      .gated_mlp = true,
      .merge = VisionMerge::kChannelJoin,
      .merge_biases = config.file.boolean_or("multimodal_projector_bias", false),
      .merge_eps = spec.norm_eps};
  expect_channels(json, "num_channels");
  check_heads(json, vision);
  if (json.find_integer("head_dim", 1, kMaxTowerSize).value_or(vision.head_dim()) != vision.head_dim())
    json.reject("head_dim", std::to_string(vision.head_dim()) + ", hidden_size / num_attention_heads");
  spec.vision = vision;
}

constexpr VisionPrefix kMistral3VisionPrefixes[] = {{"vision_tower.", "multi_modal_projector."},
                                                    {"model.vision_tower.", "model.multi_modal_projector."}};

}  // namespace

constinit const VisionArchitecture kMistral3Vision{.read = read_mistral3_vision,
                                                   .names = {.patch_embedding = "patch_conv",
                                                             .first_norm = "ln_pre",
                                                             .layers = "transformer.layers",
                                                             .attention_norm = "attention_norm",
                                                             .q_proj = "attention.q_proj",
                                                             .k_proj = "attention.k_proj",
                                                             .v_proj = "attention.v_proj",
                                                             .o_proj = "attention.o_proj",
                                                             .mlp_norm = "ffn_norm",
                                                             .gate_proj = "feed_forward.gate_proj",
                                                             .up_proj = "feed_forward.up_proj",
                                                             .down_proj = "feed_forward.down_proj",
                                                             .merger_norm = "norm",
                                                             .merger_join = "patch_merger.merging_layer",
                                                             .merger_in = "linear_1",
                                                             .merger_out = "linear_2",
                                                             .prefixes = kMistral3VisionPrefixes}};

}  // namespace attend
