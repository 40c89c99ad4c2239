#include "attend/engine/schedule/waiting_queue.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "attend/base/error.h"

namespace attend {
namespace {

// Maximum queue size for kLpm: each waiting request is matched with the cache in every step. A longer queue
// is first come, first served.
constexpr int kMaxMatched = 128;

}  // namespace

void WaitingQueue::push(std::unique_ptr<Request>&& request) {
  const Key key = priority_key(*request);
  const RequestId id = request->id;
  const auto [entry, added] = queue_.try_emplace(key, std::move(request));
  ensure(added, "waiting queue: two requests that arrived as number ", key.arrival);
  try {
    keys_.emplace(id, key);
  } catch (...) {
    request = std::move(entry->second);
    queue_.erase(entry);
    throw;
  }
  last_arrival_ = std::max(last_arrival_, key.arrival);
}

std::unique_ptr<Request> WaitingQueue::remove(RequestId id) {
  const auto key = keys_.find(id);
  if (key == keys_.end()) return nullptr;
  const auto found = queue_.find(key->second);
  std::unique_ptr<Request> request = std::move(found->second);
  queue_.erase(found);
  keys_.erase(key);
  std::erase_if(by_match_, [&](const auto& entry) { return entry.second == request.get(); });
  return request;
}

void WaitingQueue::order(const std::function<int(const Request&)>& num_matched) {
  by_match_.clear();
  if (policy_ != SchedulePolicy::kLpm || size() > kMaxMatched) return;
  for (auto entry = queue_.rbegin(); entry != queue_.rend(); ++entry) {
    const bool has_waited_long = last_arrival_ - entry->first.arrival >= kMaxOvertakes;
    by_match_.emplace_back(has_waited_long ? std::numeric_limits<int>::max() : num_matched(*entry->second),
                           entry->second.get());
  }
  std::stable_sort(by_match_.begin(), by_match_.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
}

Request* WaitingQueue::next() const { return by_match_.empty() ? front() : by_match_.back().second; }

WaitingQueue::Key WaitingQueue::priority_key(const Request& request) const {
  int64_t rank = 0;
  if (policy_ == SchedulePolicy::kPriority) rank = -int64_t{request.priority};
  if (policy_ == SchedulePolicy::kLof) rank = -int64_t{request.params.max_new_tokens};
  return {rank, request.arrival};
}

}  // namespace attend
