// Wakeup: a task that any thread can have run on the I/O thread, without taking memory.
#pragma once

#include <atomic>
#include <utility>
//
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <functional>

#include "attend/serve/http/memory.h"

namespace attend::serve {

// Outlives what the io_context has of it.
class Wakeup {
 public:
  explicit Wakeup(boost::asio::io_context& io) : io_(io) {}
  // Before the first post(). Does not throw.
  void set_task(std::function<void()> task) { task_ = std::move(task); }

  // The task runs once behind all calls up to then.
  void post() noexcept {
    if (posted_.exchange(true)) return;
    boost::asio::post(io_.get_executor(), KeptHandler(memory_, [this] {
                        posted_ = false;
                        task_();
                      }));
  }

 private:
  boost::asio::io_context& io_;
  std::function<void()> task_;
  OperationMemory memory_;
  std::atomic<bool> posted_ = false;
};

}  // namespace attend::serve
