// WaitingQueue: requests that wait for pages, in the order in which they are admitted.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attend/engine/request.h"
#include "attend/engine/schedule/schedule_policy.h"

namespace attend {

// Complexity: O(log n) for each operation; order() takes O(n) with kLpm, up to a limit of requests.
class WaitingQueue {
 public:
  // With kLpm: number of later arrivals after which a waiting request goes first.
  static constexpr int64_t kMaxOvertakes = 128;

  explicit WaitingQueue(SchedulePolicy policy) : policy_(policy) {}

  // Inserts the request after those with a smaller Request::arrival, so a preempted request returns to its
  // previous position. If memory runs out, push() throws and the caller keeps the request.
  void push(std::unique_ptr<Request>&& request);
  // Removes and returns a request; null if no request has this id.
  std::unique_ptr<Request> remove(RequestId id);
  // Returns the request that would be admitted last, null if the queue is empty.
  Request* last() const { return queue_.empty() ? nullptr : queue_.rbegin()->second.get(); }
  Request* front() const { return queue_.empty() ? nullptr : queue_.begin()->second.get(); }

  // Sorts by cached prefix, with kLpm and unless too many requests wait. Requests that kMaxOvertakes others
  // arrived after are first, the oldest of them first, so that no request starves. The others follow, the
  // longest cached prefix first; `num_matched` returns its number of tokens. The order is valid until the
  // queue changes by anything but remove().
  void order(const std::function<int(const Request&)>& num_matched);
  // Returns the request to admit next, null if the queue is empty.
  Request* next() const;

  void for_each(const std::function<void(Request&)>& visit) const {
    for (const auto& [key, request] : queue_) visit(*request);
  }
  int size() const { return static_cast<int>(queue_.size()); }
  bool empty() const { return queue_.empty(); }

 private:
  struct Key {
    int64_t rank;  // lower ones first
    int64_t arrival;
    auto operator<=>(const Key&) const = default;
  };
  Key priority_key(const Request& request) const;

  SchedulePolicy policy_;
  std::map<Key, std::unique_ptr<Request>> queue_;
  std::unordered_map<RequestId, Key> keys_;
  int64_t last_arrival_ = 0;                        // maximum of all requests so far
  std::vector<std::pair<int, Request*>> by_match_;  // the next request is last; empty: order of queue_
};

}  // namespace attend
