// An HTTP request, and where its answer goes: all that protocols know of HTTP.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attend::serve {

struct HttpRequest {
  std::string method;
  std::string path;   // decoded, without the query
  std::string query;  // as it was sent
  std::string body;
  std::string authorization, content_type, request_id, traceparent;  // of headers; empty where there is none
};

using Headers = std::vector<std::pair<std::string, std::string>>;

// Either reply(), or begin_stream(), write() and end_stream(). On the I/O thread. When the client has gone,
// nothing of it does anything. What throws, as there is no memory, has done nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void reply(int status, std::string_view content_type, std::string body, Headers headers = {}) = 0;
  virtual void begin_stream(std::string_view content_type, Headers headers = {}) = 0;
  virtual void write(std::string_view part) = 0;
  virtual void end_stream() = 0;
  // Ends it where there is no memory to go on: the client gets 503, whose bytes are there already, or if it
  // has a part of an answer, no more of it. Takes no memory.
  virtual void abandon() noexcept = 0;

  // Called once when the client goes (status 499, as nginx has it) or the exchange is abandoned (503), before
  // the answer has ended.
  std::function<void(int status)> on_gone;
};

// What the server counts.
struct HttpMetrics {
  int num_active_requests = 0;
  int64_t num_requests = 0;
  int64_t num_connections = 0;
  int64_t num_writes = 0;  // each of all that a connection had to send at a time
};

// Where work is done.
class Executor {
 public:
  virtual ~Executor() = default;
  // On the I/O thread, later. From any thread.
  virtual void after(std::chrono::milliseconds delay, std::function<void()> task) = 0;
  // On one of the worker threads. The task does not throw.
  virtual void work(std::function<void()> task) = 0;
  // `task` runs on the I/O thread behind each wake(), once for several. It does not throw. Set once, at
  // first.
  virtual void on_wake(std::function<void()> task) = 0;
  // From any thread. Takes no memory.
  virtual void wake() noexcept = 0;
};

}  // namespace attend::serve
