#include "attend/model/model_spec.h"

#include <algorithm>

namespace attend {

AttentionLayer attention_layer(const AttentionSpec& spec, int layer_id) {
  return {.layer_id = layer_id,
          .num_q_heads = spec.num_q_heads,
          .num_kv_heads = spec.num_kv_heads,
          .head_dim_qk = spec.head_dim,
          .head_dim_v = spec.head_dim,
          .scale = spec.scale,
          .window_left = spec.window_left};
}

ModelGeometry ModelSpec::geometry(DType activation_dtype, DType kv_dtype) const {
  ModelGeometry geometry{
      .layers = {}, .dtype = activation_dtype, .kv_dtype = kv_dtype, .max_context_len = max_context_len()};
  for (const LayerSpec& layer : layers)
    std::visit(
        [&](const auto& mixer) {
          geometry.layers.push_back(attention_layer(mixer, static_cast<int>(geometry.layers.size())));
        },
        layer.mixer);
  return geometry;
}

int ModelSpec::max_context_len() const {
  double longest = max_position_embeddings;
  for (const RopeConfig& rope : ropes) {
    if (rope.type == RopeType::kLinear || rope.type == RopeType::kDynamic)
      longest = std::max(longest, max_position_embeddings * rope.factor);
    if (rope.type == RopeType::kYarn)
      longest = std::max(longest, rope.original_max_position_embeddings * rope.factor);
  }
  constexpr double kMaxExtent = 1 << 30;
  return static_cast<int>(std::min(longest, kMaxExtent));
}

}  // namespace attend
