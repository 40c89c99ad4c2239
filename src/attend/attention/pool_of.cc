#include "attend/attention/pool_of.h"

#include "attend/base/error.h"

namespace attend {

KvPoolConfig pool_of(const ModelGeometry& model, int page_size, Device device) {
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
  return MhaKvPool::Config{
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
}

}  // namespace attend
