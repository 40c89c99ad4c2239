// CompiledGrammars: LRU cache of compiled grammars, bounded in bytes.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "attend/grammar/xgrammar.h"

namespace attend {

class CompiledGrammars {
 public:
  explicit CompiledGrammars(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Returns null if the key is not cached.
  std::shared_ptr<const xgrammar::CompiledGrammar> find(const std::string& key) {
    const auto found = entries_by_key_.find(key);
    if (found == entries_by_key_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->grammar;
  }

  void add(std::string key, std::shared_ptr<const xgrammar::CompiledGrammar> grammar) {
    const size_t num_bytes = key.size() + grammar->num_bytes();
    entries_.push_front({key, std::move(grammar), num_bytes});
    entries_by_key_[std::move(key)] = entries_.begin();
    num_bytes_ += num_bytes;
    while (num_bytes_ > max_bytes_ && entries_.size() > 1) {
      num_bytes_ -= entries_.back().num_bytes;
      entries_by_key_.erase(entries_.back().key);
      entries_.pop_back();
    }
  }

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const xgrammar::CompiledGrammar> grammar;
    size_t num_bytes;
  };
  size_t max_bytes_;
  size_t num_bytes_ = 0;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> entries_by_key_;
};

}  // namespace attend
