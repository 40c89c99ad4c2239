// WaitingQueue: requests that wait for pages, in the order in which they are to have them.
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

// Every operation takes O(log n), order() O(n) up to a number and with kLpm alone.
class WaitingQueue {
 public:
  // With kLpm so many that came later may go before a request.
  static constexpr int64_t kMaxTimesOvertaken = 128;

  explicit WaitingQueue(SchedulePolicy policy) : policy_(policy) {}

  // Behind those that came before it: Request::arrival says when. A request that was preempted so takes its
  // old place. If memory is short it throws, and the caller still has it.
  void push(std::unique_ptr<Request>&& request);
  // Null if there is none of this id.
  std::unique_ptr<Request> take(RequestId id);
  // The request that would be last. Null in an empty queue.
  Request* last() const { return queue_.empty() ? nullptr : queue_.rbegin()->second.get(); }
  Request* front() const { return queue_.empty() ? nullptr : queue_.begin()->second.get(); }

  // With kLpm, unless too many wait: those that kMaxTimesOvertaken others have come behind since, the first
  // of them first, so that nobody waits for ever; then those with the longest cached prefixes, by
  // `num_matched`. Holds until the queue changes otherwise than by take().
  void order(const std::function<int(const Request&)>& num_matched);
  // Whose turn it is. Null in an empty queue.
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
  int64_t last_arrival_ = 0;                        // of all that ever waited
  std::vector<std::pair<int, Request*>> by_match_;  // the next one last; empty: as in queue_
};

}  // namespace attend
