// WordCache: bounded cache from short words to their token ids, shared by all threads that encode.
//
// Every word has one slot, chosen by its hash; the newest word of a slot wins. A slot in use by another
// thread counts as a miss, so no thread waits.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace attend::tokenizer {

class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 61;
  static constexpr size_t kMaxIds = 16;

  WordCache();

  // Appends the ids of the word and returns true if it is cached.
  bool find(std::string_view word, std::vector<int32_t>& ids);
  // Caches ids[first_id ...] for the word, if both are short enough.
  void insert(std::string_view word, const std::vector<int32_t>& ids, size_t first_id);

 private:
  static constexpr size_t kNumSlots = 8192;

  struct alignas(64) Slot {
    std::atomic<bool> busy{false};
    uint8_t word_bytes = 0;  // 0: empty slot
    uint8_t num_ids = 0;
    std::array<char, kMaxWordBytes> word;
    std::array<int32_t, kMaxIds> ids;
  };
  static_assert(sizeof(Slot) == 128);

  // Lock of a slot; fails if another thread holds it.
  class Holder;

  Slot& find_slot(std::string_view word);

  std::unique_ptr<Slot[]> slots_;
};

}  // namespace attend::tokenizer
