// HTTP request and the response to it. Protocols use HTTP only through this interface.
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
  std::string query;  // as sent by the client
  std::string body;
  // Headers; empty if absent. `api_key`: x-api-key.
  std::string authorization, api_key, content_type, request_id, traceparent;
  bool has_anthropic_version = false;  // has the header that clients of Anthropic's API send
  bool is_foreign = false;             // sent by a web page of an origin that is not allowed
};

using Headers = std::vector<std::pair<std::string, std::string>>;

// Usage: either reply(), or begin_stream(), write() and end_stream(), on the I/O thread. After the client has
// disconnected, all calls have no effect. A call that throws because memory has run out has had no effect.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void reply(int status, std::string_view content_type, std::string body, Headers headers = {}) = 0;
  virtual void begin_stream(std::string_view content_type, Headers headers = {}) = 0;
  virtual void write(std::string_view part) = 0;
  virtual void end_stream() = 0;
  // Ends the exchange when memory has run out. The client receives a preallocated 503 response, or no more of
  // a response that was started. Allocates no memory.
  virtual void abandon() noexcept = 0;

  // Called once if the client disconnects (status 499, as in nginx) or the exchange is abandoned (503) before
  // the response is complete.
  std::function<void(int status)> on_disconnect;
};

// Counters of the server.
struct HttpMetrics {
  int num_active_requests = 0;
  int64_t num_requests = 0;
  int64_t num_connections = 0;
  int64_t num_writes = 0;  // writes to sockets; each contains all pending bytes of a connection
};

// Runs tasks on the I/O thread and on worker threads.
class Executor {
 public:
  virtual ~Executor() = default;
  // Runs the task on the I/O thread after a delay. May be called from any thread.
  virtual void after(std::chrono::milliseconds delay, std::function<void()> task) = 0;
  // Runs the task on a worker thread. The task must not throw.
  virtual void work(std::function<void()> task) = 0;
  // Sets the task that runs on the I/O thread after wake(); several wake() calls may be merged into one run.
  // The task must not throw. Set once, before the first wake().
  virtual void on_wake(std::function<void()> task) = 0;
  // May be called from any thread. Allocates no memory.
  virtual void wake() noexcept = 0;
};

}  // namespace attend::serve
