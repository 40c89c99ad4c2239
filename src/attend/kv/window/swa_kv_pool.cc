#include "attend/kv/window/swa_kv_pool.h"

#include <algorithm>

#include "attend/base/error.h"

namespace attend {
namespace {

const SwaKvPool::Config& checked(const SwaKvPool::Config& config) {
  const auto num_windowed = std::count(config.windowed.begin(), config.windowed.end(), true);
  const auto num_full = static_cast<int64_t>(config.windowed.size()) - num_windowed;
  require(num_full == config.full.num_layers && num_windowed == config.swa.num_layers,
          "SwaKvPool: ", num_full, " full layers and ", num_windowed, " with a window: the halves have ",
          config.full.num_layers, " and ", config.swa.num_layers);
  require(config.full.page_size == config.swa.page_size && config.full.dtype == config.swa.dtype &&
              config.full.device == config.swa.device,
          "SwaKvPool: page_size ", config.swa.page_size, ", dtype ", config.swa.dtype, " on ",
          config.swa.device, " of the window half: the full half has ", config.full.page_size, ", ",
          config.full.dtype, " on ", config.full.device);
  return config;
}

std::vector<int> local_ids(const std::vector<bool>& windowed) {
  std::vector<int> ids;
  int num_full = 0, num_windowed = 0;
  for (const bool has_window : windowed) ids.push_back(has_window ? num_windowed++ : num_full++);
  return ids;
}

}  // namespace

SwaKvPool::SwaKvPool(const Config& config, const TensorView& slot_map)
    : KvPool(config.full.page_size, config.full.num_pages, config.full.dtype),
      config_(checked(config)),
      full_(config.full),
      swa_(config.swa),
      local_ids_(local_ids(config.windowed)),
      slot_map_(slot_map) {
  require(slot_map.rank == 1 && slot_map.shape[0] == num_slots() && slot_map.dtype == DType::kI32 &&
              slot_map.device == config.full.device,
          "SwaKvPool: slot map ", slot_map.to_string(), ": expected int32[", num_slots(), "] on ",
          config.full.device);
}

LayerKv SwaKvPool::layer(int layer_id) const {
  require(layer_id >= 0 && layer_id < static_cast<int>(local_ids_.size()), "layer ", layer_id,
          ": SwaKvPool has layers 0 to ", static_cast<int>(local_ids_.size()) - 1);
  const auto i = static_cast<size_t>(layer_id);
  if (!config_.windowed[i]) return full_.layer(local_ids_[i]);
  LayerKv kv = swa_.layer(local_ids_[i]);
  kv.slot_map = slot_map_.as<int32_t>();
  return kv;
}

TensorView SwaKvPool::latent(int layer_id) const {
  fail(ErrorCode::kUnsupported, "latent rows of layer ", layer_id,
       ": SwaKvPool stores K and V, only MlaKvPool has latent rows");
}

size_t SwaKvPool::bytes_per_token() const { return full_.bytes_per_token() + swa_.bytes_per_token(); }

size_t SwaKvPool::num_bytes(const Config& config) {
  return MhaKvPool::num_bytes(config.full) + MhaKvPool::num_bytes(config.swa);
}

}  // namespace attend
