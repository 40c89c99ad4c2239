#include "attend/kv/cache_spec.h"

#include <algorithm>

namespace attend {

void add_layer(std::vector<CacheSpec>& caches, const CacheSpec& layer) {
  const auto group = std::ranges::find_if(caches, [&](const CacheSpec& cache) {
    return cache.kind == layer.kind && cache.num_kv_heads == layer.num_kv_heads &&
           cache.head_dim_qk == layer.head_dim_qk && cache.head_dim_v == layer.head_dim_v;
  });
  if (group == caches.end()) {
    caches.push_back(layer);
    return;
  }
  group->layers.insert(group->layers.end(), layer.layers.begin(), layer.layers.end());
  group->window_left = std::max(group->window_left, layer.window_left);
}

bool has_window_half(std::span<const CacheSpec> caches) {
  const auto windowed = [](const CacheSpec& cache) { return cache.kind == CacheKind::kWindow; };
  return std::ranges::any_of(caches, windowed) && !std::ranges::all_of(caches, windowed);
}

int widest_window_left(std::span<const CacheSpec> caches) {
  int widest = 0;
  for (const CacheSpec& cache : caches) widest = std::max(widest, cache.window_left);
  return widest;
}

}  // namespace attend
