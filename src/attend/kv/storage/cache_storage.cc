#include "attend/kv/storage/cache_storage.h"

#include <cstddef>

#include "attend/base/error.h"

namespace attend {

namespace {

int count_layers(std::span<const CacheSpec> caches) {
  size_t count = 0;
  for (const CacheSpec& cache : caches) count += cache.layers.size();
  return static_cast<int>(count);
}

// V of latent rows is a part of K.
bool is_part_of(const TensorView& v, const TensorView& k) {
  const auto* const first = static_cast<const std::byte*>(k.data);
  const auto* const other = static_cast<const std::byte*>(v.data);
  return other >= first && other < first + k.strides[0] * static_cast<int64_t>(size_of(k.dtype));
}

}  // namespace

std::unique_ptr<SwaSlots> make_window_slots(const CacheStorageConfig& config) {
  const int num_window_pages = config.num_window_pages();
  if (num_window_pages == 0) return nullptr;
  return std::make_unique<SwaSlots>(config.page_size, config.num_pages, num_window_pages);
}

CacheStorage::CacheStorage(const CacheStorageConfig& config, const CacheTables& tables)
    : num_kv_layers_(count_layers(config.caches)), rows_(tables.rows, config.device) {
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

CacheBytes CacheStorage::page_bytes() const {
  CacheBytes bytes;
  for (int i = 0; i < num_kv_layers_; ++i) {
    const LayerKv layer = pool_->layer(i);
    PageBytes& of_half =
        bytes[static_cast<size_t>(layer.slot_map != nullptr ? PageDataKind::kWindow : PageDataKind::kTokens)];
    of_half.add(layer.k);
    if (!is_part_of(layer.v, layer.k)) of_half.add(layer.v);
    if (const TensorView index_keys = pool_->index_keys(i); !index_keys.empty()) of_half.add(index_keys);
  }
  if (!states_) return bytes;
  for (int i = 0; i < states_->num_layers(); ++i)
    for (const TensorView& state : {states_->layer(i).recurrent, states_->layer(i).conv})
      if (!state.empty()) bytes[static_cast<size_t>(PageDataKind::kState)].add(state);
  return bytes;
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
