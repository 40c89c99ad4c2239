#include "attend/serve/http/http_server.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>
//
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <optional>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/serve/http/head_text.h"
#include "attend/serve/http/http_session.h"
#include "attend/serve/http/server_signals.h"

namespace attend::serve {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// Raises the limit of open files: each connection is a file, and the usual soft limit is 1,024.
void allow_many_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Runs a task that has no caller to catch its exceptions.
template <class Task>
void run_task(Task&& task) noexcept {
  try {
    task();
  } catch (const std::exception& error) {
    try_log_warning("a task failed: ", error.what());
  }
}

// Sets a flag until it is cleared or this object is destroyed.
class ScopedFlag {
 public:
  explicit ScopedFlag(bool& flag) : flag_(&flag) { flag = true; }
  ScopedFlag(ScopedFlag&& other) noexcept : flag_(std::exchange(other.flag_, nullptr)) {}
  ~ScopedFlag() { clear(); }
  void clear() noexcept {
    if (bool* const flag = std::exchange(flag_, nullptr)) *flag = false;
  }

 private:
  bool* flag_;
};

// Device and inode of the file at a path. They differ if the file is replaced by another one of the same
// name.
using FileId = std::pair<dev_t, ino_t>;
std::optional<FileId> file_id(const std::string& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return std::nullopt;
  return FileId{found.st_dev, found.st_ino};
}

// Returns true if no process listens on this socket file, because its server was killed.
bool is_stale_socket(asio::io_context& io, const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_socket(path, ignored)) return false;
  error_code error;
  asio::local::stream_protocol::socket visitor(io);
  visitor.open({}, error);
  visitor.non_blocking(true, error);  // a server with a full backlog counts as listening
  visitor.connect(asio::local::stream_protocol::endpoint(path), error);
  return error == asio::error::connection_refused;
}

void require_listening(const error_code& error, const std::string& what) {
  if (error) fail(ErrorCode::kInvalidArgument, what, ": cannot listen: ", error.message());
}

}  // namespace

struct HttpServer::Impl {
  explicit Impl(const HttpOptions& options) : workers(static_cast<size_t>(std::max(options.num_workers, 1))) {
    pool.options = options;
    pool.wakeup.set_task([this] { HttpSession::settle_all(pool); });
    pool.origins = AllowedOrigins(options.cors_origins);
    pool.tls = make_tls_context(options.tls);
    for (const std::string& path : options.error_paths) prepare_out_of_memory(path);
    prepare_out_of_memory("");
    allow_many_files();
    if (!options.unix_socket.empty())
      listen_at_path(options.unix_socket);
    else
      listen_at_port(options.host, options.port);
  }

  void prepare_out_of_memory(const std::string& path) {
    const HttpError error = pool.options.make_error(503, "out of memory", path);
    const std::string head =
        answer_head(error.status, "application/json",
                    {{"Retry-After", "1"}, {"Content-Length", std::to_string(error.body.size())}},
                    pool.origins.header_for(""), /*keep_alive=*/false);
    pool.out_of_memory.push_back({path, error.status, head + error.body});
  }

  void listen_at_port(const std::string& host, uint16_t port) {
    const std::string what = "--host " + host + " --port " + std::to_string(port);
    error_code error;
    asio::ip::tcp::resolver resolver(io);
    const auto found = resolver.resolve(host, std::to_string(port), asio::ip::tcp::resolver::passive, error);
    require_listening(error, what);
    const asio::ip::tcp::endpoint endpoint = found.begin()->endpoint();
    pool.hosts.emplace(pool.options.allowed_hosts, endpoint.address().is_loopback());
    auto& acceptor = tcp.emplace(io);
    acceptor.open(endpoint.protocol(), error);
    require_listening(error, what);
    acceptor.set_option(asio::socket_base::reuse_address(true), error);
    acceptor.bind(endpoint, error);
    require_listening(error, what);
    acceptor.listen(4096, error);
    require_listening(error, what);
    const std::string shown_host = endpoint.address().is_v6() ? "[" + endpoint.address().to_string() + "]"
                                                              : endpoint.address().to_string();
    address = (pool.tls ? "https://" : "http://") + shown_host + ":" +
              std::to_string(acceptor.local_endpoint().port());
  }

  void listen_at_path(const std::string& path) {
    error_code error;
    std::error_code ignored;
    require(path.size() < 100, "--unix-socket ", path, ": at most 99 bytes");
    if (is_stale_socket(io, path)) std::filesystem::remove(path, ignored);
    auto& acceptor = local.emplace(io);
    acceptor.open({}, error);
    require_listening(error, "--unix-socket " + path);
    acceptor.bind(asio::local::stream_protocol::endpoint(path), error);
    require_listening(error, "--unix-socket " + path);
    acceptor.listen(4096, error);
    require_listening(error, "--unix-socket " + path);
    socket_file = file_id(path);
    signals.set_socket_file(path);
    address = "unix:" + path;
  }

  template <class Acceptor>
  void accept(Acceptor& acceptor) {
    auto on_accept = [this, &acceptor, flag = ScopedFlag(accepting)](error_code error, auto socket) mutable {
      flag.clear();
      if (error == asio::error::operation_aborted || !acceptor.is_open()) return;
      if (error) return accept_later(acceptor);
      ++pool.metrics.num_connections;
      run_task([&] { admit(std::move(socket)); });
      accept(acceptor);
    };
    acceptor.async_accept(StoredHandler(accept_memory, std::move(on_accept)));
  }

  // Mostly out of file descriptors: retries later, when connections have been closed.
  template <class Acceptor>
  void accept_later(Acceptor& acceptor) {
    retry.expires_after(std::chrono::milliseconds(100));
    retry.async_wait(StoredHandler(
        accept_memory, [this, &acceptor, flag = ScopedFlag(accepting)](error_code aborted) mutable {
          flag.clear();
          if (!aborted) accept(acceptor);
        }));
  }

  // Does nothing if an accept is pending.
  void keep_accepting() {
    if (accepting) return;
    if (tcp && tcp->is_open()) accept(*tcp);
    if (local && local->is_open()) accept(*local);
  }

  template <class Socket>
  void admit(Socket socket) {
    if (static_cast<int>(pool.sessions.size()) >= pool.options.max_connections) return;
    if constexpr (std::is_same_v<Socket, asio::ip::tcp::socket>) {
      error_code ignored;
      socket.set_option(asio::ip::tcp::no_delay(true), ignored);
    }
    const auto session = std::make_shared<HttpSession>(Transport::Socket(std::move(socket)), pool);
    pool.sessions.insert(session);
    session->start();
  }

  void wait_for_signals() {
    signaled.async_wait(asio::posix::stream_descriptor::wait_read,
                        StoredHandler(signal_memory, [this](error_code error) {
                          if (error) return;
                          for (int left = signals.take(); left > 0; --left) run_task(on_signal);
                          wait_for_signals();
                        }));
  }

  ~Impl() { signaled.release(); }  // the descriptor belongs to `signals`

  void close_acceptors() {
    error_code ignored;
    if (tcp) tcp->close(ignored);
    if (local) local->close(ignored);
    retry.cancel();
    // Keeps the file if another server has replaced it.
    const std::string& path = pool.options.unix_socket;
    if (const auto own = std::exchange(socket_file, std::nullopt); own && own == file_id(path))
      ::unlink(path.c_str());
    signals.set_socket_file({});
  }

  // Outlives the operations of `io` that refer to it.
  OperationMemory accept_memory, signal_memory;
  bool accepting = false;
  std::function<void()> on_signal;
  SessionPool pool{io};
  Wakeup wakeup{io};  // for Executor
  asio::io_context io{1};
  asio::thread_pool workers;
  std::optional<asio::ip::tcp::acceptor> tcp;
  std::optional<asio::local::stream_protocol::acceptor> local;
  std::optional<FileId> socket_file;  // socket file of `local`
  asio::steady_timer retry{io};
  ServerSignals signals;
  asio::posix::stream_descriptor signaled{io};
  std::string address;
};

HttpServer::HttpServer(const HttpOptions& options) : impl_(std::make_unique<Impl>(options)) {}

HttpServer::~HttpServer() { impl_->close_acceptors(); }

const std::string& HttpServer::address() const { return impl_->address; }

void HttpServer::defer_signals() { impl_->signals.serve(); }

void HttpServer::run(Handler handler, std::function<void()> on_signal) {
  impl_->pool.handler = std::move(handler);
  impl_->on_signal = std::move(on_signal);
  impl_->signaled.assign(impl_->signals.descriptor());
  impl_->wait_for_signals();
  while (!impl_->io.stopped()) try {
      impl_->keep_accepting();
      impl_->io.run();
    } catch (const std::exception& error) {
      // Exceptions of Asio itself, for a connection that it has no memory for.
      try_log_warning("a connection is rejected: ", error.what());
    }
  impl_->workers.stop();
  impl_->workers.join();
  while (!impl_->pool.sessions.empty()) (*impl_->pool.sessions.begin())->close();
  HttpSession::settle_all(impl_->pool);
}

void HttpServer::stop_accepting() {
  impl_->close_acceptors();
  impl_->pool.closing = true;
  const auto sessions = impl_->pool.sessions;
  for (const auto& session : sessions)
    if (!session->is_busy()) session->close();
}

void HttpServer::stop() { impl_->io.stop(); }

HttpMetrics HttpServer::metrics() const { return impl_->pool.metrics; }

void HttpServer::after(std::chrono::milliseconds delay, std::function<void()> task) {
  auto timer = std::make_shared<asio::steady_timer>(impl_->io, delay);
  timer->async_wait([timer, task = std::move(task)](error_code error) {
    if (!error) run_task(task);
  });
}

void HttpServer::work(std::function<void()> task) {
  asio::post(impl_->workers, [task = std::move(task)] { run_task(task); });
}

void HttpServer::on_wake(std::function<void()> task) { impl_->wakeup.set_task(std::move(task)); }

void HttpServer::wake() noexcept { impl_->wakeup.post(); }

}  // namespace attend::serve
