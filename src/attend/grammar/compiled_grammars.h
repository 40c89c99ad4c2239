// CompiledGrammars: LRU cache of compiled grammars, bounded in bytes and in processes.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "attend/grammar/grammar_process.h"

namespace attend {

class CompiledGrammars {
 public:
  static constexpr size_t kMaxProcesses = 64;

  explicit CompiledGrammars(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Returns null if the key is not cached.
  std::shared_ptr<GrammarProcess> find(const std::string& key) {
    const auto found = entries_by_key_.find(key);
    if (found == entries_by_key_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->grammar;
  }

  void add(std::string key, std::shared_ptr<GrammarProcess> grammar) {
    const size_t num_bytes = key.size() + grammar->num_bytes();
    entries_.push_front({key, std::move(grammar), num_bytes});
    entries_by_key_[std::move(key)] = entries_.begin();
    num_bytes_ += num_bytes;
    while ((num_bytes_ > max_bytes_ || entries_.size() > kMaxProcesses) && entries_.size() > 1)
      remove(entries_.back().key);
  }

  // Removes and returns the least recently used one without a text, to be destroyed without a lock. Returns
  // null if all have texts.
  std::shared_ptr<GrammarProcess> take_idle() {
    for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
      if (entry->grammar.use_count() > 1) continue;
      std::shared_ptr<GrammarProcess> idle = entry->grammar;
      remove(std::string(entry->key));
      return idle;
    }
    return nullptr;
  }

  // Removes the grammars of processes that have ended.
  void remove_failed() {
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      const auto& [key, grammar, num_bytes] = *entry++;
      if (grammar->error()) remove(std::string(key));
    }
  }

  // Has no effect if the key is not cached.
  void remove(const std::string& key) {
    const auto found = entries_by_key_.find(key);
    if (found == entries_by_key_.end()) return;
    const auto entry = found->second;
    num_bytes_ -= entry->num_bytes;
    entries_by_key_.erase(found);
    entries_.erase(entry);
  }

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<GrammarProcess> grammar;
    size_t num_bytes;
  };
  size_t max_bytes_;
  size_t num_bytes_ = 0;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> entries_by_key_;
};

}  // namespace attend
