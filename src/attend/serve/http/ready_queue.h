// ReadyQueue: passes results from the threads of the engine and the workers to the I/O thread. It allocates
// no memory: when memory has run out, clients must still receive a response.
#pragma once

#include <memory>
#include <mutex>

#include "attend/serve/http/exchange.h"
#include "attend/serve/http/intrusive_list.h"

namespace attend::serve {

// Receives a call on the I/O thread when a result is ready.
class ReadyHandler : public ListHook<ReadyHandler>, public std::enable_shared_from_this<ReadyHandler> {
 public:
  explicit ReadyHandler(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  virtual ~ReadyHandler() = default;
  // If it throws because memory has run out, the exchange is abandoned.
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

  // May be called from any thread. The recipient is called once for all results added before the call, after
  // recipients that were added earlier. add() may delay the wake-up until release(), so that all outputs of a
  // step are passed together.
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
