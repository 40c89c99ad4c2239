// ReadyQueue: from the threads of the engine and the workers to the I/O thread. Nothing of it takes memory:
// where that has run out, whoever waits for an answer must still get one.
#pragma once

#include <memory>
#include <mutex>

#include "attend/serve/http/exchange.h"
#include "attend/serve/http/intrusive_list.h"

namespace attend::serve {

// Has its turn on the I/O thread when something lies ready for it there.
class ReadyHandler : public ListHook<ReadyHandler>, public std::enable_shared_from_this<ReadyHandler> {
 public:
  explicit ReadyHandler(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  virtual ~ReadyHandler() = default;
  // What it throws, as memory ran out, abandons the exchange.
  virtual void receive() = 0;
  Exchange& exchange() const { return *exchange_; }

 private:
  std::shared_ptr<Exchange> exchange_;
};

class ReadyQueue {
 public:
  explicit ReadyQueue(Executor& executor) : executor_(executor) {
    executor_.on_wake([this] { deliver(); });
  }

  // From any thread. The recipient has one turn for what came up to then, after those that were added before.
  // add() may wait for release(), so that what a step leaves crosses over at once.
  void add(ReadyHandler& handler) noexcept;
  void release() noexcept;
  void add_now(ReadyHandler& handler) noexcept {
    add(handler);
    release();
  }

 private:
  void deliver() noexcept;
  bool is_empty() noexcept;

  Executor& executor_;
  std::mutex mutex_;
  IntrusiveList<ReadyHandler> waiting_;
};

}  // namespace attend::serve
