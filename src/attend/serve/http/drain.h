// Drain: how a server ends after a signal. What is in hand may finish within a time; a second signal ends it
// at once.
#pragma once

#include <chrono>

#include "attend/serve/http/http_server.h"

namespace attend::serve {

// What answers requests, as far as ending it goes. On the I/O thread.
class Drainable {
 public:
  virtual ~Drainable() = default;
  // From now on nothing new is begun.
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
