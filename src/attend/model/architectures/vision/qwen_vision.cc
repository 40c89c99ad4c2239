// Vision towers of the Qwen models.
#include <algorithm>
#include <string>

#include "attend/base/error.h"
#include "attend/model/architectures/vision/vision_fields.h"

namespace attend {
namespace {

// Reads an array of layers.
std::vector<int> read_layer_list(const JsonNode& json, const char* key, int num_layers) {
  std::vector<int> layers;
  if (const auto list = json.find(key))
    for (size_t i = 0; i < list->array_size(); ++i) layers.push_back(list->at(i).integer(0, num_layers - 1));
  return layers;
}

// Fields that the towers have in common.
VisionSpec read_tower(const JsonNode& json, const VisionSpec& defaults) {
  VisionSpec spec = defaults;
  ImageProcessorSpec& processor = spec.processor;
  processor.patch_size = read_tower_size(json, "patch_size", processor.patch_size);
  processor.merge_size = read_tower_size(json, "spatial_merge_size", processor.merge_size);
  processor.num_frames = read_tower_size(json, "temporal_patch_size", processor.num_frames);
  expect_channels(json, "in_channels");
  spec.num_layers = read_tower_size(json, "depth", spec.num_layers);
  spec.hidden_size = read_tower_size(json, "hidden_size", spec.hidden_size);
  spec.num_heads = read_tower_size(json, "num_heads", spec.num_heads);
  spec.intermediate_size = read_tower_size(json, "intermediate_size", spec.intermediate_size);
  spec.out_size = read_tower_size(json, "out_hidden_size", spec.out_size);
  check_heads(json, spec);
  return spec;
}

// Sets the axis of each pair of the decoder's heads. Interleaved: pairs 1, 4, 7, ... have the row, pairs 2,
// 5, 8, ... the column, as many as the sections state. Otherwise sections of pairs follow each other.
void set_pair_axes(const JsonNode& decoder, std::array<int, 3> sections, bool interleaved, ModelSpec& spec) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto rope = decoder.find(key);
    const auto list = rope ? rope->find("mrope_section") : std::nullopt;
    if (!list) continue;
    if (list->array_size() != sections.size()) list->reject("an array of 3 numbers of pairs");
    for (size_t i = 0; i < sections.size(); ++i) sections[i] = list->at(i).integer(0, kMaxTowerSize);
    break;
  }
  RopeConfig& rope = spec.ropes.front();
  const int num_pairs = rope.rotary_dim / 2;
  if (!interleaved && sections[0] + sections[1] + sections[2] != num_pairs)
    decoder.reject("mrope_section",
                   "a sum of " + std::to_string(num_pairs) + ", the rotated pairs of a head");
  for (int i = 0; i < num_pairs; ++i) {
    const int axis = interleaved ? i % 3 : i < sections[0] ? 0 : i < sections[0] + sections[1] ? 1 : 2;
    const bool is_in_section = !interleaved || i < 3 * sections[static_cast<size_t>(axis)];
    rope.pair_axes.push_back(static_cast<uint8_t>(is_in_section ? axis : 0));
  }
}

void read_qwen25_vision(const VisionConfig& config, ModelSpec& spec) {
  const JsonNode& json = config.vision;
  constexpr int kWindowSize = 112;
  VisionSpec vision = read_tower(json, {.processor = {.patch_size = 14, .mean = kClipMean, .std = kClipStd},
                                        .num_layers = 32,
                                        .hidden_size = 3584,
                                        .num_heads = 16,
                                        .intermediate_size = 3420,
                                        .out_size = 3584,
                                        .norm_kind = kernels::NormKind::kRms,
                                        .gated_mlp = true});
  expect_string(json, "hidden_act", "silu");
  vision.window_side = read_tower_size(json, "window_size", kWindowSize) / vision.processor.factor();
  if (vision.window_side == 0)
    json.reject("window_size",
                "at least patch_size times spatial_merge_size, " + std::to_string(vision.processor.factor()));
  vision.full_layers = json.has("fullatt_block_indexes")
                           ? read_layer_list(json, "fullatt_block_indexes", vision.num_layers)
                           : std::vector<int>{7, 15, 23, 31};
  spec.vision = vision;
  set_pair_axes(config.decoder, {16, 24, 24}, /*interleaved=*/false, spec);
}

// Qwen3-VL, and with fewer features Qwen3.5.
VisionSpec read_qwen3_tower(const JsonNode& json) {
  constexpr int kNumPositions = 2304;
  VisionSpec vision = read_tower(json, {.processor = {.patch_size = 16, .mean = kClipMean, .std = kClipStd},
                                        .num_layers = 27,
                                        .hidden_size = 1152,
                                        .num_heads = 16,
                                        .intermediate_size = 4304,
                                        .out_size = 3584,
                                        .patch_bias = true});
  expect_string(json, "hidden_act", "gelu_pytorch_tanh");
  const int num_positions = read_tower_size(json, "num_position_embeddings", kNumPositions);
  while ((vision.position_side + 1) * (vision.position_side + 1) <= num_positions) ++vision.position_side;
  if (vision.position_side * vision.position_side != num_positions)
    json.reject("num_position_embeddings", "a square number");
  return vision;
}

void read_qwen3_vision(const VisionConfig& config, ModelSpec& spec) {
  const JsonNode& json = config.vision;
  VisionSpec vision = read_qwen3_tower(json);
  vision.deepstack_layers = json.has("deepstack_visual_indexes")
                                ? read_layer_list(json, "deepstack_visual_indexes", vision.num_layers)
                                : std::vector<int>{8, 16, 24};
  if (std::ssize(vision.deepstack_layers) > spec.num_layers())
    json.reject("deepstack_visual_indexes",
                "at most one per layer of the decoder, " + std::to_string(spec.num_layers()));
  if (!std::ranges::is_sorted(vision.deepstack_layers))
    json.reject("deepstack_visual_indexes", "layers in ascending order");
  spec.vision = vision;
  set_pair_axes(config.decoder, {24, 20, 20}, /*interleaved=*/true, spec);
}

void read_qwen35_vision(const VisionConfig& config, ModelSpec& spec) {
  spec.vision = read_qwen3_tower(config.vision);
  set_pair_axes(config.decoder, {11, 11, 10}, /*interleaved=*/true, spec);
}

constexpr VisionPrefix kQwenPrefixes[] = {{"model.visual.", "model.visual."}, {"visual.", "visual."}};

}  // namespace

constinit const VisionArchitecture kQwen25Vision{.read = read_qwen25_vision,
                                                 .names = {.up_proj = "mlp.up_proj",
                                                           .down_proj = "mlp.down_proj",
                                                           .merger_norm = "merger.ln_q",
                                                           .merger_in = "merger.mlp.0",
                                                           .merger_out = "merger.mlp.2",
                                                           .prefixes = kQwenPrefixes}};

constinit const VisionArchitecture kQwen3Vision{.read = read_qwen3_vision,
                                                .names = {.prefixes = kQwenPrefixes}};

constinit const VisionArchitecture kQwen35Vision{.read = read_qwen35_vision,
                                                 .names = {.prefixes = kQwenPrefixes}};

}  // namespace attend
