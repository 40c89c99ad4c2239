// HTTP/1.1 server over TCP or a Unix socket: one I/O thread and any number of connections.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attend/base/parallel.h"
#include "attend/serve/http/exchange.h"
#include "attend/serve/json/json_text.h"

namespace attend::serve {

struct TlsOptions {
  std::string key_file, certificate_file;  // PEM files, the certificate with its chain; both or none
  std::string key_password;
  std::string client_authority_file;  // PEM file; clients must present a certificate signed by one of these
                                      // authorities
};

// Status and JSON body of a rejected request.
struct HttpError {
  int status;
  std::string body;
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 30000;    // 0: any free port
  std::string unix_socket;  // path of a Unix socket; overrides host and port
  TlsOptions tls;           // empty: connections are not encrypted
  int num_workers = std::clamp(num_available_cpus(), 4, 16);  // they read, tokenize and build replies
  int max_connections = 8192;
  uint32_t max_header_bytes = 32 << 10;
  uint64_t max_body_bytes = 64 << 20;
  size_t max_unsent_bytes = 8 << 20;  // per connection; a client that reads too slowly is disconnected
  std::chrono::milliseconds request_timeout{60'000};  // from the first to the last byte of a request
  std::chrono::milliseconds idle_timeout{75'000};     // between two requests
  std::chrono::milliseconds write_timeout{60'000};    // per 64 KiB at most
  bool log_access = false;                            // logs one line of JSON per finished HTTP request
  std::vector<std::string> cors_origins;              // see AllowedOrigins
  std::vector<std::string> allowed_hosts;             // see AllowedHosts; not checked on a Unix socket
  // Returns the response to a request that is rejected before it reaches the handler, or that the server has
  // no memory for. `path`: empty if unknown.
  std::function<HttpError(int status, std::string_view message, std::string_view path)> make_error =
      [](int status, std::string_view message, std::string_view) {
        return HttpError{status, JsonText().text(message).take()};
      };
  // Starts of paths with a format of their own: without memory, their errors are those that make_error()
  // returned when the server started.
  std::vector<std::string> error_paths;
};

class HttpServer : public Executor {
 public:
  using Handler = std::function<void(HttpRequest, std::shared_ptr<Exchange>)>;

  // Listens; connections wait until run(). Throws Error(kInvalidArgument) for an address that cannot be bound
  // and for TLS files that cannot be used.
  explicit HttpServer(const HttpOptions& options);
  ~HttpServer() override;

  // Address of the server: "http://127.0.0.1:30000", "https://127.0.0.1:30000" or "unix:/run/attend.sock".
  const std::string& address() const;

  // Passes signals to on_signal of run() from now on. Until then, a signal ends the process immediately.
  void defer_signals();
  // Serves requests on the calling thread until stop(). After it returns, no task runs and all clients are
  // disconnected. If the handler throws because memory has run out, its exchange is abandoned. `on_signal` is
  // called on the I/O thread for each SIGTERM and SIGINT; see ServerSignals. A signal before run() ends the
  // process.
  void run(Handler handler, std::function<void()> on_signal);
  // Accepts no new connections, and closes each connection after its current response. Called on the I/O
  // thread.
  void stop_accepting();
  // Ends run() and disconnects all clients. May be called from any thread.
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
