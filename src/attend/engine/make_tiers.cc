#include "attend/engine/make_tiers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/base/version.h"
#include "attend/checkpoint/json.h"
#include "attend/kv/tier/file_store.h"

namespace attend {
namespace {

constexpr double kGigabyte = 1e9;

// Hash of a tensor's name, type, shape and data.
PageHash hash_tensor(const CheckpointTensors& tensors, const std::string& name) {
  const TensorEntry& entry = tensors.entry(name);
  std::string text = name + '\n' + entry.dtype_name;
  for (const int64_t extent : entry.shape) text += ' ' + std::to_string(extent);
  PageHash data;
  if (entry.dtype) {
    const Tensor tensor = tensors.tensor(name);
    data = sha256({static_cast<const char*>(tensor.view().data), tensor.view().num_bytes()});
  } else {
    data = sha256(tensors.read(name));
  }
  return sha256(text + '\n' + data.hex());
}

// Hash of everything besides tokens that the bytes of K/V depend on. It covers the data of all weights, since
// models of one architecture differ in nothing else.
PageHash cache_identity(const EngineConfig& config, const EngineInfo& info, const Checkpoint& checkpoint) {
  const ExecutorInfo& target = info.target();
  std::string text = "attend " + std::string(version()) + '\n' + checkpoint.config().value().dump() + '\n';
  for (const std::string& part :
       {std::string(to_string(target.dtype)), std::string(to_string(target.kv_cache_dtype)),
        std::string(target.resolution.prefill->name), std::string(target.resolution.decode->name),
        std::to_string(info.page_size), std::to_string(info.context_length), std::to_string(config.tp_size),
        std::to_string(target.rounds_x), std::to_string(info.deterministic)})
    text += part + '\n';
  const std::shared_ptr<const CheckpointTensors> tensors = checkpoint.open_tensors();
  std::vector<std::string> names = tensors->names();
  std::ranges::sort(names);
  std::vector<PageHash> hashes(names.size());
  parallel_for(std::ssize(names), [&](int64_t i, int) {
    hashes[static_cast<size_t>(i)] = hash_tensor(*tensors, names[static_cast<size_t>(i)]);
  });
  for (const PageHash& hash : hashes) text += hash.hex() + '\n';
  return sha256(text);
}

HostTier::Config host_config(const HierarchicalCacheOptions& options, const EngineInfo& info,
                             const CacheBytes& bytes) {
  const std::array<int, kNumPageDataKinds> in_pool = {
      info.pool_slots / info.page_size, info.swa_pool_slots / info.page_size, info.num_state_snapshots};
  HostTier::Config host;
  double pool_bytes = 0.0;
  for (size_t kind = 0; kind < kNumPageDataKinds; ++kind) {
    host.cell_bytes[kind] = bytes[kind].num_bytes();
    pool_bytes += static_cast<double>(in_pool[kind]) * static_cast<double>(host.cell_bytes[kind]);
  }
  const double ratio = options.size_gb > 0.0 ? options.size_gb * kGigabyte / pool_bytes : options.ratio;
  for (size_t kind = 0; kind < kNumPageDataKinds; ++kind) {
    if (host.cell_bytes[kind] == 0) continue;
    const double cells = std::floor(ratio * in_pool[kind]);
    require(cells <= std::numeric_limits<int>::max() / 2,
            options.size_gb > 0.0 ? "hicache_size " : "hicache_ratio ",
            options.size_gb > 0.0 ? options.size_gb : options.ratio, ": ", cells, " pages are too many");
    host.num_cells[kind] = static_cast<int>(cells);
  }
  require(host.num_cells[0] > 0, options.size_gb > 0.0 ? "hicache_size " : "hicache_ratio ",
          options.size_gb > 0.0 ? options.size_gb : options.ratio, ": less than a page of ",
          host.cell_bytes[0], " bytes");
  return host;
}

}  // namespace

void check_hierarchical_cache(const EngineConfig& config, const ModelSpec& model, const EngineInfo& info) {
  const HierarchicalCacheOptions& options = config.hierarchical_cache;
  const bool has_disk = !options.storage_dir.empty();
  require(
      options.enabled || !has_disk,
      "hicache_storage_dir: requires enable_hierarchical_cache: pages reach the disk through the host tier");
  if (!options.enabled) return;
  require(info.prefix_cache.has_value(),
          "enable_hierarchical_cache: requires the prefix cache (no disable_radix_cache, no pooling)");
  require(options.ratio > 0.0 && std::isfinite(options.ratio), "hicache_ratio ", options.ratio,
          ": expected a number above 0");
  require(options.size_gb >= 0.0 && std::isfinite(options.size_gb), "hicache_size ", options.size_gb,
          ": expected gigabytes, 0 for hicache_ratio");
  require(options.storage_size_gb > 0.0 && options.storage_size_gb < 1e9, "hicache_storage_size ",
          options.storage_size_gb, ": expected gigabytes above 0");
  require(!has_disk || (config.load_format != LoadFormat::kDummy && !config.model),
          "hicache_storage_dir: requires a model directory with weights: stored pages are of one model");
  if (config.on_gpu())
    fail(ErrorCode::kUnsupported,
         "enable_hierarchical_cache: on CPUs only: copies between a GPU and page-locked host memory are not "
         "complete");
  if (info.speculation.algorithm && has_draft_head(*info.speculation.algorithm))
    fail(ErrorCode::kUnsupported,
         "enable_hierarchical_cache: not with a draft head, whose K/V the tiers do not keep");
  if (info.speculation.algorithm && model.has_states())
    fail(ErrorCode::kUnsupported, "enable_hierarchical_cache: not with speculation over recurrent states: ",
         "states of accepted tokens are written after their pages are cached");
}

std::unique_ptr<CacheTiers> make_tiers(const EngineConfig& config, EngineInfo& info,
                                       std::vector<PageData*> groups, const CacheBytes& bytes,
                                       const Stream& model, const Checkpoint* checkpoint) {
  const HierarchicalCacheOptions& options = config.hierarchical_cache;
  CacheTiers::Config tiers{.write_policy = options.write_policy,
                           .host = host_config(options, info, bytes),
                           .page_size = info.page_size,
                           .store = nullptr};
  tiers.host.device = model.device;
  info.num_host_cache_tokens = int64_t{tiers.host.num_cells[0]} * info.page_size;
  if (!options.storage_dir.empty()) {
    tiers.identity = cache_identity(config, info, *checkpoint);
    tiers.store = std::make_unique<FileStore>(
        FileStore::Config{.directory = options.storage_dir,
                          .max_bytes = static_cast<int64_t>(options.storage_size_gb * kGigabyte),
                          .identity = tiers.identity,
                          .page_size = info.page_size,
                          .data_bytes = tiers.host.cell_bytes});
  }
  return std::make_unique<CacheTiers>(std::move(tiers), std::move(groups), bytes, model);
}

}  // namespace attend
