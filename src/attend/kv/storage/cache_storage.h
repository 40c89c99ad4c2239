// CacheStorage: what one executor keeps for the cache groups of its model: K/V of its layers, and the tables
// by which its kernels find them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attend/kv/storage/cache_storage_config.h"
#include "attend/kv/storage/device_rows.h"
#include "attend/kv/swa_slots.h"

namespace attend {

// Bookkeeping of the cache groups, on the host. It belongs to the engine, and all executors of its models,
// target, draft or ranks, use the same rows and slots.
struct CacheTables {
  const ReqToTokenPool& rows;
  const SwaSlots* window_slots = nullptr;  // null: layers with a window keep all tokens
};

// Window slots of executors with a pool of this config; null unless it has a half for layers with a window.
std::unique_ptr<SwaSlots> make_window_slots(const CacheStorageConfig& config);

// Belongs to one executor's thread.
class CacheStorage {
 public:
  // `tables` outlive this; they have window slots if and only if the config has a half for layers with a
  // window, of the same sizes. Throws as make_kv_pool.
  CacheStorage(const CacheStorageConfig& config, const CacheTables& tables);

  KvPool& kv_pool() const { return *pool_; }
  // int32 [num_rows, max_context_len] on the device: what backends read.
  const TensorView& request_table() const { return rows_.table(); }
  // Arrays that step arrays have for the cache groups.
  std::span<StepColumn* const> columns() const { return columns_; }

  // Before each step: queues copying what the host has written since the last one, but for the slots of the
  // step's new tokens. Not for graphs: the copies are others each time, and mostly none.
  void upload_changes(Stream& stream);
  // At the start of each step, whose columns are uploaded: kernel launches only. `slots`: without those of
  // the window half.
  void write_new_slots(kernels::NewSlots slots, Stream& stream) const;

 private:
  DeviceRows rows_;
  std::optional<DeviceSlotMap> slot_map_;  // pools of two halves
  std::unique_ptr<KvPool> pool_;
  std::vector<StepColumn*> columns_;
};

}  // namespace attend
