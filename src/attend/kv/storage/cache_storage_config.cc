#include "attend/kv/storage/cache_storage_config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kv/storage/grouped_kv_pool.h"
#include "attend/kv/window/swa_kv_pool.h"
#include "attend/kv/window/swa_slots.h"

namespace attend {
namespace {

// Calls value(cache) for the group of each layer of the pool, in the order of the layers.
template <class Value>
auto by_layer(std::span<const CacheSpec> caches, const Value& value) {
  std::vector<std::pair<int, const CacheSpec*>> layers;
  for (const CacheSpec& cache : caches)
    for (const int layer : cache.layers) layers.emplace_back(layer, &cache);
  std::ranges::sort(layers);
  std::vector<decltype(value(*layers[0].second))> values;
  for (const auto& [layer, cache] : layers) values.push_back(value(*cache));
  return values;
}

// Layers of the pool, by whether they are in a window group.
std::vector<bool> windowed_layers(std::span<const CacheSpec> caches) {
  return by_layer(caches, [](const CacheSpec& cache) { return cache.kind == CacheKind::kWindow; });
}

bool are_alike(const CacheSpec& a, const CacheSpec& b) {
  return (a.kind == CacheKind::kLatent) == (b.kind == CacheKind::kLatent) &&
         a.num_kv_heads == b.num_kv_heads && a.head_dim_qk == b.head_dim_qk && a.head_dim_v == b.head_dim_v;
}

bool is_windowed(const CacheSpec& cache) { return cache.kind == CacheKind::kWindow; }

// Layers of one half of a pool have the same geometry, and so have all layers with latent rows.
void check_alike(const CacheStorageConfig& config) {
  for (const CacheSpec& cache : config.caches)
    for (const CacheSpec& first : config.caches) {
      if (&first == &cache) break;
      const bool share_half = config.window_half && is_windowed(cache) == is_windowed(first);
      const bool is_latent = cache.kind == CacheKind::kLatent || first.kind == CacheKind::kLatent;
      if ((share_half || is_latent) && !are_alike(cache, first))
        fail(ErrorCode::kUnsupported, "layer ", cache.layers.front(), " stores ", cache.num_kv_heads,
             " heads of ", cache.head_dim_qk, "/", cache.head_dim_v, ", layer ", first.layers.front(),
             " stores ", first.num_kv_heads, " of ", first.head_dim_qk, "/", first.head_dim_v,
             ": all layers of ", share_half ? "a half of a KV pool" : "a pool of latent rows",
             " need the same geometry");
    }
}

bool has_latent_rows(const CacheStorageConfig& config) {
  return config.caches.front().kind == CacheKind::kLatent;
}
bool has_halves(const CacheStorageConfig& config) { return config.window_half.has_value(); }
bool has_geometries(const CacheStorageConfig& config) {
  return !std::ranges::all_of(config.caches,
                              [&](const CacheSpec& cache) { return are_alike(cache, config.caches[0]); });
}
bool serves_all(const CacheStorageConfig&) { return true; }

MlaKvPool::Config latent_pool(const CacheStorageConfig& config) {
  const CacheSpec& first = config.caches.front();
  MlaKvPool::Config pool{.num_layers = static_cast<int>(windowed_layers(config.caches).size()),
                         .kv_lora_rank = first.head_dim_v,
                         .rope_dim = first.head_dim_qk - first.head_dim_v,
                         .page_size = config.page_size,
                         .num_pages = config.num_pages,
                         .dtype = config.dtype,
                         .device = config.device,
                         .scales = {}};
  for (const KvScales& scales : config.scales) pool.scales.push_back(scales.k);
  pool.index_dims = by_layer(config.caches, [](const CacheSpec& cache) { return cache.index_dim; });
  return pool;
}

// Pool of all layers with the geometry of `cache`.
MhaKvPool::Config whole_pool(const CacheStorageConfig& config, const CacheSpec& cache) {
  return {.num_layers = static_cast<int>(windowed_layers(config.caches).size()),
          .num_kv_heads = cache.num_kv_heads,
          .head_dim_qk = cache.head_dim_qk,
          .head_dim_v = cache.head_dim_v,
          .page_size = config.page_size,
          .num_pages = config.num_pages,
          .dtype = config.dtype,
          .layout = config.device.type == DeviceType::kCuda ? KvLayout::kTokenMajor : KvLayout::kHeadMajor,
          .device = config.device,
          .scales = config.scales};
}

SwaKvPool::Config halved_pool(const CacheStorageConfig& config) {
  const auto& windowed = *std::ranges::find_if(config.caches, is_windowed);
  const auto& full = *std::ranges::find_if_not(config.caches, is_windowed);
  SwaKvPool::Config pool{.full = whole_pool(config, full),
                         .swa = whole_pool(config, windowed),
                         .windowed = windowed_layers(config.caches)};
  pool.swa.num_layers = static_cast<int>(std::ranges::count(pool.windowed, true));
  pool.full.num_layers -= pool.swa.num_layers;
  pool.swa.num_pages = config.num_window_pages();
  pool.full.scales.clear();
  pool.swa.scales.clear();
  for (size_t i = 0; i < config.scales.size(); ++i)
    (pool.windowed.at(i) ? pool.swa : pool.full).scales.push_back(config.scales[i]);
  return pool;
}

// One group per cache group: groups that are alike need no common pool.
GroupedKvPool::Config grouped_pool(const CacheStorageConfig& config) {
  GroupedKvPool::Config pool{.groups = {},
                             .layer_groups = by_layer(config.caches, [&](const CacheSpec& cache) {
                               return static_cast<int>(&cache - config.caches.data());
                             })};
  for (const CacheSpec& cache : config.caches) {
    pool.groups.push_back(whole_pool(config, cache));
    pool.groups.back().num_layers = static_cast<int>(cache.layers.size());
    pool.groups.back().scales.clear();
  }
  for (size_t layer = 0; layer < config.scales.size(); ++layer)
    pool.groups[static_cast<size_t>(pool.layer_groups[layer])].scales.push_back(config.scales[layer]);
  return pool;
}

// Kinds of pools. The first one that supports a config is used.
struct PoolKind {
  bool (*serves)(const CacheStorageConfig&);
  size_t (*num_bytes)(const CacheStorageConfig&);
  std::unique_ptr<KvPool> (*make)(const CacheStorageConfig&, const TensorView& slot_map);
};

constexpr PoolKind kPoolKinds[] = {
    {.serves = has_latent_rows,
     .num_bytes = [](const CacheStorageConfig& config) { return MlaKvPool::num_bytes(latent_pool(config)); },
     .make = [](const CacheStorageConfig& config, const TensorView&) -> std::unique_ptr<KvPool> {
       return std::make_unique<MlaKvPool>(latent_pool(config));
     }},
    {.serves = has_halves,
     .num_bytes =
         [](const CacheStorageConfig& config) {
           return SwaKvPool::num_bytes(halved_pool(config)) +
                  SwaSlots::num_bytes(config.page_size, config.num_pages);
         },
     .make = [](const CacheStorageConfig& config, const TensorView& slot_map) -> std::unique_ptr<KvPool> {
       return std::make_unique<SwaKvPool>(halved_pool(config), slot_map);
     }},
    {.serves = has_geometries,
     .num_bytes =
         [](const CacheStorageConfig& config) { return GroupedKvPool::num_bytes(grouped_pool(config)); },
     .make = [](const CacheStorageConfig& config, const TensorView&) -> std::unique_ptr<KvPool> {
       return std::make_unique<GroupedKvPool>(grouped_pool(config));
     }},
    {.serves = serves_all,
     .num_bytes =
         [](const CacheStorageConfig& config) {
           return MhaKvPool::num_bytes(whole_pool(config, config.caches.front()));
         },
     .make = [](const CacheStorageConfig& config, const TensorView&) -> std::unique_ptr<KvPool> {
       return std::make_unique<MhaKvPool>(whole_pool(config, config.caches.front()));
     }},
};

const PoolKind& pool_kind(const CacheStorageConfig& config) {
  return *std::ranges::find_if(kPoolKinds, [&](const PoolKind& kind) { return kind.serves(config); });
}

}  // namespace

int CacheStorageConfig::num_window_pages() const {
  if (!window_half) return 0;
  const int by_ratio = static_cast<int>(std::ceil(window_half->full_tokens_ratio * (num_pages - 1)));
  const int needed = ceil_div(window_half->min_tokens, page_size);
  return std::min(num_pages - 1, std::max(by_ratio, needed)) + 1;
}

size_t CacheStorageConfig::num_bytes() const { return pool_kind(*this).num_bytes(*this); }

double CacheStorageConfig::page_bytes() const {
  // Large enough that rounding of the ratio is negligible.
  constexpr int kFew = 2, kMany = kFew + 4096;
  CacheStorageConfig config = *this;
  config.num_pages = kFew;
  const auto few = static_cast<double>(config.num_bytes());
  config.num_pages = kMany;
  return (static_cast<double>(config.num_bytes()) - few) / (kMany - kFew);
}

size_t CacheStorageConfig::token_bytes() const {
  return static_cast<size_t>(page_bytes()) / static_cast<size_t>(page_size);
}

CacheStorageConfig make_cache_storage_config(const std::vector<CacheSpec>& caches, int page_size, DType dtype,
                                             Device device, const std::optional<SwaHalf>& swa) {
  CacheStorageConfig config{
      .caches = token_caches(caches), .page_size = page_size, .dtype = dtype, .device = device};
  config.states = {.caches = state_caches(caches), .device = device};
  require(!config.caches.empty(), "KV pool: the model has no attention layers");
  if (swa && has_window_half(config.caches)) {
    const double ratio = swa->full_tokens_ratio;
    require(ratio > 0.0 && ratio <= 1.0, "swa_full_tokens_ratio ", ratio, ": above 0 and at most 1");
    config.window_half = swa;
  }
  check_alike(config);
  return config;
}

void set_kv_scales(CacheStorageConfig& config, std::span<const KvScales> scales) {
  const size_t num_layers = windowed_layers(config.caches).size();
  require(scales.empty() || scales.size() == num_layers, "scales of ", scales.size(),
          " layers: the pool has ", num_layers);
  if (has_latent_rows(config))
    for (size_t layer = 0; layer < scales.size(); ++layer)
      require(scales[layer].k == scales[layer].v, "k_scale ", scales[layer].k, " and v_scale ",
              scales[layer].v, " of layer ", layer, ": expected equal scales, since K and V share a row");
  config.scales.assign(scales.begin(), scales.end());
}

std::unique_ptr<KvPool> make_kv_pool(const CacheStorageConfig& config, const TensorView& slot_map) {
  return pool_kind(config).make(config, slot_map);
}

}  // namespace attend
