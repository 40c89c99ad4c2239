// CacheStorage: storage of one executor for the cache groups of its model: K/V of its layers, and the tables
// that map tokens to them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attend/kv/state/state_pool.h"
#include "attend/kv/state/state_slots.h"
#include "attend/kv/storage/cache_storage_config.h"
#include "attend/kv/storage/device_rows.h"
#include "attend/kv/storage/device_slot_map.h"
#include "attend/kv/tier/page_bytes.h"
#include "attend/kv/window/swa_slots.h"

namespace attend {

// Bookkeeping of the cache groups, on the host. It belongs to the engine. All its executors (target, draft,
// ranks) use the same rows and slots.
struct CacheTables {
  const ReqToTokenPool& rows;
  const SwaSlots* window_slots = nullptr;   // null: sliding-window layers keep all tokens
  const StateSlots* state_slots = nullptr;  // null: the model has no recurrent states
};

// States of one executor, and the slots of the current step.
struct StepStates {
  const StatePool* pool = nullptr;             // null: the model has no recurrent states
  View<const int32_t> load_slots, save_slots;  // as in kernels::RecurrentBatch
  // Engines with speculation: RecurrentBatch::rows, and the tokens of requests with drafts, followed by
  // zeros.
  View<const int32_t> rows = {}, verified_tokens = {};
};

// Makes the window slots of executors with a pool of this config; null unless the pool has a window half.
std::unique_ptr<SwaSlots> make_window_slots(const CacheStorageConfig& config);

// Belongs to one executor's thread.
class CacheStorage {
 public:
  // `tables` must outlive this object. They have window slots if and only if the config has a window half, of
  // the same size, and state slots if and only if it has states, in the same number. Throws the errors of
  // make_kv_pool and StatePool.
  CacheStorage(const CacheStorageConfig& config, const CacheTables& tables);

  KvPool& kv_pool() const { return *pool_; }
  // int32 [num_rows, max_context_len] on the device, for backends.
  const TensorView& request_table() const { return rows_.table(); }
  // Valid after the columns of a step are set.
  StepStates states() const;
  // Columns that the cache groups add to step arrays.
  std::span<StepColumn* const> columns() const { return columns_; }

  // Addresses of the data of cached pages.
  CacheBytes page_bytes() const;

  // Queues copies of the host's changes since the last step, except the slots of the step's new tokens. Call
  // it before each step and outside of graphs: the copies differ in each step, and most steps have none.
  void upload_changes(Stream& stream);
  // Writes the slots of new tokens to the tables. Call it at the start of each step, after the upload of the
  // columns. Kernel launches only. `slots`: without those of the window half.
  void write_new_slots(kernels::NewSlots slots, Stream& stream) const;

 private:
  int num_kv_layers_ = 0;
  DeviceRows rows_;
  std::optional<DeviceSlotMap> slot_map_;  // pools of two halves
  std::unique_ptr<KvPool> pool_;
  std::optional<StatePool> states_;
  std::optional<StateLoadColumn> state_loads_;
  std::optional<StateSaveColumn> state_saves_;
  std::optional<StateRowColumn> state_rows_;            // engines with speculation
  std::optional<VerifiedTokenColumn> verified_tokens_;  // engines with speculation
  std::vector<StepColumn*> columns_;
};

}  // namespace attend
