// An HTTP request, and where its answer goes: all that the API knows of HTTP.
#pragma once

#include <chrono>
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
  // The client is cut off: it gets no answer, or no more of it. Takes no memory.
  virtual void drop() noexcept = 0;

  // Called once when the client goes, or is dropped, before the answer has ended. Does not throw.
  std::function<void()> on_gone;
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
