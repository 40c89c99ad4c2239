#include "attend/serve/http/ready_queue.h"

#include "attend/serve/http/memory.h"

namespace attend::serve {

void ReadyQueue::add(ReadyHandler& handler) noexcept {
  const std::lock_guard lock(mutex_);
  waiting_.add(handler.shared_from_this());
}

bool ReadyQueue::is_empty() noexcept {
  const std::lock_guard lock(mutex_);
  return waiting_.empty();
}

void ReadyQueue::release() noexcept {
  if (!is_empty()) executor_.wake();
}

void ReadyQueue::deliver() noexcept {
  while (true) {
    std::shared_ptr<ReadyHandler> first;
    {
      const std::lock_guard lock(mutex_);
      first = waiting_.pop_front();
    }
    if (!first) return;
    run_guarded(first->exchange(), [&] { first->receive(); });
  }
}

}  // namespace attend::serve
