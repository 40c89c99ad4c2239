// Drain: shutdown of a server after a signal. Active requests may finish within a timeout; a second signal
// aborts them immediately.
#pragma once

#include <chrono>

#include "attend/serve/http/http_server.h"

namespace attend::serve {

// Service that can be shut down. Runs on the I/O thread.
class Drainable {
 public:
  virtual ~Drainable() = default;
  // Rejects new requests from now on.
  virtual void drain() = 0;
  // Number of requests that are being computed.
  virtual size_t num_active() const = 0;
  virtual void abort_all() = 0;
};

class Drain {
 public:
  Drain(HttpServer& server, Drainable& service, std::chrono::milliseconds timeout)
      : server_(server), service_(service), timeout_(timeout) {}

  void on_signal();

 private:
  using Clock = std::chrono::steady_clock;
  void wait() noexcept;

  HttpServer& server_;
  Drainable& service_;
  std::chrono::milliseconds timeout_;
  Clock::time_point deadline_;
  bool started_ = false;
};

}  // namespace attend::serve
