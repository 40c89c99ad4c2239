#include "attend/attention/pool_of.h"

#include <algorithm>

#include "attend/base/error.h"

namespace attend {

bool has_window_half(const ModelGeometry& model) {
  const auto windowed = [](const AttentionLayer& layer) { return layer.window_left >= 0; };
  return std::ranges::any_of(model.layers, windowed) && !std::ranges::all_of(model.layers, windowed);
}

int widest_window_left(const ModelGeometry& model) {
  int widest = 0;
  for (const AttentionLayer& layer : model.layers) widest = std::max(widest, layer.window_left);
  return widest;
}

KvPoolConfig pool_of(const ModelGeometry& model, int page_size, Device device,
                     const std::optional<SwaHalf>& swa) {
  require(!model.layers.empty(), "a model without attention layers has no KV pool");
  const AttentionLayer& first = model.layers.front();
  for (const AttentionLayer& layer : model.layers)
    if (layer.kind != first.kind || layer.num_kv_heads != first.num_kv_heads ||
        layer.head_dim_qk != first.head_dim_qk || layer.head_dim_v != first.head_dim_v)
      fail(ErrorCode::kUnsupported, "layer ", layer.layer_id, " stores ", layer.num_kv_heads, " heads of ",
           layer.head_dim_qk, "/", layer.head_dim_v, ", layer ", first.layer_id, " stores ",
           first.num_kv_heads, " of ", first.head_dim_qk, "/", first.head_dim_v,
           ": one KV pool has layers that are alike");
  const auto num_layers = static_cast<int>(model.layers.size());
  if (first.kind == KvKind::kMla)
    return MlaKvPool::Config{.num_layers = num_layers,
                             .kv_lora_rank = first.head_dim_v,
                             .rope_dim = first.rope_dim,
                             .page_size = page_size,
                             .num_pages = 0,
                             .dtype = model.kv_dtype,
                             .device = device,
                             .scales = {}};
  MhaKvPool::Config pool{
      .num_layers = num_layers,
      .num_kv_heads = first.num_kv_heads,
      .head_dim_qk = first.head_dim_qk,
      .head_dim_v = first.head_dim_v,
      .page_size = page_size,
      .num_pages = 0,
      .dtype = model.kv_dtype,
      .layout = device.type == DeviceType::kCuda ? KvLayout::kTokenMajor : KvLayout::kHeadMajor,
      .device = device,
      .scales = {}};
  if (!swa || !has_window_half(model)) return pool;
  SwaKvPool::Config halves{.full = pool,
                           .swa = pool,
                           .windowed = {},
                           .swa_full_tokens_ratio = swa->full_tokens_ratio,
                           .min_swa_tokens = swa->min_tokens};
  for (const AttentionLayer& layer : model.layers) halves.windowed.push_back(layer.window_left >= 0);
  halves.swa.num_layers = static_cast<int>(std::count(halves.windowed.begin(), halves.windowed.end(), true));
  halves.full.num_layers = num_layers - halves.swa.num_layers;
  return halves;
}

}  // namespace attend
