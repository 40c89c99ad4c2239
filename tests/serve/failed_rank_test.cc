// A server whose engine has lost a rank: requests end with an error, and health checks fail.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <string>
#include <thread>

#include "attend/base/log.h"
#include "attend/serve/http/http_server.h"
#include "attend/serve/protocols/api.h"
#include "tests/support/failing_backend.h"

namespace attend::serve {
namespace failed_rank {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kModel = ATTEND_SOURCE_DIR "/models/attend-tiny";

// Sends a request and returns the answer with its headers.
std::string ask(const std::string& address, const std::string& method, const std::string& path,
                const std::string& body = "") {
  uint16_t port = 0;
  std::from_chars(address.data() + address.rfind(':') + 1, address.data() + address.size(), port);
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(connection, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  const std::string request =
      method + " " + path +
      " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) +
      "\r\n\r\n" + body;
  send(connection, request.data(), request.size(), MSG_NOSIGNAL);
  std::string answer;
  char piece[4096];
  for (ssize_t count = 0; (count = recv(connection, piece, sizeof piece, 0)) > 0;)
    answer.append(piece, static_cast<size_t>(count));
  close(connection);
  return answer;
}

TEST(FailedRank, FailsHealthChecksAndRequests) {
  test::plant({.phase = test::Fault::Phase::kLastLayer, .rank = 1, .step = 2});
  const BackendEntry failing = test::failing_backend();
  EngineConfig config;
  config.model_path = kModel;
  config.max_total_tokens = 512;
  config.tp_size = 2;
  config.backends = {&failing, 1};
  config.backend_options.attention_backend = "failing";
  AsyncEngine engine(config);
  HttpOptions http;
  http.port = 0;
  http.num_workers = 1;
  HttpServer server(http);
  ApiOptions options;
  options.model_path = kModel;
  options.served_names = {"tiny"};
  Api api(engine, ChatTemplate::find(kModel, ""), ChatFormats(), GrammarOptions(), options, server,
          [&] { return server.metrics(); });
  set_log_level(LogLevel::kError);
  std::thread runs([&] {
    server.run([&](HttpRequest request,
                   std::shared_ptr<Exchange> exchange) { api.handle(std::move(request), exchange); },
               [] {});
  });
  const std::string address = server.address(),
                    completion = R"({"prompt": "copy: sun", "max_tokens": 8, "ignore_eos": true})";
  EXPECT_THAT(ask(address, "GET", "/health"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(address, "POST", "/v1/completions", completion),
              AllOf(StartsWith("HTTP/1.1 500"), HasSubstr("rank 1: planted")));
  const auto is_unavailable = AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("rank 1: planted"));
  EXPECT_THAT(ask(address, "GET", "/health"), is_unavailable);
  EXPECT_THAT(ask(address, "GET", "/health_generate"), is_unavailable);
  EXPECT_THAT(ask(address, "POST", "/v1/completions", completion), is_unavailable);
  server.stop();
  runs.join();
  set_log_level(LogLevel::kInfo);
}

}  // namespace failed_rank
}  // namespace attend::serve
