#include "attend/kv/storage/cache_storage.h"

namespace attend {

std::unique_ptr<SwaSlots> make_window_slots(const KvPoolConfig& config) {
  const auto* const halves = std::get_if<SwaKvPool::Config>(&config);
  if (halves == nullptr) return nullptr;
  return std::make_unique<SwaSlots>(halves->full.page_size, halves->full.num_pages, halves->swa.num_pages);
}

CacheStorage::CacheStorage(const KvPoolConfig& config, const CacheTables& tables, Device device)
    : rows_(tables.rows, device) {
  if (tables.window_slots != nullptr) columns_.push_back(&slot_map_.emplace(*tables.window_slots, device));
  pool_ = make_kv_pool(config, slot_map_ ? slot_map_->slot_map() : TensorView());
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
