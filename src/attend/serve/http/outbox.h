// Outbox: from the threads of the engine and the workers to the I/O thread. Nothing of it takes memory: where
// that has run out, whoever waits for an answer must still hear of it.
#pragma once

#include <memory>
#include <mutex>

#include "attend/serve/http/chain.h"
#include "attend/serve/http/exchange.h"

namespace attend::serve {

// Who is told on the I/O thread that something lies ready for it.
class Recipient : public Link<Recipient>, public std::enable_shared_from_this<Recipient> {
 public:
  virtual ~Recipient() = default;
  virtual void receive() noexcept = 0;
};

class Outbox {
 public:
  explicit Outbox(Executor& executor) : executor_(executor) {
    executor_.on_wake([this] { deliver(); });
  }

  // From any thread. The recipient is told once of what came up to then, behind those that were added before.
  // add() may wait for release(), so that what a step leaves crosses over at once.
  void add(Recipient& recipient) noexcept;
  void release() noexcept;
  void add_now(Recipient& recipient) noexcept {
    add(recipient);
    release();
  }

 private:
  void deliver() noexcept;
  bool is_empty() noexcept;

  Executor& executor_;
  std::mutex mutex_;
  Chain<Recipient> waiting_;
};

}  // namespace attend::serve
