#include "attend/text/tokenizer/word_cache.h"

#include <cstring>
#include <functional>

namespace attend::tokenizer {

class WordCache::Holder {
 public:
  explicit Holder(Slot& slot) : slot_(slot), held_(!slot.busy.exchange(true, std::memory_order_acquire)) {}
  ~Holder() {
    if (held_) slot_.busy.store(false, std::memory_order_release);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  bool held() const { return held_; }

 private:
  Slot& slot_;
  bool held_;
};

WordCache::WordCache() : slots_(std::make_unique<Slot[]>(kNumSlots)) {}

WordCache::Slot& WordCache::find_slot(std::string_view word) {
  return slots_[std::hash<std::string_view>{}(word) % kNumSlots];
}

bool WordCache::find(std::string_view word, std::vector<int32_t>& ids) {
  if (word.empty() || word.size() > kMaxWordBytes) return false;
  Slot& slot = find_slot(word);
  const Holder holder(slot);
  if (!holder.held() || slot.word_bytes != word.size()) return false;
  if (std::memcmp(slot.word.data(), word.data(), word.size()) != 0) return false;
  ids.insert(ids.end(), slot.ids.begin(), slot.ids.begin() + slot.num_ids);
  return true;
}

void WordCache::insert(std::string_view word, const std::vector<int32_t>& ids, size_t first_id) {
  const size_t num_ids = ids.size() - first_id;
  if (word.empty() || word.size() > kMaxWordBytes || num_ids > kMaxIds) return;
  Slot& slot = find_slot(word);
  const Holder holder(slot);
  if (!holder.held()) return;
  slot.word_bytes = static_cast<uint8_t>(word.size());
  slot.num_ids = static_cast<uint8_t>(num_ids);
  std::memcpy(slot.word.data(), word.data(), word.size());
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(first_id), ids.end(), slot.ids.begin());
}

}  // namespace attend::tokenizer
