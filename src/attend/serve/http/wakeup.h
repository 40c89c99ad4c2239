// Wakeup: runs a task on the I/O thread when any thread calls post(). Allocates no memory.
#pragma once

#include <atomic>
#include <utility>
//
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <functional>

#include "attend/serve/http/memory.h"

namespace attend::serve {

// Outlives the operations that the io_context holds of it.
class Wakeup {
 public:
  explicit Wakeup(boost::asio::io_context& io) : io_(io) {}
  // Sets the task, before the first post(). The task must not throw.
  void set_task(std::function<void()> task) { task_ = std::move(task); }

  // Runs the task once after all calls made so far.
  void post() noexcept {
    if (posted_.exchange(true)) return;
    boost::asio::post(io_.get_executor(), StoredHandler(memory_, [this] {
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
