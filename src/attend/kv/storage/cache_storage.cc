#include "attend/kv/storage/cache_storage.h"

#include "attend/base/error.h"

namespace attend {

std::unique_ptr<SwaSlots> make_window_slots(const CacheStorageConfig& config) {
  const int num_window_pages = config.num_window_pages();
  if (num_window_pages == 0) return nullptr;
  return std::make_unique<SwaSlots>(config.page_size, config.num_pages, num_window_pages);
}

CacheStorage::CacheStorage(const CacheStorageConfig& config, const CacheTables& tables)
    : rows_(tables.rows, config.device) {
  ensure((tables.window_slots != nullptr) == (config.num_window_pages() > 0),
         "window slots without a window half, or a window half without window slots");
  if (tables.window_slots != nullptr)
    columns_.push_back(&slot_map_.emplace(*tables.window_slots, config.device));
  pool_ = make_kv_pool(config, slot_map_ ? slot_map_->slot_map() : TensorView());
  ensure((tables.state_slots != nullptr) == config.has_states(),
         "state slots without states, or states without state slots");
  if (tables.state_slots == nullptr) return;
  ensure(config.states.num_slots == tables.state_slots->num_slots(), "a pool of ", config.states.num_slots,
         " states for ", tables.state_slots->num_slots(), " slots");
  states_.emplace(config.states);
  columns_.push_back(&state_loads_.emplace(*tables.state_slots));
  columns_.push_back(&state_saves_.emplace(*tables.state_slots));
  if (tables.state_slots->max_draft_reqs() == 0) return;
  columns_.push_back(&state_rows_.emplace(*tables.state_slots));
  columns_.push_back(&verified_tokens_.emplace());
}

StepStates CacheStorage::states() const {
  if (!states_) return {};
  StepStates states{
      .pool = &*states_, .load_slots = state_loads_->entries(), .save_slots = state_saves_->entries()};
  if (state_rows_) {
    states.rows = state_rows_->entries();
    states.verified_tokens = verified_tokens_->entries();
  }
  return states;
}

void CacheStorage::upload_changes(Stream& stream) {
  rows_.upload_shared(stream);
  if (slot_map_) slot_map_->upload_moved(stream);
}

void CacheStorage::write_new_slots(kernels::NewSlots slots, Stream& stream) const {
  if (slot_map_) {
    slots.swa_slots = slot_map_->entries();
    slots.slot_map = slot_map_->slot_map().as<int32_t>();
  }
  rows_.write_new_slots(slots, stream);
}

}  // namespace attend
