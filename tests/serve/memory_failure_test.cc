// Out-of-memory errors on the engine thread, the I/O thread or a worker of a server: one request fails or is
// cut off, the other requests and the server continue, and nothing leaks.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <future>
#include <thread>

#include "attend/base/log.h"
#include "attend/serve/http/http_server.h"
#include "attend/serve/http/memory.h"
#include "attend/serve/protocols/api.h"
#include "tests/support/count_allocations.h"

namespace attend::serve {
namespace {

using std::chrono::milliseconds;
using testing_support::allocation_has_failed;
using testing_support::fail_one_allocation_after;

// Fails only some allocations under AddressSanitizer, where each run is ten times slower.
#ifdef __SANITIZE_ADDRESS__
constexpr int64_t kStride = 13;
#else
constexpr int64_t kStride = 1;
#endif
const std::string kTinyModel = ATTEND_SOURCE_DIR "/models/attend-tiny";

EngineConfig memory_test_engine() {
  EngineConfig config;
  config.model_path = kTinyModel;
  config.context_length = 512;
  config.max_total_tokens = 4096;
  return config;
}

HttpOptions one_worker() {
  HttpOptions options;
  options.port = 0;
  options.num_workers = 1;
  return options;
}

ApiOptions tiny_api() {
  ApiOptions options;
  options.model_path = kTinyModel;
  options.served_names = {"tiny"};
  return options;
}

// Server of `attend serve` without its command line.
class ServerInMemory {
 public:
  ServerInMemory() {
    set_log_level(LogLevel::kError);
    runs_ = std::thread([this] {
      server_.run([this](HttpRequest request,
                         std::shared_ptr<Exchange> exchange) { api_.handle(std::move(request), exchange); },
                  [] {});
    });
  }
  ~ServerInMemory() {
    server_.stop();
    runs_.join();
    set_log_level(LogLevel::kInfo);
  }

  AsyncEngine& engine() { return engine_; }
  uint16_t port() const {
    const std::string& address = server_.address();
    uint16_t port = 0;
    std::from_chars(address.data() + address.rfind(':') + 1, address.data() + address.size(), port);
    return port;
  }
  // Runs `task` on the I/O thread (on_worker: on the worker thread) and returns its result.
  template <class Task>
  auto on_io_thread(Task task) {
    auto result = std::make_shared<std::promise<decltype(task())>>();
    server_.after(milliseconds(0), [=] { result->set_value(task()); });
    return result->get_future().get();
  }
  template <class Task>
  auto on_worker(Task task) {
    auto result = std::make_shared<std::promise<decltype(task())>>();
    server_.work([=] { result->set_value(task()); });
    return result->get_future().get();
  }
  // Runs `task` on the engine thread, in the callback of a request submitted for this purpose.
  template <class Task>
  auto on_engine_thread(Task task) {
    std::promise<decltype(task())> result;
    engine_.submit({.prompt = std::vector<int32_t>{5}, .params = {.max_new_tokens = 1, .ignore_eos = true}},
                   [&](const RequestOutput& output) {
                     if (output.finished()) result.set_value(task());
                   });
    return result.get_future().get();
  }
  size_t num_active() {
    return on_io_thread([this] { return api_.num_active(); });
  }

 private:
  AsyncEngine engine_{memory_test_engine()};
  HttpServer server_{one_worker()};
  Api api_{engine_, ChatTemplate::find(kTinyModel, ""),  ChatFormats(), GrammarOptions(), tiny_api(),
           server_, [this] { return server_.metrics(); }};
  std::thread runs_;
};

class Connection {
 public:
  explicit Connection(uint16_t port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval timeout{.tv_sec = 30, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~Connection() { ::close(socket_); }
  Connection(const Connection&) = delete;

  void send(const std::string& text) { ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL); }
  // Reads until the server closes the connection. A server that hangs fails the test.
  std::string read_all() {
    std::string all;
    char piece[4096];
    while (true) {
      const ssize_t count = recv(socket_, piece, sizeof piece, 0);
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        ADD_FAILURE() << "no end after " << all;
        return all;
      }
      if (count <= 0) return all;
      all.append(piece, static_cast<size_t>(count));
    }
  }

 private:
  int socket_;
};

std::string make_post(const std::string& path, const std::string& body) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

// Requests on different paths: streamed, not streamed, several completions with logprobs, and requests
// answered by workers.
const std::string kRequests[] = {
    make_post(
        "/v1/chat/completions",
        R"({"messages": [{"role": "user", "content": "copy: a [ sun fox ] b ->"}], "max_tokens": 8, "stream": true,
                "ignore_eos": true, "stream_options": {"include_usage": true}})"),
    make_post("/v1/completions",
              R"({"prompt": ["copy: sun", [5, 6, 7]], "max_tokens": 6, "n": 2, "logprobs": 2,
                "echo": true, "ignore_eos": true})"),
    make_post("/generate",
              R"({"text": "copy: sun", "sampling_params": {"max_new_tokens": 5, "ignore_eos": true},
                "stream": true, "return_logprob": true, "top_logprobs_num": 1})"),
    make_post("/tokenize", R"({"prompt": "copy: sun"})"),
    "GET /health_generate HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
};

bool is_complete(const std::string& answer) {
  if (!answer.starts_with("HTTP/1.1 200 ") || answer.find("\"error\"") != answer.npos) return false;
  return answer.find("chunked") == answer.npos ||
         (answer.find("[DONE]") != answer.npos && answer.ends_with("0\r\n\r\n"));
}
// Returns true if the answer reports a failure or is cut off.
bool is_failure(const std::string& answer) {
  return answer.find("out of memory") != answer.npos || answer.find("bad_alloc") != answer.npos ||
         answer.find("did not generate") != answer.npos ||
         answer.find("\"finish_reason\":\"error\"") != answer.npos || !answer.ends_with("0\r\n\r\n");
}

// Sends all requests while allocation number `num_good` of the thread that `on_thread` runs tasks on fails.
// At most `num_lost` requests may fail. Returns true if an allocation failed.
template <class OnThread>
bool one_allocation_fails(ServerInMemory& server, int64_t num_good, int num_lost, const OnThread& on_thread) {
  on_thread([num_good] {
    fail_one_allocation_after(num_good);
    return true;
  });
  std::vector<std::unique_ptr<Connection>> connections;
  for (const std::string& request : kRequests) {
    connections.push_back(std::make_unique<Connection>(server.port()));
    connections.back()->send(request);
  }
  int num_whole = 0;
  std::string lost;
  for (const auto& connection : connections) {
    const std::string answer = connection->read_all();
    num_whole += is_complete(answer);
    if (!is_complete(answer)) lost += "<" + answer + ">\n";
    EXPECT_TRUE(is_complete(answer) || is_failure(answer)) << num_good << ": " << answer;
  }
  const bool failed = on_thread([] {
    const bool has_failed = allocation_has_failed();
    fail_one_allocation_after(-1);
    return has_failed;
  });
  const int num_requests = static_cast<int>(std::size(kRequests));
  EXPECT_GE(num_whole, failed ? num_requests - num_lost : num_requests) << num_good << lost;
  return failed;
}

template <class OnThread>
void fail_each_allocation(ServerInMemory& server, int64_t stride, int num_lost, const OnThread& on_thread) {
  int num_failures = 0;
  for (int64_t num_good = 0; !testing::Test::HasFailure(); num_good += stride * kStride) {
    const bool failed = one_allocation_fails(server, num_good, num_lost, on_thread);
    Connection next(server.port());
    next.send(kRequests[0]);
    EXPECT_TRUE(is_complete(next.read_all())) << "after allocation " << num_good;
    EXPECT_TRUE(server.engine().drain(milliseconds(20'000)));
    EXPECT_EQ(server.num_active(), 0u) << num_good;
    EXPECT_EQ(server.engine().metrics().num_used_tokens, 0) << num_good;
    num_failures += failed;
    if (!failed) break;
  }
  EXPECT_GT(num_failures, 50 / kStride) << "too few allocations failed";
}

TEST(ServerMemory, SurvivesEachFailedAllocationOnTheIoThread) {
  ServerInMemory server;
  fail_each_allocation(server, 1, 1, [&](const auto& task) { return server.on_io_thread(task); });
}

// Handlers that throw bad_alloc; no engine.
TEST(ServerMemory, AnswersAHandlerOutOfMemoryWith503AndServesTheNext) {
  HttpOptions options = one_worker();
  options.error_paths = {"/own"};
  options.make_error = [](int status, std::string_view message, std::string_view path) {
    return HttpError{path.empty() ? status : 529,
                     Json(std::string(path) + " " + std::string(message)).dump()};
  };
  HttpServer server(options);
  int num_calls = 0;
  std::thread runs([&] {
    server.run(
        [&](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
          exchange->on_disconnect = [&](int status) { EXPECT_EQ(status, 503); };
          if (++num_calls <= 2) throw std::bad_alloc();
          if (num_calls == 3) exchange->begin_stream("text/plain");
          if (num_calls == 3) throw std::bad_alloc();
          exchange->reply(200, "text/plain", "served");
        },
        [] {});
  });
  const std::string& address = server.address();
  uint16_t port = 0;
  std::from_chars(address.data() + address.rfind(':') + 1, address.data() + address.size(), port);
  const auto answer = [&](const std::string& path) {
    Connection connection(port);
    connection.send("GET " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    return connection.read_all();
  };
  const std::string rejected = answer("/"), own = answer("/own/x?y");
  EXPECT_TRUE(rejected.starts_with("HTTP/1.1 503 ") && rejected.ends_with("\" out of memory\"")) << rejected;
  EXPECT_TRUE(own.starts_with("HTTP/1.1 529 Overloaded") && own.ends_with("\"/own out of memory\"")) << own;
  EXPECT_FALSE(answer("/").ends_with("0\r\n\r\n")) << "a stream that has started is cut off";
  EXPECT_TRUE(answer("/").ends_with("served"));
  server.stop();
  runs.join();
}

// Workers parse requests with Json, which may allocate in its destructor. attend serve keeps a memory reserve
// for that.
TEST(ServerMemory, SurvivesEachFailedAllocationOnAWorker) {
  const MemoryReserve reserve;
  ServerInMemory server;
  int num_spent = 0;
  fail_each_allocation(server, 3, 0, [&](const auto& task) {
    num_spent += MemoryReserve::is_released();
    return server.on_worker(task);
  });
  EXPECT_GT(num_spent, 50 / kStride);
  EXPECT_FALSE(MemoryReserve::is_released()) << "the next request acquires it again";
}

// All requests share a step, so that all of them may fail with it.
TEST(ServerMemory, SurvivesEachFailedAllocationOnTheEngineThread) {
  ServerInMemory server;
  fail_each_allocation(server, 3, static_cast<int>(std::size(kRequests)),
                       [&](const auto& task) { return server.on_engine_thread(task); });
}

}  // namespace
}  // namespace attend::serve
