// HTTP/1.1 over TCP or a Unix socket: one I/O thread, any number of connections.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "attend/serve/http/exchange.h"
#include "attend/serve/json/json_text.h"

namespace attend::serve {

struct TlsOptions {
  std::string key_file, certificate_file;  // PEM, the certificate with its chain; both or none
  std::string key_password;
  std::string client_authority_file;  // PEM: clients must bring a certificate signed by one of these
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 30000;    // 0: any that is free
  std::string unix_socket;  // a path; wins over host and port
  TlsOptions tls;           // no files: connections are plain
  int num_workers = 2;
  int max_connections = 8192;
  uint32_t max_header_bytes = 32 << 10;
  uint64_t max_body_bytes = 64 << 20;
  size_t max_unsent_bytes = 8 << 20;  // of one connection: a client that reads slower is dropped
  std::chrono::milliseconds request_timeout{60'000};  // from a request's first byte to its last
  std::chrono::milliseconds idle_timeout{75'000};     // between requests
  std::chrono::milliseconds write_timeout{60'000};    // of 64 KiB at most
  bool log_access = false;                            // a line of JSON for each HTTP request that ended
  std::string cors_origins;  // value of Access-Control-Allow-Origin; empty: no such headers
  // Body of an answer to a request that is refused before it reaches the handler, or has no memory to be
  // answered; JSON.
  std::function<std::string(int status, std::string_view message)> error_body =
      [](int, std::string_view message) { return JsonText().text(message).take(); };
};

class HttpServer : public Executor {
 public:
  using Handler = std::function<void(HttpRequest, std::shared_ptr<Exchange>)>;

  // Listens; connections wait until run(). Throws Error(kInvalidArgument) for an address that can not be had,
  // and for files of TLS that can not be used.
  explicit HttpServer(const HttpOptions& options);
  ~HttpServer() override;

  // "http://127.0.0.1:30000", "https://127.0.0.1:30000", "unix:/run/attend.sock"
  const std::string& address() const;

  // Answers until stop(), on the calling thread; then no task runs any more and all clients are gone. What
  // the handler throws, as memory ran out, abandons its exchange. `on_signal`: called on the I/O thread for
  // each SIGTERM and SIGINT.
  void run(Handler handler, std::function<void()> on_signal);
  // No new connections, and connections close after the answer in hand. On the I/O thread.
  void stop_accepting();
  // Ends run(); whoever is connected is dropped. From any thread.
  void stop();

  HttpMetrics metrics() const;

  void after(std::chrono::milliseconds delay, std::function<void()> task) override;
  void work(std::function<void()> task) override;
  void on_wake(std::function<void()> task) override;
  void wake() noexcept override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attend::serve
