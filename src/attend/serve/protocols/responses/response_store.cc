#include "attend/serve/protocols/responses/response_store.h"

#include <iterator>
#include <utility>

namespace attend::serve {
namespace {

constexpr size_t kBytesPerEntry = 256;  // of containers

size_t num_bytes(const ResponseItem& item) { return item.id.size() + item.json.size() + kBytesPerEntry; }

}  // namespace

void ResponseStore::add(const std::string& id, std::string json, std::vector<ResponseItem> input,
                        std::vector<ResponseItem> output) {
  const std::lock_guard lock(mutex_);
  if (const auto same = by_id_.find(id); same != by_id_.end()) drop(same->second);
  const auto stored = std::make_shared<StoredResponse>();
  const size_t num_items = input.size() + output.size();
  const size_t num_own_bytes =
      json.size() + num_items * sizeof(std::shared_ptr<const ResponseItem>) + kBytesPerEntry;
  stored->json = std::move(json);
  stored->num_input = input.size();
  stored->items.reserve(num_items);
  entries_.push_front({id, stored, num_own_bytes});
  num_bytes_ += num_own_bytes;
  size_t num_all_bytes = num_own_bytes;
  try {
    by_id_[entries_.front().id] = entries_.begin();
    for (std::vector<ResponseItem>* list : {&input, &output})
      for (ResponseItem& item : *list) {
        num_all_bytes += serve::num_bytes(item);
        stored->items.push_back(share(std::move(item)));
      }
  } catch (...) {
    drop(entries_.begin());
    throw;
  }
  if (num_all_bytes > limits_.max_bytes) return drop(entries_.begin());
  while (entries_.size() > limits_.max_responses || num_bytes_ > limits_.max_bytes)
    drop(std::prev(entries_.end()));
}

std::shared_ptr<const StoredResponse> ResponseStore::find(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->response;
}

std::shared_ptr<const ResponseItem> ResponseStore::find_item(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto [first, last] = items_.equal_range(id);
  for (auto found = first; found != last; ++found)
    if (found->second.item->has_server_id && !found->second.is_erased) return found->second.item;
  return nullptr;
}

bool ResponseStore::erase(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return false;
  const StoredResponse& response = *found->second->response;
  for (size_t i = response.num_input; i < response.items.size(); ++i) {
    const auto [first, last] = items_.equal_range(response.items[i]->id);
    for (auto shared = first; shared != last; ++shared)
      if (shared->second.item == response.items[i]) shared->second.is_erased = true;
  }
  drop(found->second);
  return true;
}

size_t ResponseStore::num_responses() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

size_t ResponseStore::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return num_bytes_;
}

std::shared_ptr<const ResponseItem> ResponseStore::share(ResponseItem item) {
  const auto [first, last] = items_.equal_range(item.id);
  for (auto shared = first; shared != last; ++shared)
    if (shared->second.item->json == item.json) {
      ++shared->second.num_uses;
      return shared->second.item;
    }
  auto added = std::make_shared<const ResponseItem>(std::move(item));
  items_.emplace(added->id, SharedItem{added, 1});
  num_bytes_ += serve::num_bytes(*added);
  return added;
}

void ResponseStore::release(const ResponseItem& item) {
  const auto [first, last] = items_.equal_range(item.id);
  for (auto shared = first; shared != last; ++shared)
    if (shared->second.item.get() == &item) {
      if (--shared->second.num_uses > 0) return;
      num_bytes_ -= serve::num_bytes(item);
      items_.erase(shared);
      return;
    }
}

void ResponseStore::drop(Entries::iterator entry) {
  for (const auto& item : entry->response->items) release(*item);
  num_bytes_ -= entry->num_own_bytes;
  by_id_.erase(entry->id);
  entries_.erase(entry);
}

}  // namespace attend::serve
