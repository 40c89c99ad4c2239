#include "attend/kv/kv_pool_config.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "attend/base/error.h"
#include "attend/kv/swa_kv_pool.h"

namespace attend {
namespace {

struct PoolMaker {
  TensorView slot_map;

  std::unique_ptr<KvPool> operator()(const MhaKvPool::Config& config) const {
    return std::make_unique<MhaKvPool>(config);
  }
  std::unique_ptr<KvPool> operator()(const MlaKvPool::Config& config) const {
    return std::make_unique<MlaKvPool>(config);
  }
  std::unique_ptr<KvPool> operator()(const SwaKvPoolConfig& config) const {
    return std::make_unique<SwaKvPool>(config, slot_map);
  }
};

struct PoolBytes {
  size_t operator()(const MhaKvPool::Config& config) const { return MhaKvPool::num_bytes(config); }
  size_t operator()(const MlaKvPool::Config& config) const { return MlaKvPool::num_bytes(config); }
  size_t operator()(const SwaKvPoolConfig& config) const { return SwaKvPool::num_bytes(config); }
};

struct PageSetter {
  int num_pages;

  void operator()(MhaKvPool::Config& config) const { config.num_pages = num_pages; }
  void operator()(MlaKvPool::Config& config) const { config.num_pages = num_pages; }
  void operator()(SwaKvPoolConfig& config) const { SwaKvPool::set_num_pages(config, num_pages); }
};

struct ScaleSetter {
  std::span<const KvScales> scales;

  void operator()(MhaKvPool::Config& config) const { config.scales.assign(scales.begin(), scales.end()); }
  void operator()(MlaKvPool::Config& config) const {
    config.scales.clear();
    for (const KvScales& each : scales) {
      require(each.k == each.v, "k_scale ", each.k, " and v_scale ", each.v, " of layer ",
              config.scales.size(), ": K and V share a row here, so expected one scale");
      config.scales.push_back(each.k);
    }
  }
  void operator()(SwaKvPoolConfig& config) const {
    config.full.scales.clear();
    config.swa.scales.clear();
    for (size_t i = 0; i < scales.size(); ++i)
      (config.windowed.at(i) ? config.swa : config.full).scales.push_back(scales[i]);
  }
};

struct LayerCounter {
  int operator()(const MhaKvPool::Config& config) const { return config.num_layers; }
  int operator()(const MlaKvPool::Config& config) const { return config.num_layers; }
  int operator()(const SwaKvPoolConfig& config) const { return static_cast<int>(config.windowed.size()); }
};

// Layers of the pool, by whether they are in a window group.
std::vector<bool> windowed_layers(std::span<const CacheSpec> caches) {
  std::vector<std::pair<int, bool>> layers;
  for (const CacheSpec& cache : caches)
    for (const int layer : cache.layers) layers.emplace_back(layer, cache.kind == CacheKind::kWindow);
  std::ranges::sort(layers);
  std::vector<bool> windowed;
  for (const auto& [layer, has_window] : layers) windowed.push_back(has_window);
  return windowed;
}

void check_alike(std::span<const CacheSpec> caches) {
  const CacheSpec& first = caches.front();
  for (const CacheSpec& cache : caches)
    if ((cache.kind == CacheKind::kLatent) != (first.kind == CacheKind::kLatent) ||
        cache.num_kv_heads != first.num_kv_heads || cache.head_dim_qk != first.head_dim_qk ||
        cache.head_dim_v != first.head_dim_v)
      fail(ErrorCode::kUnsupported, "layer ", cache.layers.front(), " stores ", cache.num_kv_heads,
           " heads of ", cache.head_dim_qk, "/", cache.head_dim_v, ", layer ", first.layers.front(),
           " stores ", first.num_kv_heads, " of ", first.head_dim_qk, "/", first.head_dim_v,
           ": one KV pool has layers that are alike");
}

}  // namespace

KvPoolConfig make_kv_pool_config(std::span<const CacheSpec> caches, int page_size, DType kv_dtype,
                                 Device device, const std::optional<SwaHalf>& swa) {
  require(!caches.empty(), "a model without attention layers has no KV pool");
  check_alike(caches);
  const CacheSpec& first = caches.front();
  std::vector<bool> windowed = windowed_layers(caches);
  const auto num_layers = static_cast<int>(windowed.size());
  if (first.kind == CacheKind::kLatent)
    return MlaKvPool::Config{.num_layers = num_layers,
                             .kv_lora_rank = first.head_dim_v,
                             .rope_dim = first.head_dim_qk - first.head_dim_v,
                             .page_size = page_size,
                             .num_pages = 0,
                             .dtype = kv_dtype,
                             .device = device,
                             .scales = {}};
  MhaKvPool::Config pool{
      .num_layers = num_layers,
      .num_kv_heads = first.num_kv_heads,
      .head_dim_qk = first.head_dim_qk,
      .head_dim_v = first.head_dim_v,
      .page_size = page_size,
      .num_pages = 0,
      .dtype = kv_dtype,
      .layout = device.type == DeviceType::kCuda ? KvLayout::kTokenMajor : KvLayout::kHeadMajor,
      .device = device,
      .scales = {}};
  if (!swa || !has_window_half(caches)) return pool;
  SwaKvPoolConfig halves{.full = pool,
                         .swa = pool,
                         .windowed = std::move(windowed),
                         .swa_full_tokens_ratio = swa->full_tokens_ratio,
                         .min_swa_tokens = swa->min_tokens};
  halves.swa.num_layers = static_cast<int>(std::ranges::count(halves.windowed, true));
  halves.full.num_layers = num_layers - halves.swa.num_layers;
  return halves;
}

std::unique_ptr<KvPool> make_kv_pool(const KvPoolConfig& config, const TensorView& slot_map) {
  return std::visit(PoolMaker{slot_map}, config);
}

size_t kv_pool_bytes(const KvPoolConfig& config) { return std::visit(PoolBytes{}, config); }

void set_num_pages(KvPoolConfig& config, int num_pages) { std::visit(PageSetter{num_pages}, config); }

void set_kv_scales(KvPoolConfig& config, std::span<const KvScales> scales) {
  const int num_layers = std::visit(LayerCounter{}, config);
  require(scales.empty() || std::ssize(scales) == num_layers, "scales of ", scales.size(),
          " layers: the pool has ", num_layers);
  std::visit(ScaleSetter{scales}, config);
}

double kv_page_bytes(KvPoolConfig config) {
  // Enough pages that what a ratio rounds up is nothing.
  constexpr int kFew = 2, kMany = kFew + 4096;
  set_num_pages(config, kFew);
  const auto few = static_cast<double>(kv_pool_bytes(config));
  set_num_pages(config, kMany);
  return (static_cast<double>(kv_pool_bytes(config)) - few) / (kMany - kFew);
}

}  // namespace attend
