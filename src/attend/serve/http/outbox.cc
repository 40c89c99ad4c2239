#include "attend/serve/http/outbox.h"

#include "attend/serve/http/memory.h"

namespace attend::serve {

void Outbox::add(Recipient& recipient) noexcept {
  const std::lock_guard lock(mutex_);
  waiting_.add(recipient.shared_from_this());
}

bool Outbox::is_empty() noexcept {
  const std::lock_guard lock(mutex_);
  return waiting_.empty();
}

void Outbox::release() noexcept {
  if (!is_empty()) executor_.wake();
}

void Outbox::deliver() noexcept {
  while (true) {
    std::shared_ptr<Recipient> first;
    {
      const std::lock_guard lock(mutex_);
      first = waiting_.take_first();
    }
    if (!first) return;
    survive(first->exchange(), [&] { first->receive(); });
  }
}

}  // namespace attend::serve
