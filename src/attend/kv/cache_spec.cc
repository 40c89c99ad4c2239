#include "attend/kv/cache_spec.h"

#include <algorithm>
#include <iterator>

namespace attend {

void add_layer(std::vector<CacheSpec>& caches, const CacheSpec& layer) {
  const auto group = std::ranges::find_if(caches, [&](const CacheSpec& cache) {
    return cache.kind == layer.kind && cache.num_kv_heads == layer.num_kv_heads &&
           cache.head_dim_qk == layer.head_dim_qk && cache.head_dim_v == layer.head_dim_v &&
           cache.index_dim == layer.index_dim && cache.state == layer.state;
  });
  if (group == caches.end()) {
    caches.push_back(layer);
    return;
  }
  group->layers.insert(group->layers.end(), layer.layers.begin(), layer.layers.end());
  group->window_left = std::max(group->window_left, layer.window_left);
}

std::vector<CacheSpec> token_caches(std::span<const CacheSpec> caches) {
  std::vector<CacheSpec> found;
  std::ranges::copy_if(caches, std::back_inserter(found),
                       [](const CacheSpec& cache) { return cache.kind != CacheKind::kState; });
  return found;
}

std::vector<CacheSpec> state_caches(std::span<const CacheSpec> caches) {
  std::vector<CacheSpec> found;
  std::ranges::copy_if(caches, std::back_inserter(found),
                       [](const CacheSpec& cache) { return cache.kind == CacheKind::kState; });
  return found;
}

bool has_window_half(std::span<const CacheSpec> caches) {
  const auto is_of = [](CacheKind kind) {
    return [kind](const CacheSpec& cache) { return cache.kind == kind; };
  };
  const auto windowed = std::ranges::count_if(caches, is_of(CacheKind::kWindow));
  const auto states = std::ranges::count_if(caches, is_of(CacheKind::kState));
  return windowed > 0 && windowed + states < std::ssize(caches);
}

int widest_window_left(std::span<const CacheSpec> caches) {
  int widest = 0;
  for (const CacheSpec& cache : caches) widest = std::max(widest, cache.window_left);
  return widest;
}

}  // namespace attend
