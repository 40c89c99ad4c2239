#include "attend/model/config/model_spec.h"

#include <algorithm>
#include <utility>

namespace attend {

bool can_expand(const MlaSpec& spec) {
  const int qk = spec.nope_dim + spec.rope_dim;
  return qk % 8 == 0 && spec.v_dim % 8 == 0 && qk <= 256 && spec.v_dim <= 256;
}

AttentionLayer attention_layer(const AttentionSpec& spec, int layer_id) {
  const bool sees_all = spec.window_left < 0 && spec.window_right < 0;
  return {.layer_id = layer_id,
          .num_q_heads = spec.num_q_heads,
          .num_kv_heads = spec.num_kv_heads,
          .head_dim_qk = spec.cached_head_dim(),
          .head_dim_v = spec.cached_head_dim_v(),
          .type = spec.window_right == 0 ? AttentionType::kDecoder : AttentionType::kEncoderOnly,
          .scale = spec.scale,
          .logit_cap = spec.logit_cap,
          .window_left = spec.window_left,
          .window_right = sees_all ? 0 : spec.window_right,
          .chunk = spec.chunk,
          .bidirectional_items = spec.bidirectional_items,
          .has_sinks = spec.sinks};
}

namespace {

KeyIndexer key_indexer(const MlaSpec& spec) {
  if (!spec.indexer) return {};
  if (spec.indexer->is_shared) return {.top_k = spec.indexer->top_k};
  return {
      .top_k = spec.indexer->top_k, .num_heads = spec.indexer->num_heads, .head_dim = spec.indexer->head_dim};
}

}  // namespace

AttentionLayer attention_layer(const MlaSpec& spec, int layer_id) {
  return {.layer_id = layer_id,
          .num_q_heads = spec.num_heads,
          .num_kv_heads = 1,
          .head_dim_qk = spec.kv_lora_rank + spec.rope_dim,
          .head_dim_v = spec.kv_lora_rank,
          .rope_dim = spec.rope_dim,
          .kind = KvKind::kMla,
          .scale = spec.scale,
          .indexer = key_indexer(spec)};
}

AttentionLayer attention_layer(const AttentionMamba2Spec& spec, int layer_id) {
  return attention_layer(spec.attention, layer_id);
}

AttentionLayer expanded_layer(const MlaSpec& spec, int layer_id) {
  return {.layer_id = layer_id,
          .num_q_heads = spec.num_heads,
          .num_kv_heads = spec.num_heads,
          .head_dim_qk = spec.nope_dim + spec.rope_dim,
          .head_dim_v = spec.v_dim,
          .rope_dim = spec.rope_dim,
          .kind = KvKind::kMla,
          .scale = spec.scale};
}

CacheSpec layer_cache_spec(const AttentionSpec& spec, int layer) {
  return {.kind = spec.window_left >= 0 ? CacheKind::kWindow : CacheKind::kFull,
          .layers = {layer},
          .num_kv_heads = spec.num_kv_heads,
          .head_dim_qk = spec.cached_head_dim(),
          .head_dim_v = spec.cached_head_dim_v(),
          .window_left = spec.window_left};
}

CacheSpec layer_cache_spec(const MlaSpec& spec, int layer) {
  return {.kind = CacheKind::kLatent,
          .layers = {layer},
          .num_kv_heads = 1,
          .head_dim_qk = spec.kv_lora_rank + spec.rope_dim,
          .head_dim_v = spec.kv_lora_rank,
          .index_dim = spec.has_own_indexer() ? spec.indexer->head_dim : 0};
}

CacheSpec layer_cache_spec(const AttentionMamba2Spec& spec, int layer) {
  return layer_cache_spec(spec.attention, layer);
}

StateShape state_shape(const GatedDeltaSpec& spec, int) {
  return {.num_heads = spec.num_v_heads,
          .head_dim_v = spec.head_dim_v,
          .head_dim_k = spec.head_dim_k,
          .conv_inputs = spec.conv_kernel - 1,
          .conv_channels = spec.conv_channels()};
}

StateShape state_shape(const ShortConvSpec& spec, int hidden_size) {
  return {.conv_inputs = spec.kernel - 1, .conv_channels = hidden_size};
}

StateShape state_shape(const Mamba2Spec& spec, int) {
  return {.num_heads = spec.num_heads,
          .head_dim_v = spec.head_dim,
          .head_dim_k = spec.state_dim,
          .conv_inputs = spec.conv_kernel - 1,
          .conv_channels = spec.conv_channels()};
}

StateShape state_shape(const AttentionMamba2Spec& spec, int hidden_size) {
  return state_shape(spec.mamba, hidden_size);
}

namespace {

int kv_layer(const auto&) { return -1; }
int kv_layer(const AttentionSpec& spec) { return spec.kv_layer; }

}  // namespace

bool has_kv(const MixerSpec& mixer) {
  return std::visit(
      [](const auto& spec) {
        return requires { attention_layer(spec, 0); }
        &&kv_layer(spec) < 0;
      },
      mixer);
}

const MoeMlpSpec* find_moe(const MlpSpec& mlp) {
  if (const auto* const parallel = std::get_if<ParallelMoeSpec>(&mlp)) return &parallel->moe;
  return std::get_if<MoeMlpSpec>(&mlp);
}

MoeMlpSpec* find_moe(MlpSpec& mlp) { return const_cast<MoeMlpSpec*>(find_moe(std::as_const(mlp))); }

bool has_state(const MixerSpec& mixer) {
  return std::visit(
      [](const auto& spec) {
        return requires { state_shape(spec, 0); };
      },
      mixer);
}

int ModelSpec::state_layer(int layer) const {
  return static_cast<int>(std::count_if(layers.begin(), layers.begin() + layer,
                                        [](const LayerSpec& before) { return has_state(before.mixer); }));
}

int ModelSpec::cache_layer(int layer) const {
  if (layer < num_layers()) {
    const int source =
        std::visit([](const auto& spec) { return kv_layer(spec); }, layers[static_cast<size_t>(layer)].mixer);
    if (source >= 0) return cache_layer(source);
  }
  return static_cast<int>(std::count_if(layers.begin(), layers.begin() + layer,
                                        [](const LayerSpec& before) { return has_kv(before.mixer); }));
}

std::vector<CacheSpec> ModelSpec::caches() const {
  std::vector<CacheSpec> groups;
  for (int layer = 0; layer < num_layers(); ++layer)
    std::visit(
        [&](const auto& mixer) {
          if constexpr (requires { state_shape(mixer, 0); })
            add_layer(
                groups,
                {.kind = CacheKind::kState, .layers = {layer}, .state = state_shape(mixer, hidden_size)});
          if constexpr (requires { layer_cache_spec(mixer, 0); })
            if (kv_layer(mixer) < 0) add_layer(groups, layer_cache_spec(mixer, layer));
        },
        layers[static_cast<size_t>(layer)].mixer);
  return groups;
}

std::vector<AttentionLayer> ModelSpec::attention_layers() const {
  std::vector<AttentionLayer> found;
  for (int layer = 0; layer < num_layers(); ++layer)
    std::visit(
        [&](const auto& mixer) {
          if constexpr (requires { attention_layer(mixer, 0); })
            found.push_back(attention_layer(mixer, cache_layer(layer)));
        },
        layers[static_cast<size_t>(layer)].mixer);
  return found;
}

ModelGeometry ModelSpec::geometry(DType activation_dtype, DType kv_dtype) const {
  ModelGeometry geometry{
      .layers = {}, .dtype = activation_dtype, .kv_dtype = kv_dtype, .max_context_len = max_context_len()};
  for (const LayerSpec& layer : layers)
    std::visit(
        [&](const auto& mixer) {
          if constexpr (requires { attention_layer(mixer, 0); })
            if (kv_layer(mixer) < 0)
              geometry.layers.push_back(attention_layer(mixer, static_cast<int>(geometry.layers.size())));
        },
        layer.mixer);
  for (size_t i = 0; i < layers.size(); ++i)
    if (const auto* mla = std::get_if<MlaSpec>(&layers[i].mixer); mla != nullptr && can_expand(*mla))
      geometry.expanded_layers.push_back(expanded_layer(*mla, cache_layer(static_cast<int>(i))));
  return geometry;
}

bool ModelSpec::bidirectional() const {
  return std::ranges::any_of(layers, [](const LayerSpec& layer) {
    const auto* const attention = std::get_if<AttentionSpec>(&layer.mixer);
    return attention != nullptr && attention->window_right != 0;
  });
}

void ModelSpec::drop_bidirectional_items() {
  for (LayerSpec& layer : layers)
    if (auto* const attention = std::get_if<AttentionSpec>(&layer.mixer))
      attention->bidirectional_items = false;
}

bool ModelSpec::has_bidirectional_items() const {
  return std::ranges::any_of(layers, [](const LayerSpec& layer) {
    const auto* const attention = std::get_if<AttentionSpec>(&layer.mixer);
    return attention != nullptr && attention->bidirectional_items;
  });
}

int ModelSpec::max_context_len() const {
  double longest = std::max(max_position_embeddings, extended_positions);
  for (const RopeConfig& rope : ropes) {
    if (rope.type == RopeType::kLinear || rope.type == RopeType::kDynamic ||
        rope.type == RopeType::kProportional)
      longest = std::max(longest, max_position_embeddings * rope.factor);
    if (rope.type == RopeType::kYarn)
      longest = std::max(longest, rope.original_max_position_embeddings * rope.factor);
  }
  constexpr double kMaxExtent = 1 << 30;
  return static_cast<int>(std::min(longest, dual_chunk_limit > 0 ? dual_chunk_limit : kMaxExtent));
}

int ModelSpec::longrope_length() const {
  for (const RopeConfig& rope : ropes)
    if (rope.type == RopeType::kLongRope) return rope.original_max_position_embeddings;
  return 0;
}

std::string ModelSpec::kv_salt(int prompt_len) const {
  bool by_length = false;
  int salt = 0;
  for (const RopeConfig& rope : ropes) {
    if (rope.type != RopeType::kDynamic && rope.type != RopeType::kLongRope) continue;
    by_length = true;
    if (prompt_len > rope.original_max_position_embeddings)
      salt = rope.type == RopeType::kDynamic ? prompt_len : 1;
  }
  return by_length ? std::to_string(salt) + ":" : std::string();
}

}  // namespace attend
