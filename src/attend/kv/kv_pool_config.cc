#include "attend/kv/kv_pool_config.h"

#include "attend/base/error.h"

namespace attend {
namespace {

struct PoolMaker {
  std::unique_ptr<KvPool> operator()(const MhaKvPool::Config& config) const {
    return std::make_unique<MhaKvPool>(config);
  }
  std::unique_ptr<KvPool> operator()(const MlaKvPool::Config& config) const {
    return std::make_unique<MlaKvPool>(config);
  }
  std::unique_ptr<KvPool> operator()(const SwaKvPool::Config& config) const {
    return std::make_unique<SwaKvPool>(config);
  }
};

struct PoolBytes {
  size_t operator()(const MhaKvPool::Config& config) const { return MhaKvPool::num_bytes(config); }
  size_t operator()(const MlaKvPool::Config& config) const { return MlaKvPool::num_bytes(config); }
  size_t operator()(const SwaKvPool::Config& config) const { return SwaKvPool::num_bytes(config); }
};

struct PageSetter {
  int num_pages;

  void operator()(MhaKvPool::Config& config) const { config.num_pages = num_pages; }
  void operator()(MlaKvPool::Config& config) const { config.num_pages = num_pages; }
  void operator()(SwaKvPool::Config& config) const { SwaKvPool::set_num_pages(config, num_pages); }
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
  void operator()(SwaKvPool::Config& config) const {
    config.full.scales.clear();
    config.swa.scales.clear();
    for (size_t i = 0; i < scales.size(); ++i)
      (config.windowed.at(i) ? config.swa : config.full).scales.push_back(scales[i]);
  }
};

struct LayerCounter {
  int operator()(const MhaKvPool::Config& config) const { return config.num_layers; }
  int operator()(const MlaKvPool::Config& config) const { return config.num_layers; }
  int operator()(const SwaKvPool::Config& config) const { return static_cast<int>(config.windowed.size()); }
};

}  // namespace

std::unique_ptr<KvPool> make_kv_pool(const KvPoolConfig& config) { return std::visit(PoolMaker{}, config); }

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
